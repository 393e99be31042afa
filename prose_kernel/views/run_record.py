"""Record the activities of a notebook's cells, for `%timeline`, `%profile` and the states of `%graph`: a listener that
keeps a few facts of each event, and at most `ACTIVITIES` and `CELLS`.

Activities take time: a command, a session with its attempts, a gate. Times are monotonic; they vary from run to run, so
they are shown only where outputs are not compared (`display.Display.person`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import ClassVar, Final

from msgspec import Struct, field

from prose_kernel.language.flow import FlowStep
from prose_kernel.language.source import Source, Span
from prose_kernel.runs.languages import Language
from prose_kernel.runtime import events as ev
from prose_kernel.runtime.activities import Activities, Activity
from prose_kernel.runtime.ports import SessionResult, reported
from prose_kernel.views import cards
from prose_kernel.views.escaping import clip

CELLS: Final = 200
"""The most cells that are recorded; they are the last ones."""
ACTIVITIES: Final = 5_000
"""The most activities that are recorded, over all cells; the activities of the oldest cells are dropped first."""
REASON: Final = 300
"""The most characters of a judgement's reason."""
MAX_PER_CELL: Final = 2_000
"""The most activities of one cell that are recorded one by one; further ones are only counted in the totals."""
LABEL: Final = 120


class Figures(Struct):
    """Time and consumption. `cost` is in US dollars; `unpriced` counts answers with an unknown price."""

    seconds: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    unpriced: int = 0

    def add(self, other: Figures) -> None:
        self.seconds += other.seconds
        self.tokens_in += other.tokens_in
        self.tokens_out += other.tokens_out
        self.cost += other.cost
        self.unpriced += other.unpriced


class ActivityRecord(Activity, eq=False):
    """A recorded activity. `waits` are the pauses before retries (start and length), `by` is the origin of the answer
    or decision, `verdict` the answer and the reason of a judgement."""

    label: str = ""
    by: str = ""
    waits: tuple[tuple[float, float], ...] = ()
    replayed: bool = False
    figures: Figures = field(default_factory=Figures)
    verdict: tuple[str, str] = ("", "")


class Total(Struct):
    """All activities of one statement."""

    label: str
    source: Source
    span: Span
    times: int = 0
    failed: int = 0
    cancelled: int = 0
    by: dict[str, None] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)

    def add(self, activity: ActivityRecord) -> None:
        self.times += 1
        self.failed += activity.state == "failed"
        self.cancelled += activity.state == "cancelled"
        self.figures.add(activity.figures)
        if activity.by:
            self.by[activity.by] = None


class CellRecord(Struct):
    """The activities of one cell, including those in blocks of other cells. `ended` is None while it runs."""

    source: Source
    language: Language
    began: float
    ended: float | None = None
    activities: list[ActivityRecord] = field(default_factory=list)
    left_out: int = 0
    totals: dict[tuple[int, Span], Total] = field(default_factory=dict)

    def flow(self) -> tuple[FlowStep, ...]:
        """Return the steps of the program, independent of the state in which it ran."""
        return self.language.flow(self.language.compile(self.source, cell=True).program, self.source)

    def total(self, of: ActivityRecord) -> Total:
        source, span = of.place.source, of.place.span
        return self.totals.setdefault((id(source), span), Total(of.label, source, span))


class RunRecord:
    """Listens to all cells; call `begin` and `end` around each of them. `redact` removes secrets from labels."""

    kinds: ClassVar = frozenset(
        {
            *(ev.CommandStarted, ev.CommandFinished, ev.SessionStarted, ev.SessionFinished, ev.Retried),
            *(ev.GateOpened, ev.GateResolved, ev.JudgeAsked, ev.Judged, ev.Failed, ev.BranchFinished),
        }
    )

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, redact: Callable[[str], str] = lambda label: label
    ) -> None:
        self._clock = clock
        self._redact = redact
        self.cells: deque[CellRecord] = deque(maxlen=CELLS)
        self._open = Activities(ActivityRecord, clock)
        self._kept = 0
        self._cell: CellRecord | None = None

    def steps_of(self, source: Source) -> tuple[FlowStep, ...]:
        """Return the steps of a remembered program; none for any other text."""
        return next((cell.flow() for cell in self.cells if cell.source is source), ())

    def begin(self, source: Source, language: Language) -> None:
        self._cell = CellRecord(source, language, self._clock())
        if len(self.cells) == CELLS:
            self._kept -= len(self.cells[0].activities)
        self.cells.append(self._cell)

    def end(self, *, unfinished: bool = False) -> None:
        """End the cell: its open activities were cancelled, or (`unfinished`) are still running."""
        cell, self._cell = self._cell, None
        if cell is None:
            return
        cell.ended = self._clock()
        for activity in self._open.end():
            if activity.kind != "branch":
                self._closed(cell, activity, None)
                activity.state = "running" if unfinished else activity.state

    @property
    def open(self) -> list[ActivityRecord]:
        """The open activities in the order of their starts."""
        return [activity for activity in self._open.open.values() if activity.kind != "branch"]

    def __call__(self, event: ev.Event) -> None:
        cell = self._cell
        if cell is None:
            return
        changes = self._open.take(event)
        for activity in changes.opened:
            if activity.kind != "branch":
                self._opened(cell, activity, event)
        for activity in changes.closed:
            if activity.kind != "branch":
                self._closed(cell, activity, event)
        if isinstance(event, ev.Retried) and (session := self._open.of(event)) is not None:
            session.waits = (*session.waits[-19:], (self._clock(), event.delay))

    def _opened(self, cell: CellRecord, activity: ActivityRecord, event: ev.Event) -> None:
        activity.label = self._redact(_label(event))[:LABEL]
        if len(cell.activities) >= MAX_PER_CELL:
            cell.left_out += 1
            return
        cell.activities.append(activity)
        self._kept += 1
        if self._kept > ACTIVITIES:
            self._forget()

    def _forget(self) -> None:
        """Drop the activities of the oldest cell that has any; keep its totals."""
        for cell in self.cells:
            if cell.activities:
                cell.left_out += len(cell.activities)
                self._kept -= len(cell.activities)
                cell.activities = []
                return

    def _closed(self, cell: CellRecord, activity: ActivityRecord, event: ev.Event | None) -> None:
        match event:
            case ev.SessionFinished(result=SessionResult() as result):
                activity.by, activity.replayed = result.origin or result.provider, result.replayed
                activity.figures = consumed(event)
            case ev.GateResolved(decision=decision):
                by = f"{decision.status} by {decision.decided_by}"
                activity.by = by if decision.status != "timeout" else "timed out"
            case ev.Judged():
                activity.by = "rule" if event.by == "rules" else event.by
                activity.verdict = (cards.verdict(event.answer), clip(event.reason, REASON))
                activity.figures = consumed(event)
        assert activity.end is not None
        activity.figures.seconds = activity.end - activity.begin
        cell.total(activity).add(activity)


def _label(event: ev.Event) -> str:
    match event:
        case ev.CommandStarted():
            return event.command
        case ev.SessionStarted():
            agent, task = event.request.agent or event.request.label, event.request.task
            return f"{agent}: {task[: 8 * LABEL]}" if agent else task
        case ev.GateOpened():
            return f"gate {event.request.name}"
        case ev.JudgeAsked() | ev.Judged():
            return event.question
        case _:
            return ""


def consumed(event: ev.SessionFinished | ev.Judged) -> Figures:
    """Return the consumption of an answer: nothing if it is replayed."""
    if isinstance(event, ev.Judged):
        usage, replayed = reported(event.details.get("usage")), bool(event.details.get("replayed"))
    else:
        usage, replayed = (event.result.usage, event.result.replayed) if event.result is not None else (None, False)
    if usage is None or replayed:
        return Figures()
    return Figures(0.0, usage.tokens_in, usage.tokens_out, usage.cost or 0.0, int(usage.cost is None))


# ---------------------------------------------------------------- activities by branch


class Lane(Struct):
    """The activities of one flow of control in order, and between them its parallel constructs."""

    steps: tuple[ev.BranchStep, ...] = ()
    items: list[ActivityRecord | Lanes] = field(default_factory=list)


class Lanes(Struct):
    """The branches of one parallel construct, in source order."""

    branches: dict[int, Lane] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Lane]:
        return (self.branches[index] for index in sorted(self.branches))


def lanes(activities: list[ActivityRecord]) -> Lane:
    """Return the activities grouped by branch, independent of which branch was faster."""
    root = Lane()
    forks: dict[tuple[tuple[ev.BranchStep, ...], int], Lanes] = {}
    for activity in activities:
        lane = root
        for depth, step in enumerate(activity.branches):
            before = activity.branches[:depth]
            fork = forks.get((before, step.parallel))
            if fork is None:
                fork = forks[before, step.parallel] = Lanes()
                lane.items.append(fork)
            lane = fork.branches.setdefault(step.index, Lane(activity.branches[: depth + 1]))
        lane.items.append(activity)
    return root
