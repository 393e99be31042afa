"""The tools of one attempt at a session: which there are, and every call of them checked, traced and told."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Literal

from prose_kernel.errors import ProviderError
from prose_kernel.permissions.policy import PermissionDesk, Policy
from prose_kernel.runtime.ports import FileRead, FileWrite, SessionProgress, SessionRequest, ToolUse
from prose_kernel.runtime.session_options import Surroundings
from prose_kernel.runtime.text import clipped, one_line, printable
from prose_kernel.sessions.attachments import Attachment, attachments
from prose_kernel.sessions.tools import arguments as argument_rules
from prose_kernel.sessions.tools.access import Access, own_files
from prose_kernel.sessions.tools.fetch import FetchTool
from prose_kernel.sessions.tools.files import EditTool, ListTool, ReadTool, Writes, WriteTool
from prose_kernel.sessions.tools.harvest import Outputs
from prose_kernel.sessions.tools.search import SearchTool
from prose_kernel.sessions.tools.tool import Tool, ToolFailed, ToolRefused, ToolSpec

OnProgress = Callable[[SessionProgress], None]
Outcome = Literal["ok", "refused", "failed"]

DETAIL: Final = 2000
_SHELL: Final = "`bash: allow` in permissions"
GRANTS: Final[Mapping[str, str]] = {
    "read": '`read: ["PATTERN"]` in permissions',
    "write": '`write: ["PATTERN"]` in permissions',
    "edit": '`write: ["PATTERN"]` in permissions',
    "list": '`read: ["PATTERN"]` in permissions',
    "search": '`read: ["PATTERN"]` in permissions',
    "fetch": '`network: ["HOST"]` in permissions',
    "exec_command": _SHELL,
    "TaskList": _SHELL,
    "TaskStatus": _SHELL,
    "TaskOutput": _SHELL,
    "TaskStop": _SHELL,
    "Exec": '`execute: ["/PATH/OF/PROGRAM"]` in permissions, and `[exec] enabled = true` in prose.toml',
}
"""The tools that there are, and what grants each of them."""

_TELLING: Final = ("command", "cmd", "path", "url", "argv", "task_id")


def tool_names(request: SessionRequest, policy: Policy, more: Sequence[str] = ()) -> tuple[str, ...]:
    """The tools of a session, in the order they are offered: a part of a recording's key.

    What the rules could never allow is left out, whether or not somebody is here to be asked. `read`, `write` and
    `edit` are always there, because of the session's own files. `more` are the names of tools that others bring.
    """
    names = ["read", "write", "edit"]
    if policy.could("read"):
        names += ["list", "search"]
    if policy.could("network"):
        names.append("fetch")
    return (*names, *more, *(f"tools:{name}" for name in request.tools if policy.could("tools")))


def idle_tools(request: SessionRequest, policy: Policy) -> frozenset[str]:
    """Those of `tool_names` that this session has nothing to use on: it is not offered them."""
    own = any(own_files(request))
    given = request.given
    told = own or any(item.location for item in request.context or ())
    readable = given is not None and given.references and given.readable
    idle = set() if told or readable or policy.could("read") else {"read"}
    return frozenset(idle if own or policy.could("write") else idle | {"write", "edit"})


class SessionWorkbench:
    """The `Workbench` port. Calls run one at a time, in the order they were made: so the trace of a session, and what
    its tools find, do not depend on chance.

    `more` are the tools of others (`Exec`, `exec_command`, tasks), which come after ours. A tool that has a method
    `summary(arguments)` says itself what its calls look like in the trace.
    """

    def __init__(
        self,
        request: SessionRequest,
        policy: Policy,
        desk: PermissionDesk,
        where: Surroundings,
        on_progress: OnProgress,
        more: Sequence[Tool] = (),
    ) -> None:
        self.outputs = Outputs(request, where)
        self._request = request
        self._access = Access(request, policy, desk, where)
        self._on_progress = on_progress
        self._writes = Writes(self._access)
        tools = (*self._ours(request, policy), *more)
        self._tools = {tool.spec.name: tool for tool in tools if getattr(tool, "offered", True)}
        self._withheld = {tool.spec.name: tool for tool in tools if tool.spec.name not in self._tools}
        self._trace: list[ToolUse] = []
        self._turn = asyncio.Lock()

    def _ours(self, request: SessionRequest, policy: Policy) -> list[Tool]:
        """Those of `tool_names` that have something to work on."""
        idle = idle_tools(request, policy)
        tools: list[Tool] = [] if "read" in idle else [ReadTool(self._access)]
        if "write" not in idle:
            tools += [WriteTool(self._access, self._writes), EditTool(self._access, self._writes)]
        if policy.could("read"):
            tools += [ListTool(self._access), SearchTool(self._access)]
        if policy.could("network"):
            tools.append(FetchTool(self._access))
        return tools

    def add(self, tools: Sequence[Tool]) -> None:
        """Offer further tools, found after the bench was made. Raises `ProviderError` for a name that is taken."""
        for tool in tools:
            name = tool.spec.name
            if name in self._tools or name in GRANTS:
                raise ProviderError(f"there are two tools named '{name}'", retryable=False, hint="rename yours")
            self._tools[name] = tool

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    @property
    def denied(self) -> tuple[str, ...]:
        """The known tools that this session was not granted: a call of one is answered, not offered."""
        return tuple(name for name in GRANTS if name not in self._tools)

    async def attachments(self) -> tuple[Attachment, ...]:
        """The images and PDFs that go with the session's message. Raises `ProviderError`."""
        return await attachments(self._request, self._access)

    @property
    def trace(self) -> tuple[ToolUse, ...]:
        return tuple(self._trace)

    @property
    def reads(self) -> tuple[FileRead, ...]:
        return self._access.reads

    @property
    def writes(self) -> tuple[FileWrite, ...]:
        return self._writes.all

    async def call_none(self, name: str, arguments: Mapping[str, object]) -> str:
        """Answer a call where no tool was offered; it is traced and told like every other."""
        return await self._traced(name, arguments, self._none(name, arguments))

    async def _none(self, name: str, arguments: Mapping[str, object]) -> tuple[Outcome, str]:
        self._access.refused(name, arguments, "no tool was offered", "tool_not_found")
        return "failed", f"there is no tool '{one_line(name)}' here"

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        """Run a tool and say what came of it, as text for the model; only cancellation leaves it as an exception."""
        return await self._traced(name, arguments, self._outcome(name, arguments))

    async def _traced(
        self, name: str, arguments: Mapping[str, object], work: Coroutine[Any, Any, tuple[Outcome, str]]
    ) -> str:
        """The answer of `work`, which gets its turn, is traced and told."""
        async with self._turn:
            began = time.monotonic()
            outcome, answer = await work
            traced = getattr(self._tools.get(name), "traced", str)(answer)
            detail = clipped(printable(self._access.neutral(traced)), DETAIL)
            use = ToolUse(one_line(name, 200), self._summary(name, arguments), outcome, detail)
            self._trace.append(use)
            took = time.monotonic() - began
        self._on_progress(SessionProgress("tool", f"{use.tool} {use.summary}".rstrip(), use, took))
        return answer

    async def _outcome(self, name: str, arguments: Mapping[str, object]) -> tuple[Outcome, str]:
        tool = self._tools.get(name)
        if tool is None and name in GRANTS:
            return "refused", await self._denied(name, arguments)
        if tool is None:
            return "failed", self._unknown(name, arguments)
        try:
            if not getattr(tool, "checks_arguments", False):
                argument_rules.check(tool.spec.parameters, arguments)
            return "ok", await tool.call(arguments)
        except ToolRefused as refused:
            if not refused.audited:
                self._access.refused(name, arguments, str(refused))
            return "refused", f"refused: {refused}"
        except ToolFailed as failed:
            return "failed", f"failed: {failed}"
        except Exception as error:  # a fault of the tool ends the call, not the session
            return "failed", f"failed: the tool broke ({type(error).__name__})"

    async def _denied(self, name: str, arguments: Mapping[str, object]) -> str:
        """The answer to a call that was not granted. A tool with an audit of its own hears of it."""
        why = f"permission_denied: this session may not use `{name}`; what would grant it: {GRANTS[name]}"
        try:
            if name in self._withheld:
                await self._withheld[name].call(arguments)
        except (ToolRefused, ToolFailed) as refused:
            if not getattr(refused, "audited", True):
                self._access.refused(name, arguments, why)
        else:
            self._access.refused(name, arguments, why)
        return f"refused: {why}"

    def _unknown(self, name: str, arguments: Mapping[str, object]) -> str:
        """The answer to a call of a tool that the model has made up."""
        self._access.refused(name, arguments, "there is no such tool", "tool_not_found")
        return f"there is no tool '{one_line(name)}' here (tools: {', '.join(self._tools) or 'none'})"

    def _summary(self, name: str, arguments: Mapping[str, object]) -> str:
        summarise = getattr(self._tools.get(name), "summary", None)
        try:
            text = str(summarise(arguments)) if summarise is not None else _telling(arguments)
        except Exception:  # odd arguments; the call has failed already
            text = _telling(arguments)
        return one_line(self._access.neutral(text), 200)


def _telling(arguments: Mapping[str, object]) -> str:
    """What says most about a call: its command, path or address; else all arguments."""
    value = next((arguments[name] for name in _TELLING if name in arguments), arguments or "")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
