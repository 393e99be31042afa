"""Source text, spans, lines and columns (openprose.md 1.1).

Offsets count code points of the decoded text, without a leading BOM and with LF for CRLF. Lines and columns are
1-based and also correct for the original file, because neither change moves a character within its line.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct


class Span(NamedTuple):
    """A half-open range of offsets in a `Source`."""

    start: int
    end: int


class Location(Struct, frozen=True):
    """A place in a source for users: the name of the source, the 1-based line and column, the text of the line."""

    source: str
    line: int
    column: int
    text: str


@dataclass(frozen=True)
class Source:
    """A program or a cell: its text, and its name in messages (a file name as the user gave it, or `cell`).

    `prompt` is the number next to a notebook cell (`In [7]`); None for other texts.
    """

    text: str
    name: str = "cell"
    prompt: int | None = field(default=None, compare=False)

    @classmethod
    def of(cls, text: str, name: str = "cell", prompt: int | None = None) -> Source:
        """Return the source of a text as typed or read: a leading BOM is dropped, CRLF becomes LF (1.1)."""
        return cls(text.removeprefix("\ufeff").replace("\r\n", "\n"), name, prompt)

    def number(self, place: int) -> int:
        """Return the number of a cell in messages (A29): its prompt; else the number in its name (`cell 4`, in a
        notebook that a command runs); else `place`, its position among the texts of the run."""
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
        """Return the 1-based line and column of an offset; for one past the end, those of the end."""
        offset = min(max(offset, 0), len(self.text))
        index = bisect_right(self.line_starts, offset) - 1
        return index + 1, offset - self.line_starts[index] + 1

    def line_text(self, line: int) -> str:
        """Return the text of a 1-based line, without its line end; "" past the end."""
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
