"""Makes text safe and short for display: no terminal control characters. Also has the placeholder of a dry run."""

from __future__ import annotations

import re

from prose_kernel.language.escapes import as_argument, escaped, escaped_lines
from prose_kernel.language.shortening import clipped

__all__ = ["MARK", "NAME", "as_argument", "encodable", "escaped", "escaped_lines", "marker", "one_line", "printable"]

MARK = "⟦dry-run "
NAME = re.compile(r"[^\W\d]\w*(?:-\w+)*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def marker(what: str) -> str:
    """Return the placeholder for a value that a dry run does not produce."""
    return f"{MARK}{what}⟧"


def printable(text: str) -> str:
    """Return the text with control characters (all but newline and tab), bidirectional overrides and lone surrogates
    made visible as U+FFFD."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def encodable(text: str) -> str:
    """Return the text in a form that UTF-8 can encode: a lone surrogate becomes `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def one_line(text: str, length: int = 120) -> str:
    """Return the text on one line, cut to `length` characters."""
    return clipped(printable(" ".join(text[: length * 8].split())), length, tidy=True)
