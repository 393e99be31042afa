"""The client's side of one conversation with a CLI agent: its messages, its requests, its permissions (sessions.md 5).

Imported with the protocol's library at the first session of an agent.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from typing import Any, Final, TypeVar

from acp import schema
from acp.exceptions import RequestError
from acp.utils import serialize_params
from pydantic import BaseModel, ValidationError

from prose_kernel.errors import PermissionDenied, ProviderBadReply, ProviderError
from prose_kernel.models.providers.acp_calls import Calls, Reported, output_of, updated
from prose_kernel.models.providers.acp_policy import AgentRules, AgentToolCall, PermissionOption, is_blanket, option_for
from prose_kernel.models.tools import files
from prose_kernel.models.tools.permission_check import Access
from prose_kernel.models.tools.tool import ToolFailed, ToolRefused, in_thread
from prose_kernel.runtime import budgets
from prose_kernel.runtime.ports import SessionProgress, Usage
from prose_kernel.runtime.services import Terminal, Terminals

LONGEST_REPLY: Final = 32 * 1024 * 1024
_NOT_ALLOWED: Final = -32602
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

Answer = TypeVar("Answer")
Handler = Callable[["AgentConversation", Any], Awaitable[BaseModel | None]]


class _Cancelled(RequestError):
    """The session is being cancelled."""

    def __init__(self) -> None:
        super().__init__(_NOT_ALLOWED, "the session was cancelled")


class AgentConversation:
    """One session inside an agent's process.

    - `usage` and `cost` are the agent's reports so far, also for a turn that failed or was cancelled.
    - `last_message_at` is the loop time of the agent's last message; while `busy` is above 0 (a question to the person,
      a command), the agent has to wait.
    - `fault` is an error that must end the session; `disturbed` is set with it.
    """

    def __init__(
        self,
        agent: str,
        access: Access,
        on_progress: Callable[[SessionProgress], None],
        *,
        strict: bool = True,
        terminals: Terminals | None = None,
    ) -> None:
        self.calls = Calls(access)
        self.last_message_at = asyncio.get_running_loop().time()
        self.busy = 0
        self.cost: float | None = None
        self.usage: schema.Usage | None = None
        self.fault: ProviderError | None = None
        self._within = budgets.current()
        self._context = copy_context()  # the library handles requests in the context of the agent's first session
        self.disturbed = asyncio.Event()
        self._agent = agent
        self._access = access
        self._rules = AgentRules(access)
        self._on_progress = on_progress
        self._strict = strict
        self._terminals = terminals
        self._running: dict[str, Terminal] = {}
        self._text: list[list[str]] = [[]]
        self._length = 0
        self._asking: set[asyncio.Future[Any]] = set()
        self._cancelled = False

    @property
    def reply(self) -> str:
        """Return the agent's last text: the text since its last tool call, or the text before if there is none
        since."""
        texts = ("".join(pieces) for pieces in reversed(self._text))
        return next((text for text in texts if text.strip()), "").strip("\n")

    def cancel(self) -> None:
        """Cancel the session: pending requests of the agent are answered with the cancellation."""
        self._cancelled = True
        for asking in tuple(self._asking):
            asking.cancel()

    async def close(self) -> None:
        """Cancel requests that the agent has not waited for, and end the commands that it left running."""
        self.cancel()
        running, self._running = self._running, {}
        ending = (terminal.close() for terminal in running.values())
        await asyncio.gather(*self._asking, *ending, return_exceptions=True)

    # ------------------------------------------------------------ messages of the agent

    def update(self, update: BaseModel) -> None:
        """Handle a `session/update`. Unknown updates are ignored."""
        match update:
            case schema.AgentMessageChunk(content=schema.TextContentBlock(text=text)):
                self._add_text(_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text))
            case schema.ToolCallStart() | schema.ToolCallProgress():
                self._update_call(update)
            case schema.UsageUpdate(cost=schema.Cost(amount=amount, currency="USD")):
                self.cost = amount
                if self._within is not None:
                    self._within.report(Usage(1, cost=amount))

    def _add_text(self, text: str) -> None:
        if not text:
            return
        self._length += len(text)
        if self._length > LONGEST_REPLY:
            self._fail(ProviderBadReply(f"the agent {self._agent} says more than a reply can hold", retryable=False))
            return
        continues = not self._text[-1] and any(self._text)
        self._text[-1].append(text)
        self._on_progress(SessionProgress("text", f"\n\n{text}" if continues else text))

    def _update_call(self, update: schema.ToolCallStart | schema.ToolCallProgress) -> None:
        if self._text[-1]:
            self._text.append([])
        reported = self._reported(update)
        was_done = reported.done
        reported.status = update.status or reported.status
        if reported.done and not was_done:
            self._check(reported)
            use = self.calls.use(reported)
            took = time.monotonic() - reported.began
            self._on_progress(SessionProgress("tool", use.summary, use, took))

    def _reported(self, update: schema.ToolCallUpdate | schema.ToolCall) -> Reported:
        """Return the call with this update applied. Its files are read before the agent gets an answer."""
        starts = isinstance(update, schema.ToolCallStart)
        reported = self.calls.get_or_add(update.tool_call_id, starts=starts)
        paths = [location.path for location in update.locations or ()]
        for content in update.content or ():
            match content:
                case schema.FileEditToolCallContent(path=path, old_text=old, new_text=new):
                    paths.append(path)
                    reported.edits.setdefault(path, (old, new))
                case schema.ContentToolCallContent(content=schema.TextContentBlock(text=text)):
                    reported.output = text
                case schema.TerminalToolCallContent(terminal_id=id) if id in self._running:
                    reported.asked = True  # the client ran and checked it
        if output := output_of(update.raw_output):
            reported.output = output
        reported.call = updated(reported.call, update.kind, update.title, update.raw_input, tuple(paths))
        self.calls.save_contents(reported)
        return reported

    def _check(self, reported: Reported) -> None:
        """End the session if the call was done without asking and a rule forbids it: the rule was not enforced."""
        if reported.asked or reported.status != "completed" or self.calls.done_by_client(reported):
            return
        why = self._rules.forbids(reported.call)
        if why is None:
            return
        reported.violated = why
        if self._strict:
            use = self.calls.use(reported)
            self._fail(
                PermissionDenied(
                    f"the agent {self._agent} did not ask before {use.tool} `{use.summary}`, "
                    f"which is not allowed: {why}",
                    hint="make the agent ask (its own settings), allow it, or take the rules as advice: "
                    f'`enforcement = "advisory"` in [agents.{self._agent}] of prose.toml',
                )
            )

    def _fail(self, fault: ProviderError) -> None:
        if self.fault is None:
            self.fault = fault
            self.disturbed.set()

    # ------------------------------------------------------------ requests of the agent

    async def permit(self, asked: schema.RequestPermissionRequest) -> schema.RequestPermissionResponse:
        reported = self._reported(asked.tool_call)
        reported.asked = True
        try:
            ruling = await self._while_busy(self._rules.decide(reported.call))
        except _Cancelled:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        blanket = is_blanket(self._access.policy, reported.call)
        options = [PermissionOption(option.option_id, option.kind) for option in asked.options]
        chosen = option_for(ruling, options, blanket=blanket)
        kinds = {option.id: option.kind for option in options}
        if ruling.answer != "allow":
            reported.refused = ruling.why
        elif chosen is None or not kinds[chosen].startswith("allow"):
            reported.refused = "the agent offers no way to allow it this once"
        if reported.refused is not None:
            self._audit(reported.call, reported.refused)
        if chosen is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        return schema.RequestPermissionResponse(outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen))

    async def _while_busy(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Return the result of `work`, done in the context of the session. Raises `_Cancelled` if the session is
        cancelled meanwhile."""
        asking = asyncio.create_task(work, context=self._context.copy())
        if self._cancelled:
            asking.cancel()
            raise _Cancelled
        self._asking.add(asking)
        self.busy += 1
        try:
            await asyncio.wait((asking,))
            if asking.cancelled():
                raise _Cancelled
            return asking.result()
        finally:
            asking.cancel()
            self._asking.discard(asking)
            self.busy -= 1
            self.last_message_at = asyncio.get_running_loop().time()

    async def read(self, asked: schema.ReadTextFileRequest) -> schema.ReadTextFileResponse:
        call = AgentToolCall("read", "", None, (asked.path,))

        async def work() -> str | None:
            place = await self._access.file("read", asked.path, asked.path)
            return await in_thread(lambda _: files.read_text(place))

        text = await self._perform(call, work())
        if text is None:
            self.calls.add_own(call, failed="there is no such file")
            raise RequestError.resource_not_found(asked.path)
        self.calls.add_own(call)
        return schema.ReadTextFileResponse(content=_lines(text, asked.line, asked.limit))

    async def write(self, asked: schema.WriteTextFileRequest) -> schema.WriteTextFileResponse:
        call = AgentToolCall("edit", "", None, (asked.path,))

        async def work() -> None:
            place = await self._access.file("write", asked.path, f"{asked.path}\n\n{asked.content}")
            await in_thread(lambda _: self.calls.wrote(place, files.replace(place, asked.content)))

        await self._perform(call, work())
        self.calls.add_own(call)
        return schema.WriteTextFileResponse()

    async def start(self, asked: schema.CreateTerminalRequest) -> schema.CreateTerminalResponse:
        """Start a command for the agent."""
        if self._terminals is None:
            raise RequestError.method_not_found("terminal/create")
        terminals, command = self._terminals, [asked.command, *(asked.args or ())]
        text = shlex.join(command) if asked.args else asked.command
        call = AgentToolCall("execute", text, {"command": text})

        async def work() -> str:
            ruling = await self._rules.command(text)
            if ruling.answer != "allow":
                raise ToolRefused(ruling.why)
            environment = {variable.name: variable.value for variable in asked.env or ()}
            to_run: Sequence[str] | str = command if asked.args else asked.command
            try:
                terminal = await terminals.start(
                    to_run, asked.cwd or self._access.cwd, environment, asked.output_byte_limit
                )
            except OSError as problem:
                raise ToolFailed(str(problem)) from None
            id = f"terminal-{len(self._running) + 1}"
            self._running[id] = terminal  # at once, so that `close` ends it whatever happens to this request
            return id

        id = await self._perform(call, work())
        self.calls.add_own(call)
        return schema.CreateTerminalResponse(terminal_id=id)

    async def output(self, asked: schema.TerminalOutputRequest) -> schema.TerminalOutputResponse:
        terminal = self._terminal(asked.terminal_id)
        text, truncated = terminal.output()
        end = terminal.end
        status = schema.TerminalExitStatus(exit_code=end.exit_code, signal=end.signal) if end is not None else None
        return schema.TerminalOutputResponse(output=text, truncated=truncated, exit_status=status)

    async def wait(self, asked: schema.WaitForTerminalExitRequest) -> schema.WaitForTerminalExitResponse:
        end = await self._while_busy(self._terminal(asked.terminal_id).wait())
        return schema.WaitForTerminalExitResponse(exit_code=end.exit_code, signal=end.signal)

    async def kill(self, asked: schema.KillTerminalRequest) -> schema.KillTerminalResponse:
        await self._terminal(asked.terminal_id).close()
        return schema.KillTerminalResponse()

    async def release(self, asked: schema.ReleaseTerminalRequest) -> schema.ReleaseTerminalResponse:
        await self._terminal(asked.terminal_id).close()
        return schema.ReleaseTerminalResponse()

    def _terminal(self, id: str) -> Terminal:
        terminal = self._running.get(id)
        if terminal is None:
            raise RequestError(_NOT_ALLOWED, f"there is no terminal {id}")
        return terminal

    async def _perform(self, call: AgentToolCall, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Do `work` for the agent. Its refusal or failure goes into the trace, and to the agent."""
        try:
            return await self._while_busy(work)
        except ToolRefused as problem:
            why = str(problem)
            use = self.calls.add_own(call, refused=why)
            self._audit(call, why)
        except ToolFailed as problem:
            why = str(problem)
            use = self.calls.add_own(call, failed=why)
        self._on_progress(SessionProgress("tool", use.summary, use))
        raise RequestError(_NOT_ALLOWED, why, {"details": why})

    def _audit(self, call: AgentToolCall, why: str) -> None:
        arguments = call.raw if isinstance(call.raw, Mapping) else {"title": call.title, "paths": call.paths}
        self._access.refused(call.kind or "tool", arguments, why)


def _lines(text: str, first: int | None, limit: int | None) -> str:
    """Return up to `limit` lines from `first` (counted from 1)."""
    if first is None and limit is None:
        return text
    lines = text.splitlines(keepends=True)
    start = max((first or 1) - 1, 0)
    return "".join(lines[start:] if limit is None else lines[start : start + limit])


def usage_of(reported: schema.Usage | None, cost: float | None) -> Usage:
    """Return the usage of a prompt as the agent reports it. Agents do not report their requests to the model: they
    count as one."""
    if reported is None:
        return Usage(1, cost=cost, counted=False)
    read = reported.input_tokens + (reported.cached_read_tokens or 0) + (reported.cached_write_tokens or 0)
    return Usage(1, read, reported.output_tokens, cost)


REQUESTS: Final[Mapping[str, tuple[type[BaseModel], Handler]]] = {
    "session/request_permission": (schema.RequestPermissionRequest, AgentConversation.permit),
    "fs/read_text_file": (schema.ReadTextFileRequest, AgentConversation.read),
    "fs/write_text_file": (schema.WriteTextFileRequest, AgentConversation.write),
    "terminal/create": (schema.CreateTerminalRequest, AgentConversation.start),
    "terminal/output": (schema.TerminalOutputRequest, AgentConversation.output),
    "terminal/wait_for_exit": (schema.WaitForTerminalExitRequest, AgentConversation.wait),
    "terminal/kill": (schema.KillTerminalRequest, AgentConversation.kill),
    "terminal/release": (schema.ReleaseTerminalRequest, AgentConversation.release),
}


async def dispatch(
    conversations: Mapping[str, AgentConversation], method: str, params: Any, *, notification: bool
) -> dict[str, Any] | None:
    """Handle a message of the agent. Raises only `RequestError`, and nothing for a notification."""
    conversation = conversations.get(str(params.get("sessionId"))) if isinstance(params, dict) else None
    if conversation is not None:
        conversation.last_message_at = asyncio.get_running_loop().time()
    if notification:
        if conversation is not None and method == "session/update":
            _take_update(conversation, params)
        return None
    model, handler = REQUESTS.get(method, (None, None))
    if model is None or handler is None:
        raise RequestError.method_not_found(method)
    if conversation is None:
        raise RequestError(_NOT_ALLOWED, "there is no such session")
    try:
        asked = model.model_validate(params)
    except ValidationError as problem:
        raise RequestError.invalid_params({"details": str(problem)}) from None
    try:
        answer = await handler(conversation, asked)
    except (RequestError, asyncio.CancelledError):
        raise
    except Exception as problem:  # for any other exception the library would write a traceback
        raise RequestError.internal_error({"details": str(problem)}) from None
    return serialize_params(answer) if answer is not None else {}


def _take_update(conversation: AgentConversation, params: Any) -> None:
    try:
        notification = schema.SessionNotification.model_validate(params)
    except ValidationError:
        return  # from a newer protocol, or invalid: nothing depends on it
    conversation.update(notification.update)
