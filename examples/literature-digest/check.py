"""Does a digest rest on its papers? `python3 check.py PAPERS/ < DIGEST.md`: each [key] exists, each paper is cited, and
each number of a sentence stands in one of the papers that the sentence cites."""

import re
import sys
from pathlib import Path

papers = {path.stem: path.read_text(encoding="utf-8") for path in sorted(Path(sys.argv[1]).glob("*.txt"))}
digest = sys.stdin.read()
problems = [f"[{key}] is no paper" for key in sorted(set(re.findall(r"\[(\w+)\]", digest)) - papers.keys())]
problems += [f"[{key}] is not cited" for key in papers if f"[{key}]" not in digest]
for sentence in re.split(r"(?<=\.)\s+", digest):
    keys = re.findall(r"\[(\w+)\]", sentence)
    source = " ".join(papers.get(key, "") for key in keys)
    for number in re.findall(r"\d+", re.sub(r"\[\w+\]", "", sentence)):
        if not re.search(rf"\b{number}\b", source):
            problems.append(f"{number} does not stand in {', '.join(keys) or 'any paper: the sentence cites none'}")
print("; ".join(problems) or "sound")
