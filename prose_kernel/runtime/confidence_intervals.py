"""How sure a share is that was counted: of runs that passed, of a judge's answers that were right."""

from __future__ import annotations

import math
from typing import Final

Z: Final = 1.959964
"""Of the normal distribution, for 95 %."""


def wilson(count: float, of: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson's score interval); all of it is open where nothing was counted."""
    if not of:
        return 0.0, 1.0
    share, square = count / of, Z * Z
    middle = share + square / (2 * of)
    reach = Z * math.sqrt(share * (1 - share) / of + square / (4 * of * of))
    low, high = ((middle + sign * reach) / (1 + square / of) for sign in (-1, 1))
    return max(0.0, low) if count else 0.0, min(1.0, high) if count < of else 1.0
