"""Turns the events of a run into spans that follow OpenTelemetry's conventions for generative AI.

One listener passes the spans to all recorders, a tracer of OpenTelemetry, a log, or both, so that they have the same
content. Attributes of this package have the prefix `prose.`. No attribute contains a prompt, answer, command line,
question or error message, unless `content` is set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import ClassVar

from msgspec import Struct

from prose_kernel.language.structs import replace
from prose_kernel.runtime import events as ev
from prose_kernel.runtime import tracing
from prose_kernel.runtime.ports import CommandRequest, CommandResult, Commands, OnOutput, SessionResult, Usage
from prose_kernel.telemetry.outline import Outline
from prose_kernel.telemetry.spans import (
    MODEL_ORIGINS,
    Attribute,
    Kind,
    Span,
    Status,
    message,
    parts,
    provider_name,
    sampling_attributes,
    tool_name,
    usage_attributes,
)


class Operation(Struct, frozen=True):
    """A running request to a model, or a running tool call (`runtime.tracing.Operation`)."""

    spans: Spans
    span: Span

    @property
    def traceparent(self) -> str:
        return self.span.traceparent

    def asked(self, *, outcome: Status, error: str = "", model: str = "", usage: Usage | None = None) -> None:
        if model:
            self.span.attributes["gen_ai.response.model"] = model
        if usage is not None:
            self.span.attributes |= usage_attributes(usage)
        if error and outcome == "error":
            self.span.error = self.span.attributes["error.type"] = error
        self.spans._finish(self.span, outcome)

    def called(self, *, outcome: str, arguments: str = "", answer: str = "") -> None:
        self.span.attributes["prose.outcome"] = outcome
        self.spans._set_content(self.span, "gen_ai.tool.call.arguments", arguments)
        self.spans._set_content(self.span, "gen_ai.tool.call.result", answer)
        if outcome in ("ok", "cancelled"):
            self.spans._finish(self.span, "ok" if outcome == "ok" else "cancelled")
        else:
            self.span.error = self.span.attributes["error.type"] = outcome
            self.spans._finish(self.span, "error")


class Spans(Outline):
    """The listener that turns a run's events into spans."""

    def __call__(self, event: ev.Event) -> None:
        self._handlers[type(event)](self, event)

    def environment(self, at: str) -> Mapping[str, str]:
        """Return the variables of the trace context for the command with this path."""
        span = self._open.get(("command", at))
        return {"TRACEPARENT": span.traceparent} if span is not None else {}

    def on_command_started(self, event: ev.CommandStarted) -> None:
        request = event.request
        span = self._open_span(("command", request.at), "command", "command", event.place)
        span.attributes["prose.at"] = request.at
        self._set_content(span, "process.command_line", event.command)
        self._report_begin(span)

    def on_command_finished(self, event: ev.CommandFinished) -> None:
        key, result = ("command", event.request.at), event.result
        span = self._open.get(key)
        if span is None:
            return
        span.attributes |= {"process.exit.code": result.exit_code, "prose.outcome": result.outcome}
        if event.request.attempt:
            span.attributes["prose.attempts"] = event.request.attempt + 1
        if result.worker:
            span.attributes["server.address"] = result.worker
        if result.kind is not None:
            span.error = span.attributes["error.type"] = result.kind
        if result.outcome in ("interrupted", "cancelled"):
            self._close(key, "cancelled")
        else:
            self._close(key, "ok" if result.kind is None else "error")

    def on_session_started(self, event: ev.SessionStarted) -> None:
        request, key = event.request, ("session", event.spawn)
        session = self._open.get(key)
        if session is None:
            who = request.agent or request.label or ""
            session = self._open_span(key, "session", f"invoke_agent {who}".strip(), event.place)
            session.attributes |= {"gen_ai.operation.name": "invoke_agent", "prose.at": request.at}
            if who:
                session.attributes["gen_ai.agent.name"] = who
            if request.model:
                session.attributes["gen_ai.request.model"] = request.model
            self._report_begin(session)
        number = self._attempts[event.spawn] = self._attempts.get(event.spawn, 0) + 1
        attempt = self._open_span(
            ("attempt", event.spawn), "attempt", f"chat {request.model or ''}".strip(), event.place, session
        )
        attempt.attributes["prose.attempt"] = number
        self._asked[request.at] = attempt
        if request.model:
            attempt.attributes |= {"gen_ai.request.model": request.model, "prose.model": request.model}
        if request.output is not None:
            attempt.attributes["gen_ai.output.type"] = "json"
        if request.system:
            self._set_content(attempt, "gen_ai.system_instructions", parts(request.system))
        self._set_content(attempt, "gen_ai.input.messages", message("user", request.task))
        self._report_begin(attempt)

    def on_session_progressed(self, event: ev.SessionProgressed) -> None:
        tool, attempt = event.tool, self._open.get(("attempt", event.spawn))
        if tool is None or attempt is None or attempt.reports:
            return
        name, now = tool_name(tool.tool), self._clock()
        span = self._begin("tool", f"execute_tool {name}", attempt, now - round(event.seconds * 1e9))
        span.attributes |= {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "prose.outcome": tool.outcome,
        }
        self._set_content(span, "gen_ai.tool.call.arguments", tool.summary)
        self._set_content(span, "gen_ai.tool.call.result", tool.detail)
        if tool.outcome != "ok":
            span.error = span.attributes["error.type"] = tool.outcome
        self._report_begin(span)
        self._finish(span, "ok" if tool.outcome == "ok" else "error", end=now)

    def on_session_finished(self, event: ev.SessionFinished) -> None:
        result, error = event.result, event.error
        attempt = self._open.get(("attempt", event.spawn))
        session = self._open.get(("session", event.spawn))
        if attempt is not None and result is not None:
            self._answered(attempt, result)
        status: Status = "ok" if error is None else "error"
        if self._asked.get(event.request.at) is attempt:
            del self._asked[event.request.at]
        self._close(("attempt", event.spawn), status, error)
        if session is not None and (result is not None or event.final):
            session.attributes["prose.attempts"] = self._attempts.pop(event.spawn, 1)
            self._close(("session", event.spawn), status, error)

    def _answered(self, attempt: Span, result: SessionResult) -> None:
        """Set the answering provider, which is known only now. An answer by a person or script is not a `chat`."""
        attempt.attributes["prose.replayed"] = result.replayed
        if result.origin:
            attempt.attributes["prose.origin"] = result.origin
        if result.origin in MODEL_ORIGINS:
            if result.provider:
                attempt.attributes["gen_ai.provider.name"] = provider_name(result.provider)
            if model := str(result.details.get("model") or ""):
                attempt.name = "attempt" if attempt.requests else f"chat {model}"
                attempt.attributes |= {"gen_ai.request.model": model, "gen_ai.response.model": model}
            attempt.attributes |= sampling_attributes(result.details.get("sampling"))
        else:
            attempt.name = "attempt"
        if result.usage is not None and not result.replayed:  # its requests have the tokens, if they report themselves
            attempt.attributes |= usage_attributes(result.usage, tokens=not attempt.requests)
        answer = result.text if result.text is not None else result.summary
        self._set_content(attempt, "gen_ai.output.messages", message("assistant", answer))

    def on_judge_asked(self, event: ev.JudgeAsked) -> None:
        span = self._open_span(("judgement", event.at), "judgement", "judgement", event.place)
        span.attributes["prose.at"] = event.at
        self._set_content(span, "prose.question", event.question)
        self._report_begin(span)

    def on_judged(self, event: ev.Judged) -> None:
        key = ("judgement", event.at)
        span = self._open.get(key)
        if span is None:
            self.on_judge_asked(ev.JudgeAsked(event.place, event.question, event.at))
            span = self._open[key]
        span.attributes["prose.judge"] = event.by
        details = event.details
        if details.get("model"):
            self._judged_by(span, details)
        self._set_content(span, "prose.answer", event.answer if event.answer is not None else "uncertain")
        self._set_content(span, "prose.reason", event.reason)
        self._close(key, "ok")

    # ------------------------------------------------------------ requests and tools that report themselves

    @contextlib.contextmanager
    def text(self) -> Iterator[None]:
        """Return a context for one text, in which requests and tools report themselves; its cell ends with it."""
        with tracing.watched(self), super().text():
            yield

    def request(self, at: str, provider: str, model: str) -> Operation | None:
        """Begin a request to a model (`runtime.tracing.Watch`)."""
        attributes: dict[str, Attribute] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
        found = self._operation(at, "request", f"chat {model}", attributes)
        if found is not None:
            found.span.attributes["gen_ai.provider.name"] = provider_name(provider)
            assert found.span.parent is not None
            found.span.parent.requests += 1
        return found

    def tool(self, at: str, name: str) -> Operation | None:
        """Begin a call of a tool."""
        name = tool_name(name)
        attributes: dict[str, Attribute] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        return self._operation(at, "tool", f"execute_tool {name}", attributes)

    def _operation(self, at: str, kind: Kind, name: str, attributes: dict[str, Attribute]) -> Operation | None:
        parent = self._asked.get(at) or self._open.get(("judgement", at))
        if parent is None:
            return None
        parent.reports = True
        span = self._begin(kind, name, parent)
        span.attributes |= attributes
        self._report_begin(span)
        return Operation(self, span)

    def _judged_by(self, judgement: Span, details: Mapping[str, object]) -> None:
        """Add a span for the model's request, unless the request has reported itself."""
        if judgement.requests:
            return
        model, replayed = str(details["model"]), bool(details.get("replayed"))
        span = self._begin("attempt", f"chat {model}", judgement, judgement.begin)
        span.attributes |= {"gen_ai.operation.name": "chat", "prose.replayed": replayed}
        span.attributes |= {"gen_ai.request.model": model, "gen_ai.response.model": model}
        if provider := details.get("provider"):
            span.attributes["gen_ai.provider.name"] = provider_name(str(provider))
        usage = details.get("usage")
        if isinstance(usage, Mapping) and not replayed:
            names = Usage.__struct_fields__
            span.attributes |= usage_attributes(Usage(**{name: usage[name] for name in names if name in usage}))
        self._report_begin(span)
        self._finish(span, "ok")

    def on_gate_opened(self, event: ev.GateOpened) -> None:
        request = event.request
        span = self._open_span(("gate", request.id), "gate", f"gate {request.name}", event.place)
        span.attributes["prose.gate"] = request.name
        self._report_begin(span)

    def on_gate_resolved(self, event: ev.GateResolved) -> None:
        key = ("gate", event.request.id)
        if (span := self._open.get(key)) is not None:
            span.attributes["prose.outcome"] = event.decision.status
            self._close(key, "ok")

    def on_branch_finished(self, event: ev.BranchFinished) -> None:
        if event.status != "cancelled":
            return
        steps, depth = event.place.branches, len(event.place.branches)
        for key, span in reversed(list(self._open.items())):
            if span.branches[:depth] == steps:
                self._close(key, "cancelled")

    _handlers: ClassVar = Outline.handlers | ev.handlers(vars())
    kinds: ClassVar = frozenset(_handlers)


class TracedCommands:
    """A `Commands` port that wraps another one and adds the trace context to commands' environments. It does not change
    variables that the program sets."""

    def __init__(self, commands: Commands, spans: Spans) -> None:
        self._commands = commands
        self._spans = spans

    async def run(self, request: CommandRequest, on_output: OnOutput | None = None) -> CommandResult:
        variables = self._spans.environment(request.at)
        if variables:
            request = replace(request, env={**variables, **request.env})
        return await self._commands.run(request, on_output)
