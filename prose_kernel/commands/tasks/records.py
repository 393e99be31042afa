"""The record of a task: everything that is known about it and may be told, and the form in which it is kept.

It never holds a process id, a descriptor or a place outside of the run directory (exec-and-tasks.md 4.3, 4.11).
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from prose_kernel.commands.tasks.secrets import display_of
from prose_kernel.commands.tasks.states import TERMINAL
from prose_kernel.runtime.services import TaskSnapshot, TaskStatus


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task at one revision. Times are ISO 8601 in UTC; `duration` is monotonic, in seconds."""

    # identity and owner
    task_id: str
    number: int
    summary: str
    run_id: str | None
    session: str | None
    cell: str | None
    work_ref: str | None
    # command
    cmd: str
    cmd_digest: str
    cmd_display: str
    workdir: str
    shell: str
    login: bool
    # options
    yield_time_ms: int
    max_output_tokens: int
    continue_on_result: bool
    promoted: bool
    # lifecycle
    status: TaskStatus
    created_at: str
    updated_at: str
    started_at: str | None = None
    ended_at: str | None = None
    duration: float | None = None
    revision: int = 0
    # stop
    stop_requested_at: str | None = None
    force_stop_requested: bool = False
    cancelled_reason: str | None = None
    # result
    exit_status: int | None = None
    signal: str | None = None
    error: dict[str, str] | None = None
    output_summary: str = "no output yet"
    result_id: str | None = None
    result_delivered_at: str | None = None
    # output
    log_ref: str | None = None
    bytes_seen: int = 0
    bytes_kept: int = 0
    truncated: bool = False
    log_error: str | None = None
    head: str = ""
    tail: str = ""
    characters: int = 0
    # restart
    interrupted_reason: str | None = None
    status_before_restart: TaskStatus | None = None
    kind: str = "command_task"
    tty: bool = False

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL

    def as_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)


_FIELDS = frozenset(field.name for field in fields(TaskRecord))


def from_json(text: str) -> TaskRecord:
    """A record as it was kept; what a later version has added is left out."""
    data: dict[str, Any] = json.loads(text)
    return TaskRecord(**{name: value for name, value in data.items() if name in _FIELDS})


def new_id() -> str:
    """An id that says nothing and is never used again."""
    return f"task_{secrets.token_hex(8)}"


def digest_of(command: str) -> str:
    return hashlib.sha256(command.encode()).hexdigest()


def summary_of(given: str | None, command: str) -> str:
    """The summary that was given, or the beginning of the command; one line either way."""
    text = " ".join(display_of(given or command).split())
    return text if len(text) <= 80 else text[:79] + "…"


def timestamp(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds")


def snapshot_of(record: TaskRecord) -> TaskSnapshot:
    """What may be told of a record to whoever may see the task."""
    return TaskSnapshot(
        task_id=record.task_id,
        number=record.number,
        summary=record.summary,
        status=record.status,
        revision=record.revision,
        cmd_display=record.cmd_display,
        cmd_digest=record.cmd_digest,
        workdir=record.workdir,
        shell=record.shell,
        login=record.login,
        tty=record.tty,
        created_at=record.created_at,
        started_at=record.started_at,
        updated_at=record.updated_at,
        ended_at=record.ended_at,
        duration=record.duration,
        exit_status=record.exit_status,
        signal=record.signal,
        error=dict(record.error) if record.error else None,
        stop_requested=record.stop_requested_at is not None,
        force_stop_requested=record.force_stop_requested,
        output_available=record.bytes_seen > 0,
        bytes_seen=record.bytes_seen,
        output_summary=record.output_summary,
        session=record.session,
        interrupted_reason=record.interrupted_reason,
        status_before_restart=record.status_before_restart,
    )


def ending_of(task: TaskSnapshot | TaskRecord) -> str:
    """How a task stands, in a few words: `completed`, `failed (exit 1)`, `interrupted (the kernel ended)`."""
    why = ""
    if task.status == "failed":
        if task.error and task.error["kind"] not in ("exit", "signal"):
            why = task.error["message"]
        elif task.signal:
            why = f"signal {task.signal}"
        else:
            why = f"exit {task.exit_status}"
    elif task.status == "interrupted":
        why = {"runtime_shutdown": "the run ended", "runtime_restarted": "the kernel was gone"}.get(
            task.interrupted_reason or "", task.interrupted_reason or ""
        )
    return f"{task.status} ({why})" if why else task.status
