"""Text for the person: short, without anything that drives a terminal; and the marker of a dry run."""

from __future__ import annotations

import re

MARK = "⟦dry-run "
NAME = re.compile(r"[^\W\d]\w*(?:-\w+)*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def marker(what: str) -> str:
    """What stands for the value of something that a dry run did not run."""
    return f"{MARK}{what}⟧"


def printable(text: str) -> str:
    """The text with control characters (all but newline and tab), bidirectional overrides and lone surrogates made
    visible as U+FFFD."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str, length: int = 120) -> str:
    """The text on one line, cut to `length` characters."""
    line = printable(" ".join(text[: length * 8].split()))
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"
