"""Breakpoints with their conditions, hit counts and log messages, and the texts in which they are set.

A text has a path, and the places where it can pause. The path of a cell is a hash of exactly its typed text; the text
that runs has no magic lines. Both have the same lines, so places are given as lines, and each running `Source` is
matched with its path once.
"""

from __future__ import annotations

import operator
import os
import re
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Final

from msgspec import Struct

from prose_kernel.errors import ProseError, UsageError
from prose_kernel.language.source import Source
from prose_kernel.runs import languages
from prose_kernel.runs.languages import Language
from prose_kernel.runtime.statement_hook import StackFrame
from prose_kernel.runtime.values import Value
from prose_kernel.views.escaping import clip

SEED: Final = 0xC70F6907
"""The seed of the hash of a cell in JupyterLab and `ipykernel`."""
PREFIX: Final = "ipykernel_cells/"
"""JupyterLab shows `Cell [3]` for a path with `ipykernel_` in it; for any other path, the path."""
CELL: Final = "cell"
"""The name of a cell's `Source`."""

ReadCell = Callable[[str], "tuple[Language, Sequence[str]]"]
"""Returns the language of a cell, and the program texts in it, each with the line numbers of the cell. Never raises."""


def murmur2(data: bytes) -> int:
    """Return the 32-bit MurmurHash2 of `data` (the variant for x86)."""
    factor, mask = 0x5BD1E995, 0xFFFFFFFF
    end = len(data) & ~3
    found = SEED ^ len(data)
    for at in range(0, end, 4):
        word = int.from_bytes(data[at : at + 4], "little") * factor & mask
        found = (found * factor & mask) ^ ((word ^ word >> 24) * factor & mask)
    if len(data) > end:
        found = (found ^ int.from_bytes(data[end:], "little")) * factor & mask
    found = (found ^ found >> 13) * factor & mask
    return found ^ found >> 15


class StatementLines(Struct, frozen=True):
    """A statement: its first and last line, its offset, and the line of the first statement inside it, if any."""

    line: int
    end: int
    start: int
    inner: int | None = None


def stops_in(source: Source, language: Language) -> list[StatementLines]:
    """Return the statements at which a text can pause, in order, outer ones first."""
    try:
        spans = language.stops(language.compile(source, cell=True).program)
    except RecursionError:  # the text is nested too deeply to be analysed; it can still run
        return []
    spans.sort(key=lambda span: (span.start, -span.end))
    lines = [source.line_column(span.start)[0] for span in spans]
    found = []
    for at, span in enumerate(spans):
        following = at + 1 if at + 1 < len(spans) and spans[at + 1].start < span.end else None
        inner = lines[following] if following is not None else None
        end = source.line_column(span.start + len(source.slice(span).rstrip()))[0]
        found.append(StatementLines(lines[at], end, span.start, inner))
    return found


@dataclass(slots=True)
class DebuggedText:
    """A text in the form that clients know: a cell as typed, or a program file."""

    path: str
    name: str
    content: str
    stops: list[StatementLines]
    is_cell: bool = True
    _lines: list[int] = field(init=False, repr=False)
    _ends: list[int] = field(init=False, repr=False)  # the greatest end among the statements so far
    _blank: list[bool] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._lines = [stop.line for stop in self.stops]
        self._ends = list(accumulate((stop.end for stop in self.stops), max))
        written = (line.strip() for line in self.content.replace("\r\n", "\n").split("\n"))
        self._blank = [not line or line.startswith("#") for line in written]

    def line_for(self, wanted: int) -> int | None:
        """Return the line on which a breakpoint set on line `wanted` pauses the program; None if there is none.

        A line inside a statement belongs to this statement; a line without code, or with only a divider such as
        `else:`, to the next statement.
        """
        following = bisect_left(self._lines, wanted)
        after = self._lines[following] if following < len(self._lines) else None
        if after == wanted:
            return wanted
        inside = self._enclosing(wanted, following)
        if inside is None:
            return after
        # a blank line in a multi-line statement without inner statements belongs to that statement
        if self._is_blank(wanted) and (inside.inner is not None or inside.end == inside.line):
            return after
        if inside.inner is not None and wanted > inside.inner:
            return after if after is not None and after <= inside.end else inside.line
        return inside.line

    def _enclosing(self, wanted: int, following: int) -> StatementLines | None:
        """Return the innermost statement that begins above a line and ends on or below it. It does not search for lines
        that no statement reaches, because thousands of breakpoints are placed together."""
        at = following - 1
        while at >= 0 and self._ends[at] >= wanted:
            if self.stops[at].end >= wanted:
                return self.stops[at]
            at -= 1
        return None

    def _is_blank(self, line: int) -> bool:
        return not 0 < line <= len(self._blank) or self._blank[line - 1]


class Texts:
    """All texts that a client has named or a program has run since the debugger was started."""

    def __init__(self, suffix: str, read_cell: ReadCell, directory: Path) -> None:
        self.suffix = suffix
        self._directory = directory
        self._read_cell = read_cell
        self._by_key: dict[str, DebuggedText] = {}
        self._cells: dict[str, str] = {}  # path of the cell that contains a program text

    def path_of(self, code: str) -> str:
        """Return the path of a cell, which depends on its exact text."""
        return f"{PREFIX}{murmur2(code.encode('utf-8', 'replace'))}{self.suffix}"

    def cell(self, code: str) -> DebuggedText:
        """Return the text of a cell as typed."""
        path = self.path_of(code)
        known = self.find(path)
        if known is None:
            language, pieces = self._read_cell(code)
            sources = [Source.of(piece, CELL) for piece in pieces]
            stops = [stop for source in sources for stop in stops_in(source, language)]
            known = self._by_key[self.key(path)] = DebuggedText(
                path, CELL, code, sorted(stops, key=lambda stop: stop.line)
            )
            for source in sources:
                self._cells.setdefault(source.text, path)
        return known

    def cell_runs(self, code: str) -> None:
        """Note that a cell runs: its program texts now belong to it, even if another cell has the same ones."""
        path = self.cell(code).path
        for piece in self._read_cell(code)[1]:
            self._cells[Source.of(piece, CELL).text] = path

    def of_source(self, source: Source, language: str) -> DebuggedText:
        path = self.known_path(source)
        known = self.find(path)
        if known is None or (source.name != CELL and known.content != source.text):
            stops = stops_in(source, languages.LANGUAGES[language])
            known = DebuggedText(path, source.name, source.text, stops, source.name == CELL)
            self._by_key[self.key(path)] = known
        return known

    def known_path(self, source: Source) -> str:
        if source.name != CELL:
            return source.name
        return self._cells.get(source.text) or self.path_of(source.text)

    def find(self, path: str) -> DebuggedText | None:
        return self._by_key.get(self.key(path))

    def key(self, path: str) -> str:
        """Return the same key for all paths of a file: an import may use a relative path, an editor an absolute one."""
        try:
            return os.path.realpath(self._directory / os.path.expanduser(path))
        except ValueError:  # characters that no path can have
            return path

    def files(self) -> list[DebuggedText]:
        return [text for text in self._by_key.values() if not text.is_cell]


# ---------------------------------------------------------------- breakpoints

_HITS: Final = re.compile(r"\s*(==|>=|<=|>|<|=|%)?\s*([0-9]{1,9})\s*")
_COMPARED: Final[dict[str, Callable[[int, int], bool]]] = {
    "==": operator.eq,
    "=": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "%": lambda hits, number: number > 0 and hits % number == 0,
}
_PIECE: Final = re.compile(r"\{([^{}]*)\}")

NOWHERE: Final = "there is no statement here or below"

Evaluate = Callable[[str], Awaitable[Value]]


@dataclass(slots=True)
class Breakpoint:
    """A breakpoint that a client has set on the line `wanted`; `line` is the line on which it pauses, or None."""

    id: int
    path: str
    wanted: int
    line: int | None
    condition: str = ""
    hit_condition: str = ""
    log: str = ""
    problem: str = ""
    hits: int = field(default=0, compare=False)

    def place(self, line: int | None) -> None:
        """Set the line of the breakpoint's statement, None if there is none. An invalid breakpoint keeps no line."""
        if self.problem in ("", NOWHERE):
            self.line = line
            self.problem = NOWHERE if line is None else ""

    @property
    def is_plain(self) -> bool:
        return not (self.condition or self.hit_condition or self.log)

    async def is_met(self, evaluate: Evaluate) -> tuple[bool, str]:
        """Return whether to pause the program here, and a message for the person. A condition that cannot be computed
        pauses the program, so that the error is noticed."""
        if self.condition:
            try:
                value = await evaluate(self.condition)
            except (ProseError, RecursionError) as error:
                return True, f"the condition `{clip(self.condition)}` cannot be computed: {reason(error)}"
            if value is not True and value is not False:
                return True, f"the condition `{clip(self.condition)}` is neither true nor false"
            if not value:
                return False, ""
        self.hits += 1
        return not self.hit_condition or _is_hit(self.hit_condition, self.hits), ""

    async def logged(self, evaluate: Evaluate, text_of: Callable[[Value], str]) -> str:
        """Return the log message with the values of the expressions in its braces."""
        found, end = "", 0
        for match in _PIECE.finditer(self.log):
            try:
                value = text_of(await evaluate(match[1]))
            except (ProseError, RecursionError) as error:
                value = f"{{{clip(match[1])}: {reason(error)}}}"
            found += self.log[end : match.start()] + value
            end = match.end()
        return found + self.log[end:]


def check_hits(text: str) -> str:
    """Return the problem of a hit condition, "" if it is valid."""
    return "" if not text or _HITS.fullmatch(text) else f"`{text}` is not a count of hits: write 3, >= 3 or % 3"


def _is_hit(text: str, hits: int) -> bool:
    found = _HITS.fullmatch(text)
    return found is None or _COMPARED[found[1] or "=="](hits, int(found[2]))


def reason(error: Exception) -> str:
    """Return an error as one line, with its hint."""
    hint = getattr(error, "hint", None)
    return f"{error} ({hint})" if hint else str(error)


def evaluated_in(frame: StackFrame) -> Evaluate:
    """Return a function that evaluates expressions with the names of a frame."""

    async def evaluate(text: str) -> Value:
        check_expression(text)
        return await frame.context.evaluate(frame, text)

    return evaluate


_BINDS: Final = re.compile(r"\s*(?:(?:let|const|output|input)\s|[A-Za-z_][\w.\[\]\"']*\s*=(?!=))")


def check_expression(text: str) -> None:
    """Raise `UsageError` for a text that would bind a name."""
    if not text.strip():
        raise UsageError("there is nothing to evaluate")
    if _BINDS.match(text):
        hint = "a run is repeated from its texts and their answers; change the cell and run it again"
        raise UsageError("the debugger reads names and does not change them", hint=hint)
