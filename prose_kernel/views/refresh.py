"""Schedule redrawing: a live view is redrawn soon after a change, and seldom while only time passes; a growing display
is replaced a few times a second, and at last by its final form."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from prose_kernel.views.display import Display

MIN_INTERVAL: Final = 0.1
"""The least seconds between two drawings; changes in between are drawn together."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Time:
    """The clock of a live view; tests use one that does not advance."""

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        return time.monotonic()

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, call)


class Refresh:
    """Calls `draw`, which returns the seconds until the next call, or None to be called only after a change."""

    def __init__(self, draw: Callable[[], float | None], clock: Time) -> None:
        self._draw = draw
        self._clock = clock
        self._timer: Timer | None = None
        self._soon = False
        self._drawn = float("-inf")

    def changed(self) -> None:
        """Schedule a drawing after a change. Does nothing if a drawing is scheduled already."""
        if not self._soon:
            self._soon = True
            self._set(max(0.0, self._drawn + MIN_INTERVAL - self._clock.now()))

    def after(self, seconds: float) -> None:
        """Draw after `seconds`, or earlier if something changes."""
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


class Replaceable(Protocol):
    """A place for a display that is replaced later."""

    def reserve(self, display: Display) -> str | None:
        """Show the display and return its id; None if there is no room for another replaceable display."""

    def replace(self, display: Display, display_id: str) -> None: ...


class GrowingDisplay:
    """A display at a `place`; `now` returns its current content."""

    def __init__(self, place: Replaceable, now: Callable[[], Display]) -> None:
        self._place = place
        self._now = now
        self._refused = False
        self._display_id: str | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def shown(self) -> bool:
        return self._display_id is not None

    def grow(self) -> None:
        """Show the display immediately the first time; batch later updates."""
        if self._timer is not None or self._refused:
            return
        if self._display_id is None:
            self._display_id = self._place.reserve(self._now())
            self._refused = self._display_id is None
        else:
            self._timer = asyncio.get_running_loop().call_later(MIN_INTERVAL, self._update)

    def _update(self) -> None:
        self._timer = None
        if self._display_id is not None:
            self._place.replace(self._now(), self._display_id)

    def settle(self, display: Display) -> bool:
        """Replace the growing display with its final form; return False if nothing has been shown."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._display_id is None:
            return False
        self._place.replace(display, self._display_id)
        self._display_id = None
        return True
