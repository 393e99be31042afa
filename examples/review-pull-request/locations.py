"""The new lines of a diff, as `file:line: text`; or, with findings on standard input, those whose place the diff lacks.

python3 locations.py change.diff
python3 locations.py change.diff --check < findings.md
"""

import re
import sys


def added(diff):
    """`{"file:line": text}` of all lines that the change adds."""
    found, name, number = {}, "", 0
    for line in diff.splitlines():
        if line.startswith("+++ b/"):
            name = line[6:]
        elif header := re.match(r"@@ -\S+ \+(\d+)", line):
            number = int(header[1])
        elif line.startswith("+") and not line.startswith("+++"):
            found[f"{name}:{number}"] = line[1:]
            number += 1
        elif line.startswith(" "):
            number += 1
    return found


with open(sys.argv[1], encoding="utf-8") as file:
    places = added(file.read())
if "--check" not in sys.argv:
    for place, text in places.items():
        print(f"{place}: {text}")
    sys.exit()
cited = re.findall(r"[\w./-]+\.\w+:\d+", sys.stdin.read())
wrong = sorted(set(cited) - places.keys())
if not cited:
    sys.exit("no finding names a place (file:line)")
if wrong:
    sys.exit("not a line of this change: " + ", ".join(wrong))
print(f"{len(set(cited))} places, all of them in the change")
