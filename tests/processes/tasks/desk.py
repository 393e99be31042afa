"""A task service on a separate engine, and ways to inspect its files and processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from waiting import PATIENCE

from prose_kernel.processes.engine import Engine
from prose_kernel.processes.options import TaskOptions
from prose_kernel.processes.process_table import carries_prefix, members
from prose_kernel.processes.tasks.service import TaskService
from prose_kernel.processes.tasks.store import Store
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import OnOutput
from prose_kernel.runtime.services import (
    CommandCompleted,
    CommandPromoted,
    TaskCaller,
    TaskEvent,
    TaskReceipt,
    TaskSnapshot,
)

GRACE = 0.4
PERSON = TaskCaller()
AGENT = TaskCaller(session="s0")


def stored_results(store: Store) -> list[tuple[str, str]]:
    """Return the recorded results in order: task id and result id."""
    return store._rows("select task_id, result_id from events where kind = 'TaskResult' order by event")


def stored_events(store: Store) -> list[tuple[str, str, str]]:
    """Return all recorded events in order: kind, task and data."""
    return store._rows("select kind, task_id, data from events order by event")


class Desk:
    """A task service with short names for the frequent actions of tests."""

    def __init__(self, engine: Engine, directory: Path, options: TaskOptions, *, on_disk: bool = True) -> None:
        self.engine = engine
        self.directory = directory
        self.run_directory = directory / "run" if on_disk else None
        self.service = TaskService(engine, self.run_directory, str(directory), SystemClock(), options)
        self.events: list[TaskEvent] = []
        self.service.subscribe(self.events.append)

    async def start(
        self, cmd: str, by: TaskCaller = PERSON, on_output: OnOutput | None = None, **fields: object
    ) -> TaskReceipt:
        return await self.service.start({"cmd": cmd, **fields}, by, on_output)

    async def completed(self, cmd: str, **fields: object) -> CommandCompleted:
        receipt = await self.start(cmd, **fields)  # type: ignore[arg-type]
        assert isinstance(receipt, CommandCompleted), receipt
        return receipt

    async def task(self, cmd: str, by: TaskCaller = PERSON, **fields: object) -> str:
        """Start a command that becomes a task, and return its id."""
        receipt = await self.start(cmd, by, **{"yield_time_ms": 0, **fields})  # type: ignore[arg-type]
        assert isinstance(receipt, CommandPromoted), receipt
        return receipt.task_id

    async def status(self, task_id: str, by: TaskCaller = PERSON) -> TaskSnapshot:
        return await self.service.status(task_id, by)

    async def end(self, task_id: str, by: TaskCaller = PERSON) -> TaskSnapshot:
        """Wait until the task has ended."""
        output = await self.service.output(task_id, by, timeout_ms=30_000)
        assert output.retrieval_status == "success", output
        return output.task

    async def text(self, task_id: str) -> str:
        return (await self.service.output(task_id, PERSON, block=False)).preview

    async def printed(self, task_id: str, text: str) -> None:
        """Wait until the task has printed `text`."""
        async with asyncio.timeout(PATIENCE):
            while text not in await self.text(task_id):
                await asyncio.sleep(0.005)

    def results(self, task_id: str | None = None) -> list[TaskEvent]:
        return [e for e in self.events if e.kind == "TaskResult" and task_id in (None, e.task.task_id)]

    @property
    def processes(self) -> list[int]:
        """The live processes started by this engine's commands."""
        return [m.pid for m in members() if carries_prefix(m.pid, f"{self.engine.marker}:task:")]

    async def close(self) -> None:
        await self.service.close()
        await asyncio.to_thread(self.engine.close)


MakeDesk = Callable[..., Desk]
