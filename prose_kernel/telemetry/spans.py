"""Spans, activities of a run that take time. Producers and exporters of spans share only these classes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

Kind = Literal["run", "cell", "statement", "session", "attempt", "request", "tool", "judgement", "command", "gate"]
Status = Literal["ok", "error", "cancelled"]
Attribute = str | bool | int | float | Sequence[str]

_CONTEXT: Final = re.compile("[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}.*")


def trace_and_span(traceparent: str) -> tuple[str, str] | None:
    """Return the ids in a `traceparent` of W3C trace context; None if it is invalid."""
    found = _CONTEXT.fullmatch(traceparent)
    return (found[1], found[2]) if found is not None else None


@dataclass(slots=True)
class Span:
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


@dataclass(frozen=True, slots=True)
class Note:
    """An event at one moment of a span: a warning, or an error that may still be caught."""

    name: str
    at: int
    attributes: dict[str, Attribute]


class Recorder:
    """A destination of spans. Methods never raise, and don't wait (except `close`)."""

    assigns_ids: ClassVar[bool] = False
    """Whether it sets the ids of spans, which other recorders use. Such a recorder comes first."""

    def begun(self, span: Span) -> None:
        """Record that a span has begun; its parent has begun before."""

    def noted(self, span: Span, note: Note) -> None: ...

    def ended(self, span: Span) -> None: ...

    def close(self) -> None:
        """End the recording: no span follows. Called in a thread; takes seconds at most, even if collectors hang."""
