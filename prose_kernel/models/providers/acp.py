"""Sessions of CLI agents over the Agent Client Protocol: one client for all of them (sessions.md 5).

An agent is configured in `[agents.NAME]` of the settings: it is started at first use, shared by the sessions of a run,
restarted after it died, and ended with the run. Its effects are known only in part: `effects: partial`.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from msgspec import Struct

from prose_kernel.access import atomic
from prose_kernel.access.approvals import Approvals
from prose_kernel.access.plain_files import Stamp, reading_if_there, stamp_of
from prose_kernel.access.session_permissions import Policy
from prose_kernel.errors import ProviderAuth, ProviderBadReply, ProviderError, SessionCancelled
from prose_kernel.language.structs import replace
from prose_kernel.models.attachments import Attachment, attachments
from prose_kernel.models.json_rpc import Patience
from prose_kernel.models.providers import load
from prose_kernel.models.providers.acp_policy import refuse_unenforceable
from prose_kernel.models.session_prompt import answered, assemble, memory_file, segment_file, summarise, with_row_texts
from prose_kernel.models.tools.permission_check import Access
from prose_kernel.models.usage_and_prices import consumed, discarded
from prose_kernel.runtime import budgets
from prose_kernel.runtime.images import file_name
from prose_kernel.runtime.ports import SessionProgress, SessionRequest, SessionResult
from prose_kernel.runtime.services import Guard, Terminals
from prose_kernel.runtime.session_options import AgentCommand, Surroundings
from prose_kernel.runtime.structured_text import value_of

if TYPE_CHECKING:
    from acp import schema

    from prose_kernel.models.providers.acp_conversation import AgentConversation
    from prose_kernel.models.providers.acp_process import AgentProcess

    Block = (
        schema.TextContentBlock
        | schema.ResourceContentBlock
        | schema.ImageContentBlock
        | schema.EmbeddedResourceContentBlock
    )


OnProgress = Callable[[SessionProgress], None]

AT_ONCE: Final = 4
"""The number of simultaneous sessions in one agent, unless the settings say otherwise."""

SYSTEM: Final = "Your instructions (system prompt):"
MEMORY: Final = "Your memory as it is now:"
CUT: Final = "the reply ends here because the limit of tokens was reached"


class AgentHost(Struct, frozen=True):
    """The environment of a run's CLI agents: permissions, the directory, and the owner of their processes and
    terminals. Without `terminals`, agents cannot run commands through the client."""

    policy_of: Callable[[SessionRequest], Policy]
    approvals: Approvals
    where: Surroundings
    guard: Guard
    terminals: Terminals | None = None


class AcpSessions:
    """The `Sessions` port, answered by a CLI agent. Close it when the run is over."""

    def __init__(
        self,
        name: str,
        command: AgentCommand,
        host: AgentHost,
        *,
        limit: int | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._name = name
        self._command = command
        self._host = host
        self._turn = asyncio.Semaphore(limit or AT_ONCE)
        self._patience = patience or Patience()
        self._starting: asyncio.Task[AgentProcess] | None = None
        self._agents: set[AgentProcess] = set()

    async def run(self, request: SessionRequest, on_progress: OnProgress) -> SessionResult:
        """Make one attempt. Raises `PermissionDenied`, before anything is sent to the agent, if the rules cannot be
        enforced."""
        if request.tools and request.kind != "call":
            raise ProviderError(
                f"`tools` cannot be given to the agent {self._name}, which has its own",
                retryable=False,
                hint="let a model answer this session, or leave `tools` out",
            )
        policy = self._host.policy_of(request)
        refuse_unenforceable(self._name, self._command, policy)
        model = self._model(request.model)
        access = Access(request, policy, self._host.approvals, self._host.where, by_files=True)
        async with self._turn:
            await budgets.placed()
            await budgets.reserve()
            outputs = await asyncio.to_thread(SessionOutputFiles, request, self._host.where)
            texts, context = messages(request), links(request, self._host.where)
            attached = await attachments(request, access)
            replied = await self._session(texts, context, access, on_progress, model, request, attached)
            try:
                result = await asyncio.to_thread(outputs.added_to, replied)
            except BaseException:
                discarded(replied)
                raise
        if replied.text is not None and not replied.text.strip() and not result.text:
            discarded(result)
            raise ProviderBadReply(f"the agent {self._name} said nothing")
        return result

    async def ask(self, message: str, model: str | None = None) -> SessionResult:
        """Return the reply to a message that is not a session of the program; every request of the agent is denied.

        `model` is an alias or one of the agent's own names.
        """
        nothing = Policy.of({"read": "deny", "network": "deny"}, {}, self._host.where.cwd)
        access = Access(SessionRequest("session", message, ""), nothing, self._host.approvals, self._host.where)
        wanted = self._command.aliases.get(model, model) if model else None
        async with self._turn:
            return await self._session([message], [], access, lambda progress: None, wanted)

    async def close(self) -> None:
        """End the agent's processes and all processes that they started. A later session starts the agent again."""
        starting, self._starting = self._starting, None
        if starting is not None and starting.get_loop() is asyncio.get_running_loop():  # else the engine ends it
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        agents, self._agents = self._agents, set()
        await asyncio.gather(*(agent.stop() for agent in agents))

    def _model(self, alias: str | None) -> str | None:
        """Return the agent's name for a model alias; None lets the agent choose."""
        if alias is None:
            return None
        found = self._command.aliases.get(alias)
        if found is None:
            raise ProviderError(
                f"the model `{alias}` is not mapped for the agent {self._name}",
                retryable=False,
                hint=f'say in [models."acp:{self._name}"] of prose.toml which of its models is meant: {alias} = "..."',
            )
        return found

    # ------------------------------------------------------------ one session

    async def _session(
        self,
        texts: Sequence[str],
        context: Sequence[tuple[str, str]],
        access: Access,
        on_progress: OnProgress,
        model: str | None,
        request: SessionRequest | None = None,
        attached: Sequence[Attachment] = (),
    ) -> SessionResult:
        agent = await self._agent()
        from acp import schema

        from prose_kernel.models.providers.acp_conversation import AgentConversation, usage_of

        strict = self._command.enforcement == "strict"
        conversation = AgentConversation(self._name, access, on_progress, strict=strict, terminals=self._host.terminals)
        session = await agent.open(self._host.where.cwd, conversation)
        begun = False
        try:
            try:
                if model is not None:
                    await agent.choose_model(session, model)
                blocks: list[Block] = [
                    *(schema.TextContentBlock(type="text", text=text) for text in texts),
                    *(schema.ResourceContentBlock(type="resource_link", name=name, uri=uri) for name, uri in context),
                    *[block for one in attached for block in await self._attached(one, agent)],
                ]
                begun = True
                response = await agent.prompt(session, blocks)
                if response.stop_reason not in ("end_turn", "max_tokens"):
                    raise self._unfinished(response.stop_reason)
            finally:
                await agent.leave(session)
                if agent.dead.is_set():
                    self._agents.discard(agent)
            details: dict[str, object] = {"effects": "partial", "agent": agent.version}
            if session.current:
                details["model"] = session.current
            if response.stop_reason == "max_tokens":
                details["cut"] = True
                on_progress(SessionProgress("note", CUT))
            return await self._result(conversation, details, request)
        except BaseException as problem:  # also a cancellation after the answer
            if begun and not isinstance(problem, ProviderAuth):
                consumed(f"acp:{self._name}", session.current or "", usage_of(conversation.usage, conversation.cost))
            raise

    async def _attached(self, one: Attachment, agent: AgentProcess) -> list[Block]:
        """Return an image or PDF in the form that the agent accepts: its bytes, else a link to a file that the agent
        reads."""
        from acp import schema

        title = schema.TextContentBlock(type="text", text=f"{one.label}: {one.picture.text}")
        media, data = one.picture.media, b64encode(one.data).decode("ascii")
        if agent.images and media.startswith("image/"):
            return [title, schema.ImageContentBlock(type="image", data=data, mime_type=media)]
        if agent.documents:
            resource = schema.BlobResourceContents(blob=data, mime_type=media, uri=f"attachment:{quote(one.label)}")
            return [title, schema.EmbeddedResourceContentBlock(type="resource", resource=resource)]
        file = await asyncio.to_thread(self._file_of, one)
        link = schema.ResourceContentBlock(type="resource_link", name=one.label, uri=file.as_uri(), mime_type=media)
        return [title, link]

    def _file_of(self, one: Attachment) -> Path:
        """Return the file of an image: the one that the program names, else one below the run's directory."""
        if one.path:
            return Path(self._host.where.cwd, os.path.expanduser(one.path))
        if self._host.where.run_directory is None:
            raise ProviderError(
                f"`{one.label}` cannot be sent: the agent {self._name} takes no images, and this run has no directory",
                retryable=False,
                hint='let a command write the image to a file, and name that: `file: "chart.png"`',
            )
        file = Path(self._host.where.cwd, self._host.where.run_directory, "images", file_name(one.picture, one.data))
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_whole(file, one.data, contended=True)  # two sessions may send the same image
        return file

    async def _result(
        self, conversation: AgentConversation, details: dict[str, object], request: SessionRequest | None
    ) -> SessionResult:
        from prose_kernel.models.providers.acp_conversation import usage_of

        result = answered(
            conversation.reply,
            provider=f"acp:{self._name}",
            origin="agent",
            details=details,
            request=request,
            writes=True,
        )
        return replace(
            result,
            trace=conversation.calls.trace,
            reads=await asyncio.to_thread(conversation.calls.reads),
            writes=await asyncio.to_thread(conversation.calls.writes),
            usage=usage_of(conversation.usage, conversation.cost),
        )

    def _unfinished(self, reason: str) -> ProviderError:
        if reason == "cancelled":
            return SessionCancelled(f"the agent {self._name} broke off", retryable=True)
        ends = {"refusal": "refused to answer", "max_turn_requests": "stopped at its own limit of requests"}
        return ProviderError(f"the agent {self._name} {ends.get(reason, 'broke off')}", retryable=reason not in ends)

    # ------------------------------------------------------------ the process

    async def _agent(self) -> AgentProcess:
        """Return the running agent, started by the first caller; a failed start fails for all callers that wait."""
        for agent in self._agents:
            if not agent.retired and not agent.dead.is_set():
                return agent
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())
            self._starting.add_done_callback(self._started)
        return await asyncio.shield(self._starting)

    async def _start(self) -> AgentProcess:
        await load("prose_kernel.models.providers.acp_process", feature=f"the agent {self._name}", extra="acp")
        from prose_kernel.models.providers.acp_process import AgentProcess

        agent = await AgentProcess.start(
            self._name,
            self._command,
            guard=self._host.guard,
            cwd=self._host.where.cwd,
            patience=self._patience,
            terminals=self._host.terminals is not None,
        )
        self._agents.add(agent)
        return agent

    def _started(self, starting: asyncio.Task[AgentProcess]) -> None:
        if self._starting is starting:
            self._starting = None
        if not starting.cancelled():
            starting.exception()  # retrieved, so that asyncio does not log it


def messages(request: SessionRequest) -> list[str]:
    """Return the message of a session as blocks of text: the system prompt first, since the protocol has no field for
    it, then the rest in order. A memory that should be read is included, wherever its file is."""
    blocks = [f"{SYSTEM}\n\n{request.system}"] if request.system else []
    memory = request.memory
    if memory is not None and memory.directory and memory.resume and memory.text:
        blocks.append(f"{MEMORY}\n\n{memory.text}")
    return [*blocks, assemble(with_row_texts(request)).without("system").text]


def links(request: SessionRequest, where: Surroundings) -> list[tuple[str, str]]:
    """Return the name and address of each context item that is a file."""
    return [
        (item.name, Path(where.cwd, os.path.expanduser(item.location)).as_uri())
        for item in request.context or ()
        if item.location and not item.missing and not item.row
    ]


# ---------------------------------------------------------------- files that the session writes

BINDING_LIMIT: Final = 256 * 1024 * 1024
MEMORY_LIMIT: Final = 4 * 1024 * 1024


class SessionOutputFiles:
    """The files that a CLI agent's session writes itself (binding, memory, segment), with their state at its start."""

    def __init__(self, request: SessionRequest, where: Surroundings) -> None:
        self._header = request.target.header if request.target is not None else ""
        self._bare = request.kind == "call"
        self._binding = _File(where, request.target.location if request.target is not None else "")
        memory = request.memory if request.memory is not None and request.memory.directory else None
        self._memory = _File(where, memory_file(memory) if memory is not None else "")
        self._segment = _File(where, segment_file(memory) if memory is not None else "")

    def added_to(self, result: SessionResult) -> SessionResult:
        """Return the result with the files written since the start; `result` comes from `request.answered`."""
        written = self._binding.since(BINDING_LIMIT)
        text = result.text if written is None else self._value(written)
        memory, segment = self._memory.since(MEMORY_LIMIT), self._segment.since(MEMORY_LIMIT)
        return replace(
            result,
            text=text,
            summary=result.summary or summarise(text or ""),
            memory_after=memory if memory is not None else result.memory_after,
            segment=segment if segment is not None else result.segment,
        )

    def _value(self, written: str) -> str:
        """Return the value in the binding's file, also if its header is missing or slightly different."""
        if self._bare:
            return written
        header = self._header
        if header and written.startswith(header):
            return written[len(header) :]
        bare = header.rstrip()
        if bare and written.startswith(bare):
            return written[len(bare) :].removeprefix("\n").removeprefix("\n")
        return value_of(written)


class _File:
    """One file, and its state at the start."""

    def __init__(self, where: Surroundings, location: str) -> None:
        self._path = Path(where.cwd, location) if location else None
        self._before = self._stamp()

    def _stamp(self) -> Stamp | None:
        return stamp_of(self._path) if self._path is not None else None

    def since(self, limit: int) -> str | None:
        """Return the text of the file if it was written since; None if it was not, or is not a plain, readable file.

        Links and pipes are not read: a link could reveal a file that the session may not read, and a pipe would block.
        """
        now = self._stamp()
        if self._path is None or now is None or now == self._before:
            return None
        try:
            with reading_if_there(self._path) as file:
                if file is None:
                    return None
                data = file.read(limit + 1)
        except (OSError, ValueError):
            return None
        return None if len(data) > limit else data.decode("utf-8", "replace")
