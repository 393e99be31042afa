"""Put the output of parallel branches into source order, with as little delay as possible.

The output of the first unfinished branch is passed on immediately; that of later branches waits until the earlier ones
are done. So a program prints the same text every time, on a pipe and on a terminal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from prose_kernel.runtime.events import BranchStep

Emit = Callable[[Any], object]


class _Lane(Struct):
    """The output of one branch: pieces and nested parallel statements, in order."""

    waiting: deque[object] = field(default_factory=deque)
    open: dict[int, _Group] = field(default_factory=dict)

    def end_open(self) -> None:
        """End open parallel statements: a branch that prints itself, or starts again, no longer runs any."""
        for group in self.open.values():
            group.joined = True
        self.open.clear()


class _Group(Struct):
    """A parallel statement: its lanes by index, and the index of the first one that is not done."""

    count: int
    lanes: dict[int, _Lane] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    first: int = 0
    joined: bool = False


class SourceOrder:
    """Takes pieces of output with their branches, and passes them to `emit` in source order."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._root = _Lane()

    def say(self, branches: Sequence[BranchStep], piece: object) -> None:
        """Add a piece of output of a branch."""
        if not branches and not self._root.waiting:
            self._emit(piece)
            return
        lane = self._lane(branches)
        lane.end_open()
        lane.waiting.append(piece)
        self._drain(self._root)

    def started(self, branches: Sequence[BranchStep], parallel: int, count: int) -> None:
        """Begin a parallel statement with `count` branches in a branch."""
        lane = self._lane(branches)
        lane.end_open()
        lane.open[parallel] = group = _Group(count)
        lane.waiting.append(group)

    def finished(self, branches: Sequence[BranchStep]) -> None:
        """End a branch: the last one of `branches`."""
        *outer, last = branches
        group = self._lane(outer).open.get(last.parallel)
        if group is not None:
            group.finished.add(last.index)
            self._drain(self._root)

    def joined(self, branches: Sequence[BranchStep], parallel: int) -> None:
        """End a parallel statement of a branch, even if some of its own branches have not ended."""
        group = self._lane(branches).open.pop(parallel, None)
        if group is not None:
            group.joined = True
            self._drain(self._root)

    def is_live(self, branches: Sequence[BranchStep]) -> bool:
        """Return whether a piece of output of this branch would be passed on immediately."""
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
        """Pass on all waiting output, in source order."""
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
        """Pass on the output of a lane that need not wait. Return whether all of it was passed on."""
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
        """Move on to the first branch that is still running. Return whether all branches are done."""
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
