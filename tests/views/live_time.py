"""A clock for live views that only tests advance."""

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
        """Advance the clock, and make the calls that become due."""
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
