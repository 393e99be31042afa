"""Makes the spans of a run's outline: the run, its cells, and their top-level statements.

A statement has no event for its begin, to keep loops fast: it begins when the statement before it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final

from prose_kernel.access import atomic, plain_files
from prose_kernel.errors import RunError
from prose_kernel.runtime import events as ev
from prose_kernel.telemetry.spans import (
    LONGEST,
    Attribute,
    JsonText,
    Kind,
    Note,
    Span,
    SpanDestination,
    Status,
    trace_and_span,
)

TRACE: Final = "traceparent"
"""The file in a run's directory with the id of its last run span, to which a resumed run links its span."""


class Outline:
    """Keeps the spans of the run, its cells and statements. Run each text inside `text`, and `close` it at the end.

    `remote` is the parent span of this process, as a `traceparent`, or "". `run` is the directory of the run, or None.
    `content`: put content into attributes.
    """

    def __init__(
        self,
        recorders: Sequence[SpanDestination],
        *,
        remote: str = "",
        content: bool = False,
        run: Path | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._remote = remote
        self._recorders = tuple(recorders)
        self._content = content
        self._directory = run
        self._traceparent_written = False
        self._clock = clock
        self._run: Span | None = None
        self._cell: Span | None = None
        self._statement: Span | None = None
        self._ordinal = 0
        self._boundary = 0  # when the last statement ended, and so the next one began
        self._last_event = 0  # the time of the running statement's last event
        self._open: dict[object, Span] = {}
        self._attempts: dict[int, int] = {}
        self._asked: dict[str, Span] = {}

    @contextlib.contextmanager
    def text(self) -> Iterator[None]:
        """Return a context for one text; its cell ends with it."""
        try:
            yield
        except BaseException as problem:
            status: Status = "cancelled" if isinstance(problem, asyncio.CancelledError) else "error"
            self._end_cell(status, problem if isinstance(problem, RunError) else None)
            raise
        self._end_cell("ok")

    def close(self) -> None:
        """End the remaining spans, and close the recorders. Takes a bounded time; called in a thread."""
        self._end_run("ok", None)
        for recorder in self._recorders:
            recorder.close()

    # ------------------------------------------------------------ spans

    def _begin(self, kind: Kind, name: str, parent: Span | None, begin: int = 0) -> Span:
        return Span(kind, name, begin or self._clock(), parent)

    def _report_begin(self, span: Span) -> Span:
        for recorder in self._recorders:
            if not recorder.assigns_ids:
                self._set_ids(span)
            recorder.begun(span)
        self._set_ids(span)
        return span

    def _set_ids(self, span: Span) -> None:
        """Set a span's ids, unless a tracer has set them."""
        if span.span_id:
            return
        if span.parent is not None:
            span.trace_id = span.parent.trace_id
        elif (remote := trace_and_span(self._remote)) is not None:
            span.trace_id, span.remote = remote
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

    def _set_content(self, span: Span, key: str, text: object) -> None:
        if self._content and text:
            span.attributes[key] = text if isinstance(text, JsonText) else str(text)[:LONGEST]

    # ------------------------------------------------------------ run, cell, statement

    def on_run_started(self, event: ev.RunStarted) -> None:
        self._begin_run(event.program_file)

    def _begin_run(self, program: str) -> Span:
        span = self._begin("run", f"invoke_workflow {program}".strip(), None)
        span.attributes |= {"gen_ai.operation.name": "invoke_workflow"}
        if program:
            span.attributes["gen_ai.workflow.name"] = program
        if self._directory is not None:
            span.attributes["prose.run"] = self._directory.name
            span.link = self._read_traceparent(self._directory / TRACE)
        self._run = self._report_begin(span)
        return span

    def _write_traceparent(self) -> None:
        """Write the id of the run's span into the run's directory once that exists; don't create the directory."""
        if self._traceparent_written or self._run is None or self._directory is None or not self._directory.is_dir():
            return
        self._traceparent_written = True
        with contextlib.suppress(OSError):  # without the file, a resumed run has no link
            atomic.write_whole(self._directory / TRACE, f"{self._run.traceparent}\n")

    @staticmethod
    def _read_traceparent(file: Path) -> str:
        """Return the `traceparent` of this run's span in its former process, or ""."""
        try:
            found = plain_files.read_text(file, plain_files.SMALL).strip()
        except (OSError, UnicodeDecodeError):
            return ""
        return found if trace_and_span(found) is not None else ""

    def on_run_ended(self, event: ev.RunEnded) -> None:
        self._end_run("ok" if event.error is None else "error", event.error)

    def _end_run(self, status: Status, error: RunError | None) -> None:
        self._end_cell(status)
        run, self._run, self._ordinal = self._run, None, 0
        if run is not None:
            self._finish(run, status, error)

    def on_cell_started(self, event: ev.CellStarted) -> None:
        self._end_cell("ok")
        run = self._run or self._begin_run("")
        span = self._begin("cell", f"cell {event.place.source.number(event.index)}", run)
        span.attributes |= {"prose.cell": event.index, "code.file.path": event.place.source.name}
        self._cell = self._report_begin(span)
        self._boundary = span.begin
        self._ordinal = event.place.ordinal

    def _end_cell(self, status: Status, error: RunError | None = None) -> None:
        self._write_traceparent()
        for key in list(self._open):
            self._close(key, "cancelled")
        self._attempts.clear()
        self._end_statement(status, error, self._clock() if status != "ok" else 0)
        cell, self._cell = self._cell, None
        if cell is not None:
            self._finish(cell, status, error)

    def _statement_span(self, place: ev.Place) -> Span:
        """Return the span of the running statement of the root program. Root statements run one after the other, so
        each begins when the last one ends. Called programs have their own statement numbers."""
        if self._statement is None or (place.ordinal != self._ordinal and not place.program):
            self._end_statement("ok")
            self._ordinal = place.ordinal
            parent = self._cell or self._run or self._begin_run("")
            span = self._begin("statement", "statement", parent, self._boundary)
            span.attributes["prose.statement"] = place.ordinal
            self._statement = self._report_begin(span)
            self._set_place(self._statement, place)
        return self._statement

    def _set_place(self, span: Span, place: ev.Place) -> None:
        """Set the place of an event, and the kind of its statement."""
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

    def on_statement_done(self, event: ev.StatementDone) -> None:
        if not event.place.program and not event.place.depth:
            span = self._statement_span(event.place)
            span.attributes.pop("prose.name", None)  # a binding inside this statement has set it
            self._set_place(span, event.place)
            self._last_event = self._clock()
            self._end_statement("ok")

    def on_bound(self, event: ev.Bound) -> None:
        place = event.place
        span = self._statement_span(place)
        self._last_event = self._clock()
        if not (place.depth or place.branches or place.program) and not span.attributes.get("prose.name"):
            self._set_place(span, place)
            span.attributes["prose.name"] = event.name

    def on_program_called(self, event: ev.ProgramCalled) -> None:
        self._statement_span(event.place)

    def _end_statement(self, status: Status, error: RunError | None = None, end: int = 0) -> None:
        span, self._statement = self._statement, None
        if span is None:
            if error is not None and error.location is not None and self._cell is not None:
                self._cell.attributes["code.line.number"] = error.location.line
            return
        span.name = str(span.attributes.get("prose.kind", span.name))
        if error is not None and error.location is not None:
            span.attributes["prose.error.line"] = error.location.line
        self._boundary = end or self._last_event or self._clock()
        self._last_event = 0
        self._finish(span, status, error, self._boundary)

    # ------------------------------------------------------------ notes

    def on_failed(self, event: ev.Failed) -> None:
        """Note an error where it arises, because it may still be caught; then no span has it."""
        self._note(event.place, "exception", {"exception.type": event.error.code}, event.error.message)

    def on_warned(self, event: ev.Warned) -> None:
        self._note(event.place, "prose.warning", {"prose.code": event.code}, event.message)

    def _note(self, place: ev.Place, name: str, attributes: dict[str, Attribute], text: str) -> None:
        span = self._statement_span(place)
        if self._content:
            attributes["exception.message" if name == "exception" else "prose.message"] = text[:LONGEST]
        note = Note(name, self._clock(), attributes)
        for recorder in self._recorders:
            recorder.noted(span, note)

    # ------------------------------------------------------------ spans inside statements

    def _open_span(self, key: object, kind: Kind, name: str, place: ev.Place, parent: Span | None = None) -> Span:
        """Return a new span that is not reported to the recorders yet, so that the caller can add attributes."""
        span = self._begin(kind, name, parent or self._statement_span(place))
        self._set_place(span, place)
        self._open[key] = span
        self._write_traceparent()
        return span

    def _close(self, key: object, status: Status, error: RunError | None = None) -> None:
        span = self._open.pop(key, None)
        if span is not None:
            if span.kind == "attempt" and span.name != "attempt":
                span.attributes["gen_ai.operation.name"] = "chat"
            self._finish(span, status, error)
            self._last_event = span.end or 0
            self._write_traceparent()

    handlers: ClassVar = ev.handlers(vars())
