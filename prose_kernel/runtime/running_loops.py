"""The running loops, for front ends that show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from prose_kernel.runtime.events import LoopLeft, LoopPass, PipeProgressed

if TYPE_CHECKING:
    from prose_kernel.language.source import Source
    from prose_kernel.runtime.execution_context import ExecutionContext, Node


Operation = Literal["map", "filter", "pmap", "reduce"]


class OpenLoop:
    """A loop, or another construct that processes items in sequence, from its first pass to its end.

    A machine counts the passes in `index`, from 0. Front ends may read `Host.loops` at any time: a pass sends no event.
    `maximum` is the number of passes if `fixed`, else an upper bound, or None.
    """

    def __init__(self, s: ExecutionContext, node: Node, maximum: int | None, *, fixed: bool = True) -> None:
        self.s: Any = s
        self.node: Any = node
        self.fixed = fixed
        self.source: Source = s.source
        self.maximum = maximum
        self.index = -1

    def __enter__(self) -> Self:
        self.opened()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed()

    def opened(self) -> None:
        """Register the loop, when its first pass begins."""
        self.s.host.loops[self] = None

    def closed(self) -> None:
        """Remove the loop, which has ended. It may have had no pass."""
        self.s.host.loops.pop(self, None)


class Passes(OpenLoop):
    """The passes of a loop, which are reported to listeners."""

    def begins(self, index: int) -> None:
        self.index = index
        if not index:
            self.opened()
        if self.s.host.heard[LoopPass]:
            self.s.emit(LoopPass(self.s.place(self.node), index, self.maximum))

    def left(self, reason: str, index: int | None = None) -> None:
        """Report the end of the loop with its reason. `index` is given if it ended before a pass that has not begun."""
        self.closed()
        if self.s.host.heard[LoopLeft]:
            index = self.index if index is None else index
            self.s.emit(LoopLeft(self.s.place(self.node), index, self.maximum, reason))


class Items(OpenLoop):
    """The items of an operation that processes them in sequence."""

    def begins(self, operation: Operation, index: int) -> None:
        self.index = index
        progressed(self.s, self.node, operation, index, self.maximum or 0)


def progressed(s: Any, node: Node, operation: Operation, index: int, total: int) -> None:
    """Report that an operation begins an item, counted from 0."""
    if s.host.heard[PipeProgressed]:
        s.emit(PipeProgressed(s.place(node), operation, index + 1, total))
