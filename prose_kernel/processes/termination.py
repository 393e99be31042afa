"""Ends commands: the signals, the seconds between them, and the processes that get them. Processes that a command left
running, or detached on purpose, end with the kernel.

`Process` (`child_process.py`) takes these steps in the engine's loop; a guard (`monitor_process.py`) gets them with its
job. A ladder (docs/reference/exec-and-tasks.md 1.2) is a sequence of signals; the scope of a command (1.4) is its
process group, or its whole tree. A tree also contains processes that left the group with setsid, if they have the
command's own marker in their environment, or were seen below one of its processes while the chain of parents was
complete. The function that signals a group is `process_table.signal_scope`, because the watchdog cannot load this
module.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence

from msgspec import Struct

from prose_kernel.processes import process_table
from prose_kernel.processes.process_table import Member, signal_scope, still_ours
from prose_kernel.runtime.ports import Outcome

GRACE = 2.0
"""Seconds between two signals to a command of `exec`."""

AFTER_KILL = 2.0
"""Seconds to wait for a process that survives KILL because it is blocked in the kernel, or not ours."""


class SignalStep(Struct, frozen=True):
    """One signal, and the seconds to wait for the scope to be empty. KILL is repeated while waiting."""

    signal: signal.Signals
    grace: float


class Ladder(Struct, frozen=True):
    """The steps for one cause, and the outcome that they give to a command that was still running."""

    outcome: Outcome
    steps: tuple[SignalStep, ...]


def ladder(outcome: Outcome, grace: float = GRACE) -> Ladder:
    """Return INT, TERM, KILL for a user's interrupt; TERM, KILL for any other outcome."""
    first = (SignalStep(signal.SIGINT, grace),) if outcome == "interrupted" else ()
    return Ladder(outcome, (*first, SignalStep(signal.SIGTERM, grace), SignalStep(signal.SIGKILL, AFTER_KILL)))


class GroupScope:
    """The leader's group, and the other groups of its session."""

    def __init__(self, leader: int) -> None:
        self.leader = leader

    def members(self, table: Sequence[Member]) -> list[Member]:
        """Return the live processes of the scope."""
        return [member for member in table if process_table.in_scope(member, self.leader)]

    def signal(self, number: int, table: list[Member]) -> None:
        """Send a signal to all processes of the scope."""
        process_table.signal_scope(self.leader, number, table)

    def surely_empty(self) -> bool:
        """Return whether one system call shows that the group is empty. If not, only the process table can show it."""
        try:
            os.killpg(self.leader, 0)
        except OSError as problem:
            return isinstance(problem, ProcessLookupError)
        return False


_jobs: dict[tuple[int, int], str | None] = {}
"""The marker of each process, read once for all scopes: each of two hundred scopes sees the processes of the others."""

_MOST_JOBS = 10_000


def _job_of(member: Member) -> str | None:
    try:
        return _jobs[member.identity]
    except KeyError:
        if len(_jobs) >= _MOST_JOBS:
            _jobs.clear()
        job = _jobs[member.identity] = process_table.job_of(member.pid)
        return job


class TreeScope(GroupScope):
    """All processes of a command, even those that left its group. `marker` is a value of `PROSE_JOB` that only this
    command has."""

    def __init__(self, leader: int, marker: str) -> None:
        super().__init__(leader)
        self._marker = marker
        own = process_table.member_of(leader)
        self.since = own.ticks if own is not None else 0
        """The leader's start time, in ticks."""
        self._ours: set[tuple[int, int]] = set()

    def members(self, table: Sequence[Member]) -> list[Member]:
        young = [member for member in table if member.ticks >= self.since]
        found = {member.pid: member for member in young if self._is_ours(member)}
        found.update({child.pid: child for child in process_table.below(found, young)})
        self._ours = {member.identity for member in found.values()}
        return list(found.values())

    def _is_ours(self, member: Member) -> bool:
        """Return whether a process belongs to the command. The answer never changes: a marker is inherited or not."""
        if process_table.in_scope(member, self.leader) or member.identity in self._ours:
            return True
        return _job_of(member) == self._marker

    def signal(self, number: int, table: list[Member]) -> None:
        super().signal(number, table)
        # signal processes that left one by one: they may have joined a group that is not ours
        for member in self.members(table):
            if not process_table.in_scope(member, self.leader):
                with contextlib.suppress(OSError):
                    os.kill(member.pid, number)


# ---------------------------------------------------------------- processes that a command left


class BackgroundProcesses:
    """The process groups that outlived their commands, each with its known processes."""

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._groups: dict[int, set[tuple[int, int]]] = {}
        self._prune_at = 64

    def remember(self, leader: int, left: Sequence[Member], table: Callable[[], list[Member]]) -> list[int]:
        """Add a group. Return the groups that were dropped because they have ended meanwhile."""
        gone: list[int] = []
        if len(self._groups) >= self._prune_at:
            gone = self._prune(table())
            self._prune_at = max(64, 2 * len(self._groups))
        self._groups[leader] = {member.identity for member in left}
        return gone

    @property
    def groups(self) -> frozenset[int]:
        """The remembered groups."""
        return frozenset(self._groups)

    def _prune(self, table: list[Member]) -> list[int]:
        gone = [leader for leader, known in self._groups.items() if not still_ours(leader, known, self._marker, table)]
        for leader in gone:
            del self._groups[leader]
        return gone

    async def end(self, grace: float, table: Callable[[], list[Member]]) -> None:
        """Send TERM to all groups, wait `grace` seconds, send KILL; return when they have ended."""
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, grace)):
            now = table()
            self._prune(now)
            for leader in self._groups:
                signal_scope(leader, number, now)
                signal_scope(leader, signal.SIGCONT, now)
            if await self._wait_until_ended(seconds, table):
                return

    async def _wait_until_ended(self, seconds: float, table: Callable[[], list[Member]]) -> bool:
        loop = asyncio.get_running_loop()
        end, delay = loop.time() + seconds, 0.003
        while self._groups and loop.time() < end:
            await asyncio.sleep(delay)
            delay = min(2 * delay, 0.02)
            self._prune(table())
        return not self._groups


async def end_detached(marker: str, grace: float, table: Callable[[], list[Member]]) -> None:
    """End every process whose `PROSE_JOB` begins with `marker`: TERM, `grace` seconds, KILL."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGKILL):
        end, signalled = loop.time() + grace, set[tuple[int, int]]()
        while True:
            found = [member for member in table() if process_table.carries_prefix(member.pid, marker)]
            if not found:
                return
            for member in found:
                if number == signal.SIGKILL or member.identity not in signalled:
                    signalled.add(member.identity)
                    for each in (number, signal.SIGCONT):
                        with contextlib.suppress(OSError):
                            os.kill(member.pid, each)
            if loop.time() >= end:
                break
            await asyncio.sleep(0.01)
