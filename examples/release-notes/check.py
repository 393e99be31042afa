"""Do the notes hold what they must, and nothing else? `python3 check.py COMMITS.txt < NOTES.md`.

Every number in the notes is that of a commit, none occurs twice, and no breaking change is missing.
"""

import re
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    commits = file.read().split("\0")
notes = sys.stdin.read()
known = {found[1]: commit for commit in commits if (found := re.search(r"\(#(\d+)\)", commit))}
cited = re.findall(r"#(\d+)", notes)
problems = [f"#{n} is no commit of this release" for n in cited if n not in known]
problems += [f"#{n} is named twice" for n in sorted(set(cited)) if cited.count(n) > 1]
problems += [
    f"#{n} is a breaking change and missing" for n, text in known.items() if "BREAKING" in text and n not in cited
]
print(
    "\n".join(problems) or f"{len(cited)} of {len(known)} commits are in the notes",
    file=sys.stderr if problems else sys.stdout,
)
sys.exit(bool(problems))
