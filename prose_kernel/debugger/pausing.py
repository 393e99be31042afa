"""Pause programs and continue them: the hook for breakpoints, steps, pauses and errors.

A paused branch keeps its turn (`runtime/statement_hook.py`), so the other branches do not run either, and the client
sees one thread. Work outside of the program continues: commands keep running, and time limits keep counting; answers
wait until the program continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal

from msgspec import Struct, field

from prose_kernel.debugger.breakpoints import Breakpoint, DebuggedText, Texts, evaluated_in, stops_in
from prose_kernel.errors import RunError
from prose_kernel.language.source import Source
from prose_kernel.runs import languages
from prose_kernel.runtime.events import BranchStep
from prose_kernel.runtime.execution_context import ExecutionContext, Node
from prose_kernel.runtime.statement_hook import StackFrame

THREAD: Final = 1
"""The one thread that a client sees."""

ALL_ERRORS: Final = "all errors"
UNCAUGHT: Final = "uncaught errors"

_MAX_MARKS: Final = 200_000
"""The most statements of a cell that a client can go back to."""

Send = Callable[[str, dict[str, Any]], None]
"""Sends an event of the protocol to the client."""

Reason = Literal["breakpoint", "step", "pause", "exception", "entry"]


class PausedProgram(Struct):
    """A paused program: its place, and the means to continue it. `error` is set if it pauses at an error."""

    context: ExecutionContext
    released: asyncio.Future[None]
    frames: tuple[StackFrame, ...]
    error: RunError | None = None


class RunningStep(Struct, frozen=True):
    """A running step: its depth and branch at the start, and its end."""

    kind: Literal["over", "in", "out"]
    level: int
    branches: tuple[BranchStep, ...]

    def ends_at(self, s: ExecutionContext) -> bool:
        """Return whether the step ends at this statement. Statements of other branches don't count."""
        here, there = s.branches, self.branches
        if here == there:
            return self.kind == "in" or s.level < self.level + (self.kind == "over")
        if len(here) < len(there):  # an enclosing statement: the branch, or all its siblings, have ended
            return here == there[: len(here)] and (self.kind == "in" or s.level <= self.level)
        return self.kind == "in" and here[: len(there)] == there


class _Source(Struct):
    """A running text, and its breakpoints by the offsets of statements. `source` is kept so its id stays unique."""

    source: Source
    text: DebuggedText
    points: dict[int, Breakpoint]


class RewindSignal(BaseException):
    """Ends a paused text that is to run again. Programs cannot catch it."""


class RunningText(Struct):
    """The running text: the `count` of statements it has reached; `marks` has for each statement the number of journal
    records before it, and its source and offset."""

    count: int = 0
    marks: list[tuple[int, Source, int]] = field(default_factory=list)


class Debugger:
    """Pauses programs. `send` sends events, `journal_position` counts journal records. All calls are in one loop."""

    def __init__(self, texts: Texts, send: Send, journal_position: Callable[[], int] = lambda: 0) -> None:
        self.texts = texts
        self._send = send
        self._journal_position = journal_position
        self.breakpoints: dict[str, list[Breakpoint]] = {}  # by the keys of texts
        self.error_filters: frozenset[str] = frozenset()
        self.paused: PausedProgram | None = None
        self.cell: RunningText | None = None
        self.pause_at: int | None = None  # the number of the statement at which to pause a cell that runs again
        self._points = False
        self._target: Breakpoint | None = None  # a place at which to pause one time
        self._step: RunningStep | None = None
        self._pausing = False
        self._interrupted = False  # the cell has been interrupted
        self._known: dict[int, _Source] = {}
        self._rewind_target: tuple[int, int] | None = None
        self._ids = 0

    # ------------------------------------------------------------ the hook

    def before(self, s: ExecutionContext, node: Node) -> Awaitable[None] | None:
        cell = self.cell
        if cell is not None:
            cell.count += 1
            if len(cell.marks) < _MAX_MARKS:
                cell.marks.append((self._journal_position(), s.source, node.span.start))
            if self.pause_at is not None:
                if cell.count < self.pause_at:
                    return None
                self.pause_at = None
                return self._pause(s, node, "step")
        journal = s.host.journal
        if self._interrupted or (journal is not None and journal.has_more):  # a resumed cell repeats its steps
            return None
        if self._pausing:
            return self._pause(s, node, "pause")
        point = self._point(s, node) if self._points else None
        if self._step is not None and self._step.ends_at(s):
            return self._pause(s, node, "step")
        if point is None:
            return None
        return self._pause(s, node, "breakpoint") if point.is_plain else self._pause_if_met(s, node, point)

    def failed(self, s: ExecutionContext, node: Node, error: RunError) -> Awaitable[None] | None:
        if self._interrupted or not self.error_filters:
            return None
        if ALL_ERRORS in self.error_filters or not s.guarded:
            return self._pause(s, node, "exception", error.message, error)
        return None

    def interrupted(self) -> None:
        self._interrupted = True
        self.resume()

    def _point(self, s: ExecutionContext, node: Node) -> Breakpoint | None:
        known = self._known.get(id(s.source))
        if known is None:
            known = self._register(s.source, s.language)
        return known.points.get(node.span.start) if known.points else None

    def _register(self, source: Source, language: str) -> _Source:
        """Register a text that runs for the first time, and find the lines of breakpoints that were set before it was
        known, or before a file was edited."""
        text = self.texts.of_source(source, language)
        known = self._known[id(source)] = _Source(source, text, {})
        for point in self._breakpoints_of(text):
            before = point.line
            point.place(text.line_for(point.wanted))
            if point.line != before:
                self._send("breakpoint", {"reason": "changed", "breakpoint": as_protocol(point)})
        self._place_breakpoints(known, language)
        return known

    def _place_breakpoints(self, known: _Source, language: str) -> None:
        path = known.text.path
        lines = {point.line: point for point in self._breakpoints_of(known.text) if point.line is not None}
        if self._target is not None and self._target.path == path and self._target.line is not None:
            lines[self._target.line] = self._target
        starts: dict[int, int] = {}  # of each line's first statement in this source; offsets may differ from the cell's
        for stop in stops_in(known.source, languages.LANGUAGES[language]) if lines else ():
            starts.setdefault(stop.line, stop.start)
        known.points = {start: lines[line] for line, start in starts.items() if line in lines}

    def _breakpoints_of(self, text: DebuggedText) -> Sequence[Breakpoint]:
        return self.breakpoints.get(self.texts.key(text.path), ())

    async def _pause_if_met(self, s: ExecutionContext, node: Node, point: Breakpoint) -> None:
        """Pause at a breakpoint with a condition, a hit count or a log message, if it is met."""
        frame = s.frames(node)[0]
        met, problem = await point.is_met(evaluated_in(frame))
        is_set = any(point is one for points in self.breakpoints.values() for one in points)
        if not met or self._interrupted or not is_set:
            return  # the client may have removed it meanwhile, or have left
        if point.log and not problem:
            language = languages.LANGUAGES[s.language]
            text = await point.logged(evaluated_in(frame), language.text_of)
            line = s.source.line_column(node.span.start)[0]
            body = {"category": "console", "output": text + "\n", "line": line}
            self._send("output", {**body, "source": {"path": point.path, "name": s.source.name}})
            return
        await self._pause(s, node, "breakpoint", problem)

    async def _pause(
        self, s: ExecutionContext, node: Node, reason: Reason, text: str = "", error: RunError | None = None
    ) -> None:
        self._step, self._pausing = None, False
        if self._target is not None:
            self._target = None
            self._changed()
        future = asyncio.get_running_loop().create_future()
        frames = s.frames(node)
        for frame in frames:
            if id(frame.source) not in self._known:
                self._register(frame.source, frame.context.language)
        self.paused = PausedProgram(s, future, frames, error)
        body: dict[str, Any] = {"reason": reason, "threadId": THREAD, "allThreadsStopped": True}
        self._send("stopped", {**body, "text": text, "description": text} if text else body)
        try:
            await future
        finally:
            self.paused = None
            self._send("continued", {"threadId": THREAD, "allThreadsContinued": True})

    # ------------------------------------------------------------ requests of the client

    def resume(self, kind: Literal["over", "in", "out"] | None = None) -> bool:
        """Continue a paused program to its next breakpoint or the end of a step. Return False if none is paused."""
        paused = self.paused
        if paused is None or paused.released.done():
            return False
        self._step = RunningStep(kind, paused.context.level, paused.context.branches) if kind is not None else None
        paused.released.set_result(None)
        return True

    def pause(self) -> None:
        """Pause the program at its next statement."""
        if self.paused is None:
            self._pausing = True

    def set_breakpoints(self, path: str, wanted: list[Breakpoint]) -> list[Breakpoint]:
        """Replace all breakpoints of a text. The breakpoints of an unknown text take effect when it runs."""
        text = self.texts.find(path)
        for point in wanted:
            self._ids += 1
            point.id = self._ids
            if text is not None:
                point.place(text.line_for(point.wanted))
        self.breakpoints.pop(self.texts.key(path), None)
        if wanted:
            self.breakpoints[self.texts.key(path)] = wanted
        self._changed()
        return wanted

    def _changed(self) -> None:
        self._points = bool(self.breakpoints) or self._target is not None
        self._known = {}  # running texts find their breakpoints again

    def run_to(self, path: str, line: int) -> int | None:
        """Pause the program on a line, once, if it does not pause before. Return the line of the statement, or None."""
        text = self.texts.find(path)
        found = text.line_for(line) if text is not None else None
        if text is not None and found is not None:
            self._target = Breakpoint(0, text.path, line, found)
            self._changed()
        return found

    def cell_starts(self, code: str) -> None:
        self.texts.cell_runs(code)
        self._interrupted, self._step = False, None

    def text_starts(self) -> None:
        self.cell = RunningText()

    def rewind(self, number: int) -> None:
        """End the paused text, to run it again and pause before the statement with that number."""
        paused, cell = self.paused, self.cell
        assert paused is not None and cell is not None
        self._rewind_target = number, cell.marks[number - 1][0]
        self.cell, self._interrupted, self._step = None, True, None  # ignore the statements that still run
        paused.released.set_exception(RewindSignal())

    def rewind_target(self) -> tuple[int, int] | None:
        back, self._rewind_target = self._rewind_target, None
        return back

    def text_restarts(self, number: int) -> None:
        self.pause_at, self._interrupted = number, False

    def cell_ends(self) -> None:
        """Note that the cell has ended. A step or a pause does not continue in the next cell."""
        self.cell, self.pause_at = None, None
        self._step, self._pausing, self._interrupted = None, False, False
        self._target = None
        self._changed()

    def last_before(self, path: str, line: int) -> int | None:
        """Return the number of the last statement on this line that ran before the current one, or None."""
        cell, text = self.cell, self.texts.find(path)
        if cell is None or text is None:
            return None
        for number in range(min(cell.count - 1, len(cell.marks)), 0, -1):
            _, source, start = cell.marks[number - 1]
            known = self._known.get(id(source))
            here = known.text.path if known is not None else self.texts.known_path(source)
            if here == text.path and source.line_column(start)[0] == line:
                return number
        return None

    def reset(self) -> None:
        """Remove everything that could pause the program, because the client has left."""
        self.breakpoints, self._target = {}, None
        self._changed()
        self.error_filters = frozenset()
        self._step, self._pausing = None, False
        self.resume()

    def text_of(self, frame: StackFrame) -> DebuggedText:
        known = self._known.get(id(frame.source)) or self._register(frame.source, frame.context.language)
        return known.text


def as_protocol(point: Breakpoint) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": point.id,
        "verified": point.line is not None,
        "line": point.line if point.line is not None else point.wanted,
        "source": {"path": point.path},
    }
    if point.problem:
        found["message"] = point.problem
    elif point.line is None:
        found["message"] = "this text has not run yet"
    return found
