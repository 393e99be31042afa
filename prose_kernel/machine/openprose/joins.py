"""When a `parallel` is over, and with what: the matrix of strategies and policies (openprose.md 3.7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from prose_kernel.errors import RunError
from prose_kernel.language.openprose.tree import Modifiers
from prose_kernel.machine.openprose.failures import error_value
from prose_kernel.runtime.values import Value


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a branch ended. One that never began, or lost a race, is `cancelled`."""

    status: Literal["done", "failed", "cancelled"]
    value: Value = None
    error: RunError | None = None


CANCELLED = Outcome("cancelled")


@dataclass(slots=True)
class Join:
    """Told of each branch as it finishes, says when the rest is not needed any more.

    `winners` are the branches that `first` and `any` count, in the order in which they finished; `raised` is the error
    the block fails with.
    """

    modifiers: Modifiers
    total: int
    winners: list[int] = field(default_factory=list)
    raised: RunError | None = None
    decided: bool = False
    _settled: int = 0

    @property
    def _needed(self) -> int:
        return (self.modifiers.count or 1) if self.modifiers.strategy == "any" else 1

    def settle(self, index: int, outcome: Outcome) -> None:
        """A branch has finished; afterwards `decided` says whether the others are to be cancelled."""
        self._settled += 1
        succeeded = outcome.status == "done"
        if self.modifiers.strategy == "all":
            if not succeeded and self.modifiers.on_fail == "fail-fast":
                self._fail(outcome)
        elif succeeded or self.modifiers.on_fail == "ignore":
            self.winners.append(index)
            self.decided = len(self.winners) >= self._needed
        elif self.modifiers.on_fail == "fail-fast" and self._is_hopeless():
            self._fail(outcome)

    def _is_hopeless(self) -> bool:
        """Whether the failure that has just been counted ends it: a race, or too few branches are left."""
        if self.modifiers.strategy == "first":
            return True
        return len(self.winners) + self.total - self._settled < self._needed

    def _fail(self, outcome: Outcome) -> None:
        self.raised = outcome.error
        self.decided = True

    def member(self, outcome: Outcome) -> Value:
        """What a branch's name, or its place in the array, holds afterwards."""
        if outcome.status == "done":
            return outcome.value
        if outcome.status == "failed" and outcome.error is not None and self.modifiers.on_fail == "continue":
            return error_value(outcome.error)
        return None

    def value(self, outcomes: list[Outcome]) -> Value:
        """The value of a construct that `first` or `any` decided."""
        won = [outcomes[index].value for index in self.winners]
        if self.modifiers.strategy == "any" and self.modifiers.count is not None:
            return list(won)
        return won[0] if won else None
