"""Parses limits of time and consumption: durations and budgets.

A duration is `90s` or `1.5h`, and for gates also `2d` or `2h30m` (openprose.md 1.8). A budget is a list of limits, such
as `2 usd, 200k tokens, 30 min, 100 sessions` (docs/how-to/budgets.md).
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Final

from msgspec import Struct

# A duration, in quotes or not, has no sign, no blanks and only ASCII digits.
_PART = r"[0-9]+(?:\.[0-9]+)?"
_PLAIN = re.compile(rf"({_PART})(ms|s|m|h)")
_GATE_PART = re.compile(rf"({_PART})(ms|s|m|h|d)")
_GATE = re.compile(rf"(?:{_PART}(?:ms|s|m|h|d))+")

_UNITS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}
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
    seconds = float(sum((Decimal(number) * _UNITS[unit] for number, unit in parts), Decimal(0)))
    return seconds if seconds > 0 or zero else None


# ---------------------------------------------------------------- budgets

_LIMIT: Final = (  # compiled at the first use
    r"(?P<dollar>\$)?\s*(?P<number>\d[\d_]*(?:\.\d+)?)\s*(?P<scale>[kKM](?![a-z]))?\s*(?P<unit>[A-Za-z$]*)(?P<rest>.*)"
)
_MONEY: Final = ("usd", "$", "dollar", "dollars")
_SECONDS: Final = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_SCALES: Final = {None: 1, "k": 1_000, "K": 1_000, "M": 1_000_000}
_MAX_VALUE: Final = 10**15
BUDGET_EXAMPLE: Final = "2 usd, 200k tokens, 30 min, 100 sessions"
BUDGET_HINT: Final = f"write it like this, or some of it: {BUDGET_EXAMPLE}; off means no limit"


class Limits(Struct, frozen=True):
    """The limits of a budget; None: no limit. `tokens` counts input and output; `text` is the budget as written."""

    text: str
    usd: float | None = None
    tokens: int | None = None
    seconds: float | None = None
    sessions: int | None = None


def parse_budget_setting(text: str) -> Limits | None:
    """Return the limits in a setting or an option; None for `off`. Raises `ValueError`, as `parse_budget` does."""
    return None if text.strip().casefold() == "off" else parse_budget(text)


def parse_budget(text: str) -> Limits:
    """Return the limits in a text such as `2 usd, 30 min`. Raises `ValueError` with a readable message."""
    found: dict[str, float] = {}
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ValueError("a limit is missing next to a comma" if any(parts) else "a budget needs a limit")
    for part in parts:
        name, value = _limit(part)
        if value <= 0:
            raise ValueError(f"a limit must be more than 0: `{part}`")
        if value > _MAX_VALUE:
            raise ValueError(f"a limit must be less than {_MAX_VALUE:,}: `{part[:40]}`")
        if name in found:
            raise ValueError(f"a second limit of {_LIMIT_NAMES[name]}: `{part}`")
        found[name] = value
    whole = {name: int(value) for name, value in found.items() if name in ("tokens", "sessions")}
    return Limits(", ".join(parts), usd=found.get("usd"), seconds=found.get("seconds"), **whole)


_LIMIT_NAMES: Final = {"usd": "money", "tokens": "tokens", "seconds": "time", "sessions": "sessions"}


def _limit(part: str) -> tuple[str, float]:
    """Return the name and the value of the limit in one part of a budget."""
    match = re.fullmatch(_LIMIT, part)
    unknown = ValueError(f"not a limit: `{part}`")
    if match is None:
        raise unknown
    unit, rest = match["unit"].lower(), match["rest"].strip()
    number = float(Decimal(match["number"].replace("_", "")) * _SCALES[match["scale"]])
    if match["dollar"] and not unit and not rest:
        return "usd", number
    if match["dollar"]:
        raise unknown
    if rest:
        joined = parse_duration("".join(part.split()), gate=True)  # 2h30m
        if joined is None:
            raise unknown
        return "seconds", joined
    if unit in _MONEY:
        return "usd", number
    if unit in ("token", "tokens", "session", "sessions"):
        if not number.is_integer():
            raise ValueError(f"{unit} are counted in whole numbers: `{part}`")
        return unit.removesuffix("s") + "s", number
    if unit in _SECONDS and match["scale"] is None:
        return "seconds", number * _SECONDS[unit]
    raise ValueError(f"a limit needs a unit: `{part}`") if not unit else unknown
