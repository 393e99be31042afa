"""Turns the events of a run into activities.

An activity is something that begins and ends: a command, a session with its attempts, a judgement, a gate. A `parallel`
and its branches, a loop, the call of a block or function and the run of an imported program contain other activities.
A listener that shows or counts these keeps an `Activities` and passes it each event:

    SessionStarted 1, SessionFinished 1 (failed, not final), SessionStarted 1    one session is open, 2 attempts
    BranchFinished (cancelled)                                                   it is closed, then its branch

Each listener has its own `Activities`, with its own subclass of `Activity`, and passes only the events that it needs:
without `LoopPass`, no loop is known. The rules hold for any sequence of events (`tests/runtime`):

- An activity is opened once and closed once, by its event or together with its parent (`cancelled`).
- It is opened while its parent is open, and closed before it.
- After any number of events, `open` holds the running activities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Literal, NamedTuple, Self, TypeVar

from msgspec import Struct, field

from prose_kernel.runtime import events as ev
from prose_kernel.runtime.events import BranchStep, Event, Place

Kind = Literal["command", "session", "judgement", "gate", "parallel", "branch", "loop", "block", "program"]
State = Literal["running", "done", "failed", "cancelled"]
Key = object
Branches = tuple[BranchStep, ...]


class Activity(Struct, eq=False):
    """`place` is the place of the event that opened the activity; `begin` and `end` are times of the listener's clock.
    `attempts` counts the attempts of a session or command, or the passes of a loop; `inner` has its open child
    activities."""

    kind: Kind
    key: Key
    place: Place
    begin: float
    parent: Self | None
    end: float | None = None
    state: State = "running"
    attempts: int = 1
    inner: dict[Key, Self] = field(default_factory=dict)

    @property
    def branches(self) -> Branches:
        return self.place.branches


A = TypeVar("A", bound=Activity)


class Changes(NamedTuple, Generic[A]):
    """The activities that an event has opened, outer ones first, and closed, inner ones first."""

    opened: list[A]
    closed: list[A]


class Activities(Generic[A]):
    """The open activities of a run, by key, in the order in which they were opened.

    `make` is the listener's class of activities, called with kind, key, place, begin and parent. `clock` is read
    whenever an activity opens or closes.
    """

    def __init__(self, make: Callable[[Kind, Key, Place, float, A | None], A], clock: Callable[[], float]) -> None:
        self._make = make
        self._clock = clock
        self.open: dict[Key, A] = {}
        self._innermost: dict[Branches, A] = {}
        """For each branch, its innermost open activity that can contain others. The main program may have none."""
        self._changes: Changes[A] = Changes([], [])
        self._loops = 0

    def take(self, event: Event) -> Changes[A]:
        """Process an event, and return the activities that it opens and closes."""
        changes = self._changes = Changes([], [])
        kind = type(event)
        if isinstance(event, ev.LoopPass | ev.LoopLeft):
            self._loop(event)
        elif kind is ev.Retried:
            if (found := self.of(event)) is not None and found.kind == "command":  # a session has an event of its own
                found.attempts += 1
        elif kind is ev.Failed:
            self._close_questions(event.place.branches)
        else:
            key, found = key_of(event), None
            if (opens := _OPENS.get(kind)) is not None:
                found = self._begin(opens, key, event)
            closes = _CLOSES.get(kind)
            state = closes(event) if closes is not None else None
            if state is not None and (found := found or self.open.get(key)) is not None:
                self._close(found, state)
        return changes

    def of(self, event: Event) -> A | None:
        """Return the open activity that an event belongs to, or None."""
        return self.open.get(key_of(event))

    def end(self, state: State = "cancelled") -> list[A]:
        """Close all activities at the end of the program text. Returns them, inner ones first."""
        changes = self._changes = Changes([], [])
        for one in reversed(list(self.open.values())):
            if one.end is None:
                self._close(one, state)
        return changes.closed

    def innermost_at(self, place: Place) -> A | None:
        """Return the innermost activity at a place, or None. The first event in a branch opens the branch.

        No event reports that an error has left a block: the next event at a lower depth of the same branch shows it.
        """
        branches = place.branches
        found = self._innermost.get(branches)
        while found is not None and found.kind == "block" and _has_left(found, place):
            self._close(found, "failed")
            found = self._innermost.get(branches)
        if found is None and branches:
            outer = self.open.get(("parallel", branches[:-1], branches[-1].parallel))
            found = self._opened("branch", ("branch", branches), place, outer or self._outer(branches))
        return found

    # ------------------------------------------------------------ opening and closing

    def _begin(self, kind: Kind, key: Key, event: Event) -> A:
        known = self.open.get(key)
        if known is not None:
            if kind == "session":
                known.attempts += 1
                return known
            if kind == "judgement" and isinstance(event, ev.Judged):
                return known
            self._close(known, "cancelled")
        return self._opened(kind, key, event.place, self.innermost_at(event.place))

    def _opened(self, kind: Kind, key: Key, place: Place, parent: A | None) -> A:
        one = self.open[key] = self._make(kind, key, place, self._clock(), parent)
        if parent is not None:
            parent.inner[key] = one
        if kind in _HAS_OTHERS_INSIDE:
            self._innermost[place.branches] = one
        self._changes.opened.append(one)
        return one

    def _close(self, activity: A, state: State) -> None:
        """Close an activity after all open activities inside it. Calls may be nested 100,000 deep: no recursion."""
        inside = [activity]
        for one in inside:
            inside.extend(one.inner.values())
        for one in reversed(inside):
            one.end, one.state = self._clock(), state if one is activity else "cancelled"
            del self.open[one.key]
            parent, branches = one.parent, one.place.branches
            if parent is not None:
                del parent.inner[one.key]
            if self._innermost.get(branches) is one:
                if parent is not None and parent.place.branches == branches:
                    self._innermost[branches] = parent
                else:
                    del self._innermost[branches]
            self._changes.closed.append(one)

    def _close_questions(self, branches: Branches) -> None:
        """Close the open questions of a branch after an error was raised there: they will not be answered."""
        for one in [one for one in self.open.values() if one.kind in _QUESTIONS and one.place.branches == branches]:
            self._close(one, "failed")

    def _outer(self, branches: Branches) -> A | None:
        """Return the innermost activity that contains a branch whose `parallel` is not known."""
        enclosing = (self._innermost.get(branches[:steps]) for steps in range(len(branches) - 1, -1, -1))
        return next((found for found in enclosing if found is not None), None)

    # ------------------------------------------------------------ loops

    def _loop(self, event: ev.LoopPass | ev.LoopLeft) -> None:
        place = event.place
        enclosing = self.innermost_at(place)
        loop = self._loop_at(place, enclosing)
        if isinstance(event, ev.LoopLeft):
            if loop is not None:
                self._close(loop, "failed" if event.reason == "raised" else "done")
        elif enclosing is not None and enclosing.kind == "branch" and _is_iteration(enclosing, place):
            return
        elif loop is None or event.index == 0:
            self._opened("loop", ("loop", self._loops), place, enclosing)
            self._loops += 1
        else:
            loop.attempts += 1
            for one in list(loop.inner.values()):
                self._close(one, "cancelled")

    def _loop_at(self, place: Place, enclosing: A | None) -> A | None:
        """Return the innermost open loop in the branch of `place` that runs the statement at `place`."""
        while enclosing is not None and enclosing.place.branches == place.branches:
            if enclosing.kind == "loop" and enclosing.place.span == place.span:
                return enclosing
            enclosing = enclosing.parent
        return None


def key_of(event: Event) -> Key:
    """Return the key that the events of one activity share; None for other events."""
    if (spawn := getattr(event, "spawn", None)) is not None:
        return spawn
    place = event.place
    match event:
        case ev.JudgeAsked() | ev.Judged():
            return "judgement", event.at
        case ev.GateOpened() | ev.GateResolved():
            return "gate", event.request.id
        case ev.ParallelStarted() | ev.ParallelJoined():
            return "parallel", place.branches, event.parallel
        case ev.BranchFinished():
            return "branch", place.branches
        case ev.BlockEntered() | ev.BlockLeft():
            return "block", place.program, place.branches, event.execution_id
        case ev.ProgramCalled() | ev.ProgramReturned():
            return "program", place.program, place.branches, place.execution_id, event.alias
        case _:
            return None


def _has_left(block: Activity, place: Place) -> bool:
    return place.program == block.place.program and place.depth <= block.place.depth


def _is_iteration(branch: Activity, place: Place) -> bool:
    """Return whether a pass is an iteration of a `parallel for`, for which a branch is open already."""
    return branch.parent is not None and branch.parent.kind == "parallel" and branch.parent.place.span == place.span


def _session_state(event: ev.SessionFinished) -> State | None:
    if event.result is not None:
        return "done"
    return "failed" if event.final else None


_QUESTIONS: Final = ("judgement", "gate")
_HAS_OTHERS_INSIDE: Final = frozenset({"branch", "loop", "block", "program"})
_OPENS: Final[Mapping[type[Event], Kind]] = {
    ev.CommandStarted: "command",
    ev.SessionStarted: "session",
    ev.JudgeAsked: "judgement",
    ev.Judged: "judgement",  # where the listener passes no `JudgeAsked`
    ev.GateOpened: "gate",
    ev.ParallelStarted: "parallel",
    ev.BlockEntered: "block",
    ev.ProgramCalled: "program",
}
_CLOSES: Final[Mapping[type[Event], Callable[[Any], State | None]]] = {
    ev.CommandFinished: lambda event: "done" if event.result.kind is None else "failed",
    ev.SessionFinished: _session_state,
    ev.Judged: lambda event: "done",
    ev.GateResolved: lambda event: "done" if event.decision.status == "approved" else "failed",
    ev.ParallelJoined: lambda event: "done",
    ev.BranchFinished: lambda event: event.status,
    ev.BlockLeft: lambda event: "done",
    ev.ProgramReturned: lambda event: "done" if event.error is None else "failed",
}
