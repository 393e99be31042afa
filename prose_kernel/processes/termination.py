"""Defines how a command is ended: the signals, the seconds between them, and the processes that get them.

`Process` takes these steps in the engine's loop; a guard (`monitor_process.py`) gets them with its job. A ladder
(docs/reference/exec-and-tasks.md 1.2) is a sequence of signals; the scope of a command (1.4) is its process group, or
its whole tree. A tree also contains processes that left the group with setsid, if they have the command's own marker in
their environment, or were seen below one of its processes while the chain of parents was complete. The function that
signals a group is `process_table.signal_scope`, because the watchdog cannot load this module.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from prose_kernel.processes import process_table
from prose_kernel.processes.process_table import Member
from prose_kernel.runtime.ports import Outcome

GRACE = 2.0
"""Seconds between two signals to a command of `exec`."""

AFTER_KILL = 2.0
"""Seconds to wait for a process that survives KILL because it is blocked in the kernel, or not ours."""


@dataclass(frozen=True, slots=True)
class Step:
    """One signal, and the seconds to wait for the scope to be empty. KILL is repeated while waiting."""

    signal: signal.Signals
    grace: float


@dataclass(frozen=True, slots=True)
class Ladder:
    """The steps for one cause, and the outcome that they give to a command that was still running."""

    outcome: Outcome
    steps: tuple[Step, ...]


def ladder(outcome: Outcome, grace: float = GRACE) -> Ladder:
    """Return INT, TERM, KILL for a user's interrupt; TERM, KILL for any other outcome."""
    first = (Step(signal.SIGINT, grace),) if outcome == "interrupted" else ()
    return Ladder(outcome, (*first, Step(signal.SIGTERM, grace), Step(signal.SIGKILL, AFTER_KILL)))


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
    if member.identity not in _jobs:
        if len(_jobs) >= _MOST_JOBS:
            _jobs.clear()
        _jobs[member.identity] = process_table.job_of(member.pid)
    return _jobs[member.identity]


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
