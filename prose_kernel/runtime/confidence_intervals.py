"""Confidence intervals of counted shares: of runs that passed, of a judge's correct answers."""

from __future__ import annotations

import math
from typing import Final

Z: Final = 1.959964
"""The quantile of the normal distribution for 95 %."""


def wilson(count: float, of: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share (Wilson score interval); (0, 1) if nothing was counted."""
    if not of:
        return 0.0, 1.0
    share, square = count / of, Z * Z
    middle = share + square / (2 * of)
    reach = Z * math.sqrt(share * (1 - share) / of + square / (4 * of * of))
    low, high = ((middle + sign * reach) / (1 + square / of) for sign in (-1, 1))
    return max(0.0, low) if count else 0.0, min(1.0, high) if count < of else 1.0
