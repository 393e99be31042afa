"""Count the conditions of real programs that rules can decide: `python scripts/conditions.py [FILE|DIRECTORY ...]`.

Reads programs, notebooks and the fenced programs of Markdown pages, in all languages; without arguments those of this
repository. Each text of a condition counts once. Exit status 0.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from prose_kernel.judging.judge_chain import Condition, decidable_conditions
from prose_kernel.language.source import Source
from prose_kernel.runs import languages
from prose_kernel.runs.languages import Language

ROOT = Path(__file__).parents[1]
OWN = ("examples", "notebooks", "prose_kernel/examples", "docs", "tests/corpus")
_FENCE = re.compile(r"^```(prose|vvm)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def texts(path: Path) -> Iterator[tuple[str, Language]]:
    """Return the programs in a file."""
    if path.suffix == ".md":
        for language, text in _FENCE.findall(path.read_text(encoding="utf-8", errors="replace")):
            yield text, languages.of_magic(language) or languages.default()
    elif path.suffix == ".ipynb":
        cells = json.loads(path.read_bytes()).get("cells", [])
        metadata = str(json.loads(path.read_bytes()).get("metadata", {}).get("kernelspec", {}).get("name", ""))
        for cell in cells if "prose" in metadata or "vvm" in metadata else []:
            if cell.get("cell_type") == "code":
                yield "".join(cell["source"]), languages.LANGUAGES.get(metadata, languages.default())
    elif path.name.endswith(languages.suffixes()):
        yield path.read_bytes().decode("utf-8", "replace"), languages.of_file(path.name)


def conditions(paths: list[Path]) -> Iterator[Condition]:
    """Yield every condition of every text that can be parsed as a program."""
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if not file.is_file() or {".venv", ".git", "node_modules"} & set(file.parts):
                continue
            for text, language in texts(file):
                source = Source.of(text, file.name)
                program = language.compile(source, cell=True).program
                if program is not None:
                    yield from decidable_conditions(language.judged_texts(program), source, criteria=True)


def main(arguments: list[str]) -> int:
    found: dict[tuple[str, bool], Condition] = {}
    for condition in conditions([Path(name) for name in arguments] or [ROOT / name for name in OWN]):
        found[condition.text, condition.choice] = condition
    kinds: Counter[str] = Counter()
    forms: Counter[str] = Counter()
    for condition in found.values():
        if condition.choice:
            kinds["choices"] += 1
        elif condition.decidable:
            kinds["rules decide both ways"] += 1
        else:
            kinds[
                "a rule decides if its subject is a name with a fitting value"
                if condition.forms
                else "no rule reads it"
            ] += 1
        forms.update(condition.forms)
    asked = len(found) - kinds["choices"]
    print(f"{asked} distinct conditions and criteria, {kinds.pop('choices', 0)} choices")
    for kind, count in kinds.most_common():
        print(f"{count:6}  {100 * count / max(asked, 1):5.1f} %  {kind}")
    print("forms: " + ", ".join(f"{form} {count}" for form, count in forms.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
