"""What an agent's calls may consume, and did (exec-and-tasks.md 3.9)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that an agent may use; None: no bound."""

    tool_calls: int | None = None
    wall_s: float | None = None
    cpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class Charge:
    """What was used."""

    tool_calls: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0


class Ledger:
    """The account of one agent. `breached` is told the name of the first bound that was passed, once."""

    def __init__(self, budget: Budget, breached: Callable[[str], object] | None = None) -> None:
        self._budget = budget
        self._breached = breached
        self._used = Charge()
        self._reserved = 0
        self._lock = threading.Lock()

    @property
    def used(self) -> Charge:
        return self._used

    def reserve(self) -> str | None:
        """Take one call in advance; why it cannot be taken, else None."""
        with self._lock:
            calls = self._used.tool_calls + self._reserved
            most = self._budget.tool_calls
            if most is not None and calls + 1 > most:
                return f"the budget of {most} calls is used up"
            self._reserved += 1
        return None

    def charge(self, wall_s: float, cpu_s: float) -> None:
        """Book a call that was taken in advance; recorded also when it exceeds."""
        with self._lock:
            self._reserved -= 1
            used = self._used
            self._used = Charge(used.tool_calls + 1, used.wall_s + wall_s, used.cpu_s + cpu_s)
            over = self._over()
            told, self._breached = (self._breached, None) if over else (None, self._breached)
        if over and told is not None:
            told(over)

    def _over(self) -> str | None:
        for name in ("tool_calls", "wall_s", "cpu_s"):
            most = getattr(self._budget, name)
            if most is not None and getattr(self._used, name) > most:
                return name
        return None
