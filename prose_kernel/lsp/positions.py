"""Convert between positions of the protocol and offsets of a source.

An editor counts lines, which end with LF, CRLF or CR, and UTF-16 units within a line, unless another encoding was
negotiated. A `Source` counts code points of a text without BOM, with LF for CRLF. All conversions go through offsets in
the editor's text, so they also work for texts with mixed line ends.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from prose_kernel.language.source import Source, Span

if TYPE_CHECKING:
    from lsprotocol import types

Encoding = Literal["utf-8", "utf-16", "utf-32"]
_LINE_END: Final = re.compile(r"\r\n?|\n")
_CODEC: Final[dict[Encoding, tuple[str, int]]] = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2)}


class Position(NamedTuple):
    """A line and a character in it, both counted from 0; the character in units of the encoding."""

    line: int
    character: int


@dataclass(frozen=True)
class Text:
    """A text in an editor."""

    raw: str
    encoding: Encoding = "utf-16"

    @cached_property
    def source(self) -> Source:
        return Source.of(self.raw)

    @cached_property
    def _plain(self) -> bool:
        """Whether every character is one unit."""
        return self.encoding == "utf-32" or self.raw.isascii()

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in _LINE_END.finditer(self.raw))]

    @cached_property
    def _dropped(self) -> list[int]:
        """The offsets of characters that are missing from the source."""
        first = [0] if self.raw.startswith("\ufeff") else []
        return [*first, *(match.start() for match in re.finditer(r"\r(?=\n)", self.raw))]

    @cached_property
    def _dropped_in_source(self) -> list[int]:
        """The offsets in the source at which these characters are missing."""
        return [at - number for number, at in enumerate(self._dropped)]

    # ---- offsets of the source

    def offset(self, position: Position | types.Position) -> int:
        """Return the offset in the source; a position past the end of a line or of the text counts as that end."""
        raw = self.raw_offset(position)
        return raw - bisect_left(self._dropped, raw) if self._dropped else raw

    def position(self, offset: int) -> Position:
        """Return the position of an offset in the source."""
        raw = offset + bisect_right(self._dropped_in_source, offset) if self._dropped else offset
        if raw and self._dropped and self.raw.startswith("\n", raw) and self.raw.startswith("\r", raw - 1):
            raw -= 1  # a line ends before both characters
        raw = min(raw, len(self.raw))
        line = bisect_right(self._starts, raw) - 1
        return Position(line, self._units(self._starts[line], raw))

    def range(self, span: Span) -> tuple[Position, Position]:
        return self.position(span.start), self.position(max(span.start, span.end))

    @property
    def end(self) -> Position:
        """The position after the last character."""
        line = len(self._starts) - 1
        return Position(line, self._units(self._starts[line], len(self.raw)))

    # ---- offsets in the text itself

    def raw_offset(self, position: Position | types.Position) -> int:
        line, character = position.line, position.character
        if line < 0:
            return 0
        if line >= len(self._starts):
            return len(self.raw)
        start = self._starts[line]
        end = self._starts[line + 1] if line + 1 < len(self._starts) else len(self.raw)
        while end > start and self.raw[end - 1] in "\r\n":
            end -= 1
        if self._plain:
            return min(start + max(character, 0), end)
        codec, width = _CODEC[self.encoding]
        units = self.raw[start:end].encode(codec, "surrogatepass")[: max(character, 0) * width]
        return start + len(units.decode(codec, "ignore"))

    def _units(self, start: int, end: int) -> int:
        if self._plain:
            return end - start
        codec, width = _CODEC[self.encoding]
        return len(self.raw[start:end].encode(codec, "surrogatepass")) // width

    def with_line_ends(self, text: str) -> str:
        """Return text to insert here, with CRLF if this text has CRLF."""
        return text.replace("\n", "\r\n") if "\r\n" in self.raw else text

    def changed(self, first: Position | types.Position, last: Position | types.Position, text: str) -> Text:
        """Return the text after a change by the editor, which replaces the part between two positions."""
        start, end = self.raw_offset(first), self.raw_offset(last)
        return Text(self.raw[:start] + text + self.raw[max(start, end) :], self.encoding)
