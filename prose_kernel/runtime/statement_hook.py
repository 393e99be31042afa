"""A hook that is called right before each statement runs, for debuggers and displays of a running machine.

`Host.hook` is None without a listener, so that it costs nothing then. While there is a hook, nothing is computed flat:
each statement passes through `before`, with the context that it runs in. The hook may hold it: what it returns is
awaited, and the branch keeps its turn meanwhile. So all other branches stand still too, answers of the outside wait,
and the program does what it would have done without the hook: the journal of the run is the same.

`ExecutionContext.frames` says where control is, in the terms of any language.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from prose_kernel.language.source import Source, Span
from prose_kernel.runtime.values import Value

if TYPE_CHECKING:
    from prose_kernel.errors import RunError
    from prose_kernel.runtime.execution_context import ExecutionContext, Node


class StatementHook(Protocol):
    """Listens to a machine statement by statement. Called in the machine's loop. A hook that derives from this class
    need not have `failed` and `interrupted`."""

    def before(self, s: ExecutionContext, node: Node) -> Awaitable[None] | None:
        """The statement (or named branch) `node` is about to run in `s`. None: it may run immediately."""

    def failed(self, s: ExecutionContext, node: Node, error: RunError) -> Awaitable[None] | None:
        """An error arose in `node`; handlers catch it after this call."""
        return None

    def interrupted(self) -> None:
        """The running text is interrupted: release all held statements."""
        return


@dataclass(frozen=True, slots=True)
class Scope:
    """Names that a frame sees, with their values; those of the root are `is_global`."""

    name: str
    is_global: bool
    names: Callable[[], Mapping[str, Value]]


@dataclass(frozen=True, slots=True)
class StackFrame:
    """One active call: the callee, its running statement, and the names visible to it, innermost first.

    `context` is the line of control that the frame belongs to, `inner` the language's own object for it.
    """

    name: str
    source: Source
    span: Span
    scopes: tuple[Scope, ...]
    context: ExecutionContext
    inner: object


class _Several:
    """Several hooks as one: a statement runs when all of them have released it."""

    def __init__(self, hooks: Sequence[StatementHook]) -> None:
        self._hooks = tuple(hooks)

    def before(self, s: ExecutionContext, node: Node) -> Awaitable[None] | None:
        held = [one for hook in self._hooks if (one := hook.before(s, node)) is not None]
        return _all(held) if held else None

    def failed(self, s: ExecutionContext, node: Node, error: RunError) -> Awaitable[None] | None:
        held = [one for hook in self._hooks if (one := hook.failed(s, node, error)) is not None]
        return _all(held) if held else None

    def interrupted(self) -> None:
        for hook in self._hooks:
            hook.interrupted()


async def _all(held: Sequence[Awaitable[None]]) -> None:
    for one in held:
        await one


def joined(hooks: Sequence[StatementHook]) -> StatementHook | None:
    """Some hooks as one; None without any."""
    return _Several(hooks) if len(hooks) > 1 else hooks[0] if hooks else None
