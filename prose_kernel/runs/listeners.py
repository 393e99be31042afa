"""Listeners for the events of a workspace's runs."""

from __future__ import annotations

from collections.abc import Iterable

from prose_kernel.runtime.events import Audience, Listener, UnreportedBegins


class Listeners:
    """The listeners of a workspace. While a run is restored, whose events were shown when they happened, they are
    muted: only listeners added with `replayed` receive events."""

    def __init__(self, listeners: Iterable[Listener], *, muted: bool) -> None:
        self._live = Audience(listeners)
        self.all = Audience((self._live,))
        """Receives all events of a run."""
        self._unreported = UnreportedBegins()
        self._muted = False
        self.mute(muted)

    def add(self, listener: Listener, *, replayed: bool) -> None:
        (self.all if replayed else self._live).add(listener)

    def remove(self, listener: Listener) -> None:
        (self._live if self._live.has(listener) else self.all).remove(listener)

    def mute(self, muted: bool) -> None:
        """Start or stop noting events instead of passing them to the listeners."""
        if muted is not self._muted:
            self._muted = muted
            self.all.remove(self._live if muted else self._unreported.note)
            self.all.add(self._unreported.note if muted else self._live)

    def emit_open(self) -> None:
        """Emit the begin of open activities that began while the listeners were muted. Listeners added with `replayed`
        have received it already."""
        for event in self._unreported.take():
            self._live(event)

    def text_ended(self) -> None:
        """Forget the activities of a text of the restored run, which has ended."""
        self._unreported.forget_activities()

    def forget(self) -> None:
        """Reset the listeners after the end of a run."""
        self._unreported.take()
        self.mute(False)
