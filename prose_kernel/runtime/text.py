"""Text for the person: short, without anything that drives a terminal; and the marker of a dry run."""

from __future__ import annotations

import re
import unicodedata

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
    return clipped(printable(" ".join(text[: length * 8].split())), length)


def clipped(text: str, length: int) -> str:
    """The text, or its beginning with an ellipsis: `length` characters at most."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def escaped(text: str) -> str:
    """The text with every character that does not show written as an escape: controls, overrides, zero width, line
    separators. For questions on which something depends: nothing can hide, and nothing pass for something else."""
    return "".join(_escape(character) if _hidden(character) else character for character in text)


def _hidden(character: str) -> bool:
    return unicodedata.category(character)[0] == "C" or character in "\u2028\u2029"


def _escape(character: str) -> str:
    short = {"\r": "\\r", "\t": "\\t", "\n": "\\n"}.get(character)
    code = ord(character)
    return short or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}")
