"""The events of a run as spans, in the words of OpenTelemetry's conventions for generative AI.

One listener turns events into spans and hands them to recorders: a tracer of OpenTelemetry, a log, or both. So both say
the same. What only this package knows has the prefix `prose.`. Nothing that a program says or gets is in an attribute,
unless `content` asks for it: no prompt, answer, command line, question, or message of an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, Protocol

from prose_kernel.errors import RunError
from prose_kernel.runtime.events import (
    Bound,
    BranchFinished,
    CellStarted,
    CommandFinished,
    CommandStarted,
    Event,
    GateOpened,
    GateResolved,
    JudgeAsked,
    Judged,
    Place,
    ProgramCalled,
    RunEnded,
    RunStarted,
    SessionFinished,
    SessionProgressed,
    SessionStarted,
    StatementDone,
)
from prose_kernel.runtime.ports import Usage

Kind = Literal["run", "cell", "statement", "session", "attempt", "tool", "judgement", "command", "gate"]
Status = Literal["ok", "error", "cancelled"]
Attribute = str | bool | int | float | Sequence[str]

LONGEST: Final = 32_000
"""Characters of one attribute that holds content."""
_CONTEXT: Final = re.compile("[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}.*")
OWN_MODELS: Final = ("model", "agent")
"""Who answers as generative AI does: a model server or a CLI agent; all others are people, scripts and recordings."""


@dataclass(slots=True)
class Span:
    """Something that takes time. `end` is None while it lasts; times are nanoseconds since 1970.

    The ids are lower-case hexadecimal numbers, as in W3C trace context; `remote` is that of a parent in another
    process. `error` is a short name (`E203`), `message` what people read; the latter is "" unless content is wanted.
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
    end: int | None = None
    status: Status = "ok"
    error: str = ""
    message: str = ""

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


class Recorder(Protocol):
    """Where spans go. Neither call raises or waits for anything."""

    names: ClassVar[bool]
    """Whether it gives spans their ids; the others find them there. Such a recorder comes first."""

    def begun(self, span: Span) -> None:
        """A span has begun; its parent has before."""
        ...

    def ended(self, span: Span) -> None: ...

    def close(self) -> None:
        """No span follows. Returns within seconds, whatever the other side does; called in a thread."""
        ...


class Spans:
    """The listener. `text` stands around each text that runs; `close` ends what is left.

    `remote` is the span that this process belongs to, as a `traceparent`; "" where there is none.
    """

    def __init__(
        self,
        recorders: Sequence[Recorder],
        *,
        remote: str = "",
        content: bool = False,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._remote = remote
        self._recorders = tuple(recorders)
        self._content = content
        self._clock = clock
        self._run: Span | None = None
        self._cell: Span | None = None
        self._statement: Span | None = None
        self._ordinal = 0
        self._boundary = 0  # when the last statement ended: then the next one began
        self._heard = 0  # when something of the statement that runs was last heard
        self._open: dict[object, Span] = {}
        self._attempts: dict[int, int] = {}

    def __call__(self, event: Event) -> None:
        self._handlers[type(event)](self, event)

    @contextlib.contextmanager
    def text(self) -> Iterator[None]:
        """What happens in here is one text; its cell ends with it."""
        try:
            yield
        except RunError as error:
            self._end_cell("error", error)
            raise
        except asyncio.CancelledError:
            self._end_cell("cancelled")
            raise
        except BaseException:
            self._end_cell("error")
            raise
        self._end_cell("ok")

    def environment(self, at: str) -> Mapping[str, str]:
        """What tells the command with this path which span it belongs to."""
        span = self._open.get(("command", at))
        return {"TRACEPARENT": span.traceparent} if span is not None else {}

    def close(self) -> None:
        """End what is left, and let the recorders write it. Bounded in time; called in a thread."""
        self._end_run("ok", None)
        for recorder in self._recorders:
            recorder.close()

    # ------------------------------------------------------------ spans

    def _begin(self, kind: Kind, name: str, parent: Span | None, begin: int = 0) -> Span:
        return Span(kind, name, begin or self._clock(), parent)

    def _started(self, span: Span) -> Span:
        for recorder in self._recorders:
            if not recorder.names:
                self._name(span)
            recorder.begun(span)
        self._name(span)
        return span

    def _name(self, span: Span) -> None:
        """Give a span the ids that no tracer has given it."""
        if span.span_id:
            return
        if span.parent is not None:
            span.trace_id = span.parent.trace_id
        elif (remote := _CONTEXT.fullmatch(self._remote)) is not None:
            span.trace_id, span.remote = remote.groups()
        else:
            span.trace_id = secrets.token_hex(16)
        span.span_id = secrets.token_hex(8)

    def _finish(self, span: Span, status: Status, error: RunError | None = None, end: int = 0) -> None:
        span.end, span.status = max(end or self._clock(), span.begin), status
        if error is not None:
            self._fail(span, error)
        for recorder in self._recorders:
            recorder.ended(span)

    def _fail(self, span: Span, error: RunError) -> None:
        span.status, span.error = "error", error.code
        span.attributes["error.type"] = error.code
        if self._content:
            span.message = error.message[:LONGEST]

    def _say(self, span: Span, key: str, text: object) -> None:
        """An attribute that holds content."""
        if self._content and text:
            span.attributes[key] = text if isinstance(text, _Whole) else str(text)[:LONGEST]

    # ------------------------------------------------------------ run, cell, statement

    def _run_started(self, event: RunStarted) -> None:
        self._begin_run(event.program_file)

    def _begin_run(self, program: str) -> Span:
        span = self._begin("run", f"invoke_workflow {program}".strip(), None)
        span.attributes |= {"gen_ai.operation.name": "invoke_workflow"}
        if program:
            span.attributes["gen_ai.workflow.name"] = program
        self._run = self._started(span)
        return span

    def _run_ended(self, event: RunEnded) -> None:
        self._end_run("ok" if event.error is None else "error", event.error)

    def _end_run(self, status: Status, error: RunError | None) -> None:
        self._end_cell(status)
        run, self._run, self._ordinal = self._run, None, 0
        if run is not None:
            self._finish(run, status, error)

    def _cell_started(self, event: CellStarted) -> None:
        self._end_cell("ok")
        run = self._run or self._begin_run("")
        span = self._begin("cell", f"cell {event.index}", run)
        span.attributes |= {"prose.cell": event.index, "code.file.path": event.place.source.name}
        self._cell = self._started(span)
        self._boundary = span.begin
        self._ordinal = event.place.ordinal

    def _end_cell(self, status: Status, error: RunError | None = None) -> None:
        for key in list(self._open):
            self._close(key, "cancelled")
        self._attempts.clear()
        self._end_statement(status, error, self._clock() if status != "ok" else 0)
        cell, self._cell = self._cell, None
        if cell is not None:
            self._finish(cell, status, error)

    def _at(self, place: Place) -> Span:
        """The span of the statement of the root that runs. Statements of the root run one after the other, so one has
        begun when the last one ended. Programs that it calls count their own statements."""
        if self._statement is None or (place.ordinal != self._ordinal and not place.program):
            self._end_statement("ok")
            self._ordinal = place.ordinal
            parent = self._cell or self._run or self._begin_run("")
            span = self._begin("statement", "statement", parent, self._boundary)
            span.attributes["prose.statement"] = place.ordinal
            self._statement = self._started(span)
            self._mark(self._statement, place)
        return self._statement

    def _mark(self, span: Span, place: Place) -> None:
        """Where something stands, and what kind of statement it is."""
        line, column = place.source.line_column(place.span.start)
        for name in ("prose.kind", "prose.block", "prose.branch"):
            span.attributes.pop(name, None)
        span.attributes |= {"code.line.number": line, "code.column.number": column}
        if place.kind:
            span.attributes["prose.kind"] = place.kind
        if place.block:
            span.attributes["prose.block"] = place.block
        if place.branches:
            span.attributes["prose.branch"] = "/".join(step.label for step in place.branches)
        span.branches = place.branches

    def _done(self, event: StatementDone) -> None:
        if not event.place.program and not event.place.depth:
            span = self._at(event.place)
            span.attributes.pop("prose.name", None)  # bound inside
            self._mark(span, event.place)
            self._heard = self._clock()
            self._end_statement("ok")

    def _bound(self, event: Bound) -> None:
        place = event.place
        span = self._at(place)
        self._heard = self._clock()
        if not (place.depth or place.branches or place.program) and not span.attributes.get("prose.name"):
            self._mark(span, place)
            span.attributes["prose.name"] = event.name

    def _program_called(self, event: ProgramCalled) -> None:
        self._at(event.place)

    def _end_statement(self, status: Status, error: RunError | None = None, end: int = 0) -> None:
        span, self._statement = self._statement, None
        if span is None:
            if error is not None and error.location is not None and self._cell is not None:
                self._cell.attributes["code.line.number"] = error.location.line
            return
        span.name = str(span.attributes.get("prose.kind", span.name))
        if error is not None and error.location is not None:
            span.attributes["prose.error.line"] = error.location.line
        self._boundary = end or self._heard or self._clock()
        self._heard = 0
        self._finish(span, status, error, self._boundary)

    # ------------------------------------------------------------ what takes time inside

    def _opened(self, key: object, kind: Kind, name: str, place: Place, parent: Span | None = None) -> Span:
        """A span that has begun but of which the recorders do not know yet: attributes follow."""
        span = self._begin(kind, name, parent or self._at(place))
        self._mark(span, place)
        self._open[key] = span
        return span

    def _close(self, key: object, status: Status, error: RunError | None = None) -> Span | None:
        span = self._open.pop(key, None)
        if span is not None:
            self._finish(span, status, error)
            self._heard = span.end or 0
        return span

    def _command_started(self, event: CommandStarted) -> None:
        request = event.request
        span = self._opened(("command", request.at), "command", "command", event.place)
        span.attributes["prose.at"] = request.at
        self._say(span, "process.command_line", event.command)
        self._started(span)

    def _command_finished(self, event: CommandFinished) -> None:
        key, result = ("command", event.request.at), event.result
        span = self._open.get(key)
        if span is None:
            return
        span.attributes |= {"process.exit.code": result.exit_code, "prose.outcome": result.outcome}
        if result.worker:
            span.attributes["server.address"] = result.worker
        if result.kind is not None:
            span.error = span.attributes["error.type"] = result.kind
        if result.outcome in ("interrupted", "cancelled"):
            self._close(key, "cancelled")
        else:
            self._close(key, "ok" if result.kind is None else "error")

    def _session_started(self, event: SessionStarted) -> None:
        request, key = event.request, ("session", event.spawn)
        session = self._open.get(key)
        if session is None:
            who = request.agent or request.label or ""
            session = self._opened(key, "session", f"invoke_agent {who}".strip(), event.place)
            session.attributes |= {"gen_ai.operation.name": "invoke_agent", "prose.at": request.at}
            if who:
                session.attributes["gen_ai.agent.name"] = who
            if request.model:
                session.attributes["gen_ai.request.model"] = request.model
            self._started(session)
        number = self._attempts[event.spawn] = self._attempts.get(event.spawn, 0) + 1
        attempt = self._opened(
            ("attempt", event.spawn), "attempt", f"chat {request.model or ''}".strip(), event.place, session
        )
        attempt.attributes |= {"gen_ai.operation.name": "chat", "prose.attempt": number}
        if request.model:
            attempt.attributes["gen_ai.request.model"] = request.model
        if request.system:
            self._say(attempt, "gen_ai.system_instructions", _parts(request.system))
        self._say(attempt, "gen_ai.input.messages", _message("user", request.task))
        self._started(attempt)

    def _session_progressed(self, event: SessionProgressed) -> None:
        tool, attempt = event.tool, self._open.get(("attempt", event.spawn))
        if tool is None or attempt is None:
            return
        span = self._begin("tool", f"execute_tool {tool.tool}", attempt)
        span.attributes |= {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool.tool,
            "prose.outcome": tool.outcome,
        }
        self._say(span, "gen_ai.tool.call.arguments", tool.summary)
        self._say(span, "gen_ai.tool.call.result", tool.detail)
        if tool.outcome != "ok":
            span.error = span.attributes["error.type"] = tool.outcome
        self._started(span)
        self._finish(span, "ok" if tool.outcome == "ok" else "error", end=span.begin)

    def _session_finished(self, event: SessionFinished) -> None:
        result, error = event.result, event.error
        attempt = self._open.get(("attempt", event.spawn))
        session = self._open.get(("session", event.spawn))
        if attempt is not None and result is not None:
            model = str(result.details.get("model") or "")
            if result.provider and result.origin in OWN_MODELS:
                attempt.attributes["gen_ai.provider.name"] = result.provider.partition(":")[0]
            if model and result.origin in OWN_MODELS:
                attempt.attributes["gen_ai.response.model"] = model
            if result.origin:
                attempt.attributes["prose.origin"] = result.origin
            attempt.attributes["prose.replayed"] = result.replayed
            if result.usage is not None and not result.replayed:
                attempt.attributes |= _usage(result.usage)
            answer = result.text if result.text is not None else result.summary
            self._say(attempt, "gen_ai.output.messages", _message("assistant", answer))
        status: Status = "ok" if error is None else "error"
        self._close(("attempt", event.spawn), status, error)
        if session is not None and (result is not None or event.final):
            session.attributes["prose.attempts"] = self._attempts.pop(event.spawn, 1)
            self._close(("session", event.spawn), status, error)

    def _judge_asked(self, event: JudgeAsked) -> None:
        span = self._opened(("judgement", event.at), "judgement", "judgement", event.place)
        span.attributes["prose.at"] = event.at
        self._say(span, "prose.question", event.question)
        self._started(span)

    def _judged(self, event: Judged) -> None:
        key = ("judgement", event.at)
        span = self._open.get(key)
        if span is None:
            self._judge_asked(JudgeAsked(event.place, event.question, event.at))
            span = self._open[key]
        span.attributes["prose.judge"] = event.by
        details = event.details
        if provider := details.get("provider"):
            span.attributes["gen_ai.provider.name"] = str(provider)
        if model := details.get("model"):
            span.attributes["gen_ai.response.model"] = str(model)
        usage = details.get("usage")
        if isinstance(usage, Mapping) and not details.get("replayed"):
            names = Usage.__struct_fields__
            span.attributes |= _usage(Usage(**{name: usage[name] for name in names if name in usage}))
        self._say(span, "prose.answer", event.answer if event.answer is not None else "uncertain")
        self._say(span, "prose.reason", event.reason)
        self._close(key, "ok")

    def _gate_opened(self, event: GateOpened) -> None:
        request = event.request
        span = self._opened(("gate", request.id), "gate", f"gate {request.name}", event.place)
        span.attributes["prose.gate"] = request.name
        self._started(span)

    def _gate_resolved(self, event: GateResolved) -> None:
        key = ("gate", event.request.id)
        if (span := self._open.get(key)) is not None:
            span.attributes["prose.outcome"] = event.decision.status
            self._close(key, "ok")

    def _branch_finished(self, event: BranchFinished) -> None:
        if event.status != "cancelled":
            return
        steps, depth = event.place.branches, len(event.place.branches)
        for key, span in reversed(list(self._open.items())):
            if span.branches[:depth] == steps:
                self._close(key, "cancelled")

    _handlers: ClassVar[Mapping[type[Event], Callable[[Any, Any], None]]] = {
        RunStarted: _run_started,
        RunEnded: _run_ended,
        CellStarted: _cell_started,
        StatementDone: _done,
        Bound: _bound,
        ProgramCalled: _program_called,
        CommandStarted: _command_started,
        CommandFinished: _command_finished,
        SessionStarted: _session_started,
        SessionProgressed: _session_progressed,
        SessionFinished: _session_finished,
        JudgeAsked: _judge_asked,
        Judged: _judged,
        GateOpened: _gate_opened,
        GateResolved: _gate_resolved,
        BranchFinished: _branch_finished,
    }
    kinds: ClassVar = frozenset(_handlers)


def _usage(usage: Usage) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {"prose.requests": usage.requests}
    if usage.counted:
        found |= {"gen_ai.usage.input_tokens": usage.tokens_in, "gen_ai.usage.output_tokens": usage.tokens_out}
    if usage.cost is not None:
        found["prose.cost.usd"] = usage.cost
    return found


class _Whole(str):
    """JSON, which is cut inside."""

    __slots__ = ()


def _parts(text: str) -> _Whole:
    return _Whole(json.dumps([{"type": "text", "content": text[:LONGEST]}], ensure_ascii=False))


def _message(role: str, text: str) -> _Whole:
    parts = [{"type": "text", "content": text[:LONGEST]}]
    return _Whole(json.dumps([{"role": role, "parts": parts}], ensure_ascii=False))
