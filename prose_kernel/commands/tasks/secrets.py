"""Which values must not be disclosed: variables that look like secrets, and secrets in the text of a command.

Names decide about variables (exec-and-tasks.md 4.1). A command line is shown with its secrets replaced,
here-documents and inline scripts only counted (4.10, hazard 100); the whole text stays in files of the owner alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from prose_kernel.runtime.secret_patterns import ASSIGNED, BEARER, NAME, TOKENS, VALUE, holds_private_key

_PARTS = (
    *("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL"),
    *("API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE_KEY", "COOKIE"),
)
_ENDS = ("_KEY", "_PAT", "_PASS", "_PWD", "_AUTH")
_STARTS = ("AWS_",)

LONGEST_DISPLAY = 240
_BLOT = "***"
_RULES = (
    (ASSIGNED, rf"\1{_BLOT}"),
    (re.compile(r"(\bAWS_[A-Z0-9_]+=)" + VALUE), rf"\1{_BLOT}"),
    (re.compile(rf"(?i)(--?[A-Za-z0-9_-]*{NAME}\s+){VALUE}"), rf"\1{_BLOT}"),
    (re.compile(rf"(?i)(\s(?:-u|--user)[\s=]+[^\s:'\"]+:){VALUE}"), rf"\1{_BLOT}"),
    (re.compile(r"(?i)(authorization\s*:\s*(?:bearer|basic|token)?\s*)[^\s'\"]+"), rf"\1{_BLOT}"),
    (re.compile(r"(?i)(\b(?:x-)?api-?key\s*:\s*)[^\s'\"]+"), rf"\1{_BLOT}"),
    (BEARER, rf"\1{_BLOT}"),
    (re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@'\"]*:)[^\s/@'\"]+@"), rf"\1{_BLOT}@"),
    (TOKENS, _BLOT),
)
_HERE = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1(.*?)\n(.*?)\n\s*\2(?=\s|$)", re.S)
_INLINE = re.compile(r"(\s-(?:c|e|eval)\s+)(\"(?:[^\"\\]|\\.)*\"|'[^']*')", re.S)
_LONGEST_INLINE = 60


def looks_secret(name: str) -> bool:
    """Whether a variable of this name is kept from agents' commands."""
    upper = name.upper()
    return upper.startswith(_STARTS) or upper.endswith(_ENDS) or any(part in upper for part in _PARTS)


_USER: Final = re.compile(r"://(?:[^\s/:@]*:[^\s/@]+|[^\s/:@]{16,})@")
"""A URL with a password, or with a long user name, which is a key."""


def without_secrets(environment: Mapping[bytes, bytes], allowed: Collection[str]) -> dict[bytes, bytes]:
    """The environment without the variables that look like secrets, by name or value; `allowed` names stay."""
    return {
        name: value
        for name, value in environment.items()
        if (text := name.decode("utf-8", "replace")) in allowed
        or not (looks_secret(text) or _is_secret(value.decode("utf-8", "replace")))
    }


def _is_secret(value: str) -> bool:
    return bool(_USER.search(value) or TOKENS.search(value)) or holds_private_key(value)


def redacted(text: str) -> str:
    """A text with its secrets replaced."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def display_of(command: str) -> str:
    """A command as it is shown in lists, cards and events: one line of at most 240 characters."""
    text = _HERE.sub(_here_document, command[: 64 * LONGEST_DISPLAY])
    text = redacted(_INLINE.sub(_inline_script, text))
    text = " ".join(text.split())
    text = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return text if len(text) <= LONGEST_DISPLAY else text[: LONGEST_DISPLAY - 1] + "…"


def _here_document(match: re.Match[str]) -> str:
    lines = match[4].count("\n") + 1
    return f"<<{match[2]}{match[3]} [{lines} line{'s' if lines != 1 else ''}]"


def _inline_script(match: re.Match[str]) -> str:
    script = match[2]
    if len(script) <= _LONGEST_INLINE and "\n" not in script:
        return match[0]
    return f"{match[1]}[script of {len(script) - 2} characters]"
