"""A display that grows while a person watches: shown at once, then replaced a few times a second, and by what stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from prose_kernel.views.display import Display

UPDATE_SECONDS = 0.1
"""Pause between two updates of a display that grows."""


class Replaceable(Protocol):
    """Where a display is shown that is replaced later."""

    def reserve(self, display: Display) -> str | None:
        """Show it and return its id; None where there is no room for one more that can be replaced."""

    def replace(self, display: Display, display_id: str) -> None: ...


class GrowingDisplay:
    """One display at a `place`; `now` makes what it shows at this moment."""

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
        """Show it now for the first time, later soon: many pieces make one update."""
        if self._timer is not None or self._refused:
            return
        if self._display_id is None:
            self._display_id = self._place.reserve(self._now())
            self._refused = self._display_id is None
        else:
            self._timer = asyncio.get_running_loop().call_later(UPDATE_SECONDS, self._update)

    def _update(self) -> None:
        self._timer = None
        if self._display_id is not None:
            self._place.replace(self._now(), self._display_id)

    def settle(self, display: Display) -> bool:
        """Replace what grew by what stays; False where nothing has been shown."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._display_id is None:
            return False
        self._place.replace(display, self._display_id)
        self._display_id = None
        return True
