"""Find the language and the magic lines of a cell without parsing it, because it may be half typed."""

from __future__ import annotations

import contextlib
import re
from typing import cast

from msgspec import Struct

from prose_kernel.errors import UsageError
from prose_kernel.language.diagnostics import Profile
from prose_kernel.language.incomplete_text import literals
from prose_kernel.runs import languages
from prose_kernel.runs.languages import Language

# ---------------------------------------------------------------- the language of a cell


def cell_language(code: str, default: Language) -> tuple[Language, str]:
    """Return the language of a cell, and the cell without the `%%` line that names it.

    The line is replaced by blanks, so that the line numbers and offsets of the rest do not change. Raises `UsageError`
    if the name is followed by anything but `--profile NAME`.
    """
    language, text = draft_language(code, default)
    found = _LANGUAGE.match(code)
    if text is code or found is None or not (words := found[2].strip()):
        return language, text
    profile = PROFILE.fullmatch(words)
    if profile is None:
        raise UsageError(
            f"%%{found[1]} takes no words here: {words}",
            hint="only `--profile NAME`; `--in` and `--out` are for notebooks of Python, which have values to give",
        )
    return languages.in_profile(language, cast("Profile", profile[1])), text


PROFILE = re.compile(r"--profile[ \t=]+(\S+)")
"""The words after `%%prose` that choose a profile."""
_LANGUAGE = re.compile(r"(?:[ \t]*\n)*%%[ \t]*(\S*)([^\n]*)")
"""The first line of a cell that is not blank."""


def draft_language(code: str, default: Language) -> tuple[Language, str]:
    """Do the same for a cell that is still being typed: invalid words after the name are ignored."""
    found = _LANGUAGE.match(code)
    language = languages.of_magic(found[1]) if found is not None else None
    if found is None or language is None:
        return default, code
    line = code.index("%%")
    profile = PROFILE.search(found[2])
    if profile is not None:
        with contextlib.suppress(UsageError):
            language = languages.in_profile(language, cast("Profile", profile[1]))
    return language, code[:line] + " " * (found.end() - line) + code[found.end() :]


# ---------------------------------------------------------------- magic lines


class Segment(Struct, frozen=True):
    """A part of a cell: a magic line without its `%`, or program text. `line` is its first line, counted from 1."""

    magic: bool
    text: str
    line: int


_MAGIC = re.compile(r"^%.*$", re.M)


def segments(code: str, language: Language | None = None) -> list[Segment]:
    """Split a cell into program texts and magic lines, in order. A magic is at the start of a line, outside literals.

    Program texts start with blank lines, so that their line numbers are those of the cell.
    """
    if "%" not in code:
        return [Segment(False, code, 1)]
    taken = literals(code, (language or languages.default()).delimiters)
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


# ---------------------------------------------------------------- kinds of cells


def has_statements(text: str) -> bool:
    """Return whether a text has more than blank lines and comments, which need no machine."""
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.split("\n"))


_HELP = re.compile(r"\s*(?:\??[\w%-]+\?|\?[\w%-]+)\s*")


def is_no_program(text: str) -> bool:
    """Return whether a whole cell is a cell magic, a shell command or a request for help."""
    return text.lstrip().startswith(("%%", "!")) or _HELP.fullmatch(text) is not None


KEEP = "--keep"
"""The option of `%plan` that may also be on the first line of a cell."""
_PREVIEW_MAGICS = frozenset({"prompt", "plan", "graph", "explain"})
"""Magics that, without arguments on the first line, show the program below them instead of running it."""


def is_preview(pieces: list[Segment]) -> bool:
    """Return whether a cell begins with such a magic, without arguments or before a statement with its body below."""
    word, _, statement = pieces[0].text.partition(" ")
    if word not in _PREVIEW_MAGICS:
        return False
    below = next((line for piece in pieces[1:] for line in piece.text.split("\n") if line.strip()), "")
    return statement.strip() in ("", KEEP) or (word not in ("graph", "explain") and below[:1].isspace())
