"""The `Exec` tool: one program, never a shell, checked, confined, limited, audited (exec-and-tasks.md section 3)."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shlex
import signal
import tempfile
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from msgspec import Struct

from prose_kernel.processes import environment, spawn
from prose_kernel.processes.command_output import Head
from prose_kernel.processes.cross_loop import ProcessCall
from prose_kernel.processes.engine import Engine, EngineClosed
from prose_kernel.processes.exec_tool import capabilities, checks, sandbox_plan
from prose_kernel.processes.exec_tool.audit import AuditFailure, AuditLog, display, hidden_values
from prose_kernel.processes.exec_tool.capabilities import CapabilityRecord, CapabilityStore
from prose_kernel.processes.exec_tool.checks import Checked, ExecArguments, Refused, parse
from prose_kernel.processes.exec_tool.sandbox_plan import Plan
from prose_kernel.processes.monitored_process import MonitoredLaunch, MonitoredProcess, MonitorRecord, StartFailure
from prose_kernel.processes.options import ExecOptions
from prose_kernel.processes.sandbox import Mechanisms, mechanisms
from prose_kernel.runtime import open_request
from prose_kernel.runtime.ports import Stream
from prose_kernel.runtime.services import ExecCaller, ExecErrorKind, ExecOutcome

NAME = capabilities.TOOL


class ExecCall(Struct, frozen=True):
    """One call of a tool that the agent's record grants.

    The tool calls `dispatched` when all checks have passed, right before it starts anything.
    """

    agent: str
    record: CapabilityRecord
    id: str
    arguments: Mapping[str, object]
    dispatched: Callable[[Mapping[str, object]], None]


Handler = Callable[[ExecCall], Awaitable[object]]
"""Carries out a call of one tool."""


class Dispatcher:
    """Dispatches an agent's calls to the tools that it may call; no failure ends the session. The name and the
    grant of a tool are checked here; the tool makes the other checks, and raises `Refused`.

    `handlers` holds the tools that the operator has registered, by name. Without a store of capabilities everything is
    refused.
    """

    def __init__(self, handlers: Mapping[str, Handler], store: CapabilityStore | None, audit: AuditLog) -> None:
        self._handlers = handlers
        self._store = store
        self._audit = audit

    async def dispatch(self, agent: str, call: str, tool: object, arguments: object) -> ExecOutcome:
        """Return the outcome of a call. Raises only if cancelled; every refusal writes one event."""
        started: list[bool] = []

        def dispatched(more: Mapping[str, object]) -> None:
            started.append(True)
            assert isinstance(arguments, Mapping)
            self._audit.append(
                "tool.call.dispatched",
                tool=tool,
                call=call,
                agent=agent,
                ok=True,
                args=hidden_values(arguments),
                **more,
            )

        try:
            handler, record = self._admitted(agent, tool, arguments)
            assert isinstance(arguments, Mapping)
            result = await handler(ExecCall(agent, record, call, arguments, dispatched))
            if not isinstance(result, Mapping):
                raise Refused("tool_failed", f"{tool} did not return an object")
        except Refused as problem:
            return self._refused(agent, call, tool, arguments, problem, bool(started))
        except AuditFailure as failure:
            return ExecOutcome(call, False, error="tool_failed", message=str(failure))
        except Exception as fault:  # a defect of a tool ends its call, not the session
            refused = Refused("tool_failed", f"{type(fault).__name__}: {fault}")
            return self._refused(agent, call, tool, arguments, refused, bool(started))
        return ExecOutcome(call, True, result)

    def _admitted(self, agent: str, tool: object, arguments: object) -> tuple[Handler, CapabilityRecord]:
        handler = self._handlers.get(tool) if isinstance(tool, str) else None
        if handler is None:
            raise Refused("tool_not_found", f"there is no tool {tool!r}" if tool else "the call names no tool")
        if not isinstance(arguments, Mapping) or not all(isinstance(name, str) for name in arguments):
            raise Refused("invalid_args", "the arguments must be an object")
        record = self._store.find(agent) if self._store is not None else None
        if record is None or not record.tool(tool):
            raise Refused("permission_denied", f"this agent may not call {tool}", missing=f"tool {tool}")
        return handler, record

    def _refused(
        self, agent: str, call: str, tool: object, arguments: object, refused: Refused, started: bool
    ) -> ExecOutcome:
        kind: ExecErrorKind = refused.kind
        facts = {"tool": tool, "call": call, "agent": agent, "error": kind, "message": refused.message}
        try:
            if started:
                self._audit.append("tool.call.finished", ok=False, **facts)
            else:
                shown = hidden_values(arguments) if isinstance(arguments, Mapping) else arguments
                details = {"missing": refused.missing, "target": refused.target}
                given = {name: value for name, value in details.items() if value}
                self._audit.append("tool.call.denied", args=shown, **facts, **given)
        except AuditFailure:
            pass  # the call is refused anyway
        return ExecOutcome(call, False, error=kind, message=refused.message)


@dataclass(eq=False, repr=False)
class ExecTool:
    """The handler of `Exec`. `warn` is called once with each line of `warn_once`, for example about a restriction
    that this machine cannot enforce."""

    engine: Engine
    options: ExecOptions
    audit: AuditLog
    _: KW_ONLY
    kernel: Callable[[], Mapping[str, str]] = lambda: os.environ
    warn: Callable[[str], object] | None = None
    found: Callable[[], Mechanisms] = mechanisms
    _warned: set[str] = field(default_factory=set, init=False)
    _homes: dict[str, tempfile.TemporaryDirectory[str]] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    async def __call__(self, call: ExecCall) -> Mapping[str, object]:
        """Run one call and return its result. Raises `Refused`."""
        options = self.options
        arguments = parse(call.arguments, options.refuse_env, options.allow_env, call.record.fs_grants)
        # a file system may be slow: don't block the loop
        checked, plan, home = await asyncio.to_thread(self._checked, arguments, call)
        for gap in plan.gaps:
            self.warn_once(gap)
        created = ""
        try:
            ended = await self._run(call, arguments, checked, plan, home)
        finally:
            if plan.watch is not None:
                created = await asyncio.to_thread(plan.watch.end)
        if created:
            raise Refused("fs_denied", f"the program has run, and {created}")
        result = ended.result
        self.audit.append(
            "tool.call.finished",
            tool=NAME,
            call=call.id,
            agent=call.agent,
            ok=True,
            **{name: result[name] for name in ("exit_code", "timed_out", "duration_s")},
            stdout_bytes=ended.stdout_bytes,
            stderr_bytes=ended.stderr_bytes,
            cpu_s=ended.cpu_s,
        )
        return result

    def _checked(self, arguments: ExecArguments, call: ExecCall) -> tuple[Checked, Plan, str | None]:
        checked = checks.check(arguments, call.record, self.options.from_writable)
        home = self._home(call.agent) if self.options.home == "private" else None
        return checked, sandbox_plan.plan(call.record, self.found(), checked, home), home

    async def _run(
        self, call: ExecCall, arguments: ExecArguments, checked: Checked, plan: Plan, home: str | None
    ) -> Ended:
        given = {**arguments.env, **open_request.identity()}
        env = environment.build(self.kernel(), given, environment.TMP if self.options.home == "tmp" else home)
        job = MonitoredLaunch(
            checked.program.path,
            arguments.argv,
            env,
            checked.cwd.path,
            float(arguments.timeout_s),
            GRACE,
            self.engine.grace,
            limits(self.options, arguments.timeout_s),
            plan.confinement,
            checked.program.identity,
            checked.cwd.identity,
        )
        call.dispatched({"program": checked.program.path, "cwd": checked.cwd.path})
        run = ExecRun(self.engine, job, arguments.max_output_bytes)
        return run.ended(await run.wait())

    def _home(self, agent: str) -> str:
        """Return the agent's home, a separate directory that is empty at first."""
        with self._lock:
            if agent not in self._homes:
                self._homes[agent] = tempfile.TemporaryDirectory(prefix="prose-home-", ignore_cleanup_errors=True)
            return self._homes[agent].name

    def warn_once(self, text: str) -> None:
        if text not in self._warned and self.warn is not None:
            self._warned.add(text)
            self.warn(f"Exec: {text}")

    def close(self) -> None:
        """Remove the private home directories."""
        with self._lock:
            homes, self._homes = list(self._homes.values()), {}
        for home in homes:
            home.cleanup()


def register_exec(handlers: dict[str, Handler], tool: ExecTool) -> str:
    """Add `Exec` to the tools, on behalf of the operator; return its name. May be repeated."""
    handlers[NAME] = tool
    return NAME


class AgentPrograms:
    """The `Programs` port: `Exec` for the agents of one run, each with capabilities from its permissions.

    `audit` is the run's log, `warn` is called with lines for the person. Close it when the run ends.
    """

    def __init__(
        self,
        engine: Engine,
        options: ExecOptions,
        audit: AuditLog,
        *,
        warn: Callable[[str], object] | None = None,
        kernel: Callable[[], Mapping[str, str]] = lambda: os.environ,
    ) -> None:
        self.capabilities = CapabilityStore()
        self._tool = ExecTool(engine, options, audit, kernel=kernel, warn=warn)
        self.handlers: dict[str, Handler] = {}
        if options.enabled:
            register_exec(self.handlers, self._tool)
        self._dispatcher = Dispatcher(self.handlers, self.capabilities, audit)
        self._lock = threading.Lock()

    def offers(self, caller: ExecCaller) -> bool:
        """Return whether the operator enabled `Exec` and the permissions grant it."""
        execute = caller.rules.get("execute", "deny")
        granted = execute in ("allow", "prompt") if isinstance(execute, str) else bool(execute)
        return NAME in self.handlers and granted

    def shown(self, argv: Sequence[object]) -> str:
        return shlex.join(display([str(item) for item in argv]))

    async def call(self, caller: ExecCaller, call: str, arguments: object) -> ExecOutcome:
        if self.capabilities.find(caller.agent) is None:
            await asyncio.to_thread(self._make_record, caller)
        return await self._dispatcher.dispatch(caller.agent, call, NAME, arguments)

    def _make_record(self, caller: ExecCaller) -> None:
        """Create the agent's record, at its first call."""
        with self._lock:
            if self.capabilities.find(caller.agent) is None:
                kernel, options = self._tool.kernel(), self._tool.options
                record = capabilities.capabilities(caller, options, kernel.get("PATH"), kernel.get("HOME", ""))
                self.capabilities.create(caller.agent, record)
                self._warn_of(caller, record, kernel.get("PATH"))

    def _warn_of(self, caller: ExecCaller, record: CapabilityRecord, path: str | None) -> None:
        for name in capabilities.not_found(caller, path):
            self._tool.warn_once(f"`execute` names {name}, which is not on the PATH")
        for place in capabilities.dangerous(record) if record.tool_grants else ():
            self._tool.warn_once(f"{place} is granted; an agent that can run it can run any command")

    def close(self) -> None:
        self._tool.close()


# ---------------------------------------------------------------- running one program (3.6, 3.8)

GRACE = 1.0
"""Seconds between TERM and KILL at the time limit."""

_CPU_BACKSTOP = 2


class Ended(Struct, frozen=True):
    """A call that has ended: the result for the model, and further facts for the audit log."""

    result: Mapping[str, object]
    stdout_bytes: int
    stderr_bytes: int
    cpu_s: float


def limits(options: ExecOptions, timeout: int) -> tuple[tuple[int, int, int], ...]:
    """Return each resource with its soft and hard limit. With equal CPU limits, the system would send KILL instead of
    SIGXCPU, which hides the reason."""
    cpu = options.cpu_seconds or max(timeout, 1)
    return (
        (resource.RLIMIT_CPU, cpu, cpu + _CPU_BACKSTOP),
        (resource.RLIMIT_AS, options.memory, options.memory),
        (resource.RLIMIT_FSIZE, options.file_bytes, options.file_bytes),
        (resource.RLIMIT_NOFILE, options.open_files, options.open_files),
        (resource.RLIMIT_CORE, 0, 0),
    )


class ExecRun:
    """One call, as it runs between the caller's loop and the engine's."""

    def __init__(self, engine: Engine, job: MonitoredLaunch, cap: int) -> None:
        self._engine = engine
        self._job = job
        self._heads: dict[Stream, Head] = {"stdout": Head(cap), "stderr": Head(cap)}

    async def wait(self) -> MonitorRecord:
        """Run the program to its end, even if this call is cancelled, until none of its processes is left. Raises
        `Refused`."""
        try:
            call: ProcessCall[MonitorRecord] = ProcessCall(self._engine)
            return await call.wait(MonitoredProcess(self._engine, self._job, self, call.done))
        except EngineClosed:
            raise Refused("tool_failed", "the process engine is closed") from None
        except OSError as problem:
            raise Refused("tool_failed", spawn.start_error(problem)) from None

    def take(self, stream: Stream, data: bytes, final: bool) -> None:
        """Keep the beginning of a stream (`OutputSink.take`)."""
        self._heads[stream].feed(data)

    def ended(self, record: MonitorRecord) -> Ended:
        """Return the result. Raises `Refused` if the program did not start, or was interrupted or cancelled."""
        if record.failure is not None:
            raise _not_started(record.failure)
        if record.outcome in ("interrupted", "cancelled"):
            raise Refused("tool_failed", f"the program was {record.outcome}")
        stdout, stderr = self._heads["stdout"], self._heads["stderr"]
        code = os.waitstatus_to_exitcode(record.status) if record.status is not None else -signal.SIGKILL
        result: dict[str, object] = {
            "exit_code": code,
            "stdout": stdout.text,
            "stderr": stderr.text,
            "stdout_truncated": stdout.truncated,
            "stderr_truncated": stderr.truncated,
            "duration_s": round(record.duration, 6),
            "timed_out": record.outcome == "timed_out",
        }
        # additional fields: an exceeded limit, if that is certain, and the number of killed background processes
        limit = {-signal.SIGXCPU: "cpu", -signal.SIGXFSZ: "file_size"}.get(code)
        if limit is not None and not result["timed_out"]:
            result["limit_hit"] = limit
        if record.background_killed:
            result["background_killed"] = record.background_killed
        return Ended(result, stdout.total, stderr.total, record.cpu_s)


_WORDS = {
    errno.ENOENT: "its interpreter was not found (ENOENT)",
    errno.ENOEXEC: "the system cannot run it, and no shell is tried (ENOEXEC)",
    errno.E2BIG: "the arguments and the environment are too long (E2BIG)",
    errno.ETXTBSY: "it is open for writing (ETXTBSY)",
    errno.ETIMEDOUT: "it could not be started in time (ETIMEDOUT)",
}


def _not_started(failure: StartFailure) -> Refused:
    number = failure.number
    if number == errno.ESTALE and failure.step in ("program", "cwd"):
        what = "the program" if failure.step == "program" else "the directory"
        return Refused("fs_denied", f"{what} changed after it was checked")
    if failure.step == "program":
        words = _WORDS.get(number) or f"{os.strerror(number).lower()} ({failure.name})"
        return Refused("tool_failed", f"the program cannot be started: {words}")
    if failure.step == "cwd":
        return Refused("tool_failed", f"cwd cannot be entered: {os.strerror(number).lower()} ({failure.name})")
    if failure.step == "monitor" and failure.what:
        return Refused("tool_failed", f"the program's monitor was lost: {failure.what}")
    where = failure.what.strip() or failure.step
    return Refused("tool_failed", f"the program cannot be started: {where}: {failure.name}")
