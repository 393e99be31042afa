"""Is the cleaned file right? `python3 check.py IN.csv OUT.csv REJECTED.csv` names each row that is not; status 1.

It knows nothing of how the file was made: it would find the mistakes of a person, too.
"""

import csv
import datetime
import sys

ISO = set("AT BE CH CZ DE DK ES FI FR GB GR HU IE IS IT JP LU NL NO PL PT SE SI SK US".split())


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


given, kept, refused = map(rows, sys.argv[1:])
problems = []
if len(given) != len(kept) + len(refused):
    problems.append(f"{len(given)} rows came in, {len(kept)} + {len(refused)} came out")
if len({row["id"] for row in kept}) != len(kept):
    problems.append("an id occurs twice")
for row in kept:
    if row["country"] not in ISO:
        problems.append(f"{row['id']}: {row['country']} is no code of ISO 3166")
    try:
        datetime.date.fromisoformat(row["joined"])
    except ValueError:
        problems.append(f"{row['id']}: {row['joined']} is no date")
print("\n".join(problems) or f"{len(kept)} rows are clean, {len(refused)} are set aside")
sys.exit(bool(problems))
