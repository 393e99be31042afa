"""The ports `Tasks` and `Terminals` on the process engine. The workspace creates the service of a run, and closes it
with the run.

Every call crosses into the engine's loop, where the manager does the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shlex
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from prose_kernel.errors import TaskRefused
from prose_kernel.processes import spawn
from prose_kernel.processes.command_output import Live, Tail
from prose_kernel.processes.cross_loop import call_in_loop, in_engine
from prose_kernel.processes.engine import Engine, EngineClosed
from prose_kernel.processes.options import TaskOptions
from prose_kernel.processes.tasks.records import Pointer, TaskRecord, preview_of, snapshot_of
from prose_kernel.processes.tasks.requests import encodable, whole
from prose_kernel.runtime import open_request
from prose_kernel.runtime.ports import NOTHING_OMITTED, Clock, Omitted, OnOutput, Stream
from prose_kernel.runtime.services import (
    CommandCompleted,
    HelperEnd,
    TaskCaller,
    TaskEvent,
    TaskFollowUp,
    TaskListing,
    TaskOutput,
    TaskReceipt,
    TaskSnapshot,
)

if TYPE_CHECKING:
    from prose_kernel.processes.tasks.manager import Manager


_LONGEST_WAIT_MS = 600_000
T = TypeVar("T")


class TaskService:
    """The commands and tasks of one run. Callable from any event loop; opens nothing before its first use.

    `run_directory` None keeps records in memory. A relative `workdir` is relative to `workspace`. `pointer` is written
    so that a later start finds unfinished tasks of this run.
    """

    def __init__(
        self,
        engine: Engine,
        run_directory: Path | None,
        workspace: str,
        clock: Clock,
        options: TaskOptions | None = None,
        *,
        displayed: int = 0,
        pointer: Pointer | None = None,
    ) -> None:
        self._engine = engine
        self._manager: Manager | None = None

        def make() -> Manager:
            from prose_kernel.processes.tasks.manager import Manager  # not needed by an ordinary cell

            return Manager(engine, run_directory, workspace, clock, options or TaskOptions(), pointer, self._notify)

        self._make = make
        self._directory = run_directory
        self._listeners: list[Callable[[TaskEvent], None]] = []
        self._displayed = displayed
        self._closed = False

    async def _call(self, work: Callable[[Manager], Coroutine[object, object, T]]) -> T:
        async def there() -> T:
            if self._closed and self._manager is None:
                raise TaskRefused("runtime_closed", "the run has ended")
            if self._manager is None:
                self._manager = self._make()
            return await work(self._manager)

        try:
            return await in_engine(self._engine, there)
        except EngineClosed:
            raise _closed() from None

    async def _ask(self, work: Callable[[Manager], T]) -> T:
        async def there(manager: Manager) -> T:
            return work(manager)

        return await self._call(there)

    @property
    def used(self) -> bool:
        """Whether a command was started or a task looked up, so that there may be news."""
        return self._manager is not None

    # ------------------------------------------------------------ starting

    async def start(
        self, fields: Mapping[str, object], caller: TaskCaller, on_output: OnOutput | None = None
    ) -> TaskReceipt:
        """See `Tasks.start`. `on_output` is called in the caller's loop, and never after the call has returned."""
        self._engine_ready()
        live = self._live(on_output, self._displayed) if on_output is not None else None
        try:
            identity = open_request.identity()
            return await self._call(lambda manager: manager.start(fields, caller, live, extra=identity))
        finally:
            if live is not None:
                live.deliver()

    async def start_watched(
        self, fields: Mapping[str, object], caller: TaskCaller, on_output: OnOutput, environment: Mapping[str, str]
    ) -> TaskReceipt:
        """Start a command with additional environment variables; `on_output` gets its output even when it is a task."""
        self._engine_ready()
        live = self._live(on_output, 0)
        extra = {**environment, **open_request.identity()}
        try:
            return await self._call(lambda manager: manager.start(fields, caller, live, extra=extra, watched=True))
        finally:
            live.deliver()

    def _engine_ready(self) -> None:
        try:
            self._engine.start()
        except EngineClosed:
            raise _closed() from None
        except OSError as problem:
            raise TaskRefused("command_spawn_failed", spawn.start_error(problem), retryable=True) from None

    def _live(self, on_output: OnOutput, displayed: int) -> Live:
        post = functools.partial(call_in_loop, asyncio.get_running_loop())
        return Live(self._engine.loop, post, on_output, displayed)

    # ------------------------------------------------------------ tasks

    async def active(self, caller: TaskCaller, limit: object = 20) -> TaskListing:
        most = whole(limit, "limit", 1, 100, 20)
        if not self._may_have_tasks:
            return TaskListing(0, 0, most, ())
        found = await self._ask(lambda manager: [snapshot_of(record) for record in manager.active(caller)])
        return TaskListing(len(found), min(len(found), most), most, tuple(found[:most]))

    @property
    def _may_have_tasks(self) -> bool:
        from prose_kernel.processes.tasks.store import exists

        return self._manager is not None or (self._directory is not None and exists(self._directory))

    async def history(self) -> tuple[TaskSnapshot, ...]:
        """Return all tasks of the run, active and ended, oldest first."""
        if not self._may_have_tasks:
            return ()
        return await self._ask(lambda manager: tuple(map(snapshot_of, manager.history())))

    async def status(self, task_id: str, caller: TaskCaller) -> TaskSnapshot:
        return await self._ask(lambda manager: snapshot_of(manager.find(_name(task_id), caller)))

    async def output(
        self, task_id: str, caller: TaskCaller, *, block: bool = True, timeout_ms: object = 30_000
    ) -> TaskOutput:
        milliseconds = whole(timeout_ms, "timeout_ms", 0, _LONGEST_WAIT_MS, 30_000)

        async def work(manager: Manager) -> TaskOutput:
            record = manager.find(_name(task_id), caller)
            if block:
                record = await manager.wait(record, milliseconds / 1000)
            return _output(record, block)

        return await self._call(work)

    async def follow(self, task_id: str, caller: TaskCaller, on_output: OnOutput) -> TaskSnapshot:
        """Pass on the output of a task, past and future, until it ends. Cancelling does not affect the task."""
        self._engine_ready()
        live = self._live(on_output, self._displayed)

        async def work(manager: Manager) -> TaskRecord:
            record = manager.find(_name(task_id), caller)
            live.feed("stdout", preview_of(record)[0])
            return await manager.follow(record.task_id, caller, live)

        try:
            record = await self._call(work)
        finally:
            live.deliver()
        return snapshot_of(record)

    async def stop(self, task_id: str, caller: TaskCaller) -> TaskSnapshot:
        return await self._ask(lambda manager: snapshot_of(manager.stop(_name(task_id), caller)))

    async def command_of(self, task_id: str) -> Mapping[str, object]:
        """Return the fields that start a task again, with the command's whole text."""
        record = await self._ask(lambda manager: manager.find(_name(task_id), TaskCaller()))
        names = ("cmd", "workdir", "shell", "login", "yield_time_ms", "max_output_tokens", "summary")
        return {name: getattr(record, name) for name in names}

    # ------------------------------------------------------------ news for the person

    def subscribe(self, listener: Callable[[TaskEvent], None]) -> Callable[[], None]:
        """Call `listener` with each recorded change, in order, in the engine's thread. Return a function to stop it."""
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

    def _notify(self, event: TaskEvent) -> None:
        for listener in tuple(self._listeners):
            with contextlib.suppress(Exception):  # a listener that raises must not stop a task's bookkeeping
                listener(event)

    async def news(self) -> tuple[TaskSnapshot, ...]:
        """Return the tasks that have ended since the last call of `news`."""
        return await self._ask(lambda manager: tuple(map(snapshot_of, manager.ledger.news()))) if self.used else ()

    async def follow_ups(self) -> tuple[TaskFollowUp, ...]:
        """Return the unclaimed continuations, oldest first."""
        return await self._ask(lambda manager: manager.ledger.follow_ups()) if self._may_have_tasks else ()

    async def take_follow_up(self, result_id: str) -> bool:
        """Claim a continuation; return False if it was claimed before."""
        return await self._ask(lambda manager: manager.ledger.take_follow_up(result_id))

    # ------------------------------------------------------------ the end

    async def close(self) -> None:
        """Record the run's tasks as interrupted, and end them. Idempotent."""
        self._closed = True
        if self._manager is not None:
            with contextlib.suppress(EngineClosed):  # the engine has ended all processes already
                await in_engine(self._engine, self._manager.close)


def _closed() -> TaskRefused:
    return TaskRefused("runtime_closed", "the run has ended; no command can be started in it")


def _name(task_id: object) -> str:
    if not isinstance(task_id, str) or not task_id.strip() or not encodable(task_id):
        raise TaskRefused("invalid_input", "task_id: must be the id of a task", details={"field": "task_id"})
    return task_id.strip()


def _output(record: TaskRecord, block: bool) -> TaskOutput:
    preview, truncated = preview_of(record)
    return TaskOutput(
        "success" if record.ended else "timeout" if block else "not_ready",
        snapshot_of(record),
        preview,
        truncated,
        record.log_ref,
        record.log_error,
    )


# ---------------------------------------------------------------- terminals

_KEPT = 1024 * 1024


class TaskTerminals:
    """The `Terminals` port: runs the commands that a CLI agent requests from its client, each as a task. They are
    listed, stopped and ended with the run like all tasks; the agent only knows its terminal."""

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
