"""A hook that is called before each statement runs, for debuggers and displays of a running machine.

Without a listener `Host.hook` is None and costs nothing. With a hook, bodies have no fast path: each statement passes
through `before`, with its context. The hook may hold it by returning an awaitable; the branch keeps its turn meanwhile.
So all other branches wait too, answers of the outside are not delivered, and the program does the same as without the
hook: the journal of the run is the same.

`ExecutionContext.frames` describes the current position for any language.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from prose_kernel.language.source import Source, Span
from prose_kernel.runtime.values import Value

if TYPE_CHECKING:
    from prose_kernel.errors import RunError
    from prose_kernel.runtime.execution_context import ExecutionContext, Node


class StatementHook(Protocol):
    """Listens to a machine statement by statement, in the machine's loop. Subclasses need not implement `failed` and
    `interrupted`."""

    def before(self, s: ExecutionContext, node: Node) -> Awaitable[None] | None:
        """Called before the statement (or named branch) `node` runs in `s`. Return None to let it run immediately."""

    def failed(self, s: ExecutionContext, node: Node, error: RunError) -> Awaitable[None] | None:
        """Called for an error in `node`, before handlers catch it."""
        return None

    def interrupted(self) -> None:
        """Called when the running text is interrupted. Release all held statements."""
        return


class VisibleNames(Struct, frozen=True):
    """Names that a frame sees, with their values; `is_global` for names of the root."""

    name: str
    is_global: bool
    names: Callable[[], Mapping[str, Value]]


class StackFrame(Struct, frozen=True):
    """One active call: the callee, its running statement, and the names visible to it, innermost first.

    `context` is the line of control of the frame, `inner` the language's own object for it.
    """

    name: str
    source: Source
    span: Span
    scopes: tuple[VisibleNames, ...]
    context: ExecutionContext
    inner: object


class _CombinedHook:
    """Combines several hooks: a statement runs when all of them have released it."""

    def __init__(self, hooks: Sequence[StatementHook]) -> None:
        self._hooks = tuple(hooks)

    def before(self, s: ExecutionContext, node: Node) -> Awaitable[None] | None:
        held = [one for hook in self._hooks if (one := hook.before(s, node)) is not None]
        return _await_all(held) if held else None

    def failed(self, s: ExecutionContext, node: Node, error: RunError) -> Awaitable[None] | None:
        held = [one for hook in self._hooks if (one := hook.failed(s, node, error)) is not None]
        return _await_all(held) if held else None

    def interrupted(self) -> None:
        for hook in self._hooks:
            hook.interrupted()


async def _await_all(held: Sequence[Awaitable[None]]) -> None:
    for one in held:
        await one


def joined(hooks: Sequence[StatementHook]) -> StatementHook | None:
    """Return several hooks as one; None if there are none."""
    return _CombinedHook(hooks) if len(hooks) > 1 else hooks[0] if hooks else None
