"""Text for the person: short, without anything that drives a terminal; and the marker of a dry run."""

from __future__ import annotations

import re

from prose_kernel.language.escapes import as_argument, escaped, escaped_lines
from prose_kernel.language.shortening import clipped

__all__ = ["MARK", "NAME", "as_argument", "encodable", "escaped", "escaped_lines", "marker", "one_line", "printable"]

MARK = "⟦dry-run "
NAME = re.compile(r"[^\W\d]\w*(?:-\w+)*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def marker(what: str) -> str:
    """The placeholder for the value of something that a dry run did not run."""
    return f"{MARK}{what}⟧"


def printable(text: str) -> str:
    """The text with control characters (all but newline and tab), bidirectional overrides and lone surrogates made
    visible as U+FFFD."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def encodable(text: str) -> str:
    """The text as UTF-8 can hold it: a lone surrogate becomes `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def one_line(text: str, length: int = 120) -> str:
    """The text on one line, cut to `length` characters."""
    return clipped(printable(" ".join(text[: length * 8].split())), length, tidy=True)
