"""One running CLI agent: its process, the connection to it, and its conversations (sessions.md 5).

Imported with the protocol's library at the first session of an agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from acp import schema
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.meta import PROTOCOL_VERSION
from acp.utils import serialize_params
from msgspec import Struct
from pydantic import BaseModel, ValidationError

from prose_kernel._version import __version__
from prose_kernel.errors import ProviderAuth, ProviderBadReply, ProviderConnection, ProviderError, ProviderTimeout
from prose_kernel.language.text import one_line
from prose_kernel.models.json_rpc import Patience, Wire, last_words, stop
from prose_kernel.models.providers.acp_conversation import AgentConversation, dispatch
from prose_kernel.runtime.services import Guard, Helper, HelperEnd
from prose_kernel.runtime.session_options import AgentCommand

_AUTH_REQUIRED: Final = -32000
_NOT_FOUND: Final = -32601
_INVALID: Final = (-32600, -32602)
_OFFERED: Final = 8

Model = TypeVar("Model", bound=BaseModel)


class AgentSession(Struct):
    """A session that the agent has opened, and the choice of its model: the option's id (None: the older method), the
    offered models, the current one."""

    id: str
    option: str | None = None
    offered: tuple[str, ...] = ()
    current: str | None = None


class AgentProcess:
    """A running agent: `start` creates it, `stop` ends its process and all processes that it started. `dead` is set
    when it has ended. A `retired` agent takes no new sessions."""

    def __init__(self, name: str, command: AgentCommand, patience: Patience) -> None:
        self.name = name
        self.version = name
        self.retired = False
        self.dead = asyncio.Event()
        self.conversations: dict[str, AgentConversation] = {}
        self._command = command
        self._patience = patience
        self._wire = Wire()
        self._helper: Helper
        self._connection: Connection
        self._watching: asyncio.Future[None]
        self._end: HelperEnd | None = None
        self._closes = False
        self.images = self.documents = False
        self._logins: tuple[str, ...] = ()
        self._skip_grace = False
        self._users = 0
        self._chores: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    # ------------------------------------------------------------ its life

    @classmethod
    async def start(
        cls, name: str, command: AgentCommand, *, guard: Guard, cwd: str, patience: Patience, terminals: bool
    ) -> AgentProcess:
        """Start the process and initialise the protocol. Raises `ProviderError`, after ending everything that was
        started."""
        agent = cls(name, command, patience)
        try:
            agent._helper = await guard.start(command.command, command.env, cwd, agent._wire.take)
        except OSError as problem:
            raise ProviderError(
                f"the agent {name} could not be started: {problem}",
                retryable=False,
                hint=f"install it, or correct `command` in [agents.{name}] of prose.toml",
            ) from None
        agent._wire.write = agent._helper.write
        agent._connection = Connection(
            lambda method, params, notification: dispatch(
                agent.conversations, method, params, notification=notification
            ),
            agent._wire,
        )
        agent._watching = asyncio.ensure_future(agent._watch())
        try:
            await agent._initialize(terminals)
        except BaseException:
            await agent.stop(0)
            raise
        return agent

    async def _watch(self) -> None:
        self._end = await self._helper.ended()
        self.dead.set()
        self._wire.end()
        await self._connection.close()

    async def _initialize(self, terminals: bool) -> None:
        greeting = serialize_params(self._greeting(terminals))
        hello = asyncio.ensure_future(self._send("initialize", greeting))
        disturbed = asyncio.ensure_future(self._wire.disturbed.wait())
        try:
            await asyncio.wait((hello, disturbed), return_when=asyncio.FIRST_COMPLETED)
            if not hello.done() and self._wire.broken is None:  # an agent that prints a banner answers soon
                await asyncio.wait((hello,), timeout=self._patience.noise)
            if not hello.done():
                raise await self._connection_lost() if self._wire.broken is not None else self._protocol_error()
            answer = self._read(schema.InitializeResponse, hello.result(), "initialize")
        except (ProviderConnection, ProviderTimeout, ProviderBadReply):
            if self._wire.noise is not None:
                raise self._protocol_error() from None
            raise
        finally:
            for task in (hello, disturbed):
                task.cancel()
            await asyncio.gather(hello, disturbed, return_exceptions=True)
        if answer.protocol_version != PROTOCOL_VERSION:
            raise ProviderError(
                f"the agent {self.name} speaks version {answer.protocol_version} of the Agent Client Protocol, "
                f"not version {PROTOCOL_VERSION}",
                retryable=False,
                hint="install a version of the agent that fits",
            )
        capabilities = answer.agent_capabilities or schema.AgentCapabilities()
        sessions = capabilities.session_capabilities
        self._closes = sessions is not None and sessions.close is not None
        prompts = capabilities.prompt_capabilities or schema.PromptCapabilities()
        self.images, self.documents = bool(prompts.image), bool(prompts.embedded_context)
        self._logins = tuple(method.name for method in answer.auth_methods or ())
        if answer.agent_info is not None:
            self.version = one_line(f"{answer.agent_info.name} {answer.agent_info.version}")

    def _greeting(self, terminals: bool) -> schema.InitializeRequest:
        return schema.InitializeRequest(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities(
                fs=schema.FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=terminals
            ),
            client_info=schema.Implementation(name="prose_kernel", version=__version__),
        )

    async def stop(self, grace: float | None = None) -> None:
        """Cancel running turns by protocol, then send TERM, wait for `grace` seconds, and send KILL. Return when all
        processes have ended.

        It may be called in another loop than the one that started the agent, when a kernel ends.
        """
        self.retired = True
        here = asyncio.get_running_loop() is self._loop
        if here:
            for id in self.conversations:
                self._notify_cancel(id)
        await stop(self._helper, self._patience.grace if grace is None else grace)
        if here:
            await asyncio.wait((self._watching,))  # not cancelled with this call
            for chore in tuple(self._chores):
                chore.cancel()

    # ------------------------------------------------------------ sessions

    async def open(self, cwd: str, conversation: AgentConversation) -> AgentSession:
        """Open a session; the agent's messages and requests in it go to the conversation, until `leave`."""
        params = schema.NewSessionRequest(cwd=cwd, mcp_servers=[])
        self._users += 1  # before the agent answers: it must not end because another session leaves it
        try:
            raw = await self._send("session/new", serialize_params(params) | {"mcpServers": []})
            answer = self._read(schema.NewSessionResponse, raw, "session/new")
            if answer.session_id in self.conversations:
                raise ProviderBadReply(f"the agent {self.name} gave a new session the id of a running one")
        except BaseException:
            await self._left()
            raise
        self.conversations[answer.session_id] = conversation
        return _agent_session(answer, raw)

    async def choose_model(self, session: AgentSession, model: str) -> None:
        """Let the session use this model. Raises `ProviderError` if the agent does not offer it."""
        if session.current == model:
            return
        if not session.offered:
            raise ProviderError(
                f"the agent {self.name} offers no choice of models, so `{one_line(model)}` cannot be chosen",
                retryable=False,
                hint="leave the model out of the session, or choose it in the agent's own settings",
            )
        if model not in session.offered:
            some = ", ".join(one_line(each, 60) for each in session.offered[:_OFFERED])
            more = f" and {len(session.offered) - _OFFERED} more" if len(session.offered) > _OFFERED else ""
            raise ProviderError(
                f"the agent {self.name} offers no model `{one_line(model)}`",
                retryable=False,
                hint=f'it offers {some}{more}; set it in [models."acp:{self.name}"] of prose.toml',
            )
        if session.option is None:
            await self._send("session/set_model", {"sessionId": session.id, "modelId": model})
        else:
            params = {"sessionId": session.id, "configId": session.option, "value": model}
            await self._send("session/set_config_option", params)
        session.current = model

    async def prompt(self, session: AgentSession, blocks: Sequence[Any]) -> schema.PromptResponse:
        """Send a prompt and wait for the end of the turn. A cancelled or failed turn is also cancelled at the agent.

        Raises the fault that the conversation found, and `ProviderTimeout` if the agent is silent for too long.
        """
        conversation = self.conversations[session.id]
        params = serialize_params(schema.PromptRequest(session_id=session.id, prompt=list(blocks)))
        conversation.last_message_at = self._loop.time()
        sending = asyncio.ensure_future(self._connection.send_request("session/prompt", params))
        disturbed = asyncio.ensure_future(conversation.disturbed.wait())
        try:
            while not sending.done():
                quiet = self._loop.time() - conversation.last_message_at
                await asyncio.wait(
                    (sending, disturbed),
                    timeout=max(self._command.timeout - quiet, 0.01),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if conversation.fault is not None:
                    raise conversation.fault
                if conversation.busy:
                    conversation.last_message_at = self._loop.time()
                elif not sending.done() and self._loop.time() - conversation.last_message_at >= self._command.timeout:
                    raise ProviderTimeout(
                        f"the agent {self.name} fell silent",
                        hint=f"`timeout` in [agents.{self.name}] of prose.toml says how long it may",
                    )
        except BaseException:
            await self._cancel_turn(session.id, sending)
            raise
        finally:
            disturbed.cancel()
        response = self._read(schema.PromptResponse, await self._answer(sending, "session/prompt"), "session/prompt")
        conversation.usage = response.usage
        return response

    async def _cancel_turn(self, id: str, sending: asyncio.Future[Any]) -> None:
        """Cancel a turn by protocol. An agent that ignores it gets no more sessions, and the last session that leaves
        it ends it. A second cancellation skips the waiting."""
        conversation = self.conversations[id]
        conversation.cancel()
        self._notify_cancel(id)
        try:
            await asyncio.wait((sending,), timeout=self._patience.cancel)
        except asyncio.CancelledError:
            self._skip_grace = True
            raise
        finally:
            if not sending.done():
                self.retired = True
                sending.cancel()
            elif not sending.cancelled() and sending.exception() is None:  # the agent may still report its tokens
                with contextlib.suppress(ValidationError):
                    conversation.usage = schema.PromptResponse.model_validate(sending.result()).usage

    def _notify_cancel(self, id: str) -> None:
        params = serialize_params(schema.CancelNotification(session_id=id))
        message = {"jsonrpc": "2.0", "method": "session/cancel", "params": params}
        self._helper.write(json.dumps(message, separators=(",", ":")) + "\n")

    async def leave(self, session: AgentSession) -> None:
        """End a session. When the last session leaves a retired agent, the agent ends."""
        try:
            await self.conversations.pop(session.id).close()
        finally:
            await self._left()
        if self._closes and not self.retired and not self.dead.is_set():
            chore = asyncio.ensure_future(self._close(session.id))
            self._chores.add(chore)
            chore.add_done_callback(self._chores.discard)

    async def _left(self) -> None:
        self._users -= 1
        if self.retired and not self._users:
            await self.stop(0 if self._skip_grace else None)

    async def _close(self, id: str) -> None:
        with contextlib.suppress(ProviderError):  # a courtesy: the agent may keep the session in memory
            await self._send("session/close", {"sessionId": id})

    # ------------------------------------------------------------ requests

    async def _send(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request that must be answered soon."""
        sending = asyncio.ensure_future(self._connection.send_request(method, params))
        try:
            await asyncio.wait((sending,), timeout=self._patience.start)
            if not sending.done():
                raise ProviderTimeout(
                    f"the agent {self.name} did not answer `{method}` in time", hint=last_words(self._helper) or None
                )
            return await self._answer(sending, method)
        finally:
            sending.cancel()

    async def _answer(self, sending: asyncio.Future[Any], method: str) -> Any:
        try:
            return await sending
        except RequestError as refused:
            raise self._refused(refused, method) from None
        except ConnectionError:
            raise await self._connection_lost() from None

    def _read(self, model: type[Model], raw: Any, method: str) -> Model:
        try:
            return model.model_validate(raw)
        except ValidationError:
            raise ProviderBadReply(
                f"the agent {self.name} answered `{method}` with something that makes no sense",
                hint="it may speak another version of the Agent Client Protocol",
            ) from None

    # ------------------------------------------------------------ errors

    def _protocol_error(self) -> ProviderError:
        noise = f": it printed `{one_line(self._wire.noise, 80)}`" if self._wire.noise else ""
        return ProviderError(
            f"the agent {self.name} does not speak the Agent Client Protocol{noise}",
            retryable=False,
            hint=f"many agents need an option for it: see `command` in [agents.{self.name}] of prose.toml",
        )

    async def _connection_lost(self) -> ProviderError:
        """Return the error for a broken connection: how the process ended, and its last words."""
        if self._wire.broken is not None:
            await self.stop()
            if self._wire.noise is None:
                return ProviderBadReply(f"the agent {self.name} {self._wire.broken}")
            return self._protocol_error()
        await self.dead.wait()
        end = self._end
        if end is None or end.ours:
            how = "was ended"
        elif end.signal is not None:
            how = f"was ended by {end.signal}"
        else:
            how = f"ended with exit code {end.exit_code}"
        return ProviderConnection(
            f"the agent {self.name} {how} before it had answered", hint=last_words(self._helper) or None
        )

    def _refused(self, refused: RequestError, method: str) -> ProviderError:
        reason = _reason_of(refused)
        if refused.code == _AUTH_REQUIRED or "authenticat" in reason.lower():
            ways = f" ({', '.join(one_line(way, 40) for way in self._logins)})" if self._logins else ""
            return ProviderAuth(
                f"the agent {self.name} is not logged in: {reason}",
                hint=f"log in with the agent's own command{ways}, then run again",
            )
        if method == "initialize":
            return ProviderError(
                f"the agent {self.name} does not speak the Agent Client Protocol: {reason}",
                retryable=False,
                hint=f"see `command` in [agents.{self.name}] of prose.toml",
            )
        retryable = refused.code != _NOT_FOUND and refused.code not in _INVALID
        return ProviderError(f"the agent {self.name} failed: {reason}", retryable=retryable)


def _reason_of(refused: RequestError) -> str:
    """Return an error of the agent on one line: its message and its details."""
    data = refused.data
    details = data.get("details") or data.get("message") or data.get("error") if isinstance(data, dict) else data
    words = [str(refused), details] if isinstance(details, str) and details not in str(refused) else [str(refused)]
    return one_line(": ".join(words), 300)


def _agent_session(answer: schema.NewSessionResponse, raw: Any) -> AgentSession:
    """Return a new session with the models it offers: as an option of its configuration, or in the older way."""
    for option in answer.config_options or ():
        if isinstance(option, schema.SessionConfigOptionSelect) and "model" in (option.category, option.id):
            return AgentSession(answer.session_id, option.id, tuple(_values(option.options)), option.current_value)
    older = raw.get("models")
    offered = older.get("availableModels") if isinstance(older, dict) else None
    if not isinstance(offered, list):
        return AgentSession(answer.session_id)
    ids = (each.get("modelId") for each in offered if isinstance(each, dict))
    models = tuple(id for id in ids if isinstance(id, str))
    return AgentSession(answer.session_id, None, models, older.get("currentModelId"))


def _values(options: Iterable[schema.SessionConfigSelectOption | schema.SessionConfigSelectGroup]) -> Iterator[str]:
    for option in options:
        if isinstance(option, schema.SessionConfigSelectGroup):
            yield from _values(option.options)
        else:
            yield option.value
