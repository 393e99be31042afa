"""What secrets look like in a text: the one list of patterns, for whoever writes texts down.

Recordings take secrets out of what they write, commands out of what they show, agent memories refuse what holds one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

_KEY_MARK: Final = r"(?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
PRIVATE_KEY = re.compile(f"-----BEGIN {_KEY_MARK}")


class Find(NamedTuple):
    """What is looked for: one of the fixed texts must be there for the expression to match; `word` takes its place."""

    fixed: tuple[str, ...]
    expression: str
    word: str


def _token(name: str, fixed: Iterable[str], rest: str) -> Find:
    """A token that begins with one of the fixed texts, where no word goes on."""
    begin = tuple(fixed)
    head = "|".join(map(re.escape, begin))
    return Find(begin, rf"(?<![A-Za-z0-9])(?:{head}){rest}", f"«secret:{name}»")


# No expression looks at a piece of text more than a few times: what repeats is bounded, or never given back.
SHAPES: Final = (
    Find(
        ("-----BEGIN",),
        rf"-----BEGIN {_KEY_MARK}(?:(?:[A-Za-z0-9+/=\s:,.]|-(?!----)){{0,20000}}+-----END {_KEY_MARK}"
        r"|(?:\s+[A-Za-z0-9+/=]{16,128}+)*+)",
        "«secret:pem»",
    ),
    _token("api-key", ("sk-",), r"[A-Za-z0-9_-]{16,400}"),
    _token("api-key", ("gsk_", "xai-"), r"[A-Za-z0-9]{20,200}"),
    _token("github", ("ghp_", "ghs_", "gho_", "ghu_", "ghr_"), r"[A-Za-z0-9]{20,255}"),
    _token("github", ("github_pat_",), r"[A-Za-z0-9_]{20,255}"),
    _token("gitlab", ("glpat-",), r"[A-Za-z0-9_-]{20,100}"),
    _token("slack", ("xox",), r"[abeoprs]-[A-Za-z0-9-]{10,200}"),
    _token("google", ("AIza",), r"[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _token("huggingface", ("hf_",), r"[A-Za-z0-9]{30,100}"),
    Find(("k_live_", "k_test_"), r"(?<![A-Za-z0-9])[rs]k_(?:live|test)_[A-Za-z0-9]{16,200}", "«secret:stripe»"),
    _token("npm", ("npm_",), r"[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _token("pypi", ("pypi-",), r"[A-Za-z0-9_-]{50,400}"),
    _token("aws", ("AKIA", "ASIA"), r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    Find(
        ("eyJ",),
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,4000}+\.eyJ[A-Za-z0-9_-]{2,8000}+\.[A-Za-z0-9_-]{8,2000}",
        "«secret:jwt»",
    ),
)


def holds_private_key(text: str) -> bool:
    return "-----BEGIN" in text and PRIVATE_KEY.search(text) is not None


# ---------------------------------------------------------------- a value behind a name that says what it is

NAME: Final = r"(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)"
"""The end of a name that says so: `GITHUB_TOKEN`, `db-password`."""

VALUE: Final = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s'";&|<>()]+)"""
ASSIGNED: Final = re.compile(rf"(?i)({NAME}[A-Za-z0-9_-]{{0,64}}\s*=\s*){VALUE}")
BEARER: Final = re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}")
TOKENS: Final = re.compile("|".join(f"(?:{shape.expression})" for shape in SHAPES if "PRIVATE" not in shape.expression))

_COUNTED: Final = re.compile(r"(?i)tokens\s*=\s*\d{1,8}\.?")
"""`max_tokens = 512` is no secret."""

_STATED: Final = re.compile(
    rf"""(?i){NAME}["'`*]{{0,3}}\s{{0,8}}(?::=?|=>)\s{{0,8}}"""
    r"""(?:["'`*]{0,3}(?=\S{0,200}[0-9!@#$%^&+/\\?~])[^\s"'`,;]{6,}|(["'`])[^\s"'`]{6,400}\1)"""
)
"""`password: hunter2-x`, `"token": "correcthorse"`: behind a colon, where words may follow too, only what no word is or
what is written as a literal."""


def secret_in(text: str) -> str | None:
    """What kind of secret a text holds, in a word; None where it holds none that is known."""
    if holds_private_key(text):
        return "private-key"
    if TOKENS.search(text):
        return "token"
    if BEARER.search(text):
        return "bearer-token"
    assigned = any(_COUNTED.fullmatch(found[0]) is None for found in ASSIGNED.finditer(text))
    return "assignment" if assigned or _STATED.search(text) else None
