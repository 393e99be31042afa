"""Replaces secrets in texts: by a word for each in recordings, traces and messages (`SecretReplacer`), by `***` in
displayed commands (`masked`). `secret_patterns.py` has the patterns; `display` in `processes/exec_tool/audit.py` adds
options and addresses among the arguments of agents' programs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from prose_kernel.runtime.secret_patterns import (
    ASSIGNED,
    BEARER,
    KEY_BLOCK,
    NAME,
    SHAPES,
    VALUE,
    Find,
    folded,
    has_name,
    secrets_of,
    tokens_in,
)


def secret_finds(environment: Mapping[str, str]) -> tuple[Find, ...]:
    """Return the secret values of an environment, the longest first. A value with two names gets the first one."""
    names = secrets_of(environment)
    values = sorted(names, key=len, reverse=True)
    return tuple(Find((value,), re.escape(value), f"«env:{names[value]}»") for value in values)


_SHORT: Final = 500
_REMEMBERED: Final = 128

_RARE: Final = "~=_:/0123456789QZXJKVYUWGPFBHDLRNOMCSAEIT-.qzxjkvywpbg"
"""Characters of fixed texts, the rarest in ordinary text first."""


class SecretReplacer:
    """Replaces found secrets by words in one pass, in linear time.

    Recent short texts are cached, because each command is shown, traced and recorded, and most loops repeat theirs.
    """

    def __init__(self, finds: tuple[Find, ...]) -> None:
        self._finds = finds
        self._fixed: dict[str, list[tuple[str, int]]] = {}  # fixed texts by their rarest character, searched first
        for number, find in enumerate(finds):
            for fixed in find.fixed:
                rarest = next((character for character in _RARE if character in fixed), fixed[0])
                self._fixed.setdefault(rarest, []).append((fixed, number))
        self._compiled: dict[tuple[int, ...], re.Pattern[str]] = {}
        self._in_short = lru_cache(_REMEMBERED)(self._replaced)

    def __call__(self, text: str) -> str:
        return self._in_short(text) if len(text) <= _SHORT else self._replaced(text)

    def _replaced(self, text: str) -> str:
        groups = [group for character, group in self._fixed.items() if character in text]
        found = {number for group in groups for fixed, number in group if fixed in text}
        present = tuple([number for number in sorted(found) if self._finds[number].may_be_in(text)])
        if not present:
            return text
        expression = self._compiled.get(present)
        if expression is None:
            finds = [self._finds[number] for number in present]
            parts = (f"({find.kept})({find.expression})" for find in finds)
            expression = self._compiled[present] = re.compile("|".join(parts))
        words = [self._finds[number].word for number in present]

        def instead(match: re.Match[str]) -> str:  # the text before a secret, and the word for the secret
            last = match.lastindex or 2
            return match[last - 1] + words[last // 2 - 1]

        return expression.sub(instead, text)


Variables = tuple[tuple[str, str], ...]
_learned: Final[dict[Variables, None]] = {}


def learn(variables: Mapping[str, str]) -> None:
    """Add the variables of a state directory's `.env` to those of this process, which may run programs of several
    directories."""
    _learned[tuple(variables.items())] = None


def hidden_of_process() -> Callable[[str], str]:
    """Return a function that removes the secrets of this process's environment, and texts that look like secrets."""
    return _replacer(tuple(_learned))


@lru_cache(1)
def _replacer(learned: tuple[Variables, ...]) -> SecretReplacer:
    """Return the function for the variables learned so far: another thread may learn more while this is computed."""
    finds = {find.fixed[0]: find for known in (*map(dict, learned), os.environ) for find in secret_finds(known)}
    return SecretReplacer((*sorted(finds.values(), key=lambda find: -len(find.fixed[0])), *SHAPES))


def mapped(data: Any, change: Callable[[str], str]) -> Any:
    """Return plain data with every text in it changed, including the names of members."""
    match data:
        case str():
            return change(data)
        case Mapping():
            return {change(str(name)): mapped(value, change) for name, value in data.items()}
        case list() | tuple():
            return [mapped(value, change) for value in data]
        case _:
            return data


_MASK = "***"
_RULES: Final[tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...]] = (
    (("=",), ASSIGNED, rf"\1{_MASK}"),
    (("aws_", "="), re.compile(r"(\bAWS_[A-Z0-9_]{1,64}=)" + VALUE), rf"\1{_MASK}"),
    # A run of dashes is read once, not again from each of them.
    (("-",), re.compile(rf"(?i)((?<!-)-++[A-Za-z0-9_-]{{0,64}}{NAME}\s+){VALUE}"), rf"\1{_MASK}"),
    (("-u", ":"), re.compile(rf"(?i)(\s(?:-u|--user)[\s=]+[^\s:'\"]+:){VALUE}"), rf"\1{_MASK}"),
    (
        ("authorization", ":"),
        re.compile(r"(?i)(authorization\s*:\s*(?:bearer|basic|token)?\s*)[^\s'\"]+"),
        rf"\1{_MASK}",
    ),
    (("api", "key", ":"), re.compile(r"(?i)(\b(?:x-)?api-?key\s*:\s*)[^\s'\"]+"), rf"\1{_MASK}"),
    (("bearer",), BEARER, rf"\1{_MASK}"),
    (
        ("://", "@"),
        re.compile(r"((?<![a-zA-Z0-9])[a-zA-Z][a-zA-Z0-9+.-]{0,30}://[^\s/:@'\"]*:)[^\s/@'\"]+@"),
        rf"\1{_MASK}@",
    ),
)
"""For each form of secret: texts that occur (in lower case) with every match, the pattern, and the replacement."""
_NAME_PATTERNS: Final = (_RULES[0][1], _RULES[2][1])
"""The patterns that contain `NAME`."""
_KEYS = re.compile(KEY_BLOCK)


def masked(text: str) -> str:
    """Return the text of a command with `***` in place of its secrets."""
    small = folded(text)
    named = has_name(small)
    for fixed, pattern, replacement in _RULES:
        if all(part in small for part in fixed) and (named or pattern not in _NAME_PATTERNS):
            text = pattern.sub(replacement, text)
    text = tokens_in(text).sub(_MASK, text)
    return _KEYS.sub(_MASK, text) if "-----BEGIN" in text else text
