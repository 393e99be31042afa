"""Writes invisible characters as escapes, in texts that a user approves and in commands that a hint suggests.

Also makes fences that the text of a Markdown code block cannot close.
"""

from __future__ import annotations

import re
import shlex
import unicodedata

_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    # without a visible glyph: joiners, fillers, blanks
    "\u2800\u2d7f\ufffc\U00013430-\U00013440\U00013441\U00013442\U00016fe4\U0001107f\U0001d159]"
)
"""Unicode's Default_Ignorable_Code_Point, which `unicodedata` lacks, and other characters without a visible glyph."""


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
    kind = unicodedata.category(character)[0]
    return kind == "C" or (kind == "Z" and character != " ") or _IGNORABLE.match(character) is not None


def _escape(character: str) -> str:
    short = {"\r": "\\r", "\t": "\\t", "\n": "\\n"}.get(character)
    code = ord(character)
    return short or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}")


def code_fence(text: str) -> str:
    """Return a fence for a Markdown code block that the text cannot close."""
    return "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
