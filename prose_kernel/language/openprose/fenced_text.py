"""Extracts the script in the fences of a file and maps its positions to the file (docs/reference/prose-md.md 1.1, 3.1).

The parser reads only the lines in the fences, without the indentation of their openers. `in_file` then moves its result
to the positions of these lines in the file; all later stages use positions in the file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from prose_kernel.language.nodes import move_spans
from prose_kernel.language.source import Source, Span

if TYPE_CHECKING:
    from prose_kernel.language.openprose.parser import Parsed

_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, eq=False)
class FencedText(Source):
    """The script in the fences of a file. Offsets are those of the script, lines and columns those of the file.

    `places` are the offsets in the file at which the script's lines begin, and at which the last one ends.
    """

    file: Source = field(default_factory=lambda: Source(""))
    places: tuple[int, ...] = ()

    def line_column(self, offset: int) -> tuple[int, int]:
        return self.file.line_column(self.place(offset))

    def line_text(self, line: int) -> str:
        return self.file.line_text(line)

    def place(self, offset: int) -> int:
        """Convert an offset in the script to one in the file."""
        line = bisect_right(self.line_starts, offset) - 1
        return self.places[line] + offset - self.line_starts[line]

    def in_file(self, start: int, end: int) -> Span:
        """Convert a span in the script to one in the file. A span that ends with a line doesn't reach the next line."""
        first = self.place(start)
        return Span(first, self.place(end - 1) + 1 if end > start else first)

    @cached_property
    def shift(self) -> int | None:
        """The difference between the offsets in the file and in the script; None if it depends on the line."""
        shifts = {place - start for place, start in zip(self.places, self.line_starts, strict=False)}
        return shifts.pop() if len(shifts) == 1 else None


def fenced_text(source: Source, fences: Sequence[tuple[Span, int]]) -> FencedText:
    """Return the script in the `fences` of `source`. Each line loses the indentation of its fence's opener, or all of
    its indentation if it has less."""
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
        move_spans(node, script.in_file, script.shift, done)
    found = tuple(replace(one, span=script.in_file(*one.span)) for one in parsed.diagnostics)
    return replace(parsed, diagnostics=found)
