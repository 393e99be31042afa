"""Evaluations in a paused program of any language: they may compute, and call definitions.

The journal must know each answer of the run: a session, a command or a binding made by an evaluation would be missing
when the run is resumed. So an evaluation has its own host without journal and listeners, whose ports refuse all
requests, and works on copies of the names.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn, cast

from prose_kernel.errors import UsageError
from prose_kernel.language.structs import replace
from prose_kernel.runtime.execution_context import ExecutionContext
from prose_kernel.runtime.host import Host
from prose_kernel.runtime.ports import Ports
from prose_kernel.runtime.preview import ReadOnlyStore, StepLimit
from prose_kernel.runtime.trampoline import drive
from prose_kernel.runtime.values import Value

STEPS: Final = 10_000
"""The most statements of an evaluation."""
_ONLY_LOOKS: Final = "do it in a cell: the debugger only reads, so that the run can be resumed"


def _given_up(steps: int) -> None:
    if steps > STEPS:
        raise UsageError(f"the evaluation is given up after {STEPS:,} statements")


class _RefusingPort:
    """A port that refuses every request; `what` begins the message."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, NoReturn]]:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse

    async def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise UsageError(f"{self._what} while the debugger evaluates", hint=_ONLY_LOOKS)


def is_crossing(s: ExecutionContext) -> bool:
    """Return whether the running code was called from another language."""
    return s.called_by is not None and s.crossings > s.called_by.crossings


def level(s: ExecutionContext, depth: int) -> int:
    """Return the number of open frames, including those of callers. `depth` counts those of this line of control."""
    above = s.called_by
    return depth + (above.level + 1 - is_crossing(s) if above is not None else 1)


def evaluation_host(host: Host) -> Host:
    """Return a host for one evaluation in a paused program, which refuses all requests and limits the statements."""
    sessions, judge = _RefusingPort("no session is asked"), _RefusingPort("no condition in `**` is judged")
    ports: Ports = replace(
        host.ports,
        commands=cast("Any", _RefusingPort("no command runs")),
        sessions=cast("Any", sessions),
        judge=cast("Any", judge),
        user=cast("Any", _RefusingPort("no input is asked for")),
        gates=cast("Any", _RefusingPort("no gate is opened")),
        store=ReadOnlyStore(host.ports.store),
        races=None,
        memories=None,
    )
    return Host(ports, (), supplied=host.supplied, hook=StepLimit(_given_up))


async def evaluated(host: Host, computing: Coroutine[Any, Any, Value]) -> Value:
    """Return the value that a coroutine computes on an evaluation host."""
    host.scheduler.text_begins()
    try:
        return await drive(computing)
    finally:
        host.scheduler.text_ends()
