"""Numbers that do not depend on what finishes first.

A program run counts each kind of thing from 1: calls, values without a name, constructs that run at the same time.
Where control forks, the branches share the remaining numbers in turns: of three branches the first takes 1, 4, 7, the
second 2, 5, 8, the third 3, 6, 9. So numbers go out in source order when the branches are scheduled, none is given
twice, and which ones a branch gets has nothing to do with how fast its siblings are. After the join the counting
continues after the highest number given. A branch that cannot need a number of some kind has no share in that kind, so
that the usual program counts 1, 2, 3 without gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of number. `wanted` ranks a branch by what its language knows about its text: 0 needs a number, 1 may need
    one (served after those), None never does."""

    name: str
    wanted: Callable[[Any], int | None] = field(compare=False)


PARALLEL: Final = Kind("parallel", lambda _: 0)
"""The constructs whose branches run in parallel."""


class ForkAllocation:
    """How the numbers are shared at one fork, kind by kind. Without `needs` all branches are alike (iterations)."""

    __slots__ = ("_needs", "_places", "total")

    def __init__(self, total: int, needs: Sequence[object] | None = None) -> None:
        self.total = total
        self._needs = needs
        self._places: dict[Kind, dict[int, int]] = {}

    def share(self, kind: Kind, index: int) -> tuple[int, int]:
        """The place of a branch in the round, and how many take part."""
        if self._needs is None:
            return index, self.total
        places = self._places.get(kind)
        if places is None:
            ranked = sorted((r, i) for i, n in enumerate(self._needs) if (r := kind.wanted(n)) is not None)
            places = self._places[kind] = {i: place for place, (_, i) in enumerate(ranked)}
        return places[index], len(places)


class _Series:
    """The numbers of one kind that a lane may give: `following`, then on by `step`."""

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
        """The next number of its kind, from 1."""
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
        """A branch of the current fork gives no more numbers."""
        for kind, inner in branch._series.items():
            if inner.following > inner.start:
                outer = self._of(kind)
                outer.reached = max(outer.reached, inner.following - inner.step + outer.step)

    def joined(self) -> None:
        """All branches of the fork have ended: continue after the highest number they gave."""
        for series in self._series.values():
            series.following = series.reached
