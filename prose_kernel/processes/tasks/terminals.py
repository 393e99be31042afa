"""The `Terminals` port: runs the commands that a CLI agent requests from its client, each as a task (sessions.md 5).

They are listed, stopped and ended with the run like all tasks; the agent only knows its terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Mapping, Sequence

from prose_kernel.errors import TaskRefused
from prose_kernel.processes.command_output import Tail
from prose_kernel.processes.tasks.service import TaskService
from prose_kernel.runtime.ports import NOTHING_OMITTED, Omitted, Stream
from prose_kernel.runtime.services import CommandCompleted, HelperEnd, TaskCaller

_KEPT = 1024 * 1024


class TaskTerminals:
    """Starts terminals on a task service."""

    def __init__(self, tasks: TaskService) -> None:
        self._tasks = tasks
        self._count = 0

    async def start(
        self, command: Sequence[str] | str, cwd: str, env: Mapping[str, str], keep_bytes: int | None
    ) -> TaskTerminal:
        """See `Terminals.start`."""
        self._count += 1
        caller = TaskCaller(session=f"terminal {self._count}")
        terminal = TaskTerminal(self._tasks, caller, _KEPT if keep_bytes is None else keep_bytes)
        text = command if isinstance(command, str) else shlex.join(command)
        try:
            await terminal.begin(text, cwd, env)
        except TaskRefused as refused:
            raise OSError(refused.message) from None
        return terminal


class TaskTerminal:
    """One command of a CLI agent; the `Terminal` port."""

    def __init__(self, tasks: TaskService, caller: TaskCaller, keep_bytes: int) -> None:
        self._tasks = tasks
        self._caller = caller
        self._room = max(0, keep_bytes)
        self._kept = Tail(self._room, b"")
        self._printed = 0
        self._task_id: str | None = None
        self.end: HelperEnd | None = None
        self._stopped = False
        self._watching: asyncio.Task[None] | None = None

    async def begin(self, text: str, cwd: str, env: Mapping[str, str]) -> None:
        """Start the command. Raises `TaskRefused`."""
        fields = {"cmd": text, "workdir": cwd, "yield_time_ms": 0, "duplicate_policy": "start_new"}
        receipt = await self._tasks.start_watched(fields, self._caller, self._take, env)
        if isinstance(receipt, CommandCompleted):
            self.end = HelperEnd(receipt.exit_status, receipt.signal, False)
        else:
            self._task_id = receipt.task_id
            self._watching = asyncio.create_task(self._watch(receipt.task_id))

    def _take(self, stream: Stream, text: str, _: Omitted = NOTHING_OMITTED) -> None:
        data = text.encode("utf-8", "replace")
        self._kept.add(data)
        self._printed += len(data)

    async def _watch(self, task_id: str) -> None:
        while self.end is None:
            try:
                output = await self._tasks.output(task_id, self._caller, timeout_ms=600_000)
            except TaskRefused:  # the run has ended, and so has the command
                self.end = HelperEnd(None, None, True)
                return
            if output.task.ended:
                await asyncio.sleep(0)  # let the last piece of output be delivered first
                self.end = HelperEnd(output.task.exit_status, output.task.signal, self._stopped)

    def output(self) -> tuple[str, bool]:
        kept = self._kept.last(self._room)
        while kept and kept[0] & 0xC0 == 0x80:  # don't begin inside a character
            kept = kept[1:]
        return kept.decode("utf-8", "replace"), len(kept) < self._printed

    async def wait(self) -> HelperEnd:
        if self._watching is not None:
            await asyncio.shield(self._watching)
        assert self.end is not None
        return self.end

    async def close(self) -> None:
        if self.end is None and self._task_id is not None:
            self._stopped = True
            with contextlib.suppress(TaskRefused):  # the run has ended
                await self._tasks.stop(self._task_id, self._caller)
            await self.wait()
