"""Find the language, the literals and the magic lines of a cell without parsing it, because it may be half typed.

One pass over the text; it follows docs/reference/openprose.md 1.3 to 1.7 and docs/reference/vvm.md 1.5 and 1.6 as far
as telling code from text needs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from prose_kernel import languages
from prose_kernel.errors import UsageError
from prose_kernel.languages import Language

Inside = Literal["code", "string", "triple", "marker", "comment"]

_LINE_STRING = re.compile(r'(?:[^"\\\n]|\\.)*')
_TRIPLE_END = re.compile(r'(?:\\.|[^"\\]|"(?!""))*', re.S)


@dataclass(frozen=True, slots=True)
class Region:
    """A literal, comment or marker: half-open range of offsets with its delimiters; `closed` when it has its end."""

    inside: Inside
    start: int
    end: int
    closed: bool


def literals(text: str, language: Language | None = None) -> list[Region]:
    """All literals of a text in order. An unclosed one runs to the end of its line or of the text. Linear."""
    start = _start((language or languages.default()).delimiters)
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


def inside(text: str, cursor: int, language: Language | None = None) -> tuple[Inside, int]:
    """The kind of text around the cursor, and where that begins (the cursor itself for code)."""
    for literal in literals(text[:cursor], language):
        if literal.end >= cursor and not (literal.closed and literal.end <= cursor):
            return literal.inside, literal.start
    return "code", cursor


# ---------------------------------------------------------------- the language of a cell


def own_language(code: str, default: Language) -> tuple[Language, str]:
    """The language of a cell, and the cell without the `%%` line that names it.

    The line is blanked out, so that every line and every offset of the rest stays where it is. Raises `UsageError` for
    words behind the name.
    """
    language, text = spoken(code, default)
    found = _LANGUAGE.match(code)
    if text is not code and found is not None and found[2].strip():
        raise UsageError(
            f"%%{found[1]} takes no words here: {found[2].strip()}",
            hint="`--in` and `--out` are for notebooks of Python, where there are values to take",
        )
    return language, text


_LANGUAGE = re.compile(r"(?:[ \t]*\n)*%%[ \t]*(\S*)([^\n]*)")
"""The first line of a cell that is not blank."""


def spoken(code: str, default: Language) -> tuple[Language, str]:
    """The same for a cell that is still being typed: words behind the name do not matter."""
    found = _LANGUAGE.match(code)
    language = languages.of_magic(found[1]) if found is not None else None
    if found is None or language is None:
        return default, code
    line = code.index("%%")
    return language, code[:line] + " " * (found.end() - line) + code[found.end() :]


# ---------------------------------------------------------------- magic lines


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a cell: a magic line without its `%`, or program text. `line` is the 1-based line it starts on."""

    magic: bool
    text: str
    line: int


_MAGIC = re.compile(r"^%.*$", re.M)


def segments(code: str, language: Language | None = None) -> list[Segment]:
    """A cell as program texts and magic lines in order. A magic stands at the start of a line, outside of literals.

    Program texts keep the line numbers of the cell: the lines before them are blank.
    """
    if "%" not in code:
        return [Segment(False, code, 1)]
    taken = literals(code, language)
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
