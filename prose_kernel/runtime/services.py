"""Services between the rooms: those of commands for sessions, and the person at the front end for all.

No machine uses them. Callers get an implementation from the workspace, so that `models` and `processes` do not import
each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

# ---------------------------------------------------------------- helpers


@dataclass(frozen=True, slots=True)
class HelperEnd:
    """How a helper ended: its exit code, or the name of the signal that ended it; `ours` when we ended it."""

    exit_code: int | None
    signal: str | None = None
    ours: bool = False


class Helper(Protocol):
    """A long-lived process, used through its standard streams, in its own process session and group."""

    def write(self, text: str) -> None:
        """To its standard input, in order, without waiting; dropped when it has ended."""

    @property
    def complaints(self) -> str:
        """The last that it wrote to standard error."""

    async def ended(self) -> HelperEnd:
        """Wait until it and all that it started have ended; what it printed has been delivered by then."""

    async def stop(self, grace: float) -> HelperEnd:
        """End it with all that it started: TERM, `grace` seconds, KILL. With 0 send KILL immediately, even if it is
        being stopped already. Returns when nothing is left; cancelling the call does not keep it alive."""


class Guard(Protocol):
    """Starts helpers, and sees to it that none outlives the kernel, whatever becomes of the kernel."""

    async def start(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        on_output: Callable[[str], None],
        *,
        trusted: bool = True,
    ) -> Helper:
        """Start a command with our own environment and `env` on top. Unless `trusted`, it inherits only common
        variables that hold no secrets (`PATH`, `HOME`, `LANG` ...). `on_output` gets the decoded text of its standard
        output, piece by piece, in the caller's loop. Raises `OSError` whose text says why it could not be started."""


class Terminal(Protocol):
    """A command that an agent runs through us."""

    def output(self) -> tuple[str, bool]:
        """Return the kept part of its output so far, and whether its beginning was cut off."""

    @property
    def end(self) -> HelperEnd | None:
        """How it ended; None while it runs."""

    async def wait(self) -> HelperEnd:
        """Wait until it has ended. Cancelling the call leaves the command running."""

    async def close(self) -> None:
        """End it if it runs, with all that it started. Its output stays readable. A second call does nothing."""


class Terminals(Protocol):
    """Runs the commands that an agent asks its client to run. The caller must have checked the permissions."""

    async def start(
        self, command: Sequence[str] | str, cwd: str, env: Mapping[str, str], keep_bytes: int | None
    ) -> Terminal:
        """Start a program with its arguments, or a shell string. `keep_bytes` limits the output that is kept: its end.
        Raises `OSError` whose text says why it could not be started."""


# ---------------------------------------------------------------- programs that agents run


@dataclass(frozen=True, slots=True)
class ExecCaller:
    """The agent's session that calls `Exec`: `agent` names it, the same for all its calls and for no other session.

    `rules` are its permissions in force: a word (`allow`, `deny`, `prompt`, `workspace`) or patterns for each kind.
    `lists_bind`: the program has stated which files may be read or written, and its commands must keep to them.
    `prompt` for the network means that the person has been asked and said yes.
    """

    agent: str
    workspace: str
    rules: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    lists_bind: bool = False


ExecErrorKind = Literal["tool_not_found", "invalid_args", "permission_denied", "fs_denied", "tool_failed"]


@dataclass(frozen=True, slots=True)
class ExecOutcome:
    """The answer to a call of `Exec` (exec-and-tasks.md 3.2, 3.8): a result with its seven fields and what was added
    to them, or the kind of the refusal and a message for the model. A program that fails is a result."""

    call: str
    ok: bool
    result: Mapping[str, object] = field(default_factory=dict)
    error: ExecErrorKind | None = None
    message: str = ""


class Programs(Protocol):
    """Runs programs for agents: argument lists, never shell text; every call is checked, confined and audited."""

    def offers(self, caller: ExecCaller) -> bool:
        """Whether the tool is there for this agent at all: switched on by the operator, and granted."""

    def shown(self, argv: Sequence[object]) -> str:
        """Arguments on one line for traces and lists: what looks like a secret is replaced."""

    async def call(self, caller: ExecCaller, call: str, arguments: object) -> ExecOutcome:
        """Run one program to its end; all that it started has ended then. `call` is the id of the call, `arguments`
        are the model's. Never raises for what is asked or what the program does. Cancelling the call ends the
        program with all that it started."""


# ---------------------------------------------------------------- agent commands and tasks

TaskStatus = Literal["queued", "running", "cancelling", "completed", "failed", "cancelled", "interrupted"]


@dataclass(frozen=True, slots=True)
class TaskCaller:
    """The caller that starts a command or asks about a task: an agent's session, or the person (None), who sees all
    tasks.

    `cell` names the cell that it happens in. `workspace` is the directory that relative ones start from; None is the
    run's own. `continues` is whose work the result of a person's command is for (`continue_on_result`).
    `rules` and `lists_bind` are an agent's permissions in force, as in `ExecCaller`: its commands are confined to them.
    """

    session: str | None = None
    cell: str | None = None
    workspace: str | None = None
    continues: str | None = None
    rules: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    lists_bind: bool = False


@dataclass(frozen=True, slots=True)
class CommandCompleted:
    """`exec_command` whose process ended inside its waiting window. `exit_status` is None when a signal ended it."""

    exit_status: int | None
    signal: str | None
    stdout_preview: str
    stderr_preview: str
    stdout_truncated: bool
    stderr_truncated: bool
    artifacts: tuple[str, ...]
    background_ended: int
    summary_text: str
    disposition: Literal["completed"] = "completed"


@dataclass(frozen=True, slots=True)
class CommandPromoted:
    """An `exec_command` whose process continues as a task. `number` is its place in the run, which people type."""

    task_id: str
    number: int
    status: TaskStatus
    initial_output_preview: str
    summary_text: str
    kind: Literal["command_task"] = "command_task"
    disposition: Literal["promoted_to_task"] = "promoted_to_task"


@dataclass(frozen=True, slots=True)
class CommandRunning:
    """`exec_command` that started nothing, because the same command runs as a task already."""

    task_id: str
    status: TaskStatus
    cmd_display: str
    workdir: str
    summary_text: str
    disposition: Literal["already_running"] = "already_running"


TaskReceipt = CommandCompleted | CommandPromoted | CommandRunning


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """A task as it is now: lifecycle, identity, result, never its output (exec-and-tasks.md 4.7). Times are UTC.

    `duration` is volatile. `error` has a `kind` and a `message`. `output_summary` is one line of facts.
    """

    task_id: str
    number: int
    summary: str
    status: TaskStatus
    revision: int
    cmd_display: str
    cmd_digest: str
    workdir: str
    shell: str
    login: bool
    tty: bool
    created_at: str
    started_at: str | None
    updated_at: str
    ended_at: str | None
    duration: float | None
    exit_status: int | None
    signal: str | None
    error: Mapping[str, str] | None
    stop_requested: bool
    force_stop_requested: bool
    output_available: bool
    bytes_seen: int
    output_summary: str
    session: str | None = None
    interrupted_reason: str | None = None
    status_before_restart: TaskStatus | None = None
    kind: Literal["command_task"] = "command_task"

    @property
    def ended(self) -> bool:
        return self.status in ("completed", "failed", "cancelled", "interrupted")


@dataclass(frozen=True, slots=True)
class TaskListing:
    """The active tasks that the caller may see, newest first."""

    total_active: int
    returned: int
    limit: int
    tasks: tuple[TaskSnapshot, ...]


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """A task's output so far: its beginning and end, in the order of arrival. `artifact` is the path of the log."""

    retrieval_status: Literal["success", "not_ready", "timeout"]
    task: TaskSnapshot
    preview: str
    truncated: bool
    artifact: str | None
    log_error: str | None = None


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """`TaskStatus` reports a change; `TaskResult` comes exactly once per task, with its terminal state."""

    kind: Literal["TaskStatus", "TaskResult"]
    task: TaskSnapshot
    result_id: str | None = None


@dataclass(frozen=True, slots=True)
class TaskFollowUp:
    """The one continuation of a task made with `continue_on_result`: `text` is data from the runtime and never an
    instruction, whatever the program has printed."""

    result_id: str
    task_id: str
    number: int
    session: str
    text: str
    provenance: Literal["runtime"] = "runtime"


class Tasks(Protocol):
    """Commands with a waiting window, and the tasks that they become (exec-and-tasks.md section 4).

    Every call may be made in any event loop and raises `TaskRefused` when it cannot be carried out. A task is named by
    its id; the person may also give its number.
    """

    async def start(self, fields: Mapping[str, object], caller: TaskCaller) -> TaskReceipt:
        """`exec_command`: start, wait until it ends or the window closes, promote. Cancelling the call ends a command
        that is still in its window, and changes nothing about a task."""

    async def active(self, caller: TaskCaller, limit: object = 20) -> TaskListing: ...

    async def status(self, task_id: str, caller: TaskCaller) -> TaskSnapshot: ...

    async def output(
        self, task_id: str, caller: TaskCaller, *, block: bool = True, timeout_ms: object = 30_000
    ) -> TaskOutput: ...

    async def stop(self, task_id: str, caller: TaskCaller) -> TaskSnapshot:
        """Ask the task to end; a second call kills it. Returns immediately: the end arrives as an event."""


# ---------------------------------------------------------------- the person


class Asker(Protocol):
    """The person at a front end: an input box in a notebook, a terminal. `User`, `Gates`, the human provider and the
    human judge use it; the machine itself does not.

    `available` may change from cell to cell (`allow_stdin`).
    """

    @property
    def available(self) -> bool: ...

    async def ask(self, prompt: str) -> str:
        """Show the prompt, return one line as typed. Raises `NoPerson`; end of input raises `EOFError`."""

    def show(self, text: str) -> None:
        """Show a text to the person, outside of the program's own output."""
