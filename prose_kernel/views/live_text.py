"""Texts for live views: lines, elapsed times, estimates, passes, consumption."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prose_kernel.runtime.running_loops import OpenLoop
from prose_kernel.views.escaping import clip

if TYPE_CHECKING:
    from prose_kernel.views.run_record import Figures

MIN_FINISHED: Final = 3
"""The number of items that must have finished before a time is estimated."""
TITLE: Final = 60
"""The most characters of a command, a task, or the first line of a construct."""
_MODIFIERS: Final = re.compile(r" \([a-z-]+: [^()]*\)?…?\Z")


RUNS: Final = "▸"
"""The mark of running work in a language without its own markers."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a live view. `mark` is its state (`▸ ✗ ✓`, or a marker of its language), `about` a remark after its
    name, `time` its running time, `last` its last printed line."""

    name: str
    about: tuple[str, ...] = ()
    mark: str = RUNS
    depth: int = 0
    time: str = ""
    last: str = ""
    done: tuple[int, int] | None = None


def consumed_text(figures: Figures) -> str:
    """Return the tokens and US dollars so far; the dollars omit answers with an unknown price."""
    tokens = figures.tokens_in + figures.tokens_out
    if not tokens and not figures.cost:
        return ""
    money = f"${figures.cost:.4f}" if figures.cost else ""
    more = " and more" if money and figures.unpriced else ""
    return " · ".join(part for part in (f"{tokens:,} tokens", f"{money}{more}") if part)


def pass_text(loop: OpenLoop) -> str:
    number, maximum = loop.index + 1, loop.maximum
    if maximum is None:
        return f"pass {number:,}"
    return f"pass {number:,} of {maximum:,}" if loop.fixed else f"pass {number:,}, at most {maximum:,}"


def head_line(text: str) -> str:
    """Return the first line of a construct, which has its condition or its items."""
    return clip(text.partition("\n")[0].strip().removesuffix(":"), TITLE)


def fork_line(text: str) -> str:
    """Return the first line of a construct with branches, without its options for failures and strategies."""
    return _MODIFIERS.sub("", head_line(text))


def nonempty(parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(part for part in parts if part)


def estimate(finished: int, left: int, seconds: float) -> str:
    """Estimate how long the rest takes from the finished items; "" if too few have finished."""
    if finished < MIN_FINISHED or left <= 0:
        return ""
    rest = seconds / finished * left
    if rest < 10:
        return "a few seconds left"
    step = 5 if rest < 60 else 30 if rest < 600 else 60
    return f"about {elapsed(round(rest / step) * step)} left"


def elapsed(seconds: float) -> str:
    """Return an elapsed time in whole seconds: `12 s`, `5 min 06 s`, `2 h 03 min`."""
    whole = int(seconds)
    if whole < 1:
        return ""
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02} min"
