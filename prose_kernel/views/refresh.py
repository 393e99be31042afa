"""When a live view is drawn again: soon after something has changed, and seldom while only time passes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

SOONEST: Final = 0.1
"""Seconds between two drawings, at least: many changes make one."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Time:
    """The clock of a live view; tests bring one that stands still."""

    def now(self) -> float:
        """Seconds that only grow."""
        return time.monotonic()

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, call)


class Refresh:
    """Calls `draw`, which returns the seconds until it wants to be called again though nothing has changed; None: only
    after a change."""

    def __init__(self, draw: Callable[[], float | None], clock: Time) -> None:
        self._draw = draw
        self._clock = clock
        self._timer: Timer | None = None
        self._soon = False
        self._drawn = float("-inf")

    def changed(self) -> None:
        """Something else is to be seen. Costs a look at a flag where a drawing is due already."""
        if not self._soon:
            self._soon = True
            self._set(max(0.0, self._drawn + SOONEST - self._clock.now()))

    def after(self, seconds: float) -> None:
        """Draw then, unless something changes before."""
        if self._timer is None:
            self._set(seconds)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._soon = None, False

    def _set(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(seconds, self._due)

    def _due(self) -> None:
        self._timer, self._soon = None, False
        self._drawn = self._clock.now()
        again = self._draw()
        if again is not None:
            self.after(again)
