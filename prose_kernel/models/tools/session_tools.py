"""The tools of one attempt at a session. Every call is checked, traced and reported as progress."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from prose_kernel.access.approvals import Approvals
from prose_kernel.access.session_permissions import TOUCHES, Policy
from prose_kernel.errors import ProviderError
from prose_kernel.language.text import clipped, one_line, printable
from prose_kernel.models.attachments import Attachment, attachments
from prose_kernel.models.session_prompt import too_long
from prose_kernel.models.tools.fetch import FetchTool
from prose_kernel.models.tools.files import EditTool, ListTool, ReadTool, Writes, WriteTool, read_text
from prose_kernel.models.tools.permission_check import Access
from prose_kernel.models.tools.search import SearchTool
from prose_kernel.models.tools.tool import Tool, ToolAnswer, ToolFailed, ToolRefused, ToolSpec, check_arguments
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime import open_request, tracing
from prose_kernel.runtime.open_request import TOOL
from prose_kernel.runtime.ports import FileRead, FileWrite, SessionProgress, SessionRequest, ToolUse
from prose_kernel.runtime.session_options import Surroundings

OnProgress = Callable[[SessionProgress], None]

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
"""The known tools, each with the permission that grants it."""

_MAIN_ARGUMENTS: Final = ("command", "cmd", "path", "url", "argv", "task_id")


def tool_names(
    request: SessionRequest, policy: Policy, more: Sequence[str] = (), default: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the tools of a session in the order in which they are offered; they are part of a recording's key.

    Tools that the rules never allow are left out, whether or not a person can be asked. `more` are the names of further
    tools, `default` the tools that the settings offer (None: all).
    """
    ours = [name for name in _BUILT_IN if all(policy.may_allow(kind) for kind in TOUCHES[name])]
    names = [] if request.bare else [name for name in (*ours, *more) if _by_default(name, default)]
    return (*names, *(f"tools:{name}" for name in request.tools if policy.may_allow("tools")))


def _by_default(name: str, default: Sequence[str] | None) -> bool:
    return default is None or ("exec_command" if name.startswith("Task") else name) in default


def idle_tools(policy: Policy, *, person: bool) -> frozenset[str]:
    """Return the tools whose calls are always refused: a rule says `prompt`, and no person can be asked."""
    if person:
        return frozenset()
    return frozenset(name for name in _BUILT_IN if any(policy.rule(kind) == "prompt" for kind in TOUCHES[name]))


class _RecordedCall(Struct, frozen=True):
    """A call in the journal: the text for the model, its trace, the files that it read, and the files that were written
    for the first time, each with its former text."""

    text: str
    use: ToolUse
    reads: tuple[FileRead, ...] = ()
    written: dict[str, str | None] = {}


class SessionTools:
    """The tools of one attempt. Calls run one at a time, in order, so that a session's trace and results are
    deterministic.

    `more` are further tools (`Exec`, `exec_command`, tasks), which come after the built-in ones. A tool with a method
    `summary(arguments)` defines how its calls are shown in the trace.
    """

    def __init__(
        self,
        request: SessionRequest,
        policy: Policy,
        approvals: Approvals,
        where: Surroundings,
        on_progress: OnProgress,
        more: Sequence[Tool] = (),
        default: Sequence[str] | None = None,
    ) -> None:
        self._request = request
        self._access = Access(request, policy, approvals, where)
        self._on_progress = on_progress
        self._writes = Writes(self._access)
        names = {*tool_names(request, policy, [tool.spec.name for tool in more], default)}
        self._idle = names & idle_tools(policy, person=approvals.available)
        names -= self._idle
        if "read" not in names and not request.bare and _by_default("read", default) and too_long(request):
            names.add("read")  # only for the context, which needs no rule
        tools = (*(make(self) for make in _BUILT_IN.values()), *more)
        self._tools = {
            tool.spec.name: tool for tool in tools if tool.spec.name in names and getattr(tool, "offered", True)
        }
        # these refuse calls themselves
        self._withheld = {tool.spec.name: tool for tool in tools if not getattr(tool, "offered", True)}
        self._trace: list[ToolUse] = []
        self._turn = asyncio.Lock()

    def add(self, tools: Sequence[Tool]) -> None:
        """Offer further tools. Raises `ProviderError` for a name that is already used."""
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
        """Return the known tools that this session may not use; they are not offered, and a call gets a refusal."""
        return tuple(name for name in GRANTS if name not in self._tools)

    def referenced(self) -> dict[str, str]:
        """Return the texts of the bindings that the input refers to, by path. Reads files: call it in a thread."""
        given = self._request.given
        found: dict[str, str] = {}
        for path in given.references if given is not None else ():
            with contextlib.suppress(ToolFailed, ToolRefused):
                place = self._access.context(path)
                text = None if place is None else read_text(place)
                if text is not None:
                    found[path] = text
        return found

    async def attachments(self) -> tuple[Attachment, ...]:
        """Return the images and PDFs of the session's message. Raises `ProviderError`."""
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

    async def call(self, name: str, arguments: Mapping[str, object], *, offered: bool = True) -> ToolAnswer:
        """Run a tool and return its answer for the model; only cancellation is raised. A call is traced and reported
        even if no tool was `offered`.

        A call is a step of the run's request: a call that an earlier process has answered is not repeated.
        """
        async with self._turn:
            began, steps = time.monotonic(), open_request.steps()
            value = steps.known(TOOL, (name, arguments)) if steps is not None else None
            if value is not None and (made := codec.readable(value, _RecordedCall)) is not None:
                self._access.restore(made.reads)
                self._writes.restore(made.written)
                answer, use = ToolAnswer(made.text, made.use.outcome), made.use
            elif steps is None:
                answer, use = await self._execute(name, arguments, offered)
            else:
                step = steps.begin(TOOL, (name, arguments), f"{name} {self._summary(name, arguments)}".rstrip())
                seen, written = len(self.reads), self._writes.before
                with open_request.stepping(step):
                    answer, use = await self._execute(name, arguments, offered)
                new = {path: text for path, text in self._writes.before.items() if path not in written}
                step.ends(codec.encode(_RecordedCall(answer.text, use, self.reads[seen:], new)))
            self._trace.append(use)
            took = time.monotonic() - began
        self._on_progress(SessionProgress("tool", f"{use.tool} {use.summary}".rstrip(), use, took))
        return answer

    async def _execute(self, name: str, arguments: Mapping[str, object], offered: bool) -> tuple[ToolAnswer, ToolUse]:
        """Execute a call; return its answer, and the call for the trace."""
        with tracing.tool(name) as watched:
            answer = await self._outcome(name, arguments, offered)
            traced = getattr(self._tools.get(name), "traced", str)(answer.text)
            detail = clipped(printable(self._access.neutral(traced)), DETAIL, tidy=True)
            use = ToolUse(one_line(name, 200), self._summary(name, arguments), answer.outcome, detail)
            if watched is not None:
                watched.called(outcome=answer.outcome, arguments=use.summary, answer=detail)
        return answer, use

    async def _outcome(self, name: str, arguments: Mapping[str, object], offered: bool) -> ToolAnswer:
        if not offered:
            self._access.refused(name, arguments, "no tool was offered", "tool_not_found")
            return ToolAnswer(f"there is no tool '{one_line(name)}' here", "failed")
        tool = self._tools.get(name)
        if tool is None and name in GRANTS:
            return ToolAnswer(await self._denied(name, arguments), "refused")
        if tool is None:
            self._access.refused(name, arguments, "there is no such tool", "tool_not_found")
            known = ", ".join(self._tools) or "none"
            return ToolAnswer(f"there is no tool '{one_line(name)}' here (tools: {known})", "failed")
        try:
            if not getattr(tool, "checks_arguments", False):
                check_arguments(tool.spec.parameters, arguments, closed=name in _BUILT_IN)
            return ToolAnswer(await tool.call(arguments))
        except ToolRefused as refused:
            if not refused.audited:
                self._access.refused(name, arguments, str(refused))
            return ToolAnswer(f"refused: {refused}", "refused")
        except ToolFailed as failed:
            return ToolAnswer(f"failed: {failed}", "failed")
        except Exception as error:  # a fault of the tool ends the call, not the session
            return ToolAnswer(f"failed: the tool broke ({type(error).__name__})", "failed")

    async def _denied(self, name: str, arguments: Mapping[str, object]) -> str:
        """Return the answer to a call without permission. A tool that keeps its own audit is called to record it."""
        because = ", which needs approval, and no person can be asked" if name in self._idle else ""
        why = f"permission_denied: this session may not use `{name}`{because}; what would grant it: {GRANTS[name]}"
        try:
            if name in self._withheld:
                await self._withheld[name].call(arguments)
        except (ToolRefused, ToolFailed) as refused:
            if not getattr(refused, "audited", True):
                self._access.refused(name, arguments, why)
        else:
            self._access.refused(name, arguments, why)
        return f"refused: {why}"

    def _summary(self, name: str, arguments: Mapping[str, object]) -> str:
        summarise = getattr(self._tools.get(name), "summary", None)
        try:
            text = str(summarise(arguments)) if summarise is not None else _main_argument(arguments)
        except Exception:  # invalid arguments; the call has failed already
            text = _main_argument(arguments)
        return one_line(self._access.neutral(text), 200)


def _main_argument(arguments: Mapping[str, object]) -> str:
    """Return the most telling argument of a call: its command, path or URL; otherwise all arguments."""
    value = next((arguments[name] for name in _MAIN_ARGUMENTS if name in arguments), arguments or "")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


_BUILT_IN: Final[Mapping[str, Callable[[SessionTools], Tool]]] = {
    "read": lambda tools: ReadTool(tools._access),
    "list": lambda tools: ListTool(tools._access),
    "search": lambda tools: SearchTool(tools._access),
    "write": lambda tools: WriteTool(tools._access, tools._writes),
    "edit": lambda tools: EditTool(tools._access, tools._writes),
    "fetch": lambda tools: FetchTool(tools._access),
}
_SPECS: Final = {tool.spec.name: tool.spec for tool in (ReadTool, ListTool, SearchTool, WriteTool, EditTool, FetchTool)}


def specs_of(names: Sequence[str], more: Sequence[Tool] = ()) -> tuple[ToolSpec, ...]:
    """Return the descriptions of these tools, built-in and `more`; tools that a program names are known only to their
    servers."""
    known = {**_SPECS, **{tool.spec.name: tool.spec for tool in more}}
    return tuple(known[name] for name in names if name in known)
