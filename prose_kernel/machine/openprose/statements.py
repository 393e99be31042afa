"""The text of a statement as it is kept beside its value (openprose.md 7.4)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from prose_kernel.language.source import Source, Span

_WITH_LINES: Final = ("STRING", "DISCRETION")


def statement_text(source: Source, span: Span) -> str:
    """A statement as it would stand in the first column: its further lines lose the indentation of the first one.

    What stands inside a string or a marker belongs to the program's data and stays as it is.
    """
    text = source.slice(span)
    if "\n" not in text:
        return text
    column = source.line_column(span.start)[1]
    return text if column == 1 else _moved(text, column - 1)


@lru_cache(maxsize=256)
def _moved(text: str, columns: int) -> str:
    inside = _inside(text)
    lines = []
    at = 0
    for line in text.split("\n"):
        blank = len(line) - len(line.lstrip(" "))
        lines.append(line if at == 0 or at in inside else line[min(blank, columns) :])
        at += len(line) + 1
    return "\n".join(lines)


def _inside(text: str) -> frozenset[int]:
    """Where the lines begin that stand inside a string or a marker."""
    from prose_kernel.language.openprose.lexer import tokenize

    starts: set[int] = set()
    for token in tokenize(text):
        if token.kind in _WITH_LINES:
            at = text.find("\n", token.start, token.end)
            while at >= 0:
                starts.add(at + 1)
                at = text.find("\n", at + 1, token.end)
    return frozenset(starts)
