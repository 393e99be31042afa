"""Interfaces between rooms, which no machine uses: helper processes, tasks and `Exec` for sessions, and the person.

Callers get an implementation from the workspace, so that `models` and `processes` do not import each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct, field

# ---------------------------------------------------------------- helpers


class HelperEnd(Struct, frozen=True):
    """The end of a helper: its exit code or signal. `ours` means that we ended it."""

    exit_code: int | None
    signal: str | None = None
    ours: bool = False


class Helper(Protocol):
    """A long-lived process, used through its standard streams, in its own process session and group."""

    def write(self, text: str) -> None:
        """Queue text for its standard input, without waiting. It is dropped if the helper has ended."""

    @property
    def complaints(self) -> str:
        """The last lines on its standard error."""

    async def ended(self) -> HelperEnd:
        """Wait until it and its children have ended. All its output has been delivered then."""

    async def stop(self, grace: float) -> HelperEnd:
        """End it and its children: TERM, `grace` seconds, KILL. With 0 send KILL immediately, even if it is being
        stopped already. Returns when no process is left; cancelling the call does not keep it alive."""


class Guard(Protocol):
    """Starts helpers, and ensures that none outlives the kernel, even if the kernel is killed."""

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
        variables without secrets (`PATH`, `HOME`, `LANG` ...). `on_output` gets the decoded text of its standard
        output, piece by piece, in the caller's loop. Raises `OSError` with the reason if it cannot be started."""


class Terminal(Protocol):
    """A command that we run for an agent."""

    def output(self) -> tuple[str, bool]:
        """Return the kept part of its output so far, and whether its beginning was cut off."""

    @property
    def end(self) -> HelperEnd | None:
        """How it ended; None while it is running."""

    async def wait(self) -> HelperEnd:
        """Wait until it has ended. Cancelling the call leaves the command running."""

    async def close(self) -> None:
        """End it and its children, if it is running. Its output stays readable. A second call does nothing."""


class Terminals(Protocol):
    """Runs the commands that an agent asks its client to run. The caller must have checked the permissions."""

    async def start(
        self, command: Sequence[str] | str, cwd: str, env: Mapping[str, str], keep_bytes: int | None
    ) -> Terminal:
        """Start a program with its arguments, or a shell string. `keep_bytes` limits the kept output to its end. Raises
        `OSError` with the reason if it cannot be started."""


# ---------------------------------------------------------------- programs run by agents


class ExecCaller(Struct, frozen=True):
    """The agent's session that calls `Exec`. `agent` identifies it: equal for all its calls, different for all others.

    `rules` are its effective permissions: a word (`allow`, `deny`, `prompt`, `workspace`) or patterns for each kind.
    `lists_bind` means that the program has listed readable or writable files, to which its commands are confined.
    `prompt` for the network means that the person has already allowed it.
    """

    agent: str
    workspace: str
    rules: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    lists_bind: bool = False


ExecErrorKind = Literal["tool_not_found", "invalid_args", "permission_denied", "fs_denied", "tool_failed"]


class ExecOutcome(Struct, frozen=True):
    """The answer to a call of `Exec` (exec-and-tasks.md 3.2, 3.8): a result with its seven fields and additions, or the
    kind of the refusal and a message for the model. A failed program also has a result."""

    call: str
    ok: bool
    result: Mapping[str, object] = field(default_factory=dict)
    error: ExecErrorKind | None = None
    message: str = ""


class Programs(Protocol):
    """Runs programs for agents, from argument lists and never from shell text. Calls are checked, confined and
    audited."""

    def offers(self, caller: ExecCaller) -> bool:
        """Return whether this agent has the tool: it is enabled by the operator, and granted."""

    def shown(self, argv: Sequence[object]) -> str:
        """Return arguments on one line for traces and lists, with secrets replaced."""

    async def call(self, caller: ExecCaller, call: str, arguments: object) -> ExecOutcome:
        """Run one program until it and its children have ended. `call` is the id of the call, `arguments` come from the
        model. Never raises an error for wrong arguments or a failed program. Cancelling the call ends the program and
        its children."""


# ---------------------------------------------------------------- agent commands and tasks

TaskStatus = Literal["queued", "running", "cancelling", "completed", "failed", "cancelled", "interrupted"]


class TaskCaller(Struct, frozen=True):
    """The caller that starts a command or asks about a task: an agent's session, or the person (None), who sees all
    tasks.

    - `cell`: the cell of the call
    - `workspace`: the base of relative directories; None: the run's working directory
    - `continues`: the session that gets the result of a person's command (`continue_on_result`)
    - `rules`, `lists_bind`: an agent's effective permissions, as in `ExecCaller`; its commands are confined to them
    """

    session: str | None = None
    cell: str | None = None
    workspace: str | None = None
    continues: str | None = None
    rules: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    lists_bind: bool = False


class CommandCompleted(Struct, frozen=True):
    """The result of `exec_command` for a process that ended within the wait. `exit_status` is None after a signal."""

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


class CommandPromoted(Struct, frozen=True):
    """The result of `exec_command` for a process that continues as a task. `number` is its number in the run."""

    task_id: str
    number: int
    status: TaskStatus
    initial_output_preview: str
    summary_text: str
    kind: Literal["command_task"] = "command_task"
    disposition: Literal["promoted_to_task"] = "promoted_to_task"


class CommandRunning(Struct, frozen=True):
    """The result of `exec_command` if nothing was started, because a task already runs the same command."""

    task_id: str
    status: TaskStatus
    cmd_display: str
    workdir: str
    summary_text: str
    disposition: Literal["already_running"] = "already_running"


TaskReceipt = CommandCompleted | CommandPromoted | CommandRunning


class TaskFacts(Struct, frozen=True, kw_only=True):
    """The data that a task's record and its snapshots have in common. Times are ISO 8601 in UTC.

    `duration` is monotonic, in seconds, and volatile. `error` has a `kind` and a `message`. `output_summary` is one
    line of facts.
    """

    task_id: str
    number: int
    summary: str
    status: TaskStatus
    revision: int = 0
    cmd_display: str
    cmd_digest: str
    workdir: str
    shell: str
    login: bool
    tty: bool = False
    created_at: str
    started_at: str | None = None
    updated_at: str
    ended_at: str | None = None
    duration: float | None = None
    exit_status: int | None = None
    signal: str | None = None
    error: Mapping[str, str] | None = None
    force_stop_requested: bool = False
    bytes_seen: int = 0
    output_summary: str = "no output yet"
    session: str | None
    interrupted_reason: str | None = None
    status_before_restart: TaskStatus | None = None
    kind: str = "command_task"

    @property
    def ended(self) -> bool:
        return self.status in ("completed", "failed", "cancelled", "interrupted")


class TaskSnapshot(TaskFacts, frozen=True, kw_only=True):
    """The current state of a task without its output (exec-and-tasks.md 4.7)."""

    stop_requested: bool
    output_available: bool


class TaskListing(Struct, frozen=True):
    """The active tasks that the caller may see, newest first."""

    total_active: int
    returned: int
    limit: int
    tasks: tuple[TaskSnapshot, ...]


class TaskOutput(Struct, frozen=True):
    """A task's output so far: its beginning and end, in order of arrival. `artifact` is the path of the log."""

    retrieval_status: Literal["success", "not_ready", "timeout"]
    task: TaskSnapshot
    preview: str
    truncated: bool
    artifact: str | None
    log_error: str | None = None


class TaskEvent(Struct, frozen=True):
    """`TaskStatus` reports a change; `TaskResult` is sent exactly once for each task, with its final state."""

    kind: Literal["TaskStatus", "TaskResult"]
    task: TaskSnapshot
    result_id: str | None = None


class TaskFollowUp(Struct, frozen=True):
    """The one continuation of a task made with `continue_on_result`. `text` is data from the runtime and never an
    instruction, even if it quotes the program's output."""

    result_id: str
    task_id: str
    number: int
    session: str
    text: str
    provenance: Literal["runtime"] = "runtime"


class Tasks(Protocol):
    """Commands with a limited wait, and the tasks that they become (exec-and-tasks.md section 4).

    Every method may be called in any event loop, and raises `TaskRefused` if it cannot be carried out. A task is
    identified by its id; the person may also give its number.
    """

    async def start(self, fields: Mapping[str, object], caller: TaskCaller) -> TaskReceipt:
        """Start a command (`exec_command`), wait until it ends or the wait is over, and then make it a task. Cancelling
        the call during the wait ends the command; it does not affect a task."""

    async def active(self, caller: TaskCaller, limit: object = 20) -> TaskListing: ...

    async def status(self, task_id: str, caller: TaskCaller) -> TaskSnapshot: ...

    async def output(
        self, task_id: str, caller: TaskCaller, *, block: bool = True, timeout_ms: object = 30_000
    ) -> TaskOutput: ...

    async def stop(self, task_id: str, caller: TaskCaller) -> TaskSnapshot:
        """Ask the task to end; a second call kills it. Returns immediately; an event reports the end."""


class Asker(Protocol):
    """The person at a front end: an input box in a notebook, a terminal. `User`, `Gates`, the human provider and the
    human judge use it; the machine does not.

    `available` may change from cell to cell (`allow_stdin`).
    """

    @property
    def available(self) -> bool: ...

    async def ask(self, prompt: str) -> str:
        """Show the prompt, return one line as typed. Raises `NoPerson`; end of input raises `EOFError`."""

    def show(self, text: str) -> None:
        """Show a text to the person, outside of the program's own output."""
