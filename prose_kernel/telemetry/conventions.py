"""Values, groups of attributes and measures from OpenTelemetry's conventions for generative AI (version 1.41)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from prose_kernel.runtime.ports import Usage
from prose_kernel.telemetry.spans import Attribute, Span

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
