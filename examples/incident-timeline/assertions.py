"""The moments that no timeline of this incident may leave out: a score, their share."""


def moments(outputs, expected):
    missing = [moment for moment in expected if moment not in outputs["timeline"]]
    return 1 - len(missing) / len(expected), ", ".join(missing)
