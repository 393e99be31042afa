"""What can be said of a text that may be half typed, in any language: where its code is, whether lines are missing.

Code is distinguished from literals and comments in one pass over the text, without parsing; it follows
docs/reference/openprose.md 1.3 to 1.7 and docs/reference/vvm.md 1.5 and 1.6 as far as that needs.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Literal, NamedTuple

from prose_kernel.language.diagnostics import ParsedText

Completeness = Literal["complete", "incomplete", "invalid"]
Inside = Literal["code", "string", "triple", "marker", "comment"]

_LINE_STRING = re.compile(r'(?:[^"\\\n]++|\\.)*+')
_TRIPLE_END = re.compile(r'(?:\\.|[^"\\]++|"(?!""))*+', re.S)


class Region(NamedTuple):
    """A literal, comment or marker: half-open range of offsets with its delimiters; `closed` when it has its end."""

    inside: Inside
    start: int
    end: int
    closed: bool


def literals(text: str, delimiters: tuple[str, ...]) -> list[Region]:
    """All literals of a text in order. An unclosed one runs to the end of its line or of the text. Linear.

    `delimiters` open and close literals, in addition to quotes.
    """
    start = _start(delimiters)
    found: list[Region] = []
    at = 0
    while (match := start.search(text, at)) is not None:
        literal = _literal(text, match)
        found.append(literal)
        at = max(literal.end, match.end())
    return found


@cache
def _start(delimiters: tuple[str, ...]) -> re.Pattern[str]:
    """How a comment or literal begins. Of two delimiters of which one begins with the other, the longer comes first."""
    return re.compile("|".join(['"""', '"', "#", *map(re.escape, delimiters)]))


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
    while len(opener) == 1 and end > 0 and text[end - 1] == "\\":
        end = text.find(opener, end + 1)  # in a template a backslash makes it a part of the text
    return Region("marker", start, end + len(opener) if end >= 0 else len(text), end >= 0)


def inside(text: str, cursor: int, delimiters: tuple[str, ...]) -> tuple[Inside, int]:
    """The kind of text around the cursor, and where that begins (the cursor itself for code)."""
    for literal in literals(text[:cursor], delimiters):
        if literal.end >= cursor and not (literal.closed and literal.end <= cursor):
            return literal.inside, literal.start
    return "code", cursor


def code_only(text: str, delimiters: tuple[str, ...]) -> str:
    """The text with its literals blanked out, position for position."""
    parts, at = [], 0
    for region in literals(text, delimiters):
        literal = text[region.start : region.end]
        blank = re.sub(r"[^\n]", " ", literal) if "\n" in literal else " " * len(literal)
        parts += [text[at : region.start], blank]
        at = region.end
    return "".join([*parts, text[at:]])


# ---------------------------------------------------------------- is it all there?

STEP = "  "


def missing(text: str, parsed: ParsedText[Any], *, invalid: bool) -> tuple[Completeness, str] | None:
    """Why a cell is not complete, with the indentation that its next line should have; None for one that may be.

    As in IPython a cell that ends inside an indented block is complete only after a blank line. A last line of only
    spaces counts as one: that is what a console has typed for the person. `invalid`: no further line could complete it.
    """
    last = text.rstrip().rpartition("\n")[2]
    indent = last[: len(last) - len(last.lstrip())]
    if parsed.unclosed:
        return "incomplete", (indent or STEP) if parsed.unclosed == "bracket" else ""
    if invalid:
        return "invalid", ""
    if parsed.incomplete:
        return "incomplete", indent + STEP
    *before, end = text.split("\n")
    blank = not end.strip() and bool(end or (before and not before[-1].strip()))
    return ("incomplete", indent) if parsed.ends_indented and not blank else None
