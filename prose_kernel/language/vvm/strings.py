"""The values of strings and numbers (docs/reference/vvm.md 1.4, 1.5)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})(?:\\u([0-9A-Fa-f]{4}))?|(.))?", re.DOTALL)
_SIMPLE: Final = {"\\": "\\", '"': '"', "/": "/", "n": "\n", "t": "\t", "b": "\b", "f": "\f", "r": "\r"}
_CLOSED: Final = re.compile(r'"(?:[^"\\\n]++|\\[^\n])*+"')
_NUMBER: Final = re.compile(r"[0-9]++(?>(?:\.[0-9]++)?)")
_MAX_DIGITS: Final = 4_000  # CPython cannot read or write longer integers


class BadEscape(NamedTuple):
    """An unknown escape: its start and end in the token of the string, quotes included."""

    start: int
    end: int


def is_closed(token: str) -> bool:
    """Return whether the token of a single-line string has its closing quote."""
    if "\\" in token:
        return _CLOSED.fullmatch(token) is not None
    return len(token) > 1 and token[-1] == '"'


def unescape(token: str, quotes: int, bad: list[BadEscape]) -> str:
    """Return the text between the quotes of a token with a backslash; unknown escapes are kept, and added to `bad`."""
    found: list[str] = []
    at, end = quotes, len(token) - quotes
    while True:
        backslash = token.find("\\", at, end)
        if backslash < 0:
            found.append(token[at:end])
            return "".join(found)
        found.append(token[at:backslash])
        match = _ESCAPE.match(token, backslash, end)
        assert match is not None
        text, at = _meaning(match)
        if text is None:
            bad.append(BadEscape(backslash, at))
            text = token[backslash:at]
        found.append(text)


def _meaning(match: re.Match[str]) -> tuple[str | None, int]:
    """Return the character that an escape means, None for an invalid one, and the end of the escape."""
    if match[1] is None:
        return _SIMPLE.get(match[3] or ""), match.end()
    code = int(match[1], 16)
    if not 0xD800 <= code < 0xE000:
        return chr(code), match.end(1)
    low = int(match[2], 16) if match[2] and code < 0xDC00 else 0
    if not 0xDC00 <= low < 0xE000:
        return None, match.end(1)
    return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)), match.end()


def number(token: str) -> int | float | None:
    """Return the value of a number; None if the token isn't a number, or if it is too large."""
    if len(token) > _MAX_DIGITS or _NUMBER.fullmatch(token) is None:
        return None
    if "." not in token:
        return int(token)
    value = float(token)
    return None if value == float("inf") else value
