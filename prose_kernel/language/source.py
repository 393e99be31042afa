"""Source text, spans, lines and columns (openprose.md 1.1).

Offsets count code points of the decoded text, in which a leading BOM is dropped and CRLF is LF; lines and
columns are 1-based and hold for the original file too, because neither change moves a character within its line.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple


class Span(NamedTuple):
    """Half-open range of offsets in a `Source`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a source as people are shown it: the name of the source, 1-based line and column, the line's text."""

    source: str
    line: int
    column: int
    text: str


@dataclass(frozen=True)
class Source:
    """A program or a cell: its name for messages (a file name as the user gave it, or `cell`) and its text.

    `prompt` is the number in brackets next to the cell of a notebook (`In [7]`), None for other texts.
    """

    text: str
    name: str = "cell"
    prompt: int | None = field(default=None, compare=False)

    @classmethod
    def of(cls, text: str, name: str = "cell", prompt: int | None = None) -> Source:
        """A text as it was typed or read: a leading BOM is dropped, CRLF becomes LF (1.1)."""
        return cls(text.removeprefix("\ufeff").replace("\r\n", "\n"), name, prompt)

    def number(self, place: int) -> int:
        """The number by which messages name a cell (A29): its prompt's; that of its name (`cell 4`, in a notebook that
        a command runs); else its place among the texts of the run."""
        named, _, own = self.name.rpartition(" ")
        return self.prompt or (int(own) if named == "cell" and own.isdecimal() else place)

    @cached_property
    def line_starts(self) -> list[int]:
        starts = [0]
        find = self.text.find
        at = find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = find("\n", at + 1)
        return starts

    def line_column(self, offset: int) -> tuple[int, int]:
        """1-based line and column of an offset; an offset past the end gives the end."""
        offset = min(max(offset, 0), len(self.text))
        index = bisect_right(self.line_starts, offset) - 1
        return index + 1, offset - self.line_starts[index] + 1

    def line_text(self, line: int) -> str:
        """The text of a 1-based line, without its line end; empty past the end."""
        index = line - 1
        if not 0 <= index < len(self.line_starts):
            return ""
        start = self.line_starts[index]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)]

    def location(self, offset: int) -> Location:
        line, column = self.line_column(offset)
        return Location(self.name, line, column, self.line_text(line))

    def slice(self, span: Span) -> str:
        return self.text[span.start : span.end]
