"""Shortens texts, and makes them safe to show: on screens, in messages, in texts that a user approves."""

from __future__ import annotations

import re
import shlex
from unicodedata import category, east_asian_width

# ---------------------------------------------------------------- shorter texts


def clipped(text: str, length: int, mark: str = "…", *, kept: int | None = None, tidy: bool = False) -> str:
    """Return the text; if it is longer than `length`, its first `kept` characters and `mark`.

    Without `kept` the result has `length` characters. `tidy`: no blanks before the mark.
    """
    if len(text) <= length:
        return text
    head = text[: length - len(mark) if kept is None else kept]
    return (head.rstrip() if tidy else head) + mark


def one_line(text: str, length: int = 120) -> str:
    """Return the text on one line, cut to `length` characters."""
    return clipped(printable(" ".join(text[: length * 8].split())), length, tidy=True)


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
    return sum(0 if category(c) in ("Mn", "Me") else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def on_one_line(literal: str) -> str:
    """Return a literal as a hint shows it: as written, or only its triple quotes if it has several lines."""
    return literal if "\n" not in literal else '"""..."""'


# ---------------------------------------------------------------- safe texts

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    # without a visible glyph: joiners, fillers, blanks
    "\u2800\u2d7f\ufffc\U00013430-\U00013440\U00013441\U00013442\U00016fe4\U0001107f\U0001d159]"
)
"""Unicode's Default_Ignorable_Code_Point, which `unicodedata` lacks, and other characters without a visible glyph."""


def printable(text: str) -> str:
    """Return the text with control characters (all but newline and tab), bidirectional overrides and lone surrogates
    made visible as U+FFFD."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def encodable(text: str) -> str:
    """Return the text in a form that UTF-8 can encode: a lone surrogate becomes `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def escaped(text: str) -> str:
    """Return the text with each invisible character as an escape: controls, overrides, zero width, fillers, variation
    selectors, blanks other than the space. In a text that a user approves, nothing can hide or look like something
    else."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(character) if _is_invisible(character) else character for character in text)


def as_argument(file: str) -> str:
    """Return the name of a file for a command in a hint: quoted for the shell, and never taken for an option."""
    return shlex.quote(escaped(f"./{file}" if file.startswith("-") else file))


def escaped_lines(text: str) -> str:
    """Return `escaped` of each line of a text; line breaks are kept."""
    return "\n".join(map(escaped, text.split("\n")))


def _is_invisible(character: str) -> bool:
    kind = category(character)[0]
    return kind == "C" or (kind == "Z" and character != " ") or _IGNORABLE.match(character) is not None


def _escape(character: str) -> str:
    short = {"\r": "\\r", "\t": "\\t", "\n": "\\n"}.get(character)
    code = ord(character)
    return short or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}")


def code_fence(text: str) -> str:
    """Return a fence for a Markdown code block that the text cannot close."""
    return "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
