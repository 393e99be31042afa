"""The output of parallel branches in source order, as live as that order allows.

The first unfinished branch is passed through as it comes; the output of later branches waits until the earlier
ones are done. So a program prints the same text every time, to a pipe and to a terminal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from prose_kernel.runtime.events import BranchStep

Emit = Callable[[object], None]


@dataclass(slots=True)
class _Lane:
    """The output of one branch: pieces and nested parallel statements, in order."""

    waiting: deque[object] = field(default_factory=deque)
    open: dict[int, _Group] = field(default_factory=dict)

    def end_open(self) -> None:
        """A branch that prints by itself, or starts again, has no running parallel statement any more."""
        for group in self.open.values():
            group.joined = True
        self.open.clear()


@dataclass(slots=True)
class _Group:
    """One parallel statement: its lanes by index, and the first one that is not done."""

    count: int
    lanes: dict[int, _Lane] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    first: int = 0
    joined: bool = False


class SourceOrder:
    """Takes pieces of output with the branches they come from; hands them to `emit` in source order."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._root = _Lane()

    def say(self, branches: Sequence[BranchStep], piece: object) -> None:
        """A piece of output of the given branch."""
        if not branches and not self._root.waiting:
            self._emit(piece)
            return
        lane = self._lane(branches)
        lane.end_open()
        lane.waiting.append(piece)
        self._drain(self._root)

    def started(self, branches: Sequence[BranchStep], parallel: int, count: int) -> None:
        """A parallel statement with `count` branches began in the given branch."""
        lane = self._lane(branches)
        lane.end_open()
        lane.open[parallel] = group = _Group(count)
        lane.waiting.append(group)

    def finished(self, branches: Sequence[BranchStep]) -> None:
        """The branch that `branches` ends with is done."""
        *outer, last = branches
        group = self._lane(outer).open.get(last.parallel)
        if group is not None:
            group.finished.add(last.index)
            self._drain(self._root)

    def joined(self, branches: Sequence[BranchStep], parallel: int) -> None:
        """The parallel statement of the given branch is over, whatever its branches did."""
        group = self._lane(branches).open.pop(parallel, None)
        if group is not None:
            group.joined = True
            self._drain(self._root)

    def is_live(self, branches: Sequence[BranchStep]) -> bool:
        """Whether a piece of output of that branch would be passed on immediately."""
        lane = self._root
        for step in branches:
            group = lane.open.get(step.parallel)
            if group is None or (lane.waiting and lane.waiting[0] is not group) or group.first != step.index:
                return False
            found = group.lanes.get(step.index)
            if found is None:
                return step is branches[-1]
            lane = found
        return not lane.waiting

    def close(self) -> None:
        """Hand out everything that still waits, in source order."""
        self._flush(self._root)

    def _lane(self, branches: Sequence[BranchStep]) -> _Lane:
        lane = self._root
        for step in branches:
            group = lane.open.get(step.parallel)
            if group is None:
                lane.open[step.parallel] = group = _Group(step.index + 1)
                lane.waiting.append(group)
            group.count = max(group.count, step.index + 1)
            lane = group.lanes.setdefault(step.index, _Lane())
        return lane

    def _drain(self, lane: _Lane) -> bool:
        """Hand out what may go now; whether nothing of the lane is left waiting."""
        while lane.waiting:
            head = lane.waiting[0]
            if isinstance(head, _Group):
                if not self._advance(head):
                    return False
            else:
                self._emit(head)
            lane.waiting.popleft()
        return True

    def _advance(self, group: _Group) -> bool:
        """Move to the first branch that still runs; whether all of them are done."""
        while group.first < group.count:
            lane = group.lanes.get(group.first)
            if lane is not None and not self._drain(lane):
                return False
            if not (group.joined or group.first in group.finished):
                return False
            group.lanes.pop(group.first, None)
            group.finished.discard(group.first)
            group.first += 1
        return group.joined

    def _flush(self, lane: _Lane) -> None:
        while lane.waiting:
            head = lane.waiting.popleft()
            if isinstance(head, _Group):
                for index in sorted(head.lanes):
                    self._flush(head.lanes[index])
            else:
                self._emit(head)
