"""What the cells of a notebook did, for `%timeline`, `%profile` and the states of `%graph`: a listener that keeps
little of each event, and never more than `ACTIVITIES` and `CELLS`.

An activity is something that takes time: a command, a session with its attempts, a gate. Times are of a clock that only
grows; they differ from run to run, so they are shown where nothing is compared (`display.Display.person`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from prose_kernel.language.flow import Step
from prose_kernel.language.source import Source, Span
from prose_kernel.run.languages import Language
from prose_kernel.runtime.events import (
    BranchFinished,
    BranchStep,
    CommandFinished,
    CommandStarted,
    Event,
    GateOpened,
    GateResolved,
    Judged,
    Place,
    Retried,
    SessionFinished,
    SessionStarted,
)
from prose_kernel.views import cards
from prose_kernel.views.safety import clip

CELLS: Final = 200
"""Cells that are remembered: the last ones."""
ACTIVITIES: Final = 5_000
"""Activities that are remembered, over all cells; those of the oldest cells are forgotten first."""
REASON: Final = 300
"""Characters of the reason of a judgement."""
OWN: Final = 2_000
"""Activities of one cell that are remembered one by one; the rest is counted in its totals."""
LABEL: Final = 120

State = Literal["running", "done", "failed", "cancelled"]


@dataclass(slots=True)
class Figures:
    """What something consumed. `cost` is in US dollars; `unpriced` counts answers whose price is not known."""

    seconds: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    unpriced: int = 0

    def add(self, other: Figures) -> None:
        for name in Figures.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Activity:
    """`waits` are the pauses before retries: when, and how long; `by` is who answered or decided. `said` are the answer
    and the reason of a judgement."""

    kind: Literal["command", "session", "gate", "judgement"]
    label: str
    source: Source
    span: Span
    branches: tuple[BranchStep, ...]
    begin: float
    end: float | None = None
    state: State = "running"
    by: str = ""
    waits: tuple[tuple[float, float], ...] = ()
    replayed: bool = False
    figures: Figures = field(default_factory=Figures)
    said: tuple[str, str] = ("", "")


@dataclass(slots=True)
class Total:
    """All activities of one statement."""

    kind: str
    label: str
    source: Source
    span: Span
    times: int = 0
    failed: int = 0
    cancelled: int = 0
    by: dict[str, None] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)


@dataclass(slots=True)
class CellRecord:
    """What one cell did. `ended` is None while it runs. Activities in blocks of other cells are among its own."""

    source: Source
    language: Language
    began: float
    ended: float | None = None
    activities: list[Activity] = field(default_factory=list)
    left_out: int = 0
    totals: dict[tuple[int, Span], Total] = field(default_factory=dict)

    def flow(self) -> tuple[Step, ...]:
        """The steps of the program; what was known when it ran has no influence on them."""
        return self.language.flow(self.language.compile(self.source, cell=True).program, self.source)

    def total(self, of: Activity) -> Total:
        key = (id(of.source), of.span)
        found = self.totals.get(key)
        if found is None:
            found = self.totals[key] = Total(of.kind, of.label, of.source, of.span)
        return found


class RunRecord:
    """The listener of all cells. `begin` and `end` stand around each of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.cells: deque[CellRecord] = deque(maxlen=CELLS)
        self._open: dict[object, Activity] = {}
        self._kept = 0
        self._cell: CellRecord | None = None

    def steps_of(self, source: Source) -> tuple[Step, ...]:
        """The steps of a program that is remembered; of any other text none."""
        return next((cell.flow() for cell in self.cells if cell.source is source), ())

    def begin(self, source: Source, language: Language) -> None:
        self._cell = CellRecord(source, language, self._clock())
        if len(self.cells) == CELLS:
            self._kept -= len(self.cells[0].activities)
        self.cells.append(self._cell)

    def end(self) -> None:
        """The cell is over; what was under way was cancelled with it."""
        cell, self._cell = self._cell, None
        if cell is None:
            return
        cell.ended = self._clock()
        if self._open:
            for activity in self._open.values():
                self._close(cell, activity, "cancelled")
            self._open = {}

    @property
    def under_way(self) -> list[Activity]:
        """What has begun and not ended, in the order in which it began."""
        return list(self._open.values())

    def __call__(self, event: Event) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None and self._cell is not None:
            handler(self, self._cell, event)

    # ------------------------------------------------------------ activities

    def _start(self, cell: CellRecord, key: object, kind: Any, label: str, place: Place) -> None:
        activity = Activity(kind, label[:LABEL], place.source, place.span, place.branches, self._clock())
        self._open[key] = activity
        if len(cell.activities) >= OWN:
            cell.left_out += 1
            return
        cell.activities.append(activity)
        self._kept += 1
        if self._kept > ACTIVITIES:
            self._forget()

    def _forget(self) -> None:
        """Forget the activities of the oldest cell that has any; its totals stay."""
        for cell in self.cells:
            if cell.activities:
                cell.left_out += len(cell.activities)
                self._kept -= len(cell.activities)
                cell.activities = []
                return

    def _finish(self, cell: CellRecord, key: object, state: State, by: str = "") -> Activity | None:
        activity = self._open.pop(key, None)
        if activity is not None:
            activity.by = by
            self._close(cell, activity, state)
        return activity

    def _close(self, cell: CellRecord, activity: Activity, state: State) -> None:
        activity.end, activity.state = self._clock(), state
        activity.figures.seconds = activity.end - activity.begin
        total = cell.total(activity)
        total.times += 1
        total.failed += state == "failed"
        total.cancelled += state == "cancelled"
        total.figures.add(activity.figures)
        if activity.by:
            total.by[activity.by] = None

    # ------------------------------------------------------------ events

    def _command_started(self, cell: CellRecord, event: CommandStarted) -> None:
        self._start(cell, event.spawn, "command", event.command, event.place)

    def _command_finished(self, cell: CellRecord, event: CommandFinished) -> None:
        self._finish(cell, event.spawn, "done" if event.result.kind is None else "failed")

    def _session_started(self, cell: CellRecord, event: SessionStarted) -> None:
        if event.spawn not in self._open:  # else another attempt begins
            who, task = event.request.agent or event.request.label, event.request.task
            label = f"{who}: {task[: 8 * LABEL]}" if who else task
            self._start(cell, event.spawn, "session", label, event.place)

    def _session_finished(self, cell: CellRecord, event: SessionFinished) -> None:
        result, activity = event.result, self._open.get(event.spawn)
        if activity is None or (result is None and not event.final):
            return
        if result is None:
            self._finish(cell, event.spawn, "failed")
            return
        activity.replayed = result.replayed
        if (usage := result.usage) is not None and not result.replayed:
            figures = activity.figures
            figures.tokens_in, figures.tokens_out = usage.tokens_in, usage.tokens_out
            figures.cost, figures.unpriced = usage.cost or 0.0, int(usage.cost is None)
        self._finish(cell, event.spawn, "done", result.origin or result.provider)

    def _retried(self, cell: CellRecord, event: Retried) -> None:
        if (activity := self._open.get(event.spawn)) is not None:
            activity.waits = (*activity.waits[-19:], (self._clock(), event.delay))

    def _gate_opened(self, cell: CellRecord, event: GateOpened) -> None:
        self._start(cell, event.request.id, "gate", f"gate {event.request.name}", event.place)

    def _gate_resolved(self, cell: CellRecord, event: GateResolved) -> None:
        decision = event.decision
        state: State = "done" if decision.status == "approved" else "failed"
        by = f"{decision.status} by {decision.decided_by}" if decision.status != "timeout" else "timed out"
        self._finish(cell, event.request.id, state, by)

    def _judged(self, cell: CellRecord, event: Judged) -> None:
        key = object()
        self._start(cell, key, "judgement", event.question, event.place)
        activity = self._open[key]
        activity.said = (cards.verdict(event.answer), clip(event.reason, REASON))
        usage = event.details.get("usage")
        if isinstance(usage, Mapping) and not event.details.get("replayed"):
            figures = activity.figures
            figures.tokens_in, figures.tokens_out = int(usage.get("tokens_in", 0)), int(usage.get("tokens_out", 0))
            figures.cost = float(usage.get("cost") or 0.0)
            figures.unpriced = int(usage.get("cost") is None)
        self._finish(cell, key, "done", "rule" if event.by == "rules" else event.by)

    def _branch_finished(self, cell: CellRecord, event: BranchFinished) -> None:
        if event.status != "cancelled":
            return
        steps, depth = event.place.branches, len(event.place.branches)
        for key, activity in list(self._open.items()):
            if activity.branches[:depth] == steps:
                self._finish(cell, key, "cancelled")

    _handlers: ClassVar[Mapping[type[Event], Callable[[Any, CellRecord, Any], None]]] = {
        CommandStarted: _command_started,
        CommandFinished: _command_finished,
        SessionStarted: _session_started,
        SessionFinished: _session_finished,
        Retried: _retried,
        GateOpened: _gate_opened,
        GateResolved: _gate_resolved,
        Judged: _judged,
        BranchFinished: _branch_finished,
    }
    kinds: ClassVar = frozenset(_handlers)


# ---------------------------------------------------------------- what branches did, in source order


@dataclass(slots=True)
class Lane:
    """The activities of one line of control in order, and between them the constructs whose branches stand side by
    side."""

    steps: tuple[BranchStep, ...] = ()
    items: list[Activity | Lanes] = field(default_factory=list)


@dataclass(slots=True)
class Lanes:
    """The branches of one parallel construct, in source order."""

    branches: dict[int, Lane] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Lane]:
        return (self.branches[index] for index in sorted(self.branches))


def lanes(activities: list[Activity]) -> Lane:
    """The activities as they belong together, independent of which branch was faster."""
    root = Lane()
    forks: dict[tuple[tuple[BranchStep, ...], int], Lanes] = {}
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
