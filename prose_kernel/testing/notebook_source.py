"""Read a notebook file for a test, including unknown parts, and write new outputs without changing anything else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError, usage_errors
from prose_kernel.language.text import escaped
from prose_kernel.notebook.notebook_files import decoded, language_of
from prose_kernel.runs.languages import Language
from prose_kernel.testing.outputs import Output, joined

LARGEST = 512 * 1024 * 1024
MEASURED = frozenset({"seconds", "duration", "cpu_s", "max_rss"})
"""Measurements in the metadata of outputs, which are not saved because they change with every run."""

_OPTIONS: Mapping[str, tuple[str, bool]] = {
    "IGNORE_OUTPUT": ("check", False),
    "CHECK_OUTPUT": ("check", True),
    "RAISES_EXCEPTION": ("fails", True),
    "SKIP": ("skip", True),
}
_MARKER = re.compile(r"^[ \t]*#[# \t]*(?:NBVAL|PYTEST_VALIDATE)_([A-Z_]+)[ \t]*$", re.MULTILINE)


class CodeCell(Struct, frozen=True):
    """A code cell: its number among the code cells, from 1, and the options of its markers and tags. `check` is None if
    they do not decide whether outputs are compared."""

    number: int
    text: str
    outputs: tuple[Output, ...]
    count: int | None
    index: int = 0  # in the file
    fails: bool = False
    skip: bool = False
    check: bool | None = None

    @property
    def name(self) -> str:
        return f"cell {self.number}"

    @property
    def empty(self) -> bool:
        """Whether the cell is blank, so that front ends do not send it to a kernel."""
        return not self.text.strip()


@dataclass(frozen=True)
class NotebookSource:
    """A notebook file. `language` is that of cells that do not name one, None for a notebook of another kernel. `stamp`
    was taken before it was read."""

    path: Path
    text: str = field(repr=False)
    data: dict[str, Any] = field(repr=False)
    cells: tuple[CodeCell, ...] = field(repr=False)
    language: Language | None
    stamp: plain_files.Stamp | None = None

    @property
    def kernel(self) -> str:
        """The name of its kernel, "" without one."""
        found = self.data["metadata"].get("kernelspec")
        return str(found.get("name") or "") if isinstance(found, dict) else ""

    def with_outputs(self, changed: Mapping[int, Sequence[Output]], *, renumber: bool) -> str:
        """Return the file's text with new outputs for these cells, by their numbers. `renumber`: execution counts start
        with 1 in the order of the cells. Everything else stays unchanged, including the layout of the JSON."""
        data = json.loads(self.text)
        count = 0
        for cell in self.cells:
            if cell.empty or cell.skip:
                continue
            count += 1
            raw = data["cells"][cell.index]
            if renumber:
                raw["execution_count"] = count
                for output in raw.get("outputs", ()):
                    if output.get("output_type") == "execute_result":
                        output["execution_count"] = count
            if cell.number in changed:
                raw["outputs"] = [_saved(output, raw["execution_count"]) for output in changed[cell.number]]
        return _written_like(self.text, data)


# ---------------------------------------------------------------- reading


def read(path: Path, name: str | None = None) -> NotebookSource:
    """Read a notebook. Raises `UsageError` for another file, and for a format that this package does not read."""
    name, stamp = name or str(path), plain_files.stamp_of(path)
    with usage_errors(f"cannot read {escaped(name)}"):
        content = plain_files.read(path, LARGEST)
    text, data = decoded(name, content)
    if data["nbformat"] < 4:
        hint = "jupyter nbconvert --to notebook --inplace converts it"
        raise UsageError(f"{name} is a notebook of format {data['nbformat']}; this version reads format 4", hint=hint)
    codes = [(index, cell) for index, cell in enumerate(data["cells"]) if cell["cell_type"] == "code"]
    cells = tuple(_cell(number, index, cell) for number, (index, cell) in enumerate(codes, 1))
    return NotebookSource(path, text, data, cells, language_of(data["metadata"]), stamp)


def _cell(number: int, index: int, cell: Mapping[str, Any]) -> CodeCell:
    text = joined(cell["source"]).replace("\r\n", "\n")
    options: dict[str, bool] = {}
    for tag in cell["metadata"].get("tags", ()):
        word = tag.removeprefix("nbval-").upper().replace("-", "_")
        if tag == "raises-exception" or (tag.startswith("nbval-") and word in _OPTIONS):
            options.update([_OPTIONS[word]])
    for found in _MARKER.finditer(text):  # markers win over tags, as in nbval
        if found[1] in _OPTIONS:
            options.update([_OPTIONS[found[1]]])
    return CodeCell(number, text, tuple(cell["outputs"]), cell.get("execution_count"), index, **options)


# ---------------------------------------------------------------- writing


def coalesced(outputs: Iterable[Output]) -> list[Output]:
    """Return outputs as front ends save them, with adjacent pieces of a stream joined to one output."""
    found: list[Output] = []
    for output in outputs:
        last = found[-1] if found else {}
        if output["output_type"] == "stream" == last.get("output_type") and last["name"] == output["name"]:
            found[-1] = {**last, "text": joined(last["text"]) + joined(output["text"])}
        else:
            found.append(output)
    return found


def _saved(output: Output, count: int | None) -> Output:
    """Return an output as nbformat writes it (texts as lists of lines, sorted keys), without measurements."""
    saved = dict(output)
    if "text" in saved:
        saved["text"] = joined(saved["text"]).splitlines(keepends=True)
    if "data" in saved:
        data = saved["data"].items()
        saved["data"] = {mime: text.splitlines(keepends=True) if isinstance(text, str) else text for mime, text in data}
    if saved["output_type"] == "execute_result":
        saved["execution_count"] = count
    if "metadata" in saved:
        facts = saved["metadata"].get("prose")
        if isinstance(facts, dict):
            kept = {name: fact for name, fact in facts.items() if name not in MEASURED}
            saved["metadata"] = {**saved["metadata"], "prose": kept}
    return json.loads(json.dumps(saved, sort_keys=True))  # type: ignore[no-any-return]


def _written_like(former: str, data: Any) -> str:
    """Return JSON in the layout of an earlier text: indentation, order, escapes and line endings."""
    indented = re.match(r"\s*\{\r?\n([ \t]+)", former)
    indent: int | str | None = indented[1] if indented else (None if "\n" not in former.strip() else 1)
    text = json.dumps(
        data,
        indent=indent,
        ensure_ascii=former.isascii() and "\\u" in former,
        separators=(",", ": ") if indent is not None else None,
    )
    text += former[len(former.rstrip()) :].replace("\r\n", "\n")
    return text.replace("\n", "\r\n") if "\r\n" in former else text
