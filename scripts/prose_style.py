"""Count long sentences and hard-to-read patterns in the documentation, and in the docstrings, comments and texts of the
package.

    python scripts/prose_style.py            # a table of the patterns, and the longest sentences
    python scripts/prose_style.py stands     # the places of one pattern
    python scripts/prose_style.py long docs/how-to/people.md
    python scripts/prose_style.py prose_kernel/cli/run.py

The code in pages and their generated parts are not searched. `tests/cli/test_prose_style.py` limits the counts.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
GENERATED = {"docs/reference/cli.md", "docs/reference/settings.md"}
LONGEST = 35
"""The largest number of words of a sentence."""

_DOES = (
    r"(?:is|are|was|were|has|have|had|does|do|did|can|cannot|may|must|will|would|should|comes?|goes|gets?|makes?|runs?)"
)
_TITLES = r"leaves your|to go"  # `What leaves your machine`, `Where to go next`
_START = r"(?:^|[.;:] |\| |\*\*)"
PATTERNS = {
    "what-clause": rf"{_START}(?:What|Who|Where|Whoever|Whatever) (?!{_TITLES}|{_DOES}\b(?! \w+ed\b))[^?]*?[.|;]",
    "stands": r"\b(?:stands|stand in the|stood)\b",
    "nobody": r"\b(?:nobody|somebody|anybody|everybody|no one|whoever)\b",
    "of one's own": r"\bof (?:its|their|your|our|his|one's) own\b(?! [a-z])|\bof (?:yours|ours)\b",
    "at once": r"\bat once\b",
    "alone": r"\balone\b",
    "goes on": r"\b(?:goes|go|going|went) on\b",
    "told": r"\b(?:told|tells|tell)\b",
    "beside": r"\bbeside\b",
    "behind": r"(?<!left )\bbehind\b",
    "is no": r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer|more|less|such)\w+",
    "anew": r"\b(?:anew|mended|mend|mends|under way|is away|are away)\b",
}  # fmt: skip

_TEXT = re.compile(r"""\"{3}(.*?)\"{3}|"((?:\\.|[^"\\\n])*)"|'((?:\\.|[^'\\\n])*)'|#+ ?([^\n]*)""", re.DOTALL)
"""A string or a comment of formatted Python code; the last group that matches has its text."""


@dataclass(frozen=True, slots=True)
class Found:
    """A sentence of a page, and the pattern that it matches."""

    page: str
    line: int
    pattern: str
    sentence: str


def pages() -> list[Path]:
    """Return the pages and notebooks that people read, without generated ones."""
    tops = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
    found = [*tops, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "notebooks").rglob("*.ipynb"))]
    return [path for path in found if str(path.relative_to(ROOT)) not in GENERATED and ".prose" not in path.parts]


def markdown(path: Path) -> str:
    """Return the Markdown of a page or notebook, with blank lines in place of code and generated parts."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join(cell if isinstance(cell, str) else "".join(cell) for cell in cells)
    for code in (r"^ *(`{3,})[^\n]*\n.*?^ *\1 *$", r"<!-- generated: .*?<!-- end -->"):
        text = re.sub(code, lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    return text


def modules() -> list[Path]:
    """Return the modules of the package."""
    return sorted((ROOT / "prose_kernel").rglob("*.py"))


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a page or module with their first lines: of a module its docstrings, its comments and its
    strings of several words."""
    if path.suffix != ".py":
        yield 1, markdown(path)
        return
    source = path.read_text(encoding="utf-8")
    for found in _TEXT.finditer(source):
        text = re.sub(r"\{[^{}]*\}", "CODE", found[found.lastindex or 0])  # what an f-string inserts
        if " " in text:
            yield source.count("\n", 0, found.start()) + 1, text


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences with their first lines. A cell of a table and an item of a list is at least one sentence."""
    line, block, start = 0, "", 0
    for line, row in enumerate([*text.split("\n"), ""], 1):
        fresh = re.match(r" *(?:[-*] |\d+\. |\||#|!\[)", row)
        if block and (fresh or not row.strip()):
            yield from ((start, one) for one in _sentences(block))
            block = ""
        if row.strip():
            start, block = (start, f"{block} {row.strip()}") if block else (line, row.strip())
            if row.lstrip().startswith(("|", "#")):
                for cell in re.split(r"(?<!\\)\|", re.sub(r"`[^`]*`", "CODE", block)):
                    yield from ((line, one) for one in _sentences(cell))
                block = ""


def _sentences(block: str) -> list[str]:
    plain = re.sub(r"`+[^`]*`+", "CODE", block)
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    plain = re.sub(r"^(?:[-*]|\d+\.|#+) ", "", plain.strip())
    return [one.strip() for one in re.split(r"(?<=[.!?])[\"”)*]* +(?=[\"“(*]*[A-Z0-9])", plain) if one.strip()]


def findings(path: Path) -> Iterator[Found]:
    """Return the patterns that a page or module contains, and its sentences that are too long."""
    page = str(path.relative_to(ROOT))
    for first, text in texts(path):
        for line, sentence in sentences(text):
            if len(sentence.split()) > LONGEST:
                yield Found(page, first + line - 1, "long", sentence)
            for name, pattern in PATTERNS.items():
                for _ in re.findall(pattern, sentence):
                    yield Found(page, first + line - 1, name, sentence)


def main(words: list[str]) -> int:
    """Print the counts, or the places of a pattern."""
    files = (".md", ".ipynb", ".py")
    only = [ROOT / word for word in words if word.endswith(files)]
    found = [one for path in only or [*pages(), *modules()] for one in findings(path)]
    wanted = [word for word in words if not word.endswith(files)]
    for one in found:
        if one.pattern in wanted or (only and not wanted):
            print(f"{one.page}:{one.line}: {one.pattern}: {one.sentence}")
    if not words:
        counts = Counter((one.pattern, one.page.endswith(".py")) for one in found)
        print("pages package")
        for name in ("long", *PATTERNS):
            print(f"{counts[name, False]:5} {counts[name, True]:7} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
