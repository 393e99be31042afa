"""Is the triage whole? `python3 check.py ISSUES.json < ROWS.json` writes CSV; status 1 and the reasons if it is not."""

import csv
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    numbers = [issue["number"] for issue in json.load(file)]
rows = json.load(sys.stdin)
problems = []
if [row["number"] for row in rows] != numbers:
    problems.append("the issues are not those that came in")
problems += [
    f"{row['number']} is called a duplicate of {row['duplicate_of']}, which is no earlier issue"
    for row in rows
    if row["duplicate_of"] and not (row["duplicate_of"] in numbers and row["duplicate_of"] < row["number"])
]
if problems:
    sys.exit("\n".join(problems))
writer = csv.DictWriter(
    sys.stdout, ["number", "kind", "priority", "duplicate_of"], extrasaction="ignore", lineterminator="\n"
)
writer.writeheader()
writer.writerows(sorted(rows, key=lambda row: (row["priority"], row["number"])))
