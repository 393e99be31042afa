"""A look at each statement right before it runs: what a debugger, and whoever shows a machine at work, listen to.

`Host.hook` is None unless somebody listens, so that a program costs nothing more. While there is a hook, nothing is
computed flat: each statement passes through `before`, with the context that it runs in. The hook may hold it: what it
returns is awaited, and the branch keeps its turn meanwhile. So all other branches stand still too, answers of the
outside wait, and the program does what it would have done without the hook: the journal of the run is the same.

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
        """The statement (or named branch) `node` is about to run in `s`. None: it may go on at once."""

    def failed(self, s: ExecutionContext, node: Node, error: RunError) -> Awaitable[None] | None:
        """An error arose in `node`; whoever catches it, does so afterwards."""
        return None

    def interrupted(self) -> None:
        """The text that runs is interrupted: whatever is held has to go on."""
        return


@dataclass(frozen=True, slots=True)
class Scope:
    """Names that a frame sees, with their values; those of the root are `is_global`."""

    name: str
    is_global: bool
    names: Callable[[], Mapping[str, Value]]


@dataclass(frozen=True, slots=True)
class StackFrame:
    """One call under way: what is called, the statement there that runs, the names that it sees, innermost first.

    `context` is the line of control that the frame belongs to, `inner` the language's own object for it.
    """

    name: str
    source: Source
    span: Span
    scopes: tuple[Scope, ...]
    context: ExecutionContext
    inner: object


class _Several:
    """Some hooks as one: a statement goes on when each of them lets it."""

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
