"""Sessions answered by a model over an API: sends the message, calls tools, shows text as it arrives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from prose_kernel.errors import ProviderBadReply
from prose_kernel.language.structs import replace
from prose_kernel.models.providers.model_calls import Conversation, Link, Reply
from prose_kernel.models.providers.model_servers import Answered, ModelServers, WaitUntilOpen
from prose_kernel.models.providers.vendors import ModelTarget
from prose_kernel.models.session_prompt import AnswerStream, in_message, split_reply, summarise
from prose_kernel.models.tools.tool import Tool, in_thread
from prose_kernel.models.usage_and_prices import discarded
from prose_kernel.runtime.ports import SessionProgress, SessionRequest, SessionResult

if TYPE_CHECKING:
    from prose_kernel.models.attachments import Attachment
    from prose_kernel.models.tools.session_tools import SessionTools

OnProgress = Callable[[SessionProgress], None]
FindTools = Callable[[SessionRequest], Awaitable["Sequence[Tool]"]]
MakeSessionTools = Callable[[SessionRequest, OnProgress], "SessionTools"]


@dataclass(eq=False)
class ModelSessions:
    """The `Sessions` port, answered by a model of one server, or by one of its fallbacks.

    - `name` is the server. `model` is used for sessions without a model: an alias or a model name of the server; None
      is the server's default.
    - `session_tools` creates the tools of one attempt. Contexts are part of the message, and the reply is the answer.
    - `rounds` is the maximum number of requests of one session. Without `streams`, replies arrive in one piece.
    """

    servers: ModelServers
    name: str
    model: str | None = None
    _: KW_ONLY
    session_tools: MakeSessionTools
    rounds: int = 50
    user_tools: FindTools | None = None
    streams: bool = True

    async def run(self, request: SessionRequest, on_progress: OnProgress) -> SessionResult:
        """Return the model's answer. Raises `ProviderError`; cancelling the call cancels the request at the server."""
        attempt = _Attempt(self, request, on_progress)
        chain = self.servers.chain(self.name, request.model, self.model)
        answer = await self.servers.ask(chain, attempt.converse, attempt.note)
        return attempt.result(answer)


class _Attempt:
    """One attempt at a session: all models of a chain share its tools and its conversation.

    Nothing is created before the attempt has its turn, because a thousand attempts may be waiting.
    """

    def __init__(self, sessions: ModelSessions, request: SessionRequest, on_progress: OnProgress) -> None:
        self._sessions = sessions
        self._request = request
        self._on_progress = on_progress
        self._tools: SessionTools | None = None
        self._attached: tuple[Attachment, ...] = ()
        self._history: dict[bool, list[Any]] = {True: [], False: []}
        self._has_user_tools = False

    def note(self, text: str) -> None:
        self._on_progress(SessionProgress("note", text))

    async def converse(self, link: Link, target: ModelTarget, opens: WaitUntilOpen) -> Reply:
        """Ask this model, which continues where another model of the chain has failed."""
        request, tools = self._request, target.server.tools
        session_tools = await self._tools_of(tools)
        specs = session_tools.specs if tools else ()
        reads = any(spec.name == "read" for spec in specs)
        given = request.given
        files: dict[str, str] = {}
        if given is not None and given.references:
            files = await in_thread(lambda _stop: session_tools.referenced())
        # earlier wrong answers are in the conversation
        fresh = replace(request, correction="", wrong=())
        spoken = in_message(fresh, reads=reads, files=files)
        asked = Conversation(
            target.model,
            spoken.without("system", "rules", "context", "answer").text,
            spoken.section("system", "rules"),
            specs,
            session_tools.call if tools else partial(session_tools.call, offered=False),
            self._sessions.rounds,
            session_tools.denied if tools else (),
            target.options,
            request.settings,
            request.output,
            self._attached,
            opens=opens,
            timed=request.timeout is not None,
            history=self._history[tools],
            context=tuple(part.text for part in spoken.parts if part.section == "context"),
            words=spoken.section("answer") or "",
            streams=self._sessions.streams,
            wrong=request.wrong,
        )
        show = AnswerStream(lambda piece: self._on_progress(SessionProgress("text", piece)))
        reply = await link.converse(asked, show if request.memory is not None else show.on_text)
        show.end()
        return reply

    async def _tools_of(self, tools: bool) -> SessionTools:
        """Return the tools of the attempt, with the user's tools if tools may be called."""
        if self._tools is None:
            session_tools = self._sessions.session_tools(self._request, self._on_progress)
            self._attached = await session_tools.attachments()
            self._tools = session_tools
        own = self._sessions.user_tools
        if tools and own is not None and self._request.tools and not self._has_user_tools:
            self._has_user_tools = True
            self._tools.add(await own(self._request))
        return self._tools

    def result(self, answer: Answered) -> SessionResult:
        """Return the session's result. Raises `ProviderBadReply` if the answer is empty."""
        reply, name = answer.reply, answer.by.name
        if reply.cut:
            self.note("the reply ends here because the limit of tokens was reached")
        details = {**answer.details, **({"cut": True} if reply.cut else {})}
        if sampling := answer.by.options.recorded_options:
            details["sampling"] = sampling
        text, memory = split_reply(reply.text, self._request)
        result = SessionResult(text, summarise(text), name, "model", details, memory_after=memory, usage=reply.usage)
        if self._tools is not None:
            made = self._tools
            result = replace(result, trace=made.trace, reads=made.reads, writes=made.writes)
        if not text.strip():
            discarded(result)
            raise ProviderBadReply(f"{name}: the model said nothing")
        return result
