"""Hints for words and signs from other languages (docs/reference/vvm.md 10)."""

from __future__ import annotations

from functools import partial
from typing import Final

from prose_kernel.language.text import clipped
from prose_kernel.language.word_catalogue import ascii_sign, hints, invisible_hint

_hints: Final = partial(hints, "vvm")
STATEMENTS: Final = (
    "agent", "case", "choose", "constrain", "def", "elif", "export", "for", "from", "if", "import", "match", "option",
    "raise", "require", "return", "while", "with",
)  # fmt: skip
"""Words that begin a statement and need more words after them."""
WITH_COLON: Final = ("else", "finally", "try")
"""Words that need a `:` after them."""
WHOLE_LINE: Final = ("break", "continue", "pass", "return", "true", "false")
"""Words that can be a whole line, or a value."""

QUOTES: Final = frozenset("\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb")
BLANKS: Final = frozenset("\u00a0\u2007\u202f\u200b\u2003\u2002\u3000\ufeff")
PLAIN: Final = frozenset({*'=<>+-.,:()[]{}@?#_"', "==", "!=", "<=", ">="})
"""Signs that hints may suggest in place of characters that look like them."""
PREFIXES: Final = frozenset({"f", "F", "r", "R", "b", "B", "u", "rb", "br", "fr", "rf"})
FUNCTIONS: Final = frozenset({"function", "func", "fn", "fun", "sub", "block", "async"})
LOOPS: Final = frozenset({"loop", "repeat", "foreach", "until"})
PATTERNS: Final = 'write `_`, `error(_)`, `error(name)`, `error(kind="…")` or ``?`criterion` ``'


def word(text: str) -> str | None:
    """Return the hint for a first word from another language, or for a word between values."""
    return _hints()["words"].get(text)


def rest(text: str) -> str | None:
    """Return the hint for a reserved word after a value."""
    return _hints()["rest"].get(text)


def sign(text: str, following: str = "") -> tuple[str, str | None]:
    """Return the message and hint for a sign that is not in the language; `following` is the next character."""
    if hint := _hints()["signs"].get(text):
        return f"there is no `{text}`" + (" at the end of a line" if text == "\\" else ""), hint
    if len(text) == 2 and text[1] == "=":
        return f"there is no `{text}`", f"write `x = x {text[0]} …`" if text[0] in "+-" else None
    first = text[0]
    if first in QUOTES:
        return f"`{first}` does not begin a string", 'write straight quotes: `"text"`'
    if first in BLANKS:
        return f"{code_point(first)} is not a blank here", invisible_hint(first)
    if first.isalpha() and ord(first) > 127:
        message = f"`{printable(text)}` cannot be part of a name"
        return message, "names are made of `A` to `Z`, `a` to `z`, digits and `_`"
    return f"{shown_character(text)} is not allowed here", None if first.isascii() else _plain_hint(text + following)


def _plain_hint(text: str) -> str | None:
    """Return the hint of the sign that a character looks like, or to write this sign if the language has it."""
    own = ascii_sign(text[0])
    for plain in (own + "".join(map(ascii_sign, text[1:2])), own) if own else ():
        if hint := _hints()["signs"].get(plain):
            return hint
        if plain in PLAIN:
            return f"write `{plain}`"
    return invisible_hint(text[0])


def printable(text: str) -> str:
    """Return a token for a message: short and printable."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in clipped(text, 40, kept=40))


def shown_character(text: str) -> str:
    return f"`{printable(text)}`" if text[0].isprintable() else code_point(text[0])


def code_point(character: str) -> str:
    return f"the character U+{ord(character):04X}"
