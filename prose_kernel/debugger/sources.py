"""The texts of a debug session: the path by which a client knows each of them, and where each can be held.

A client knows a cell by a hash of exactly what was typed; a program runs what is left of it without magic lines. Both
have the same lines, so places are given in lines, and each `Source` that runs is matched with its path once.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prose_kernel.language.source import Source, Span
from prose_kernel.runs import languages
from prose_kernel.runtime.home import expanded

if TYPE_CHECKING:
    from pathlib import Path

    from prose_kernel.runs.languages import Language

SEED: Final = 0xC70F6907
"""The seed of the hash of a cell in JupyterLab and `ipykernel`."""
PREFIX: Final = "ipykernel_cells/"
"""JupyterLab shows `Cell [3]` for a path with `ipykernel_` in it; for any other path, the path."""
CELL: Final = "cell"
"""The name of a cell's `Source`."""

ReadCell = Callable[[str], "tuple[Language, Sequence[str]]"]
"""The language of a cell, and the program texts in it as they run; each keeps the lines of the cell. Never raises."""


def murmur2(data: bytes, seed: int = SEED) -> int:
    """MurmurHash2 of 32 bits for x86."""
    factor, mask = 0x5BD1E995, 0xFFFFFFFF
    end = len(data) & ~3
    found = (seed & mask) ^ len(data)
    for at in range(0, end, 4):
        word = int.from_bytes(data[at : at + 4], "little") * factor & mask
        found = (found * factor & mask) ^ ((word ^ word >> 24) * factor & mask)
    if len(data) > end:
        found = (found ^ int.from_bytes(data[end:], "little")) * factor & mask
    found = (found ^ found >> 13) * factor & mask
    return found ^ found >> 15


@dataclass(frozen=True, slots=True)
class Stop:
    """A statement: its lines, its column on the first one, and the line of the first statement inside it, if any."""

    line: int
    end: int
    start: int
    inner: int | None = None


def stops_in(source: Source, language: Language) -> list[Stop]:
    """The statements of a text where it can be held, in order, outer ones first."""
    try:
        spans = language.stops(language.compile(source, cell=True).program)
    except RecursionError:  # a text that is nested too deeply to be looked at is still run
        return []
    spans.sort(key=lambda span: (span.start, -span.end))
    lines = [source.line_column(span.start)[0] for span in spans]
    found = []
    for at, span in enumerate(spans):
        following = at + 1 if at + 1 < len(spans) and spans[at + 1].start < span.end else None
        inner = lines[following] if following is not None else None
        found.append(Stop(lines[at], _last_line(source, span), span.start, inner))
    return found


def _last_line(source: Source, span: Span) -> int:
    text = source.slice(span).rstrip()
    return source.line_column(span.start + len(text))[0]


@dataclass(slots=True)
class Text:
    """One text as a client knows it: a cell as it was typed, or a program file."""

    path: str
    name: str
    content: str
    stops: list[Stop]
    is_cell: bool = True
    _lines: list[int] = field(init=False, repr=False)
    _ends: list[int] = field(init=False, repr=False)  # where the longest of the statements so far ends
    _idle: list[bool] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._lines = [stop.line for stop in self.stops]
        self._ends = list(accumulate((stop.end for stop in self.stops), max))
        written = (line.strip() for line in self.content.replace("\r\n", "\n").split("\n"))
        self._idle = [not line or line.startswith("#") for line in written]

    def line_for(self, wanted: int) -> int | None:
        """The line on which a breakpoint that was set on `wanted` holds the program; None when there is none.

        A line inside of a statement belongs to it; a line with no code, and one that only divides the parts of a
        statement (`else:`), to the next statement.
        """
        following = bisect_left(self._lines, wanted)
        after = self._lines[following] if following < len(self._lines) else None
        if after == wanted:
            return wanted
        inside = self._around(wanted, following)
        if inside is None:
            return after
        # a blank line in a statement of several lines, without statements inside, is the statement's own
        if self._is_idle(wanted) and (inside.inner is not None or inside.end == inside.line):
            return after
        if inside.inner is not None and wanted > inside.inner:
            return after if after is not None and after <= inside.end else inside.line
        return inside.line

    def _around(self, wanted: int, following: int) -> Stop | None:
        """The innermost statement that has begun above a line and ends on it or below. Thousands of breakpoints are
        placed together, so lines that no statement reaches are not searched."""
        at = following - 1
        while at >= 0 and self._ends[at] >= wanted:
            if self.stops[at].end >= wanted:
                return self.stops[at]
            at -= 1
        return None

    def _is_idle(self, line: int) -> bool:
        return not 0 < line <= len(self._idle) or self._idle[line - 1]


class Texts:
    """All texts that a client has named or a program has run since the debugger was started."""

    def __init__(self, suffix: str, read_cell: ReadCell, directory: Path) -> None:
        self.suffix = suffix
        self._directory = directory
        self._read_cell = read_cell
        self._by_key: dict[str, Text] = {}
        self._cells: dict[str, str] = {}  # path of the cell that contains a program text

    def path_of(self, code: str) -> str:
        """The path of a cell, by its exact text."""
        return f"{PREFIX}{murmur2(code.encode('utf-8', 'replace'))}{self.suffix}"

    def cell(self, code: str) -> Text:
        """A cell as it was typed."""
        path = self.path_of(code)
        known = self.at(path)
        if known is None:
            language, pieces = self._read_cell(code)
            sources = [Source.of(piece, CELL) for piece in pieces]
            stops = [stop for source in sources for stop in stops_in(source, language)]
            known = self._by_key[self.key(path)] = Text(path, CELL, code, sorted(stops, key=lambda stop: stop.line))
            for source in sources:
                self._cells.setdefault(source.text, path)
        return known

    def runs(self, code: str) -> None:
        """A cell runs: what it runs is its own, even where another cell has the same program text."""
        path = self.cell(code).path
        for piece in self._read_cell(code)[1]:
            self._cells[Source.of(piece, CELL).text] = path

    def of_source(self, source: Source, language: str) -> Text:
        """The text that a source, which runs, belongs to."""
        path = self.known_path(source)
        known = self.at(path)
        if known is None or (source.name != CELL and known.content != source.text):
            stops = stops_in(source, languages.LANGUAGES[language])
            known = Text(path, source.name, source.text, stops, source.name == CELL)
            self._by_key[self.key(path)] = known
        return known

    def known_path(self, source: Source) -> str:
        """The path of a source that runs."""
        if source.name != CELL:
            return source.name
        return self._cells.get(source.text) or self.path_of(source.text)

    def at(self, path: str) -> Text | None:
        """The text of that path, when one is known."""
        return self._by_key.get(self.key(path))

    def key(self, path: str) -> str:
        """The same word for all paths of one file: a program names it as it imports it, an editor from the root."""
        try:
            return os.path.realpath(self._directory / expanded(path))
        except ValueError:  # characters that no path has
            return path

    def files(self) -> list[Text]:
        """The program files among them."""
        return [text for text in self._by_key.values() if not text.is_cell]
