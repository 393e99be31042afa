"""The adapter to pydantic-ai and the vendors' clients: a conversation in, a reply out (sessions.md 2).

Loaded at first use, in a thread (`providers.load`). The clients are configured here: no retries, explicit timeouts, the
key from the run's environment, bounded replies. All errors are raised as `ProviderError`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
from pydantic_ai import messages as library
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.usage import RunUsage

from prose_kernel.errors import ProviderError
from prose_kernel.language.structs import replace
from prose_kernel.language.text import encodable
from prose_kernel.models.providers import model_chat as chat
from prose_kernel.models.providers.model_bounds import BudgetedModel, TimeLimits, usage_of
from prose_kernel.models.providers.model_calls import LONGEST_REPLY, Conversation, Reply
from prose_kernel.models.providers.model_errors import ErrorPlace, provider_error
from prose_kernel.models.providers.model_http import client, too_long
from prose_kernel.models.providers.model_settings import OutputModes, Prefixes, is_refused, settings_of
from prose_kernel.models.tools.tool import ToolAnswer
from prose_kernel.models.usage_and_prices import consumed
from prose_kernel.runtime.session_options import ModelServer, Surroundings
from prose_kernel.runtime.typed_answers import NO_OBJECT

# OpenAI-compatible services that the library handles specially, by name
_KNOWN_CHAT = ("ollama", "openrouter", "vllm")


class ServerLink:
    """The `Link` to one server. Belongs to one event loop; close it there."""

    def __init__(self, name: str, server: ModelServer, key: str | None, where: Surroundings) -> None:
        self._server = server
        self._at = ErrorPlace(name, server.key or "", server.base_url or "", key or "")
        self._http = client(server.timeout)
        self._others: list[Provider[Any]] = []
        self._make = _maker(name, server, key, where, self._http, self._others)
        self._says_its_end = bool(server.kind) or name == "openai"
        self._models: dict[str, Model[Any]] = {}
        self._ways = OutputModes(server)
        self._prefixes = Prefixes()

    async def converse(self, asked: Conversation, on_text: Callable[[str], None]) -> Reply:
        """Return the model's final text, after any tool calls; each piece of text is passed to `on_text`."""
        listener, used, messages = _Listener(on_text), RunUsage(), list[library.ModelMessage]()
        bounded: BudgetedModel | None = None
        try:
            model = self._model(asked.model)
            limits = () if asked.timed else (self._server.token_timeout, self._server.session_timeout)
            bounded = BudgetedModel(model, asked, self._at.name, used, TimeLimits(self._at.name, *limits))
            listener.on_length, listener.alive = bounded.count, bounded.patience.token
            kept = self._prefixes.kept(model, asked)
            prompt, system = _prompt(asked, model, self._at.name, kept), encodable(asked.system or "") or None
            messages = chat.first_messages(asked, prompt, system)
            last = await self._ask(model, bounded, asked, messages, used, listener)
        except BaseException as problem:
            asked.history[:] = _up_to_last_request(messages)
            consumed(
                self._at.name,
                asked.model,
                bounded.so_far() if bounded is not None else usage_of(used, asked.options.price),
            )
            if not isinstance(problem, Exception):
                raise
            ours = bounded.spent if bounded is not None and bounded.spent is not None else listener.ours
            if ours is not None and not isinstance(ours, ProviderError):
                raise ours from None
            raise provider_error(problem, self._at, asked.model) from None
        # both wire formats give the reason why a stream ends; without it, the connection was cut off
        if self._says_its_end and not (last.provider_details or {}).get("finish_reason"):
            consumed(self._at.name, asked.model, replace(usage_of(used, asked.options.price), counted=False))
            raise provider_error(ConnectionResetError(), self._at)
        usage, cut = usage_of(used, asked.options.price), last.finish_reason == "length"
        reply = Reply(chat.text_of(last), last.model_name or "", usage, cut)
        if reply.cut and bounded.capped is not None:  # the budget cut the answer off, and a part is not an answer
            consumed(self._at.name, asked.model, reply.usage)
            raise bounded.capped.error()
        return reply

    async def _ask(
        self,
        model: Model[Any],
        bounded: BudgetedModel,
        asked: Conversation,
        messages: list[library.ModelMessage],
        used: RunUsage,
        listener: _Listener,
    ) -> library.ModelResponse:
        """Return the response that ends the conversation. If the server refuses a way of asking for a typed answer, the
        next way is tried in the same attempt; if it ignores one, the last way is tried."""
        settings = settings_of(model, self._server, asked)
        ways, begins, plain = self._ways.of(model, asked), len(messages), messages[0]
        left = list(ways)
        while True:
            if (then := bounded.recorded_way) in left:  # used before the process was killed
                del left[: [*left].index(then)]
            output = left.pop(0)
            messages[0] = chat.with_words(plain, asked.words if output == "words" else "")
            try:
                last = await chat.run_conversation(
                    bounded,
                    asked,
                    messages,
                    output=output,
                    settings=settings,
                    used=used,
                    handlers=chat.Handlers(listener.hear, listener.calls(asked)),
                )
            except Exception as problem:
                if not left or len(messages) > begins or not is_refused(problem):
                    raise
            else:
                if self._ways.may_ignore(output) and chat.is_prose(last):
                    messages.append(chat.correction(NO_OBJECT, plain))
                    begins = len(messages)
                    del left[:-1]
                    continue
                if output != ways[0]:
                    self._ways.worked(asked.model, output)
                return last
            finally:
                messages[0] = plain  # another server continues from here

    def prepare(self, model: str) -> None:
        """Create the model, which loads its vendor's client and prices. Errors are raised when it is used."""
        with contextlib.suppress(Exception):
            self._model(model)

    def _model(self, model: str) -> Model[Any]:
        if model not in self._models:
            self._models[model] = self._make(model)
        return self._models[model]

    async def close(self) -> None:
        await self._http.aclose()
        for provider in self._others:
            async with provider:  # leaving it closes the client that it created
                pass


# ---------------------------------------------------------------- models


def _maker(
    name: str,
    server: ModelServer,
    key: str | None,
    where: Surroundings,
    http: httpx2.AsyncClient,
    others: list[Provider[Any]],
) -> Callable[[str], Model[Any]]:
    """Return a function that creates a model of this server from its id. All models share one client: ours, or the
    client of a provider in `others`."""
    client: dict[str, Any] = {"max_retries": 0, "timeout": http.timeout, "http_client": http}
    if server.kind == "anthropic":
        return _anthropic(server, key, where, client)
    if server.kind == "openai" or name == "openai":
        return _openai(name, server, key, where, client)
    chosen: dict[str, Any] = {}
    if key is not None:
        chosen["api_key"] = key
    if server.base_url is not None:
        chosen["base_url"] = server.base_url

    def known(model: str) -> Model[Any]:
        if not others:
            others.append(infer_provider_class(name)(**chosen))
        return infer_model(f"{name}:{model}", provider_factory=lambda _: others[0])

    return known


def _anthropic(
    server: ModelServer, key: str | None, where: Surroundings, client: dict[str, Any]
) -> Callable[[str], Model[Any]]:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    address = server.base_url or where.environment.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
    provider = AnthropicProvider(anthropic_client=AsyncAnthropic(api_key=key or "none", base_url=address, **client))
    return lambda model: AnthropicModel(model, provider=provider)


def _openai(
    name: str, server: ModelServer, key: str | None, where: Surroundings, client: dict[str, Any]
) -> Callable[[str], Model[Any]]:
    from openai import AsyncOpenAI, Omit
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    address = server.base_url
    if address is None and name == "openai":
        address = where.environment.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    account: dict[str, Any] = {}  # for the vendor's own server; otherwise the client reads them from the process
    for header, variable in (("OpenAI-Organization", "OPENAI_ORG_ID"), ("OpenAI-Project", "OPENAI_PROJECT_ID")):
        stated = where.environment.get(variable) if name == "openai" else None
        account[header] = stated or Omit()
    openai = AsyncOpenAI(api_key=key or "none", base_url=address, default_headers=account, **client)
    provider: Provider[Any]
    if name in _KNOWN_CHAT:
        provider = infer_provider_class(name)(openai_client=openai)  # type: ignore[call-arg]
        return lambda model: infer_model(f"{name}:{model}", provider_factory=lambda _: provider)
    if name == "openai":
        provider = OpenAIProvider(openai_client=openai)
        prefix = "openai-chat" if server.kind else "openai-responses"
        return lambda model: infer_model(f"{prefix}:{model}", provider_factory=lambda _: provider)
    provider = OpenAICompatibleProvider(name, openai_client=openai)
    return lambda model: OpenAIChatModel(model, provider=provider)


# ---------------------------------------------------------------- tools and text


@dataclass
class _Listener:
    """Passes text on as it arrives, and keeps errors of this package apart from the library's."""

    on_text: Callable[[str], None]
    ours: Exception | None = None
    on_length: Callable[[int], None] | None = None
    alive: Callable[[], None] | None = None
    _length: int = 0
    _before: int = 0
    _has_text: bool = False
    _separate: bool = False

    async def hear(self, events: AsyncIterable[library.ModelResponseStreamEvent]) -> None:
        self._separate, self._before = self._has_text, self._length
        async for event in events:
            if self.alive is not None:
                self.alive()
            match event:
                case library.PartStartEvent(part=library.TextPart(content=text)):
                    self._text(text)
                case library.PartDeltaEvent(delta=library.TextPartDelta(content_delta=text)):
                    self._text(text)
                case library.PartDeltaEvent(delta=library.ThinkingPartDelta(content_delta=str(text))):
                    self._grow(text)
                case library.PartDeltaEvent(delta=library.ToolCallPartDelta(args_delta=str(text))):
                    self._grow(text)

    def calls(self, asked: Conversation) -> Callable[[str, dict[str, Any]], Awaitable[ToolAnswer]]:
        async def call(name: str, arguments: dict[str, Any]) -> ToolAnswer:
            assert asked.call is not None
            try:
                return await asked.call(name, arguments)
            except Exception as problem:
                self.ours = problem
                raise

        return call

    def _text(self, text: str) -> None:
        self._grow(text)
        if not text:
            return
        if self._separate:
            text = "\n\n" + text.lstrip("\n")
        self._has_text, self._separate = True, False
        try:
            self.on_text(text)
        except Exception as problem:
            self.ours = problem
            raise

    def _grow(self, text: str) -> None:
        self._length += len(text)
        if self._length > LONGEST_REPLY:
            self.ours = too_long()
            raise self.ours
        if self.on_length is not None:
            self.on_length(self._length - self._before)


# ---------------------------------------------------------------- messages and replies


def _prompt(asked: Conversation, model: Model[Any], provider: str, kept: int) -> str | list[library.UserContent]:
    """Return the contexts, each image and PDF after a line with its name, and the message. The server is asked to cache
    the first `kept` contexts. Raises `ProviderError` for a kind of file that the model doesn't accept."""
    if not asked.attached and not kept:
        return encodable("\n\n".join((*asked.context, asked.message)))
    parts: list[library.UserContent] = [encodable(text) for text in asked.context[:kept]]
    if kept:
        parts.append(library.CachePoint())
    if rest := asked.context[kept:]:
        parts.append(encodable("\n\n".join(rest)))
    for one in asked.attached:
        content = library.BinaryContent(one.data, media_type=one.picture.media)
        if (kind := _unsupported_kind(content, model)) is not None:
            raise ProviderError(
                f"{provider}: `{one.label}` cannot be sent: the model `{asked.model}` takes no {kind}",
                retryable=False,
                hint="take another model, or let a command put into words what is in it",
            )
        parts += [f"{one.label}: {one.picture.text}", content]
    return [*parts, encodable(asked.message)]


def _unsupported_kind(content: library.BinaryContent, model: Model[Any]) -> str | None:
    profile = model.profile
    if content.is_image:
        return None if profile.get("supports_image_input", True) else "images"
    kinds = profile.get("supported_document_media_types")
    taken = profile.get("supports_document_input", True) and (kinds is None or content.media_type in kinds)
    return None if taken else "PDFs"


def _up_to_last_request(messages: list[library.ModelMessage]) -> list[library.ModelMessage]:
    """Return a failed conversation up to the last request, from which another model can continue."""
    kept = list(messages)
    while kept and not isinstance(kept[-1], library.ModelRequest):
        kept.pop()
    return kept
