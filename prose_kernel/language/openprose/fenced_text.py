"""The lines of a script as the parser reads them, without the file around them, and back to places of the file
(docs/reference/prose-md.md 1.1, 3.1).

The parser sees only the lines in the fences, with the indentation of the openers taken off. Its result is then moved to
the positions of these lines in the file; all later stages use positions in the file only.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from prose_kernel.language.nodes import move
from prose_kernel.language.source import Source, Span

if TYPE_CHECKING:
    from prose_kernel.language.openprose.parser import Parsed

_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, eq=False)
class FencedText(Source):
    """The script in the fences of a file. Lines and columns are those of the file, offsets its own; `places` are where
    its lines begin in the file, and where the last one ends."""

    file: Source = field(default_factory=lambda: Source(""))
    places: tuple[int, ...] = ()

    def line_column(self, offset: int) -> tuple[int, int]:
        return self.file.line_column(self.place(offset))

    def line_text(self, line: int) -> str:
        return self.file.line_text(line)

    def place(self, offset: int) -> int:
        """An offset of the script as an offset of the file."""
        line = bisect_right(self.line_starts, offset) - 1
        return self.places[line] + offset - self.line_starts[line]

    def in_file(self, start: int, end: int) -> Span:
        """A span of the script as a span of the file. One that ends with a line does not reach into the next one."""
        first = self.place(start)
        return Span(first, self.place(end - 1) + 1 if end > start else first)

    @cached_property
    def shift(self) -> int | None:
        """Return the difference of all offsets; None if it depends on the line."""
        shifts = {place - start for place, start in zip(self.places, self.line_starts, strict=False)}
        return shifts.pop() if len(shifts) == 1 else None


def fenced_text(source: Source, fences: Sequence[tuple[Span, int]]) -> FencedText:
    """The lines of `fences` in the file `source`. The indentation of an opener is taken off each line, as far as the
    line has it."""
    parts: list[str] = []
    places: list[int] = []
    text = source.text
    for span, indent in fences:
        at = span.start
        for line in _LINE.findall(text, span.start, span.end):
            off = min(indent, len(line) - len(line.lstrip(" "))) if indent else 0
            parts.append(line[off:])
            places.append(at + off)
            at += len(line)
    places.append(fences[-1][0].end if fences else len(text))
    return FencedText("".join(parts), source.name, source.prompt, source, tuple(places))


def in_file(parsed: Parsed, script: FencedText) -> Parsed:
    """Move the result of parsing a script to positions in the file."""
    done: set[int] = set()
    for node in (parsed.program, *parsed.positional_calls):
        move(node, script.in_file, script.shift, done)
    found = tuple(replace(one, span=script.in_file(*one.span)) for one in parsed.diagnostics)
    return replace(parsed, diagnostics=found)
