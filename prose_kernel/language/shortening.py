"""Shortens texts that are too long, by characters or by columns of a screen."""

from __future__ import annotations


def clipped(text: str, length: int, mark: str = "…", *, kept: int | None = None, tidy: bool = False) -> str:
    """Return the text; if it is longer than `length`, its first `kept` characters and `mark`.

    Without `kept` the result has `length` characters. `tidy`: no blanks before the mark.
    """
    if len(text) <= length:
        return text
    head = text[: length - len(mark) if kept is None else kept]
    return (head.rstrip() if tidy else head) + mark


def fitted(text: str, columns: int) -> str:
    """Return the text; if it needs more columns of a screen, its beginning and an ellipsis."""
    if screen_width(text) <= columns:
        return text
    taken, used = "", 0
    for character in text:
        used += screen_width(character)
        if used > columns - 1:
            break
        taken += character
    return f"{taken}…"


def screen_width(text: str) -> int:
    """Return the number of screen columns that a text needs."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(0 if category(c) in ("Mn", "Me") else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def on_one_line(literal: str) -> str:
    """Return a literal as a hint shows it: as written, or only its triple quotes if it has several lines."""
    return literal if "\n" not in literal else '"""..."""'
