"""One command of `exec_command`: its process, its output, its window. Becomes a task around the same process.

All of it happens in the engine's loop. Nothing is restarted and nothing captured is lost when the window closes: the
buffers and the log are there from the first byte (exec-and-tasks.md 4.2).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from prose_kernel.commands.output import Collected, Live
from prose_kernel.commands.process import EngineProcess, Launch, Record
from prose_kernel.commands.shell import NOT_INHERITED, Shell
from prose_kernel.commands.tasks.log import Log
from prose_kernel.commands.tasks.records import PREVIEW, TaskRecord
from prose_kernel.commands.tasks.requests import CommandCall
from prose_kernel.commands.tasks.secrets import without_secrets
from prose_kernel.errors import TaskRefused
from prose_kernel.runtime.ports import Stream
from prose_kernel.runtime.services import TaskCaller, TaskReceipt


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes two commands the same (4.6): never the preview or the summary."""

    cmd: str
    workdir: str
    shell: str
    login: bool


@dataclass(frozen=True, slots=True)
class Output:
    """What a command has printed so far, as its record keeps it."""

    head: str
    tail: str
    characters: int
    seen: int
    kept: int
    truncated: bool
    log_error: str | None


class Recorder:
    """Takes a command's output in order of arrival: buffers, log, and whoever watches."""

    def __init__(self, log: Log) -> None:
        self.collected = Collected()
        self.log = log
        self.changed = False
        self._watchers: list[Live] = []

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
        self._watchers.append(watcher)

    def unwatch(self, watcher: Live) -> None:
        """What waits for the watcher is left to whoever delivers it."""
        watcher.stop()
        self._watchers.remove(watcher)

    @property
    def output(self) -> Output:
        both, half = self.collected.combined, PREVIEW // 2
        head = both.head(half)
        tail = both.tail(min(both.total - len(head), half))
        log = self.log
        return Output(head, tail, both.total, log.seen, log.kept, log.truncated, log.error)


@dataclass(slots=True, eq=False)
class Command:
    """A started `exec_command`, until its process is reaped. With a `record` it is a task."""

    task_id: str
    call: CommandCall
    caller: TaskCaller
    identity: Identity
    recorder: Recorder
    answer: asyncio.Future[TaskReceipt]
    live: Live | None = None
    process: EngineProcess = field(init=False)
    record: TaskRecord | None = None
    window: asyncio.TimerHandle | None = None
    limit: asyncio.TimerHandle | None = None
    refusal: TaskRefused | None = None
    """Why the command is ended before it could become a task."""
    failure: dict[str, str] | None = None
    """Why the task is ended by us: what its record will say."""
    begun_at: str = ""
    started: float = 0.0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the record has its terminal state."""


def launch_of(shell: Shell, identity: Identity, environment: Mapping[bytes, bytes], job: str) -> Launch:
    """How the process is started. `job` is the value of `PROSE_JOB` that this command alone gets."""
    return Launch(
        prepare=lambda _: shell.arguments(identity.cmd),
        env={**environment, b"PROSE_JOB": job.encode()},
        cwd=identity.workdir,
        timeout=None,
        tree=job,
    )


def environment_for(caller: TaskCaller, allowed: tuple[str, ...]) -> dict[bytes, bytes]:
    """The kernel's environment, without startup files; an agent's commands get none of what looks like a secret."""
    inherited = {name: value for name, value in os.environb.items() if name not in NOT_INHERITED}
    return without_secrets(inherited, allowed) if caller.session is not None else inherited


def spawn_refusal(record: Record, command: Command) -> TaskRefused | None:
    """Why nothing ran; None when something did."""
    if not command.begun_at and record.spawn_error is None:
        return TaskRefused("runtime_closed", "the command was ended before it had started")
    if record.outcome != "spawn_failed" and record.spawn_error is None:
        return None
    if record.spawn_kind == "cwd":
        shown = command.call.workdir or "the workspace"
        return TaskRefused("workdir_not_found", f"workdir: {shown} is no directory that commands can run in")
    return TaskRefused("command_spawn_failed", record.spawn_error or "the command could not be started", retryable=True)
