"""Makes commands wait for resources that they need, such as a GPU (docs/reference/exec-and-tasks.md 2.12).

A need is a name and an amount, which the command occupies while it runs. The amount 0 is a tag: the machine must have
the resource, but it is not used up.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections import deque
from collections.abc import Iterable, Mapping

from msgspec import Struct

from prose_kernel.processes.cross_loop import call_in_loop
from prose_kernel.processes.shell import NOT_STARTED
from prose_kernel.runtime.ports import CommandRequest, CommandResult, Commands, OnOutput

Amounts = Mapping[str, float]

_ROUNDING = 1e-9


def covers(has: Amounts, needs: Amounts, taken: Iterable[Amounts] = ()) -> bool:
    """Return whether a machine that `has` resources meets the needs while other commands have `taken` some."""
    if not needs:
        return True
    left = {name: has.get(name, 0.0) for name in needs}
    if any(amount <= 0 for amount in left.values()):
        return False
    for others in taken:
        for name in others.keys() & needs:
            left[name] -= others[name]
    return all(left[name] - amount >= -_ROUNDING for name, amount in needs.items())


def shown(amounts: Amounts) -> str:
    """Return resources in the syntax of programs: `GPU: 1, ssd: true`."""
    return ", ".join(f"{name}: {f'{amount:g}' if amount else 'true'}" for name, amount in sorted(amounts.items()))


def unmet(reason: str) -> CommandResult:
    """Return the result of a command whose needs are not met."""
    return CommandResult("spawn_failed", NOT_STARTED, stderr=reason, kind="spawn", spawn_error=reason)


class _QueuedCommand(Struct, eq=False):
    """A command that waits for resources, in the loop of its caller."""

    needs: Amounts
    loop: asyncio.AbstractEventLoop
    turn: asyncio.Future[None]


class LimitedCommands:
    """Runs commands on a machine that `has` these resources; a command waits until its needs are free.

    No command overtakes an earlier one that needs one of the same resources. May be called in several loops.
    """

    def __init__(self, commands: Commands, has: Amounts) -> None:
        self._commands = commands
        self._has = has
        self._lock = threading.Lock()
        self._taken: list[Amounts] = []
        self._waiting: deque[_QueuedCommand] = deque()

    async def run(self, request: CommandRequest, on_output: OnOutput | None = None) -> CommandResult:
        """Run a command as `Commands.run` does. If the machine lacks a needed resource, return a failed start."""
        if not request.needs:
            return await self._commands.run(request, on_output)
        if not covers(self._has, request.needs):
            has = f"has only {shown(self._has)}" if self._has else "offers no resources"
            return unmet(f"it needs {shown(request.needs)}, and this machine {has} ([remote] resources)")
        one = _QueuedCommand(request.needs, asyncio.get_running_loop(), asyncio.get_running_loop().create_future())
        with self._lock:
            self._waiting.append(one)
        self._admit()
        try:
            await one.turn
            return await self._commands.run(request, on_output)
        finally:
            with self._lock, contextlib.suppress(ValueError):
                if one in self._waiting:
                    self._waiting.remove(one)
                else:
                    self._taken.remove(one.needs)
            self._admit()

    def _admit(self) -> None:
        """Start commands whose needs are available."""
        with self._lock:
            blocked: set[str] = set()
            for one in tuple(self._waiting):
                if blocked.isdisjoint(one.needs) and covers(self._has, one.needs, self._taken):
                    self._waiting.remove(one)
                    self._taken.append(one.needs)
                    call_in_loop(one.loop, functools.partial(_wake, one.turn))
                else:
                    blocked.update(one.needs)


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
