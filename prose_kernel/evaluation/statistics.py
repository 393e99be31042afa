"""Whether a difference is more than chance."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

SIGNIFICANT: Final = 0.05


def at_least(count: int, trials: int) -> float:
    """Return the probability of at least `count` heads in `trials` throws of a fair coin."""
    ways = sum(math.comb(trials, number) for number in range(trials - count + 1))
    return float(Fraction(ways, 2**trials))


def sign_test(better: int, worse: int) -> float:
    """Return the probability of a difference this large by chance (exact, two-sided); ties take no part."""
    return min(1.0, 2 * at_least(max(better, worse), better + worse)) if better + worse else 1.0


def one_sided(better: int, worse: int) -> float:
    """Return the probability of this many worse cases, or more, by chance."""
    return at_least(worse, better + worse) if worse else 1.0
