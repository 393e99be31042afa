"""Dispatches an agent's calls to the tools that it may call; no failure ends the session (exec-and-tasks.md 3.2).

Checks 1 to 3 are made here. A tool makes the others, and raises `Refused`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from prose_kernel.processes.exec_tool.audit import AuditFailure, AuditLog, hidden_values
from prose_kernel.processes.exec_tool.capabilities import CapabilityRecord, CapabilityStore
from prose_kernel.processes.exec_tool.checks import Refused
from prose_kernel.runtime.services import ExecErrorKind, ExecOutcome


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
    """Calls tools for agents. `handlers` holds the tools that the operator has registered, by name. Without a store of
    capabilities everything is refused."""

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
