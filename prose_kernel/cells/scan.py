"""Find literals and magic lines in a cell without parsing it, because the cell may be half typed.

One pass over the text; it follows openprose.md 1.3 to 1.7 as far as telling code from text needs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Inside = Literal["code", "string", "triple", "marker", "comment"]

_START = re.compile(r'"""|"|#|\*{2,3}')
_LINE_STRING = re.compile(r'(?:[^"\\\n]|\\.)*')
_TRIPLE_END = re.compile(r'(?:\\.|[^"\\]|"(?!""))*', re.S)


@dataclass(frozen=True, slots=True)
class Region:
    """A literal, comment or marker: half-open range of offsets with its delimiters; `closed` when it has its end."""

    inside: Inside
    start: int
    end: int
    closed: bool


def literals(text: str) -> list[Region]:
    """All literals of a text in order. An unclosed one runs to the end of its line or of the text. Linear."""
    found: list[Region] = []
    at = 0
    while (match := _START.search(text, at)) is not None:
        literal = _literal(text, match)
        found.append(literal)
        at = max(literal.end, match.end())
    return found


def _literal(text: str, match: re.Match[str]) -> Region:
    start, opener = match.start(), match.group()
    if opener == "#":
        end = text.find("\n", start)
        return Region("comment", start, end if end >= 0 else len(text), end >= 0)
    if opener == '"':
        body = _LINE_STRING.match(text, start + 1)
        end = body.end() if body else start + 1
        closed = text.startswith('"', end)
        return Region("string", start, end + closed, closed)
    if opener == '"""':
        body = _TRIPLE_END.match(text, start + 3)
        end = body.end() if body else start + 3
        closed = text.startswith('"""', end)
        while closed and text.startswith('"', end + 3):
            end += 1  # of a longer run the last three close
        return Region("triple", start, end + 3 * closed if closed else len(text), closed)
    end = text.find(opener, start + len(opener))
    return Region("marker", start, end + len(opener) if end >= 0 else len(text), end >= 0)


def inside(text: str, cursor: int) -> tuple[Inside, int]:
    """The kind of text around the cursor, and where that begins (the cursor itself for code)."""
    for literal in literals(text[:cursor]):
        if literal.end >= cursor and not (literal.closed and literal.end <= cursor):
            return literal.inside, literal.start
    return "code", cursor


# ---------------------------------------------------------------- magic lines


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a cell: a magic line without its `%`, or program text. `line` is the 1-based line it starts on."""

    magic: bool
    text: str
    line: int


_MAGIC = re.compile(r"^%.*$", re.M)


def segments(code: str) -> list[Segment]:
    """A cell as program texts and magic lines in order. A magic stands at the start of a line, outside of literals.

    Program texts keep the line numbers of the cell: the lines before them are blank.
    """
    if "%" not in code:
        return [Segment(False, code, 1)]
    taken = literals(code)
    magics = [m for m in _MAGIC.finditer(code) if not any(t.start < m.start() < t.end for t in taken)]
    if not magics:
        return [Segment(False, code, 1)]
    pieces: list[Segment] = []
    at, line = 0, 1
    for match in magics:
        before = code[at : match.start()]
        if before.strip():
            pieces.append(Segment(False, "\n" * (line - 1) + before, line))
        line += before.count("\n")
        pieces.append(Segment(True, match.group()[1:].strip(), line))
        at = match.end()
    if code[at:].strip():
        pieces.append(Segment(False, "\n" * (line - 1) + code[at:], line))
    return pieces
