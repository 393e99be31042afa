"""Starts, promotes, ends and records the commands and tasks of one run.

Everything here happens in the engine's loop, so there is one order of events: a record is stored before it is reported,
and no process runs as a task without a record (exec-and-tasks.md 4.2, registration order).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from prose_kernel.errors import TaskRefused
from prose_kernel.language.structs import replace
from prose_kernel.processes.child_process import Process, ProcessRecord
from prose_kernel.processes.command_output import Live
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.options import TaskOptions
from prose_kernel.processes.shell import Shell
from prose_kernel.processes.spawn import directory_problem
from prose_kernel.processes.tasks.ledger import Ledger
from prose_kernel.processes.tasks.log import Log
from prose_kernel.processes.tasks.records import Pointer, TaskRecord, already_running, new_id, snapshot_of
from prose_kernel.processes.tasks.requests import CommandCall, read_call
from prose_kernel.processes.tasks.running import (
    Command,
    Identity,
    OutputDistributor,
    completed,
    current_record,
    ended_record,
    environment_for,
    filled,
    first_record,
    interrupted_record,
    launch_of,
    spawn_refusal,
)
from prose_kernel.processes.tasks.store import DIRECTORY, StoreError
from prose_kernel.processes.termination import end_detached
from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.ports import Clock
from prose_kernel.runtime.services import CommandPromoted, TaskCaller, TaskEvent, TaskReceipt

if TYPE_CHECKING:
    from prose_kernel.processes.exec_tool.sandbox_plan import Plan

_REQUEST_INTERVAL = 0.5
"""Seconds between two checks for requests of other processes."""


class Manager:
    """Manages commands and tasks. Call all methods in the engine's loop. With `run_directory` None, records are kept in
    memory, and no logs are written."""

    def __init__(
        self,
        engine: Engine,
        run_directory: Path | None,
        workspace: str,
        clock: Clock,
        options: TaskOptions,
        pointer: Pointer | None,
        listener: Callable[[TaskEvent], None],
    ) -> None:
        """`listener` is called with every event of a task."""
        self._engine = engine
        self._listener = listener
        self._directory = run_directory
        self._workspace = workspace
        self._clock = clock
        self._options = options
        self.ledger = Ledger(run_directory, pointer, clock)
        self._commands: dict[Command, None] = {}
        self._tasks: dict[str, Command] = {}
        self._starting = asyncio.Semaphore(options.foreground)
        self._waiting_for_place: list[Command] = []
        self._timer: asyncio.TimerHandle | None = None
        self._request_timer: asyncio.TimerHandle | None = None
        self._seen_version = -1
        self._idle = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None

    # ------------------------------------------------------------ starting

    async def start(
        self,
        fields: Mapping[str, object],
        caller: TaskCaller,
        live: Live | None,
        *,
        extra: Mapping[str, str],
        watched: bool = False,
    ) -> TaskReceipt:
        """Run one `exec_command` until its process ends or becomes a task. Raises `TaskRefused`.

        `live` gets the output until then, or with `watched` until the process ends. `extra` is added to the
        environment.
        """
        call = read_call(fields)
        shell, identity = self._identity(call, caller)
        if call.duplicate_policy == "reuse_running" and (same := self._same(identity, caller)) is not None:
            return already_running(same)
        # for a command that becomes a task immediately, count others that do so at the same time
        if (refusal := self._limit_refusal(caller, coming=call.yield_time_ms == 0)) is not None:
            raise refusal
        async with self._starting:
            plan = await self._plan(caller, shell, identity)
            if self._closing is not None:  # nothing ends a command that begins now
                raise TaskRefused("runtime_closed", "the run has ended; no command can be started in it")
            environment = environment_for(caller, self._options.environment)
            environment |= {os.fsencode(name): os.fsencode(value) for name, value in extra.items()}
            command = self._command(call, caller, identity, live, watched=watched)
            self._spawn(command, shell, environment, plan)
            return await self._answer(command)

    async def _plan(self, caller: TaskCaller, shell: Shell, identity: Identity) -> Plan | None:
        """Return the confinement of an agent's command (at least a guard); None for a person's command.

        Raises `TaskRefused` if a rule cannot be enforced.
        """
        if caller.session is None:
            return None
        from prose_kernel.processes.tasks import monitored

        if not caller.lists_bind and caller.rules.get("network", "allow") == "allow":
            return await asyncio.to_thread(monitored.guard_only, identity)
        return await asyncio.to_thread(monitored.plan_for, caller, shell, identity, self._workspace)

    async def _answer(self, command: Command) -> TaskReceipt:
        """Return the receipt. A cancelled call ends the command, unless it has become a task meanwhile."""
        while not command.answer.done():
            try:
                await asyncio.shield(command.answer)
            except asyncio.CancelledError:
                if command.record is None and not command.answer.done():
                    await self._end_in_window(command)
                raise
            except TaskRefused:
                break
        return command.answer.result()

    async def _end_in_window(self, command: Command) -> None:
        """End the command of a cancelled call: a person's command by an interrupt, an agent's by TERM and KILL.

        Returns when nothing is left. Each further cancellation of a person's call is a further interrupt.
        """
        command.refusal = TaskRefused("runtime_closed", "the command was interrupted")
        while not command.answer.done():
            if command.caller.session is None and command.begun_at:
                command.process.interrupt()
            else:
                self._engine.cancel(command.process)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({command.answer})
        command.answer.exception()  # seen

    def _identity(self, call: CommandCall, caller: TaskCaller) -> tuple[Shell, Identity]:
        base = caller.workspace or self._workspace
        given = os.path.expanduser(call.workdir or ".")
        directory = os.path.realpath(os.path.join(base, given))  # noqa: PTH118 - the physical place
        if directory_problem(directory) is not None:
            shown = call.workdir or "the workspace"
            raise TaskRefused(
                "workdir_not_found",
                f"workdir: {shown} is not a directory that commands can run in",
                hint="workdir is relative to the workspace root, or absolute",
                details={"workdir": shown},
            )
        shell = Shell(call.shell or self._options.shell, login=call.login)
        if not os.access(shell.path, os.X_OK) or not Path(shell.path).is_file():
            raise TaskRefused(
                "command_spawn_failed",
                f"shell: {call.shell or shell.path} was not found, or cannot be executed",
                hint="leave shell out to use the configured one",
            )
        return shell, Identity(call.cmd, directory, shell.path, call.login)

    def _same(self, identity: Identity, caller: TaskCaller) -> TaskRecord | None:
        for command in self._tasks.values():
            if command.identity == identity and command.caller.session == caller.session:
                return current_record(command)
        return None

    def _limit_refusal(self, caller: TaskCaller, *, coming: bool = False) -> TaskRefused | None:
        holders = [*self._tasks.values()]
        if coming:
            holders += [command for command in self._commands if command.call.yield_time_ms == 0]
        own = sum(1 for command in holders if command.caller.session == caller.session)
        if len(holders) >= self._options.at_once:
            limit, whose = self._options.at_once, "in this run"
        elif caller.session is not None and own >= self._options.per_session:
            limit, whose = self._options.per_session, "of this session"
        else:
            return None
        return TaskRefused(
            "task_limit_reached",
            f"{limit} tasks {whose} are active already; the command was not kept running",
            hint="TaskList shows them; end one with TaskStop, or wait for one with TaskOutput",
            details={"limit": limit},
            retryable=True,
        )

    def _command(
        self, call: CommandCall, caller: TaskCaller, identity: Identity, live: Live | None, *, watched: bool
    ) -> Command:
        task_id = new_id()
        path = self._directory / DIRECTORY / f"{task_id}.log" if self._directory is not None else None
        begin = self._options.log // 4
        recorder = OutputDistributor(Log(path, begin, self._options.log - begin))
        if live is not None:
            recorder.watch(live)
        answer = self._engine.loop.create_future()
        return Command(task_id, call, caller, identity, recorder, answer, None if watched else live)

    def _spawn(self, command: Command, shell: Shell, environment: Mapping[bytes, bytes], plan: Plan | None) -> None:
        job = f"{self._engine.marker}:task:{secrets.token_hex(8)}"
        done, begun = functools.partial(self._process_ended, command), functools.partial(self._begun, command)
        if plan is None:
            launch = launch_of(shell, command.identity, environment, job)
            command.process = Process(self._engine, launch, command.recorder, done, begun)
        else:
            from prose_kernel.processes.tasks import monitored

            graces = (self._options.grace, self._engine.grace)
            monitored_launch = monitored.launch_of(shell, command.identity, environment, job, plan.confinement, graces)
            command.process = monitored.MonitoredCommand(
                self._engine, monitored_launch, command.recorder, done, begun, plan.watch
            )
        self._commands[command] = None
        self._engine.submit(command.process)

    def _begun(self, command: Command) -> None:
        command.begun_at, command.started = self._now(), self._clock.monotonic()
        seconds = command.call.yield_time_ms / 1000
        command.window = self._engine.loop.call_later(seconds, self._window_over, command)

    # ------------------------------------------------------------ the window

    def _window_over(self, command: Command) -> None:
        """Make the command a task, unless it has just ended: never both."""
        if command.process.has_exited or command.refusal is not None:
            return
        if self._limit_refusal(command.caller) is not None:
            self._waiting_for_place.append(command)
            command.window = self._engine.loop.call_later(self._options.patience, self._give_up, command)
            return
        self._promote(command)

    def _give_up(self, command: Command) -> None:
        command.refusal = self._limit_refusal(command.caller)
        if command.refusal is not None:
            command.process.stop("cancelled")

    def _promote(self, command: Command) -> None:
        """Register a task in the order of 4.2: store it as queued, open its log, store it as running, report it."""
        log = command.recorder.log
        try:
            record = self.ledger.open().save(first_record(command, self._directory, self._now()))
            log.open()
            record = filled(replace(record, status="running", updated_at=self._now()), command)
            record = self.ledger.open().save(record, "TaskStatus")
        except StoreError as problem:
            command.refusal = TaskRefused(
                "task_store_failed",
                f"the command was ended, because it could not be recorded as a task: {problem}",
                hint="a command that ends within yield_time_ms needs no record",
            )
            command.process.kill("cancelled")
            return
        command.record = record
        command.process.foreground = False
        if command.live is not None:
            command.recorder.unwatch(command.live)
        del self._commands[command]
        self._tasks[record.task_id] = command
        if self._options.seconds is not None:
            left = max(0.0, self._options.seconds - (self._clock.monotonic() - command.started))
            command.limit = self._engine.loop.call_later(left, self._out_of_time, command)
        preview, _ = command.recorder.collected.combined.preview(command.call.budget)
        command.answer.set_result(
            CommandPromoted(
                record.task_id,
                record.number,
                record.status,
                preview,
                f"still running after {command.call.yield_time_ms} ms; it continues as task {record.number}",
            )
        )
        self._notify(record, "TaskStatus")
        self._watch_tasks()

    # ------------------------------------------------------------ the end of a process

    def _process_ended(self, command: Command, record: ProcessRecord) -> None:
        for timer in (command.window, command.limit):
            if timer is not None:
                timer.cancel()
        if command in self._waiting_for_place:
            self._waiting_for_place.remove(command)
        self._idle.set()
        if command.record is not None:
            command.recorder.log.finish()
            self._record_end(command, ended_record(command, record, self._now(), self._clock.monotonic()))
            return
        del self._commands[command]
        if command.answer.done():
            return
        refusal = command.refusal or spawn_refusal(record, command)
        if refusal is not None:
            command.recorder.log.discard()
            command.answer.set_exception(refusal)
        else:
            command.answer.set_result(completed(command, record))
        self._promote_waiting()

    def _record_end(self, command: Command, record: TaskRecord) -> None:
        """Record a terminal state. The first one wins; its result is reported once."""
        before = command.record
        command.record = self.ledger.keep(record, "TaskResult")
        if before is not None and not before.ended:
            self._notify(command.record, "TaskResult")
            command.ended.set()
        if command.process.has_exited:
            self._tasks.pop(record.task_id, None)
            self.ledger.prune(self._options.kept)
            self._promote_waiting()

    def _out_of_time(self, command: Command) -> None:
        command.failure = {"kind": "max_runtime", "message": f"ended after {self._options.seconds:g} s"}
        command.process.stop("cancelled", self._options.grace)

    def _promote_waiting(self) -> None:
        """Give free places to waiting commands; the longest wait comes first."""
        for command in tuple(self._waiting_for_place):
            if self._limit_refusal(command.caller) is None:
                self._waiting_for_place.remove(command)
                if command.window is not None:
                    command.window.cancel()
                if not command.process.has_exited and command.refusal is None:
                    self._promote(command)

    # ------------------------------------------------------------ queries and control

    def find(self, name: str, caller: TaskCaller) -> TaskRecord:
        """Return a task's current record. Raises `TaskRefused` if it is missing, or the caller may not see it."""
        command = self._tasks.get(name)
        record = command.record if command is not None else self.ledger.find(name, number=caller.session is None)
        if record is not None and (command := self._tasks.get(record.task_id)) is not None:
            record = current_record(command)
        if record is None or (caller.session is not None and record.session != caller.session):
            raise TaskRefused(
                "task_not_found",
                f"there is no task {name}",
                hint="TaskList shows the active tasks" if caller.session is not None else "%tasks --all lists them",
            )
        return record

    def active(self, caller: TaskCaller) -> list[TaskRecord]:
        """Return the active tasks that the caller may see, newest first."""
        found = [current_record(command) for command in self._tasks.values()]
        seen = [r for r in found if not r.ended and (caller.session is None or r.session == caller.session)]
        return sorted(seen, key=lambda record: record.number, reverse=True)

    def history(self) -> list[TaskRecord]:
        """Return every task of the run, oldest first. Raises `TaskRefused`."""
        running = self._tasks
        return [current_record(running[r.task_id]) if r.task_id in running else r for r in self.ledger.all()]

    async def wait(self, record: TaskRecord, seconds: float) -> TaskRecord:
        """Wait until the task has ended, at most `seconds`, and return its record. The task is not affected."""
        command = self._tasks.get(record.task_id)
        if command is None or record.ended:
            return record
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await command.ended.wait()
        return current_record(command)

    async def follow(self, name: str, caller: TaskCaller, live: Live) -> TaskRecord:
        record = self.find(name, caller)
        command = self._tasks.get(record.task_id)
        if command is None:
            return record
        command.recorder.watch(live)
        try:
            await command.ended.wait()
        finally:
            command.recorder.unwatch(live)
        return current_record(command)

    def stop(self, name: str, caller: TaskCaller) -> TaskRecord:
        """Stop a task. First call: TERM and after the grace KILL. Second call: KILL. An ended task is not changed."""
        record = self.find(name, caller)
        command = self._tasks.get(record.task_id)
        if command is None or record.ended:
            return record
        now = self._now()
        if record.status == "running":
            asked = replace(record, status="cancelling", stop_requested_at=now, updated_at=now, cancelled_reason="stop")
            command.record = self.ledger.keep(asked, "TaskStatus")
            command.process.stop("cancelled", self._options.grace)
        else:
            forced = replace(record, force_stop_requested=True, updated_at=now)
            command.record = self.ledger.keep(forced, "TaskStatus")
            command.process.kill("cancelled")
        self._notify(command.record, "TaskStatus")
        return current_record(command)

    # ------------------------------------------------------------ events

    def _notify(self, record: TaskRecord, kind: Literal["TaskStatus", "TaskResult"]) -> None:
        self._listener(TaskEvent(kind, snapshot_of(record), record.result_id if kind == "TaskResult" else None))

    def _now(self) -> str:
        return timestamp(self._clock.now(), zone="+00:00")

    # ------------------------------------------------------------ while tasks run

    def _watch_tasks(self) -> None:
        loop = self._engine.loop
        if self._timer is None:
            self._timer = loop.call_later(self._options.snapshot_every, self._snapshots)
        if self._request_timer is None and self._directory is not None:
            self._request_timer = loop.call_later(_REQUEST_INTERVAL, self._requests)

    def _snapshots(self) -> None:
        """Record the output of running tasks, and store records that could not be stored before."""
        self._timer = None
        for command in self._tasks.values():
            if command.recorder.changed and command.record is not None and not command.record.ended:
                command.recorder.changed = False
                command.record = self.ledger.keep(replace(current_record(command), updated_at=self._now()), None)
        left = self.ledger.retry()
        if self._tasks or left:
            self._timer = self._engine.loop.call_later(self._options.snapshot_every, self._snapshots)

    def _requests(self) -> None:
        """Stop the tasks for which other processes of this user have requested it (`prose tasks stop`)."""
        self._request_timer = None
        with contextlib.suppress(StoreError, TaskRefused):
            store = self.ledger.open()
            if (version := store.version) != self._seen_version:
                self._seen_version = version
                for task_id in store.take_requests():
                    with contextlib.suppress(TaskRefused):
                        self.stop(task_id, TaskCaller())
        if self._tasks:
            self._request_timer = self._engine.loop.call_later(_REQUEST_INTERVAL, self._requests)

    # ------------------------------------------------------------ the end

    async def close(self) -> None:
        """Record running tasks as interrupted, then end all commands: TERM to all together, KILL after the grace.

        If the call is cancelled, this continues without it.
        """
        if self._closing is None:
            self._closing = self._engine.loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        now = self._now()
        commands = [*self._tasks.values(), *self._commands]
        for command in commands:
            if command.record is None:
                command.refusal = command.refusal or TaskRefused("runtime_closed", "the run has ended")
            elif not command.record.ended and command.record.status != "cancelling":
                # a task that is being stopped keeps that as its reason
                interrupted = interrupted_record(command, now, self._clock.monotonic())
                self._record_end(command, interrupted)
        try:
            await self._end_all(commands)
        finally:
            for timer in (self._timer, self._request_timer):
                if timer is not None:
                    timer.cancel()
            self.ledger.close()

    async def _end_all(self, commands: list[Command]) -> None:
        loop = self._engine.loop
        for command in commands:
            if command.record is not None:
                command.process.stop("cancelled", self._options.shutdown_grace)
                # a task that is being stopped has a longer grace, which this shortens
                loop.call_later(self._options.shutdown_grace, command.process.kill, "cancelled")
            else:
                self._engine.cancel(command.process)
        detached = loop.create_task(
            end_detached(f"{self._engine.marker}:task:", self._options.shutdown_grace, self._engine.table)
        )
        while self._tasks or self._commands:
            self._idle.clear()
            await self._idle.wait()
        await detached
