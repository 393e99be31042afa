"""The end of processes that left their command on purpose: with the kernel at the latest (exec-and-tasks.md 1.4)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from prose_kernel.commands import process_table
from prose_kernel.commands.process_table import Member


async def end_detached(marker: str, grace: float, table: Callable[[], list[Member]]) -> None:
    """End every process whose `PROSE_JOB` begins with `marker`: TERM, the grace in seconds, KILL."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGKILL):
        end, told = loop.time() + grace, set[tuple[int, int]]()
        while True:
            found = [member for member in table() if process_table.carries_prefix(member.pid, marker)]
            if not found:
                return
            for member in found:
                if number == signal.SIGKILL or member.identity not in told:
                    told.add(member.identity)
                    for each in (number, signal.SIGCONT):
                        with contextlib.suppress(OSError):
                            os.kill(member.pid, each)
            if loop.time() >= end:
                break
            await asyncio.sleep(0.01)
