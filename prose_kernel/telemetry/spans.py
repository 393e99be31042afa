"""Spans, activities of a run that take time. Producers and exporters of spans share only these classes.

The values, groups of attributes and measures are those of OpenTelemetry's conventions for generative AI (1.41).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple

from msgspec import Struct, field

from prose_kernel.runtime.ports import Usage

Kind = Literal["run", "cell", "statement", "session", "attempt", "request", "tool", "judgement", "command", "gate"]
Status = Literal["ok", "error", "cancelled"]
Attribute = str | bool | int | float | Sequence[str]

_CONTEXT: Final = re.compile("[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}.*")


def trace_and_span(traceparent: str) -> tuple[str, str] | None:
    """Return the ids in a `traceparent` of W3C trace context; None if it is invalid."""
    found = _CONTEXT.fullmatch(traceparent)
    return (found[1], found[2]) if found is not None else None


class Span(Struct):
    """An activity that takes time. Times are nanoseconds since 1970; `end` is None while it lasts.

    The ids are lower-case hexadecimal numbers, as in W3C trace context; `remote` is the id of a parent in another
    process, `link` the `traceparent` of a span that this one continues. `error` is a short name (`E203`), `message` the
    text for people, which is "" unless content is wanted.
    """

    kind: Kind
    name: str
    begin: int
    parent: Span | None = None
    attributes: dict[str, Attribute] = field(default_factory=dict)
    branches: tuple[Any, ...] = ()
    trace_id: str = ""
    span_id: str = ""
    sampled: bool = True
    remote: str = ""
    link: str = ""
    end: int | None = None
    status: Status = "ok"
    error: str = ""
    message: str = ""
    reports: bool = False
    """Whether its requests and tool calls report themselves (`runtime/tracing.py`); `requests` counts the former."""
    requests: int = 0

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


class Note(Struct, frozen=True):
    """An event at one moment of a span: a warning, or an error that may still be caught."""

    name: str
    at: int
    attributes: dict[str, Attribute]


class SpanDestination:
    """A destination of spans. Methods never raise, and don't wait (except `close`)."""

    assigns_ids: ClassVar[bool] = False
    """Whether it sets the ids of spans, which other recorders use. Such a recorder comes first."""

    def begun(self, span: Span) -> None:
        """Record that a span has begun; its parent has begun before."""

    def noted(self, span: Span, note: Note) -> None: ...

    def ended(self, span: Span) -> None: ...

    def close(self) -> None:
        """End the recording: no span follows. Called in a thread; takes seconds at most, even if collectors hang."""


# ---------------------------------------------------------------- attributes

SCHEMA: Final = "https://opentelemetry.io/schemas/1.41.0"
LONGEST: Final = 32_000
"""The most characters of an attribute with content."""
MODEL_ORIGINS: Final = ("model", "agent")
"""The origins of answers by generative AI: a model server, a CLI agent; not a person, a script or a recording."""

_PROVIDERS: Final[Mapping[str, str]] = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "grok": "x_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
_SAMPLING: Final = ("max_tokens", "temperature", "top_p", "seed", "frequency_penalty", "presence_penalty")
_TOOL: Final = re.compile(r"[\w.:/-]{1,100}")


def provider_name(provider: str) -> str:
    """Return `gen_ai.provider.name` for one of our providers; names that the conventions lack stay unchanged."""
    name = provider.partition(":")[0]
    return _PROVIDERS.get(name, name)


def tool_name(name: str) -> str:
    """Return the name of a tool; `unknown` for the arbitrary text with which a model may call a missing tool, because
    such text is content."""
    return name if _TOOL.fullmatch(name) else "unknown"


def sampling_attributes(sampling: object) -> dict[str, Attribute]:
    """Return the sampling options of a request to a model, as attributes."""
    options = sampling if isinstance(sampling, Mapping) else {}
    return {f"gen_ai.request.{name}": options[name] for name in _SAMPLING if name in options}


def usage_attributes(usage: Usage, *, tokens: bool = True) -> dict[str, Attribute]:
    """Return the consumption as attributes, without `tokens` if child spans have them."""
    found: dict[str, Attribute] = {"prose.requests": usage.requests}
    if usage.counted and tokens:
        found |= {"gen_ai.usage.input_tokens": usage.tokens_in, "gen_ai.usage.output_tokens": usage.tokens_out}
        if usage.tokens_cached:
            found["gen_ai.usage.cache_read.input_tokens"] = usage.tokens_cached
    if usage.cost is not None:
        found["prose.cost.usd"] = usage.cost
    return found


class JsonText(str):
    """JSON text whose contents are already cut to `LONGEST`; it must not be cut itself."""

    __slots__ = ()


def parts(text: str) -> JsonText:
    return JsonText(json.dumps([{"type": "text", "content": text[:LONGEST]}], ensure_ascii=False))


def message(role: str, text: str) -> JsonText:
    found = {"role": role, "parts": [{"type": "text", "content": text[:LONGEST]}]}
    if role == "assistant":
        found["finish_reason"] = "stop"
    return JsonText(json.dumps([found], ensure_ascii=False))


# ---------------------------------------------------------------- measures

DURATION: Final = "gen_ai.client.operation.duration"
TOKENS: Final = "gen_ai.client.token.usage"
COST: Final = "prose.cost"
OPERATIONS: Final = "prose.operation.duration"

_OF_MODELS: Final = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.tool.name",
    "error.type",
)
_KINDS: Final = ("session", "attempt", "judgement", "command", "gate")


class Measure(NamedTuple):
    """One value of one instrument: seconds, tokens or US dollars."""

    name: str
    value: float
    attributes: Mapping[str, Attribute]


def measures_of(span: Span) -> Iterator[Measure]:
    assert span.end is not None
    seconds, found = (span.end - span.begin) / 1e9, span.attributes
    if span.kind in ("request", "tool") or (span.kind == "attempt" and found.get("gen_ai.operation.name") == "chat"):
        about: dict[str, Attribute] = {name: found[name] for name in _OF_MODELS if name in found}
        if span.status == "cancelled":
            about["error.type"] = "cancelled"
        yield Measure(DURATION, seconds, about)
        about.pop("error.type", None)
        for kind in ("input", "output"):
            if (count := found.get(f"gen_ai.usage.{kind}_tokens")) is not None:
                yield Measure(TOKENS, float(str(count)), {**about, "gen_ai.token.type": kind})
        if (cost := found.get("prose.cost.usd")) is not None:
            yield Measure(COST, float(str(cost)), about)
    if span.kind in _KINDS:
        outcome = str(found.get("prose.outcome") or span.status)
        yield Measure(OPERATIONS, seconds, {"prose.operation": span.kind, "prose.outcome": outcome})
