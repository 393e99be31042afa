"""Text in which every character shows: for what a person agrees to, and for what a hint says to type."""

from __future__ import annotations

import re
import shlex
import unicodedata

_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    # without ink: joiners, fillers, blanks
    "\u2800\u2d7f\ufffc\U00013430-\U00013440\U00013441\U00013442\U00016fe4\U0001107f\U0001d159]"
)
"""Default_Ignorable_Code_Point of Unicode, which Python's database does not have, and other characters without ink."""


def escaped(text: str) -> str:
    """The text with every character that does not show written as an escape: controls, overrides, zero width, fillers,
    variation selectors, blanks other than the space. For whatever a person agrees to: nothing can hide, and nothing
    pass for something else."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(character) if _hidden(character) else character for character in text)


def as_argument(file: str) -> str:
    """The name of a file as it is typed in a command that a hint shows: quoted for the shell, and never an option."""
    return shlex.quote(escaped(f"./{file}" if file.startswith("-") else file))


def escaped_lines(text: str) -> str:
    """`escaped` for a text of several lines, which stay lines."""
    return "\n".join(map(escaped, text.split("\n")))


def _hidden(character: str) -> bool:
    kind = unicodedata.category(character)[0]
    return kind == "C" or (kind == "Z" and character != " ") or _IGNORABLE.match(character) is not None


def _escape(character: str) -> str:
    short = {"\r": "\\r", "\t": "\\t", "\n": "\\n"}.get(character)
    code = ord(character)
    return short or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}")
