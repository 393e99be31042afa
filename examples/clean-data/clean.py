"""Clean customers: `python3 clean.py IN.csv OUT.csv REJECTED.csv < codes.json`.

Everything that has a rule is done here. What the spellings of countries mean is no rule; it comes on standard input, as
JSON: spellings with their ISO 3166 codes.
"""

import csv
import json
import re
import sys

source, target, refused = sys.argv[1:]
codes = {found["spelling"]: found["code"] for found in json.load(sys.stdin)["codes"]}
seen, good, bad = set(), [], []

with open(source, newline="", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
for row in rows:
    row = {name: " ".join(value.split()) for name, value in row.items()}
    row["email"] = row["email"].lower()
    if european := re.fullmatch(r"(\d{1,2})\.(\d{1,2})\.(\d{4})", row["joined"]):
        day, month, year = european.groups()
        row["joined"] = f"{year}-{month:0>2}-{day:0>2}"
    row["country"] = codes.get(row["country"], row["country"])
    if row["id"] in seen:
        bad.append({**row, "reason": "the id occurs twice"})
    elif not re.fullmatch(r"[^@\s]+@[^@\s]+\.\w+", row["email"]):
        bad.append({**row, "reason": "no address"})
    else:
        good.append(row)
    seen.add(row["id"])

for path, found, columns in ((target, good, [*rows[0]]), (refused, bad, [*rows[0], "reason"])):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
