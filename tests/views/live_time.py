"""A clock for live views that stands still until a test moves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prose_kernel.views.refresh import Time


@dataclass
class Due:
    at: float
    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeTime(Time):
    def __init__(self) -> None:
        self.at = 100.0
        self.waiting: list[Due] = []

    def now(self) -> float:
        return self.at

    def call_later(self, seconds: float, call: Callable[[], None]) -> Due:
        due = Due(self.at + seconds, call)
        self.waiting.append(due)
        return due

    def pass_by(self, seconds: float) -> None:
        """Let time go on, and call what is due on the way."""
        end = self.at + seconds
        while True:
            ready = [due for due in self.waiting if not due.cancelled and due.at <= end + 1e-9]
            self.waiting = [due for due in self.waiting if not due.cancelled]
            if not ready:
                break
            first = min(ready, key=lambda due: due.at)
            self.waiting.remove(first)
            self.at = max(self.at, first.at)
            first.call()
        self.at = end
