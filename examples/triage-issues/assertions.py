"""How many issues are sorted as a person sorts them: scores, from 0 to 1."""


def kinds(bindings, expected):
    found = {str(row["number"]): row["kind"] for row in bindings["rows"]}
    right = [number for number, kind in expected["kinds"].items() if found.get(number) == kind]
    return len(right) / len(expected["kinds"]), f"{len(right)} of {len(expected['kinds'])} are right"


def duplicates(bindings, expected):
    found = {str(row["number"]): row["duplicate_of"] for row in bindings["rows"] if row["duplicate_of"]}
    return found == expected["duplicates"], str(found)
