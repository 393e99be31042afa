"""Who hears the events of a workspace's runs."""

from __future__ import annotations

from collections.abc import Iterable

from prose_kernel.runtime.events import Audience, Event, Listener, Untold


class Listeners:
    """The listeners of a workspace. While they are muted, because a run is brought back whose events were shown when
    they happened, only those hear it that were added with `replayed`."""

    def __init__(self, listeners: Iterable[Listener], *, muted: bool) -> None:
        self._live = Audience(listeners)
        self.all = Audience((self._live,))
        """What a run tells its events to."""
        self._untold = Untold()
        self._muted = False
        self.mute(muted)

    def add(self, listener: Listener, *, replayed: bool) -> None:
        (self.all if replayed else self._live).add(listener)

    def remove(self, listener: Listener) -> None:
        (self._live if self._live.has(listener) else self.all).remove(listener)

    def mute(self, muted: bool) -> None:
        """Whether events are only noted, or reach the listeners."""
        if muted is not self._muted:
            self._muted = muted
            self.all.remove(self._live if muted else self._note)
            self.all.add(self._note if muted else self._live)

    def tell_open(self) -> None:
        """Tell of what has begun while they were muted, and has not ended."""
        for event in self._untold.take():
            self.all(event)

    def forget(self) -> None:
        """The run is over."""
        self._untold.take()
        self.mute(False)

    def _note(self, event: Event) -> None:
        self._untold.note(event)
