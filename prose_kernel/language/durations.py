"""Parses durations: `90s`, `1.5h`, and for gates also `d` and joined parts, `2h30m` (openprose.md 1.8)."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache

# A duration, in quotes or not, has no sign, no blanks and only ASCII digits.
_PART = r"[0-9]+(?:\.[0-9]+)?"
_PLAIN = re.compile(rf"({_PART})(ms|s|m|h)")
_GATE_PART = re.compile(rf"({_PART})(ms|s|m|h|d)")
_GATE = re.compile(rf"(?:{_PART}(?:ms|s|m|h|d))+")

_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}

LONG_TIMEOUT = 600.0
"""The timeout of an `exec`, in seconds, above which W050 is reported."""

_LONGEST_TEXT = 40  # characters, enough for any real duration; keeps the arithmetic cheap


@lru_cache(256)
def parse_duration(text: str, gate: bool = False, *, zero: bool = False) -> float | None:
    """Return the seconds of a duration, or None if `text` isn't one or, without `zero`, isn't above zero.

    With `gate` days (`d`) and joined parts (`2h30m`) count too. The sum is exact before it becomes a float.
    """
    if len(text) > _LONGEST_TEXT:
        return None
    pattern = _GATE if gate else _PLAIN
    if pattern.fullmatch(text) is None:
        return None
    parts = _GATE_PART.findall(text)
    seconds = float(sum((Decimal(number) * _SECONDS[unit] for number, unit in parts), Decimal(0)))
    return seconds if seconds > 0 or zero else None
