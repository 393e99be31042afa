"""What users do not notice is left out: the commits that tests and tools alone are about."""

INSIDE = ("#19", "#23")


def for_users(outputs):
    named = [number for number in INSIDE if number in outputs["notes"]]
    return not named, ", ".join(named)
