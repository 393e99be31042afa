"""Numbers that do not depend on which branch finishes first.

A program run counts each kind of thing from 1: calls, values without a name, constructs that run in parallel. At a fork
the branches share the remaining numbers in turns: of three branches the first takes 1, 4, 7, the second 2, 5, 8, the
third 3, 6, 9. So numbers follow the source order, no number is used twice, and the speed of a branch has no influence.
After the join the count continues after the highest used number. A branch that cannot need a number of some kind gets
no share of that kind, so that most programs count 1, 2, 3 without gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of number. `wanted` ranks a branch by its text: 0 needs a number, 1 may need one (served after the first
    group), None never does."""

    name: str
    wanted: Callable[[Any], int | None] = field(compare=False)


PARALLEL: Final = Kind("parallel", lambda _: 0)
"""Counts the constructs whose branches run in parallel."""


class ForkAllocation:
    """The shares of the branches of one fork, for each kind. Without `needs` all branches are alike (iterations)."""

    __slots__ = ("_needs", "_places", "total")

    def __init__(self, total: int, needs: Sequence[object] | None = None) -> None:
        self.total = total
        self._needs = needs
        self._places: dict[Kind, dict[int, int]] = {}

    def share(self, kind: Kind, index: int) -> tuple[int, int]:
        """Return the position of a branch in the round, and the size of the round."""
        if self._needs is None:
            return index, self.total
        places = self._places.get(kind)
        if places is None:
            ranked = sorted((r, i) for i, n in enumerate(self._needs) if (r := kind.wanted(n)) is not None)
            places = self._places[kind] = {i: place for place, (_, i) in enumerate(ranked)}
        return places[index], len(places)


class _Series:
    """The numbers of one kind in one line of control: `following`, then more in steps of `step`."""

    __slots__ = ("following", "reached", "start", "step")

    def __init__(self, start: int, step: int) -> None:
        self.start = self.following = self.reached = start
        self.step = step


class NumberSequence:
    """The numbers of one line of control: a whole run, or one branch of a fork."""

    __slots__ = ("_index", "_outer", "_series", "_split")

    def __init__(
        self, outer: NumberSequence | None = None, split: ForkAllocation | None = None, index: int = 0
    ) -> None:
        self._outer = outer
        self._split = split
        self._index = index
        self._series: dict[Kind, _Series] = {}

    def next(self, kind: Kind) -> int:
        """Return the next number of its kind, from 1."""
        series = self._of(kind)
        number = series.following
        series.following = series.reached = number + series.step
        return number

    def _of(self, kind: Kind) -> _Series:
        series = self._series.get(kind)
        if series is None:
            if self._outer is None or self._split is None:
                series = _Series(1, 1)
            else:
                outer = self._outer._of(kind)
                place, ways = self._split.share(kind, self._index)
                series = _Series(outer.following + place * outer.step, outer.step * ways)
            self._series[kind] = series
        return series

    def ended(self, branch: NumberSequence) -> None:
        """Count the numbers that a finished branch of the current fork has used."""
        for kind, inner in branch._series.items():
            if inner.following > inner.start:
                outer = self._of(kind)
                outer.reached = max(outer.reached, inner.following - inner.step + outer.step)

    def joined(self) -> None:
        """Continue after the highest number used, when all branches of the fork have ended."""
        for series in self._series.values():
            series.following = series.reached
