"""Tracks the processes that a command left running or detached on purpose, and ends them with the kernel."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence

from prose_kernel.processes import process_table
from prose_kernel.processes.process_table import Member, signal_scope, still_ours


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
