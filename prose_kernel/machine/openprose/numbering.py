"""Numbers that do not depend on what finishes first (openprose.md 3.6, 6.5, 7.4).

A program run counts each kind of thing from 1: block invocations, anonymous bindings, calls of one imported program.
Where control forks, the branches share what is left like a hand of cards: of three branches the first takes 1, 4, 7,
the second 2, 5, 8, the third 3, 6, 9. So numbers go out in source order when the branches are scheduled, none is given
twice, and which ones a branch gets has nothing to do with how fast its siblings are. Behind the join the counting goes
on after the highest number given. A branch that cannot need a number of some kind has no share in that kind, so that
the usual program counts 1, 2, 3 without gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose.tree_walk import walk


class Needs(NamedTuple):
    """What the text of a branch tells about the numbers it may need.

    `calls_blocks`: a block is called. `programs`: the aliases of the programs called. `spawns`: a session stands there
    whose value no name takes. `stores`: a value without a name may have to be stored.
    """

    calls_blocks: bool
    programs: frozenset[str]
    spawns: bool
    stores: bool


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of number. `wanted` ranks a branch: 0 needs one, 1 may need one (served after those), None never does."""

    name: str
    wanted: Callable[[Needs], int | None] = field(compare=False)


EXECUTION = Kind("execution", lambda needs: 0 if needs.calls_blocks else None)
PARALLEL = Kind("parallel", lambda _: 0)
ANONYMOUS = Kind("anonymous", lambda needs: 0 if needs.spawns else 1 if needs.stores or needs.calls_blocks else None)


def call_of(program: str, aliases: frozenset[str]) -> Kind:
    """The calls of one imported program, which the running program knows under these aliases."""

    def wanted(needs: Needs) -> int | None:
        return 0 if needs.programs & aliases else 1 if needs.calls_blocks else None

    return Kind(f"program {program}", wanted)


# ---------------------------------------------------------------- counting


class ForkAllocation:
    """How the numbers are shared at one fork, kind by kind. Without `needs` all branches are alike (iterations)."""

    __slots__ = ("_needs", "_places", "total")

    def __init__(self, total: int, needs: Sequence[Needs] | None = None) -> None:
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
    """Where one line of control takes its numbers from: a run as a whole, or one branch of a fork."""

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
        """A branch of the fork under way gives no more numbers."""
        for kind, inner in branch._series.items():
            if inner.following > inner.start:
                outer = self._of(kind)
                outer.reached = max(outer.reached, inner.following - inner.step + outer.step)

    def joined(self) -> None:
        """All branches of the fork have ended: go on after the highest number they gave."""
        for series in self._series.values():
            series.following = series.reached


# ---------------------------------------------------------------- reading a branch


def needs_of(statement: tree.Node) -> Needs:
    """What the text of a branch needs, everything nested in it included."""
    found = list(walk(statement))
    named = {id(spawn) for node in found if (spawn := _named_spawn(node)) is not None}
    sessions = [node for node in found if isinstance(node, tree.Session | tree.Resume)]
    return Needs(
        calls_blocks=any(isinstance(node, tree.BlockCall) for node in found),
        programs=frozenset(node.program.id for node in found if isinstance(node, tree.ProgramCall)),
        spawns=any(id(node) not in named for node in sessions)
        or any(isinstance(node, tree.OnReject) and node.action == "session" for node in found),
        stores=any(isinstance(node, tree.For | tree.Repeat | tree.Pipe) for node in found)
        or any(node.agent is not None or node.properties for node in sessions),
    )


def _named_spawn(node: tree.Node) -> tree.Node | None:
    """The spawn whose value goes to the name that a statement or a branch binds."""
    value: tree.Node | None = None
    match node:
        case tree.Branch(name=tree.Name(), statement=tree.ExpressionStatement() as statement):
            value = statement.value
        case tree.Assign() | tree.Output(name=tree.Name()) | tree.Let(destructured=False):
            value = node.value
    return value.spawns[-1] if isinstance(value, tree.Arrow) else value
