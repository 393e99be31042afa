"""Derives the measures of an ended span: durations, tokens and cost, with few attributes each.

Names come from OpenTelemetry's conventions for generative AI; other names begin with `prose.`. The recorders of
OpenTelemetry and of the log both use this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from prose_kernel.telemetry.spans import Attribute, Span

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
    """Yield the measures of an ended span."""
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
