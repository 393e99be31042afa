"""What holds of translations that nobody has read yet."""

import re


def settled(outputs, expected):
    found = {row["key"]: row["status"] for row in outputs["translations"]}
    return sum(found.get(key) == status for key, status in expected.items()) / len(expected), str(found)


def kept(outputs, bindings):
    """Placeholders stay as they are, and so do the words of the glossary."""
    german = {row["key"]: row["german"] for row in outputs["translations"]}
    for entry in bindings["strings"]:
        wanted = re.findall(r"\{\{\w+\}\}", entry["text"])
        wanted += [word for name, word in bindings["glossary"].items() if re.search(rf"\b{name}\b", entry["text"])]
        if missing := [word for word in wanted if word not in german[entry["key"]]]:
            return False, f"{entry['key']}: {', '.join(missing)}"
    return True
