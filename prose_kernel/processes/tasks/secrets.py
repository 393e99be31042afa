"""Values that must not be disclosed: variables that look like secrets, and secrets in the text of a command.

Variables are recognized by name (exec-and-tasks.md 4.1). A command line is shown with its secrets replaced;
here-documents and inline scripts are only counted (4.10, hazard 100). Only the owner can read the files with the full
text.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Mapping
from typing import Final

from prose_kernel.language.shortening import clipped
from prose_kernel.runtime.secret_patterns import (
    ASSIGNED,
    BEARER,
    KEY_BLOCK,
    NAME,
    VALUE,
    folded,
    has_name,
    holds_private_key,
    tokens_in,
)

_PARTS = (
    *("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL"),
    *("API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE_KEY", "COOKIE"),
)
_ENDS = ("_KEY", "_PAT", "_PASS", "_PWD", "_AUTH")
_STARTS = ("AWS_",)

LONGEST_DISPLAY = 240
_BLOT = "***"
_RULES: Final[tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...]] = (
    (("=",), ASSIGNED, rf"\1{_BLOT}"),
    (("aws_", "="), re.compile(r"(\bAWS_[A-Z0-9_]{1,64}=)" + VALUE), rf"\1{_BLOT}"),
    # A run of dashes is read once, not again from each of them.
    (("-",), re.compile(rf"(?i)((?<!-)-++[A-Za-z0-9_-]{{0,64}}{NAME}\s+){VALUE}"), rf"\1{_BLOT}"),
    (("-u", ":"), re.compile(rf"(?i)(\s(?:-u|--user)[\s=]+[^\s:'\"]+:){VALUE}"), rf"\1{_BLOT}"),
    (
        ("authorization", ":"),
        re.compile(r"(?i)(authorization\s*:\s*(?:bearer|basic|token)?\s*)[^\s'\"]+"),
        rf"\1{_BLOT}",
    ),
    (("api", "key", ":"), re.compile(r"(?i)(\b(?:x-)?api-?key\s*:\s*)[^\s'\"]+"), rf"\1{_BLOT}"),
    (("bearer",), BEARER, rf"\1{_BLOT}"),
    (
        ("://", "@"),
        re.compile(r"((?<![a-zA-Z0-9])[a-zA-Z][a-zA-Z0-9+.-]{0,30}://[^\s/:@'\"]*:)[^\s/@'\"]+@"),
        rf"\1{_BLOT}@",
    ),
)
"""What a text holds, in small letters, that has a secret of the form; the form; and what replaces it."""
_OF_NAMES: Final = (_RULES[0][1], _RULES[2][1])
"""The forms that hold `NAME`."""
_KEYS = re.compile(KEY_BLOCK)
_HERE = re.compile(r"<<-?[ \t]*(['\"]?)([A-Za-z_]\w*)\1")
_INLINE = re.compile(r"(\s-(?:c|e|eval)\s+)(\"(?:[^\"\\]|\\.)*\"|'[^']*')", re.S)
_LONGEST_INLINE = 60


def looks_secret(name: str) -> bool:
    """Return whether a variable of this name is withheld from agents' commands."""
    upper = name.upper()
    return upper.startswith(_STARTS) or upper.endswith(_ENDS) or any(part in upper for part in _PARTS)


_USER: Final = re.compile(r"://(?:[^\s/:@]*:[^\s/@]+|[^\s/:@]{16,})@")
"""A URL with a password, or with a long user name, which is a key."""


def without_secrets(environment: Mapping[bytes, bytes], allowed: Collection[str]) -> dict[bytes, bytes]:
    """Return the environment without the variables that look like secrets, by name or value; `allowed` names stay."""
    return {
        name: value
        for name, value in environment.items()
        if (text := name.decode("utf-8", "replace")) in allowed
        or not (looks_secret(text) or holds_secret(value.decode("utf-8", "replace")))
    }


def holds_secret(value: str) -> bool:
    """Return whether a value is, or contains, a secret by its form."""
    return bool(_USER.search(value) or tokens_in(value).search(value)) or holds_private_key(value)


def redacted(text: str) -> str:
    """Return a text with its secrets replaced."""
    small = folded(text)
    named = has_name(small)
    for fixed, pattern, replacement in _RULES:
        if all(part in small for part in fixed) and (named or pattern not in _OF_NAMES):
            text = pattern.sub(replacement, text)
    text = tokens_in(text).sub(_BLOT, text)
    return _KEYS.sub(_BLOT, text) if "-----BEGIN" in text else text


def display_of(command: str) -> str:
    """Return a command for lists, cards and events: one line of at most 240 characters."""
    text = _without_documents(command[: 64 * LONGEST_DISPLAY])
    text = redacted(_INLINE.sub(_inline_script, text))
    text = " ".join(text.split())
    text = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return clipped(text, LONGEST_DISPLAY)


def _without_documents(text: str) -> str:
    """Return a command with the number of lines in place of its here-documents."""
    if "<<" not in text:
        return text
    lines = text.split("\n")
    ends: dict[str, deque[int]] = {}
    for number, line in enumerate(lines):
        ends.setdefault(line.split(maxsplit=1)[0] if line.strip() else "", deque()).append(number)
    shown, at = [], 0
    while at < len(lines):
        line, begin = lines[at], _HERE.search(lines[at])
        end = 0
        if begin is not None and (closing := ends.get(begin[2])):
            while closing and closing[0] <= at + 1:
                closing.popleft()
            end = closing[0] if closing else 0
        if begin is None or not end:
            shown.append(line)
            at += 1
            continue
        count = end - at - 1
        rest = lines[end].lstrip()[len(begin[2]) :]
        shown.append(
            f"{line[: begin.start()]}<<{begin[2]}{line[begin.end() :]} [{count} line{'s' if count != 1 else ''}]{rest}"
        )
        at = end + 1
    return "\n".join(shown)


def _inline_script(match: re.Match[str]) -> str:
    script = match[2]
    if len(script) <= _LONGEST_INLINE and "\n" not in script:
        return match[0]
    return f"{match[1]}[script of {len(script) - 2} characters]"
