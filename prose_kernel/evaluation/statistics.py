"""How sure a pass rate is, and whether a difference is more than chance."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

Z: Final = 1.959964
"""Of the normal distribution, for 95 %."""
SIGNIFICANT: Final = 0.05


def wilson(passed: int, runs: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson's score interval); all of it is open without any runs."""
    if not runs:
        return 0.0, 1.0
    share, square = passed / runs, Z * Z
    middle = share + square / (2 * runs)
    reach = Z * math.sqrt(share * (1 - share) / runs + square / (4 * runs * runs))
    low, high = ((middle + sign * reach) / (1 + square / runs) for sign in (-1, 1))
    return max(0.0, low) if passed else 0.0, min(1.0, high) if passed < runs else 1.0


def at_least(count: int, trials: int) -> float:
    """How likely so many heads, or more, are in throws of a fair coin."""
    ways = sum(math.comb(trials, number) for number in range(trials - count + 1))
    return float(Fraction(ways, 2**trials))


def sign_test(better: int, worse: int) -> float:
    """How likely a difference as large is by chance (exact, two-sided); ties take no part."""
    return min(1.0, 2 * at_least(max(better, worse), better + worse)) if better + worse else 1.0


def one_sided(better: int, worse: int) -> float:
    """How likely so many worse cases, or more, are by chance."""
    return at_least(worse, better + worse) if worse else 1.0
