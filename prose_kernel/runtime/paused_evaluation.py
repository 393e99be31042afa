"""Evaluate an expression in a paused program: it may compute and call definitions, but makes no requests.

The outside belongs to the run, whose journal knows each answer: an evaluation that asked a session, ran a command or
bound a name would make the run another one than the one that can be resumed. So it has its own host, whose ports refuse
all requests, without journal and listeners, and works on copies of the names.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn, cast

from msgspec import structs

from prose_kernel.errors import UsageError
from prose_kernel.runtime.execution_context import ExecutionContext, Node
from prose_kernel.runtime.host import Host
from prose_kernel.runtime.ports import Ports
from prose_kernel.runtime.preview import ReadOnlyStore
from prose_kernel.runtime.statement_hook import StatementHook
from prose_kernel.runtime.trampoline import drive
from prose_kernel.runtime.values import Value

STEPS: Final = 10_000
"""Statements after which an evaluation is given up."""

_HINT: Final = "a cell can ask and bind; the debugger only looks, so that the run stays one that can be resumed"


class _Refuses:
    """A port that answers nothing; `what` is what a program wants of it."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, NoReturn]]:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse

    async def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise UsageError(f"{self._what} while the debugger evaluates", hint=_HINT)


class _Limit(StatementHook):
    """The hook that gives up an evaluation without end."""

    def __init__(self) -> None:
        self._steps = 0

    def before(self, s: ExecutionContext, node: Node) -> None:
        self._steps += 1
        if self._steps > STEPS:
            raise UsageError(f"the evaluation is given up after {STEPS:,} statements")


def is_crossing(s: ExecutionContext) -> bool:
    """Whether the code that runs here was called from another language."""
    return s.called_by is not None and s.crossings > s.called_by.crossings


def level(s: ExecutionContext, depth: int) -> int:
    """Return the number of open frames, those of callers included; `depth` are those of this line of control."""
    above = s.called_by
    return depth + (above.level + 1 - is_crossing(s) if above is not None else 1)


def evaluation_host(host: Host) -> Host:
    """Return a host for one evaluation in a paused program."""
    sessions, judge = _Refuses("no session is asked"), _Refuses("no condition in `**` is judged")
    doors: Ports = structs.replace(
        host.ports,
        commands=cast("Any", _Refuses("no command runs")),
        sessions=cast("Any", sessions),
        judge=cast("Any", judge),
        user=cast("Any", _Refuses("nobody is asked for an input")),
        gates=cast("Any", _Refuses("no gate is opened")),
        store=ReadOnlyStore(host.ports.store),
        races=None,
        memories=None,
    )
    return Host(doors, (), supplied=host.supplied, hook=_Limit())


async def evaluated(host: Host, computing: Coroutine[Any, Any, Value]) -> Value:
    """The value of what is computed on such a host."""
    host.scheduler.text_begins()
    try:
        return await drive(computing)
    finally:
        host.scheduler.text_ends()
