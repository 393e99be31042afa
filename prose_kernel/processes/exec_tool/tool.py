"""The `Exec` tool: one program, never a shell, checked, confined, limited, audited (exec-and-tasks.md section 3)."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from prose_kernel.processes import environment
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.exec_tool import capabilities, checks, sandbox_plan
from prose_kernel.processes.exec_tool.audit import AuditFailure, AuditLog, display, hidden_values
from prose_kernel.processes.exec_tool.capabilities import CapabilityRecord, CapabilityStore
from prose_kernel.processes.exec_tool.checks import Arguments, Checked, Refused, parse
from prose_kernel.processes.exec_tool.running import GRACE, Ended, Run, limits
from prose_kernel.processes.exec_tool.sandbox_plan import Plan
from prose_kernel.processes.monitored_process import MonitoredLaunch
from prose_kernel.processes.options import ExecOptions
from prose_kernel.processes.sandbox import Mechanisms, mechanisms
from prose_kernel.runtime import open_request
from prose_kernel.runtime.services import ExecCaller, ExecErrorKind, ExecOutcome

NAME = capabilities.TOOL


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool that the agent's record grants.

    The tool calls `dispatched` when all checks have passed, right before it starts anything.
    """

    agent: str
    record: CapabilityRecord
    id: str
    arguments: Mapping[str, object]
    dispatched: Callable[[Mapping[str, object]], None]


Handler = Callable[[Call], Awaitable[object]]
"""Carries out a call of one tool."""


class Dispatcher:
    """Dispatches an agent's calls to the tools that it may call; no failure ends the session. The name and
    the grant of a tool are checked here; the tool makes the other checks, and raises `Refused`.

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
            result = await handler(Call(agent, record, call, arguments, dispatched))
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

    async def __call__(self, call: Call) -> Mapping[str, object]:
        """Run one call and return its result. Raises `Refused`."""
        options = self.options
        arguments = parse(call.arguments, options.refuse_env, options.allow_env)
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

    def _checked(self, arguments: Arguments, call: Call) -> tuple[Checked, Plan, str | None]:
        checked = checks.check(arguments, call.record, self.options.from_writable)
        home = self._home(call.agent) if self.options.home == "private" else None
        return checked, sandbox_plan.plan(call.record, self.found(), checked, home), home

    async def _run(self, call: Call, arguments: Arguments, checked: Checked, plan: Plan, home: str | None) -> Ended:
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
        run = Run(self.engine, job, arguments.max_output_bytes)
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

    def listed(self, caller: ExecCaller) -> tuple[str, ...]:
        kernel = self._tool.kernel()
        return capabilities.listed(caller, kernel.get("PATH"), kernel.get("HOME", ""))

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
