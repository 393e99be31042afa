"""What holds of every cleaned file."""


def addresses(outputs):
    rows = outputs["rows"]
    bad = [row["id"] for row in rows if "@" not in row["email"]]
    return not bad, ", ".join(bad) or f"{len(rows)} rows"
