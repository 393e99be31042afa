"""Text that may be half typed, in any language: where its literals and comments are, and whether it is complete.

Literals and comments are found in one pass over the text, without parsing, by the rules of docs/reference/openprose.md
1.3 to 1.7 and docs/reference/vvm.md 1.5 and 1.6.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Literal, NamedTuple

from prose_kernel.language.diagnostics import ParsedText

Completeness = Literal["complete", "incomplete", "invalid"]
TextKind = Literal["code", "string", "triple", "marker", "comment"]

_LINE_STRING = re.compile(r'(?:[^"\\\n]++|\\.)*+')
_TRIPLE_END = re.compile(r'(?>(?:\\.|[^"\\]++|"(?!""))*)', re.S)


class Region(NamedTuple):
    """A literal, comment or marker: its half-open range of offsets, delimiters included; `closed`: it has an end."""

    kind: TextKind
    start: int
    end: int
    closed: bool


def literals(text: str, delimiters: tuple[str, ...]) -> list[Region]:
    """Return all literals of a text in order, in linear time. An unclosed one ends with its line or with the text.

    `delimiters` open and close literals, in addition to quotes.
    """
    start = _start_pattern(delimiters)
    found: list[Region] = []
    at = 0
    while (match := start.search(text, at)) is not None:
        literal = _literal(text, match)
        found.append(literal)
        at = max(literal.end, match.end())
    return found


@cache
def _start_pattern(delimiters: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for the start of a comment or literal. Longer delimiters come before their prefixes."""
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
            end += 1  # in a longer run of quotes, the last three are the end
        return Region("triple", start, end + 3 * closed if closed else len(text), closed)
    end = text.find(opener, start + len(opener))
    while len(opener) == 1 and end > 0 and text[end - 1] == "\\":
        end = text.find(opener, end + 1)  # in a template a backslash escapes it
    return Region("marker", start, end + len(opener) if end >= 0 else len(text), end >= 0)


def kind_at(text: str, cursor: int, delimiters: tuple[str, ...]) -> tuple[TextKind, int]:
    """Return the kind of text around the cursor, and the offset where it begins (the cursor itself for code)."""
    for literal in literals(text[:cursor], delimiters):
        if literal.end >= cursor and not (literal.closed and literal.end <= cursor):
            return literal.kind, literal.start
    return "code", cursor


def code_only(text: str, delimiters: tuple[str, ...]) -> str:
    """Return the text with blanks in place of its literals; offsets stay the same."""
    parts, at = [], 0
    for region in literals(text, delimiters):
        literal = text[region.start : region.end]
        blank = re.sub(r"[^\n]", " ", literal) if "\n" in literal else " " * len(literal)
        parts += [text[at : region.start], blank]
        at = region.end
    return "".join([*parts, text[at:]])


_INDENT = "  "


def unfinished(text: str, parsed: ParsedText[Any], *, invalid: bool) -> tuple[Completeness, str] | None:
    """Return the state of an unfinished cell, with the indentation for its next line; None if it may be complete.

    As in IPython, a cell that ends inside an indented block is complete only after a blank line. A last line of only
    spaces counts as blank, because consoles indent new lines. `invalid`: no further line could complete the cell.
    """
    last = text.rstrip().rpartition("\n")[2]
    indent = last[: len(last) - len(last.lstrip())]
    if parsed.unclosed:
        return "incomplete", (indent or _INDENT) if parsed.unclosed == "bracket" else ""
    if invalid:
        return "invalid", ""
    if parsed.incomplete:
        return "incomplete", indent + _INDENT
    *before, end = text.split("\n")
    blank = not end.strip() and bool(end or (before and not before[-1].strip()))
    return ("incomplete", indent) if parsed.ends_indented and not blank else None
