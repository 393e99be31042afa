"""The shell for agents: `exec_command` and the tools for the tasks that it starts (exec-and-tasks.md 4, 3.12).

Offered under `bash: allow` or `bash: prompt`; with `prompt` the person is asked before each command. The answer is a
readable receipt made from the structured result; a command that fails is a result, not a failure of the tool.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import Struct

from prose_kernel.access.approvals import Approvals, Ask, session_name
from prose_kernel.access.session_permissions import Policy
from prose_kernel.errors import TaskRefused
from prose_kernel.models.tools.files import TEXT, schema_of
from prose_kernel.models.tools.tool import Tool, ToolFailed, ToolRefused, ToolSpec
from prose_kernel.runtime.ports import SessionRequest
from prose_kernel.runtime.services import (
    CommandCompleted,
    CommandPromoted,
    TaskCaller,
    TaskReceipt,
    Tasks,
    TaskSnapshot,
)

_NUMBER = {"type": ["integer", "string"]}
_FLAG = {"type": ["boolean", "string"]}
_TASK = {**TEXT, "description": "the task_id that exec_command gave"}


def command_tools(request: SessionRequest, policy: Policy, approvals: Approvals, tasks: Tasks) -> Sequence[Tool]:
    """Return the tools of a session whose permissions allow a shell; none otherwise."""
    if not policy.may_allow("bash"):
        return ()
    guard = _Guard(request, policy, approvals)
    return (ExecCommand(guard, tasks), *(TaskTool(*made, guard.caller, tasks) for made in _TASK_TOOLS))


class _Guard:
    """The caller of a session's commands, and the permission check before each of them."""

    def __init__(self, request: SessionRequest, policy: Policy, approvals: Approvals) -> None:
        self._request = request
        self._policy = policy
        self._approvals = approvals
        self._network: str | None = None
        # all sessions of an agent with memory are one caller
        session = f"agent {request.agent}" if request.memory is not None and request.agent else request.at
        self.caller = TaskCaller(session=session)

    async def allow(self, cmd: str, workdir: str) -> TaskCaller:
        """Return the caller for this command, with the rules that confine it. Raises `ToolRefused`."""
        ruling = self._policy.decide("bash", cmd)
        if ruling.answer == "prompt":
            text = f"to run a shell command in {workdir or 'the workspace'}:\n{cmd}"
            ruling = await self._approvals.ask(
                Ask.of(self._request, "bash", text, f"any command of {session_name(self._request)}")
            )
        if ruling.answer != "allow":
            raise ToolRefused(ruling.why)
        stated = self._request.permissions
        rule = self._policy.rule
        rules = {"read": rule("read"), "write": rule("write"), "network": await self._network_rule()}
        binds = any(kind in stated and rule(kind) != "allow" for kind in ("read", "write"))
        return TaskCaller(session=self.caller.session, continues=self._request.agent, rules=rules, lists_bind=binds)

    async def _network_rule(self) -> str:
        """Return `allow` or `deny`: a shell cannot be limited to some hosts, so patterns mean `deny`. The person is
        asked once."""
        if self._network is None:
            rule = self._policy.rule("network")
            answer = rule if isinstance(rule, str) else "deny"
            if answer not in ("allow", "deny"):
                text = "its shell commands to use the network"
                always = f"the network for the commands of {session_name(self._request)}"
                answer = (await self._approvals.ask(Ask.of(self._request, "network", text, always))).answer
            self._network = answer
        return self._network


# ---------------------------------------------------------------- the tools


class ExecCommand:
    """Runs a shell command; one that runs longer than the wait continues as a task."""

    spec = ToolSpec(
        "exec_command",
        "Run a shell command in the workspace. If it ends within yield_time_ms, its output is returned. If not, the "
        "same process goes on as a task with a task_id, for TaskStatus, TaskOutput and TaskStop. Start servers and "
        "watchers like every other command, in the foreground.",
        schema_of(  # noqa: S604 - `shell` is a field
            ("cmd",),
            cmd={**TEXT, "description": "the command, for the shell"},
            workdir={**TEXT, "description": "where it starts; default: the workspace root"},
            yield_time_ms={**_NUMBER, "description": "how long to wait for its end, 0 to 600000; default 10000"},
            max_output_tokens={**_NUMBER, "description": "how much output to return; default 8000"},
            summary={**TEXT, "description": "what it is for, in a few words"},
            continue_on_result={**_FLAG, "description": "whether a task's result is for your next step, later"},
            shell={**TEXT, "description": "another shell"},
            login={**_FLAG, "description": "whether the shell reads the profile; default false"},
            duplicate_policy={
                **TEXT,
                "description": "reuse_running (default) answers with the task in which the same command runs already; "
                "start_new starts another",
            },
        ),
    )

    def __init__(self, guard: _Guard, tasks: Tasks) -> None:
        self._guard = guard
        self._tasks = tasks

    def summary(self, arguments: Mapping[str, object]) -> str:
        return str(arguments.get("cmd", ""))

    async def call(self, arguments: Mapping[str, object]) -> str:
        caller = await self._guard.allow(str(arguments.get("cmd", "")), str(arguments.get("workdir") or ""))
        try:
            return receipt_text(await self._tasks.start(arguments, caller))
        except TaskRefused as refused:
            raise _failed(refused) from None


class TaskTool(Struct, frozen=True):
    """A tool for the session's own tasks. `answer` returns the text for the model, or raises `TaskRefused`."""

    spec: ToolSpec
    answer: Callable[[Tasks, TaskCaller, Mapping[str, object]], Awaitable[str]]
    caller: TaskCaller
    tasks: Tasks

    async def call(self, arguments: Mapping[str, object]) -> str:
        try:
            return await self.answer(self.tasks, self.caller, arguments)
        except TaskRefused as refused:
            raise _failed(refused) from None


def _id(arguments: Mapping[str, object]) -> str:
    return str(arguments.get("task_id", ""))


async def _listed(tasks: Tasks, caller: TaskCaller, arguments: Mapping[str, object]) -> str:
    listing = await tasks.active(caller, arguments.get("limit"))
    if not listing.tasks:
        return "no active tasks"
    head = f"{listing.total_active} active task{'s' if listing.total_active != 1 else ''}"
    if listing.returned < listing.total_active:
        head += f", the newest {listing.returned}"
    lines = [
        f"{task.task_id}  {task.status}  {task.workdir}  $ {task.cmd_display}  ({task.output_summary})"
        for task in listing.tasks
    ]
    return "\n".join([f"{head}:", *lines])


async def _status(tasks: Tasks, caller: TaskCaller, arguments: Mapping[str, object]) -> str:
    return status_text(await tasks.status(_id(arguments), caller))


async def _output(tasks: Tasks, caller: TaskCaller, arguments: Mapping[str, object]) -> str:
    block = arguments.get("block", True)
    if isinstance(block, str):
        block = block.strip().lower() != "false"
    output = await tasks.output(_id(arguments), caller, block=bool(block), timeout_ms=arguments.get("timeout_ms"))
    why = {"success": "", "not_ready": " (not ready)", "timeout": " (still running when the wait was over)"}
    head = f"{_status_line(output.task)}{why[output.retrieval_status]}"
    notes = [f"[the whole output: {output.artifact}]"] if output.truncated and output.artifact else []
    notes += [f"[{output.log_error}]"] if output.log_error else []
    return "\n".join([head, _block("output", output.preview), *notes])


async def _stopped(tasks: Tasks, caller: TaskCaller, arguments: Mapping[str, object]) -> str:
    task = await tasks.stop(_id(arguments), caller)
    if task.ended:
        return f"{_status_line(task)}: it had ended already, nothing was changed"
    return f"{_status_line(task)}: {'it is killed' if task.force_stop_requested else 'it was asked to end'}"


_TASK_TOOLS = (
    (
        ToolSpec(
            "TaskList",
            "List the active tasks that your exec_command calls left, newest first, with a summary of their output.",
            schema_of((), limit={**_NUMBER, "description": "1 to 100; default 20"}),
        ),
        _listed,
    ),
    (
        ToolSpec(
            "TaskStatus",
            "How a task stands: its state, exit status and how much it has printed; never the output itself.",
            schema_of(("task_id",), task_id=_TASK),
        ),
        _status,
    ),
    (
        ToolSpec(
            "TaskOutput",
            "What a task has printed so far: its beginning and its end. With block (the default) it first waits for "
            "the task to end, up to timeout_ms. Waiting never affects the task.",
            schema_of(
                ("task_id",),
                task_id=_TASK,
                block={**_FLAG, "description": "wait for the end; default true"},
                timeout_ms={**_NUMBER, "description": "how long to wait, 0 to 600000; default 30000"},
            ),
        ),
        _output,
    ),
    (
        ToolSpec(
            "TaskStop",
            "Ask a task to end; call it again to kill it. It returns at once: TaskOutput waits for the end.",
            schema_of(("task_id",), task_id=_TASK),
        ),
        _stopped,
    ),
)


# ---------------------------------------------------------------- receipts


def _failed(refused: TaskRefused) -> ToolFailed:
    """Convert a failure to text for the model."""
    text = f"{refused.kind}: {refused.message}"
    if refused.hint:
        text += f"\nhint: {refused.hint}"
    return ToolFailed(text + ("\nthe same call may work later" if refused.retryable else ""))


def receipt_text(receipt: TaskReceipt) -> str:
    """Return the result of an `exec_command` as text."""
    if isinstance(receipt, CommandCompleted):
        parts = [f"completed: {receipt.summary_text}"]
        streams = (("stdout", receipt.stdout_preview), ("stderr", receipt.stderr_preview))
        parts += [_block(name, text) for name, text in streams if text] or ["(no output)"]
        parts += [f"[the whole output: {artifact}]" for artifact in receipt.artifacts]
        return "\n".join(parts)
    task = f"task_id: {receipt.task_id} ({receipt.status})"
    if isinstance(receipt, CommandPromoted):
        shown = _block("output so far", receipt.initial_output_preview)
        return f"promoted_to_task: {receipt.summary_text}\n{task}\n{shown}"
    return f"already_running: {receipt.summary_text}\n{task}\n$ {receipt.cmd_display}\nin {receipt.workdir}"


def _block(name: str, text: str) -> str:
    return f"--- {name} ---\n{text.rstrip()}" if text.strip() else f"--- {name}: nothing ---"


def _status_line(task: TaskSnapshot) -> str:
    text = f"task {task.task_id}: {task.status}"
    if task.ended and task.signal:
        return f"{text}, signal {task.signal}"
    return f"{text}, exit {task.exit_status}" if task.ended and task.exit_status is not None else text


def status_text(task: TaskSnapshot) -> str:
    lines = [_status_line(task), f"$ {task.cmd_display}", f"in {task.workdir}", task.output_summary]
    lines += [f"{task.error['kind']}: {task.error['message']}"] if task.error else []
    lines += ["a stop was requested"] if task.stop_requested else []
    lines.append(f"started {task.started_at}" + (f", ended {task.ended_at}" if task.ended_at else ""))
    return "\n".join(lines)
