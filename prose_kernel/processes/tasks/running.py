"""One command of `exec_command`: its process, its output, its window, and its record when it becomes a task.

Everything here happens in the engine's loop. When the window closes, the same process continues as a task and no output
is lost, because the buffers and the log exist from the first byte (exec-and-tasks.md 4.2).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct

from prose_kernel.errors import TaskRefused
from prose_kernel.language.structs import replace
from prose_kernel.processes.child_process import EngineProcess, Launch, ProcessRecord, exit_of
from prose_kernel.processes.command_output import Collected, Live, no_op
from prose_kernel.processes.environment import without_secrets
from prose_kernel.processes.shell import NOT_INHERITED, Shell
from prose_kernel.processes.tasks.log import Log
from prose_kernel.processes.tasks.records import (
    PREVIEW,
    TaskRecord,
    digest_of,
    display_of,
    new_result_id,
    output_summary,
    summary_of,
)
from prose_kernel.processes.tasks.requests import CommandCall
from prose_kernel.processes.tasks.store import DIRECTORY
from prose_kernel.runtime.ports import Stream
from prose_kernel.runtime.services import CommandCompleted, TaskCaller, TaskReceipt, TaskStatus


class Identity(Struct, frozen=True):
    """The fields by which two commands count as the same (4.6): not the preview and the summary."""

    cmd: str
    workdir: str
    shell: str
    login: bool


class OutputDistributor:
    """Distributes a command's output, in order of arrival, to buffers, log and watchers."""

    def __init__(self, log: Log) -> None:
        self.collected = Collected()
        self.log = log
        self.changed = False
        self.resume: Callable[[], None] = no_op
        self._watchers: list[Live] = []

    @property
    def full(self) -> bool:
        return any(watcher.full for watcher in self._watchers)

    def feed(self, stream: Stream, text: str) -> None:
        if text:
            self.changed = True
            self.collected.add(stream, text)
            self.log.add(text)
            for watcher in self._watchers:
                watcher.feed(stream, text)

    def stop(self) -> None:
        for watcher in self._watchers:
            watcher.stop()

    def watch(self, watcher: Live) -> None:
        watcher.resume = self._resume_if_not_full
        self._watchers.append(watcher)

    def unwatch(self, watcher: Live) -> None:
        """Remove a watcher; the caller delivers the text that the watcher still holds."""
        watcher.stop()
        self._watchers.remove(watcher)
        self._resume_if_not_full()

    def _resume_if_not_full(self) -> None:
        if not self.full:
            self.resume()


@dataclass(slots=True, eq=False)
class Command:
    """A started `exec_command`, until its process is reaped. With a `record` it is a task."""

    task_id: str
    call: CommandCall
    caller: TaskCaller
    identity: Identity
    recorder: OutputDistributor
    answer: asyncio.Future[TaskReceipt]
    live: Live | None = None
    process: EngineProcess = field(init=False)
    record: TaskRecord | None = None
    window: asyncio.TimerHandle | None = None
    limit: asyncio.TimerHandle | None = None
    refusal: TaskRefused | None = None
    """The error of a command that is ended before it could become a task."""
    failure: dict[str, str] | None = None
    """The reason why we end the task, for its record."""
    begun_at: str = ""
    started: float = 0.0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the record has its terminal state."""


def launch_of(shell: Shell, identity: Identity, environment: Mapping[bytes, bytes], job: str) -> Launch:
    """Return the launch of the process. `job` is a value of `PROSE_JOB` that only this command gets."""
    return Launch(
        prepare=lambda _: shell.arguments(identity.cmd),
        env={**environment, b"PROSE_JOB": job.encode()},
        cwd=identity.workdir,
        timeout=None,
        tree=job,
    )


def environment_for(caller: TaskCaller, allowed: tuple[str, ...]) -> dict[bytes, bytes]:
    """Return the kernel's environment without startup files, and for an agent's command without apparent secrets."""
    inherited = {name: value for name, value in os.environb.items() if name not in NOT_INHERITED}
    return without_secrets(inherited, allowed) if caller.session is not None else inherited


def spawn_refusal(record: ProcessRecord, command: Command) -> TaskRefused | None:
    """Return the error if nothing ran, or if the command has created protected files; else None."""
    if record.created:
        return TaskRefused("permission_denied", f"the command has run, and {record.created}")
    if not command.begun_at and record.spawn_error is None:
        return TaskRefused("runtime_closed", "the command was ended before it had started")
    if record.outcome != "spawn_failed" and record.spawn_error is None:
        return None
    if record.spawn_kind == "cwd":
        shown = command.call.workdir or "the workspace"
        return TaskRefused("workdir_not_found", f"workdir: {shown} is not a directory that commands can run in")
    return TaskRefused("command_spawn_failed", record.spawn_error or "the command could not be started", retryable=True)


# ---------------------------------------------------------------- records and answers


def first_record(command: Command, run: Path | None, now: str) -> TaskRecord:
    """Return the first record of a command that becomes a task. `run` is the run's directory."""
    call = command.call
    log = command.recorder.log
    return TaskRecord(
        task_id=command.task_id,
        number=0,
        summary=summary_of(call.summary, call.cmd),
        run_id=run.name if run is not None else None,
        session=command.caller.session,
        cell=command.caller.cell,
        work_ref=command.caller.continues or command.caller.session,
        cmd=call.cmd,
        cmd_digest=digest_of(call.cmd),
        cmd_display=display_of(call.cmd),
        workdir=command.identity.workdir,
        shell=command.identity.shell,
        login=call.login,
        yield_time_ms=call.yield_time_ms,
        max_output_tokens=call.max_output_tokens,
        continue_on_result=call.continue_on_result,
        promoted=call.yield_time_ms > 0,
        status="queued",
        created_at=command.begun_at,
        started_at=command.begun_at,
        updated_at=now,
        log_ref=f"{DIRECTORY}/{log.path.name}" if log.path is not None else None,
    )


def filled(record: TaskRecord, command: Command) -> TaskRecord:
    """Return the record, updated with the current output."""
    both, log = command.recorder.collected.combined, command.recorder.log
    head = both.head(PREVIEW // 2)
    return replace(
        record,
        head=head,
        tail=both.tail(min(both.total - len(head), PREVIEW // 2)),
        characters=both.total,
        bytes_seen=log.seen,
        bytes_kept=log.kept,
        truncated=log.truncated,
        log_error=log.error,
        output_summary=output_summary(log.seen, log.truncated),
    )


def current_record(command: Command) -> TaskRecord:
    """Return a task's record, updated with the current output."""
    assert command.record is not None
    return filled(command.record, command)


def completed(command: Command, record: ProcessRecord) -> CommandCompleted:
    """Return the answer of a command that ended in its window."""
    status, name = exit_of(record.status)
    previews = command.recorder.collected.previews(command.call.budget)
    (stdout, stdout_cut), (stderr, stderr_cut) = previews["stdout"], previews["stderr"]
    log = command.recorder.log
    artifacts: tuple[str, ...] = ()
    if (stdout_cut or stderr_cut) and log.path is not None:
        log.open()
        log.finish()
        artifacts = (f"{DIRECTORY}/{log.path.name}",) if log.error is None else ()
    else:
        log.discard()
    how = f"exit {status}" if status is not None else f"ended by signal {name or 'unknown'}"
    ended = record.background_ended
    if ended:
        how += f"; {ended} background process{'es were' if ended != 1 else ' was'} ended"
        how += ": run it in the foreground; it becomes a task by itself"
    return CommandCompleted(status, name, stdout, stderr, stdout_cut, stderr_cut, artifacts, ended, how)


def ended_record(command: Command, process: ProcessRecord, now: str, monotonic: float) -> TaskRecord:
    """Return the record of a task whose process has ended."""
    assert command.record is not None
    status, name = exit_of(process.status)
    after: TaskStatus = "completed"
    error = command.failure
    if command.record.status == "cancelling":
        after, error = "cancelled", None
    elif error is not None:
        after = "failed"
    elif process.created:
        after, error = "failed", {"kind": "permission_denied", "message": process.created}
    elif status != 0:
        after = "failed"
        message = f"exit {status}" if status is not None else f"ended by signal {name or 'unknown'}"
        error = {"kind": "exit" if status is not None else "signal", "message": message}
    return _ended(command, after, now, monotonic, exit_status=status, signal=name, error=error)


def interrupted_record(command: Command, now: str, monotonic: float) -> TaskRecord:
    """Return the record of a task that ends because the run ends."""
    error = {"kind": "runtime_shutdown", "message": "the run ended before the command did"}
    return _ended(command, "interrupted", now, monotonic, interrupted_reason="runtime_shutdown", error=error)


def _ended(command: Command, status: TaskStatus, now: str, monotonic: float, **result: Any) -> TaskRecord:
    return replace(
        current_record(command),
        status=status,
        ended_at=now,
        updated_at=now,
        duration=round(monotonic - command.started, 3),
        result_id=new_result_id(),
        **result,
    )
