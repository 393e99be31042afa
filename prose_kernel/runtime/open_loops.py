"""The loops that run at a moment, for whoever shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from prose_kernel.language.source import Source
    from prose_kernel.runtime.execution_context import ExecutionContext, Node


class OpenLoop:
    """A loop, or another construct that takes its items one after the other, from its first pass to its end.

    A machine counts the passes in `index`, from 0. Who shows them looks at `Host.loops` when it likes: a pass sends
    nothing. `maximum` is the number of passes where `fixed`, else a bound, None where there is none.
    """

    __slots__ = ("index", "maximum", "node", "s", "source")

    fixed: ClassVar[bool] = True

    def __init__(self, s: ExecutionContext, node: Node, maximum: int | None) -> None:
        self.s = s
        self.node = node
        self.source: Source = s.source
        self.maximum = maximum
        self.index = -1

    def __enter__(self) -> Self:
        self.opened()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed()

    def opened(self) -> None:
        """The first pass begins."""
        self.s.host.loops[self] = None

    def closed(self) -> None:
        """The loop is over, in whatever way; it may have had no pass."""
        self.s.host.loops.pop(self, None)
