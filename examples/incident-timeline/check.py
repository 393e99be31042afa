"""Does every line of a timeline cite a moment of the logs, in order? `python3 check.py MERGED.log < TIMELINE.md`."""

import re
import sys

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
with open(sys.argv[1], encoding="utf-8") as file:
    known = set(STAMP.findall(file.read()))
cited = []
for line in sys.stdin.read().splitlines():
    if not line.startswith("- "):
        continue
    stamps = STAMP.findall(line)
    if not stamps:
        sys.exit(f"no moment is cited: {line}")
    cited += stamps[:1]
    if unknown := sorted(set(stamps) - known):
        sys.exit("not in the logs: " + ", ".join(unknown))
if not cited:
    sys.exit("there is no line that begins with '- '")
if cited != sorted(cited):
    sys.exit("the lines are not in the order of time")
print(f"{len(cited)} entries from {cited[0]} to {cited[-1]}, all in the logs")
