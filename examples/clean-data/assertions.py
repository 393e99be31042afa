"""What holds of every cleaned file."""

import csv


def addresses(outputs):
    rows = list(csv.DictReader(outputs["rows"].splitlines()))
    bad = [row["id"] for row in rows if "@" not in row["email"]]
    return not bad, ", ".join(bad) or f"{len(rows)} rows"
