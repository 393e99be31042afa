"""The settings of a request to a model: length, sampling, effort, prompt caching, and the form of a typed answer.

The library silently drops settings that a model does not support. A user has chosen the options of an alias, so an
option without effect is an error here, before anything is sent; the model's class and profile say which it supports.

A typed answer is requested natively if possible, else by a tool, else only in words. Modes that a server has refused or
ignored are remembered for the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, cast

from pydantic_ai.exceptions import ModelContextWindowExceededError, ModelHTTPError
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from prose_kernel.errors import ProviderError
from prose_kernel.models.providers.model_calls import Conversation
from prose_kernel.runtime.session_options import SAMPLING, ModelOptions, ModelServer

NUMBERS: Final = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
WHOLE_NUMBERS: Final = ("max_tokens", "top_k", "seed")
"""Settings of a model that an agent of a program may set; other keys are not sent."""


def settings_of(model: Model[Any], server: ModelServer, asked: Conversation) -> ModelSettings:
    """Return the settings of a request: the server's, overridden by the model's alias, then by the agent. Raises
    `ProviderError` for an option of the alias without an effect."""
    options = asked.options
    refuse_ineffective(model, options)
    found: dict[str, Any] = {}
    found["request_timeout" if "timeout" in model.unsupported_settings else "timeout"] = server.timeout
    if "max_retries" not in model.unsupported_settings:
        found["max_retries"] = 0
    found |= {name: value for name in SAMPLING if (value := getattr(options, name)) is not None}
    if options.effort is not None:
        found["thinking"] = False if options.effort == "off" else options.effort
    if options.cache:
        found |= _cached(model, asked)
    most = options.max_tokens or server.max_tokens
    if most is not None:
        found["max_tokens"] = most
    return cast("ModelSettings", found | dict(_of_agent(model, asked.settings, most)))


def _of_agent(model: Model[Any], settings: Mapping[str, object], most: int | None) -> Iterator[tuple[str, Any]]:
    """Yield the settings of the agent's configuration that the model supports."""
    for name, value in settings.items():
        whole = name in WHOLE_NUMBERS and isinstance(value, int)
        if isinstance(value, bool) or not (whole or (name in NUMBERS and isinstance(value, int | float))):
            continue
        if name not in model.unsupported_settings:
            yield name, min(cast("int", value), most) if name == "max_tokens" and most is not None else value


def refuse_ineffective(model: Model[Any], options: ModelOptions) -> None:
    """Raise `ProviderError` if an option of the alias would have no effect."""
    idle = list(dict.fromkeys(_ineffective(model, options)))
    if idle:
        named = ", ".join(f"`{name}`" for name in idle)
        have = "has" if len(idle) == 1 else "have"
        raise ProviderError(
            f"{named} {have} no effect on the model `{model.model_name}`",
            retryable=False,
            hint="take it out of the model's table in prose.toml, or choose a model that knows it",
        )


def _ineffective(model: Model[Any], options: ModelOptions) -> Iterable[str]:
    profile = model.profile
    refused = cast("Iterable[str]", profile.get("openai_unsupported_model_settings", ()))
    dropped = {*model.unsupported_settings, *refused}
    if profile.get("anthropic_disallows_sampling_settings", False) or _reasons(model, options):
        dropped |= {"temperature", "top_p"}
    yield from (name for name in SAMPLING if name in dropped and getattr(options, name) is not None)
    if options.effort is not None:
        thinks = profile.get("supports_thinking", False)
        if not thinks or (options.effort == "off" and profile.get("thinking_always_enabled", False)):
            yield "effort"
    if options.cache and not (profile.get("supports_cache", False) or model.system == "openai"):
        yield "cache"


def _reasons(model: Model[Any], options: ModelOptions) -> bool:
    """Return whether an OpenAI model reasons in this request: then it accepts no sampling settings."""
    profile = model.profile
    if not profile.get("openai_supports_reasoning", False):
        return False
    efforts = cast("Iterable[str] | None", profile.get("openai_reasoning_efforts"))
    if not ("none" in efforts if efforts is not None else profile.get("openai_supports_reasoning_effort_none", False)):
        return True
    return options.effort != "off" if options.effort else bool(profile.get("thinking_enabled_by_default", False))


WORTH_KEEPING: Final = 4_000
"""The minimum length of a prefix to cache, in characters: servers cache nothing below about 1,000 tokens."""
_MOST: Final = 10_000


class Prefixes:
    """The prefixes (system text and contexts) of the requests of a run.

    Caching a prefix costs a quarter more than sending it, so a server is asked to cache it when it occurs for the
    second time; with `cache` in the alias, every time.
    """

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def kept(self, model: Model[Any], asked: Conversation) -> int:
        """Return how many contexts the server should cache, counted from the first."""
        if not asked.context or not model.profile.get("supports_cache", False):
            return 0
        begins = "\0".join([asked.model, *(spec.name for spec in asked.tools), asked.system or ""])
        digest, length, found = hashlib.sha256(begins.encode("utf-8", "replace")), len(begins), 0
        if len(self._seen) >= _MOST:
            self._seen.clear()
        for number, text in enumerate(asked.context, 1):
            digest.update(text.encode("utf-8", "replace"))
            length += len(text)
            if length >= WORTH_KEEPING:
                known = digest.digest()
                found = number if known in self._seen else found
                self._seen.add(known)
        return len(asked.context) if asked.options.cache else found


def _cached(model: Model[Any], asked: Conversation) -> dict[str, Any]:
    """Return the settings that make the server cache the beginning of requests: tools, instructions, the conversation
    so far."""
    found: dict[str, Any] = {"cache": True}
    if model.system == "openai":  # its prompt cache is automatic, and a key improves its hit rate
        begins = "\0".join([asked.model, asked.system or "", *(spec.name for spec in asked.tools)])
        found["openai_prompt_cache_key"] = f"prose-{hashlib.sha256(begins.encode('utf-8', 'replace')).hexdigest()[:16]}"
    return found


OutputMode = Literal["native", "tool", "words"]
"""`native`: the server enforces the schema (`response_format`, `output_format`); `tool`: the answer is a call of a tool
with this schema; `words`: the message describes the answer. Each of them contains the schema once."""

ANSWER: Final = "answer"
"""The name of the schema, and of the tool."""

_REFUSED: Final = (400, 404, 415, 422, 501)


class OutputModes:
    """The ways that the models of one server have refused in this run."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._begin: dict[str, int] = {}

    def of(self, model: Model[Any], asked: Conversation) -> list[OutputMode]:
        """Return the ways to request the answer, best first; `words` is always among them."""
        if asked.output is None:
            return ["words"]
        calls = self._server.tools and not any(tool.name == ANSWER for tool in asked.tools)
        possible: dict[OutputMode, bool] = {
            "native": self._server.judge_output in ("native", None)
            and bool(model.profile.get("supports_json_schema_output")),
            "tool": calls and self._server.judge_output != "prompted" and asked.output.get("type") == "object",
            "words": True,
        }
        begin = self._begin.get(asked.model, 0)
        return [way for at, (way, can) in enumerate(possible.items()) if at >= begin and can]

    def may_ignore(self, way: OutputMode) -> bool:
        """Return whether the server may accept the request without enforcing the schema. Vendors' servers do not, and
        neither do servers whose table sets `judge_output`."""
        return way != "words" and self._server.base_url is not None and self._server.judge_output is None

    def worked(self, model: str, way: OutputMode) -> None:
        """Record that the ways before this one were refused or ignored."""
        self._begin[model] = ("native", "tool", "words").index(way)


def is_refused(problem: BaseException) -> bool:
    """Return whether a server may have refused the way of asking, not the question."""
    if isinstance(problem, ModelContextWindowExceededError) or not isinstance(problem, ModelHTTPError):
        return False
    return problem.status_code in _REFUSED
