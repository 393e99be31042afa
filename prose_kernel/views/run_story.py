"""Build the entries of a run's report: a tree of the activities of the run.

An entry is one effect of a statement: a command, a session with its attempts, a judgement, a bound value. Entries of
loops, blocks, parallel constructs and imported programs contain other entries. To keep the page small, repetitions in a
loop are only counted after `OFTEN` entries, and at most `ASKED` requests get an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from msgspec import Struct, field

from prose_kernel.errors import ResumeMismatch, RunError
from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace
from prose_kernel.runs.languages import Language
from prose_kernel.runs.replay import RequestTimes
from prose_kernel.runtime import events as ev
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.activities import Activities, Activity, Changes, Kind, key_of
from prose_kernel.runtime.journal_records import Completed
from prose_kernel.runtime.ports import CommandRequest, CommandResult, Key, SessionRequest, SessionResult, ShownFile
from prose_kernel.runtime.values import Value, full_text
from prose_kernel.views.cards import branch_state
from prose_kernel.views.document import counted
from prose_kernel.views.run_record import RunRecord

ASKED: Final = 20_000
OFTEN: Final = 200
DEEPEST: Final = 24
"""The deepest nesting of entries; deeper entries are listed on the same level."""
IDLE: Final = 30_000
"""Milliseconds without an open request; longer gaps are removed from the times, because the run was resumed then."""


class StoryEntry(Struct, eq=False):
    """An entry. `words` is its text, `state` its outcome ("": not shown). `asked` and `answered` depend on the kind: a
    request and its result, a value, an error. `more` counts repetitions without an entry."""

    kind: str
    words: str
    source: Source
    span: Span
    state: str = ""
    bound: str | None = None
    asked: Any = None
    answered: Any = None
    value: Value = None
    attempts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    took: float | None = None
    inner: list[StoryEntry] = field(default_factory=list)
    more: int = 0
    number: int = 0
    file: ShownFile | None = None
    """The file that a command shows."""


class Story(Struct):
    """The entries of one text of the run; `status` is None until the text has ended."""

    source: Source
    language: Language
    entries: list[StoryEntry]
    status: str | None = None
    error: RunError | None = None


class _StoryActivity(Activity, eq=False):
    """An activity with its entry. `entries` is the list for its inner entries, `level` their depth in their branch. In
    a loop, inner entries belong to the open pass (`turn`), and `turns` is the list of passes."""

    entry: StoryEntry | None = None
    entries: list[StoryEntry] = field(default_factory=list)
    level: int = 1
    turn: StoryEntry | None = None
    turns: list[StoryEntry] = field(default_factory=list)

    def end_turn(self) -> None:
        """Close the open pass of a loop; a pass without entries is not shown."""
        if self.turn is not None and self.turn.inner:
            self.turns.append(self.turn)
        self.turn = None


class RunStory:
    """Listens to a run. Call `begin` before and `end` after each text. `redact` removes secrets from shown text.
    `waiting` are results that the program had not received at the end of its journal."""

    def __init__(
        self, times: Mapping[str, RequestTimes], redact: Callable[[str], str], waiting: Mapping[str, Completed]
    ) -> None:
        self.texts: list[Story] = []
        self.counts: dict[str, int] = {}
        self.decisions: list[StoryEntry] = []
        self.record = RunRecord(lambda: self._now, redact)
        """The data of timeline and graph, with the times of the journal."""
        self._times = times
        self._cuts = _idle(times)
        self._now = self._latest = 0.0
        self._results = waiting
        self._began: dict[object, ev.CommandStarted | ev.SessionStarted] = {}
        self._open: dict[object, StoryEntry] = {}
        self._activities = Activities(_StoryActivity, lambda: self._now)
        self._changes: Changes[_StoryActivity] = Changes([], [])
        """The activities that the current event has opened and closed."""
        self._branches: dict[tuple[ev.BranchStep, ...], StoryEntry] = {}
        """The entries of branches, kept because a loser of a race has events after its end."""
        self._filled: dict[str, StoryEntry] = {}
        self._often: dict[tuple[int, Span, str], tuple[int, StoryEntry]] = {}
        self._commands: dict[int, StoryEntry] = {}
        self._waiting: list[StoryEntry] = []
        self.shown = 0
        """The number of entries."""
        self._requests = 0

    @property
    def timed(self) -> bool:
        """Whether the journal has times; journals of earlier versions do not."""
        return any(took.asked for took in self._times.values())

    def waiting(self, source: Source) -> list[Span]:
        """Return the statements of a text that were running at the end of the journal."""
        return [entry.span for entry in self._waiting if entry.source is source]

    # ------------------------------------------------------------ texts

    def begin(self, source: Source, language: Language, t: int) -> None:
        self.texts.append(Story(source, language, []))
        self._latest = max(self._latest, self._seconds(t))
        self._now = self._latest
        self.record.begin(source, language)

    def end(self, status: str | None, error: RunError | None, t: int) -> None:
        """End the text. If it hasn't ended (`status` None), its open entries are still running."""
        story = self.texts[-1]
        story.status, story.error = status, error
        for spawn in [spawn for spawn in self._open if self._results and spawn in self._began]:
            self._waits(self._began[spawn])
        self._now = max(self._latest, self._seconds(t))
        for closed in self._activities.end():
            closed.end_turn()
        if status is not None:
            for entry in self._open.values():
                entry.state = "cancelled"
        self._waiting = list(self._open.values()) if status is None else []
        self._open = {}
        self.record.end(unfinished=status is None)

    def _waits(self, began: ev.CommandStarted | ev.SessionStarted) -> None:
        """Show the result of a request whose branch waited for its turn at the end of the journal."""
        completed, place, spawn = self._results.get(_attempt(began.request)), began.place, began.spawn
        if completed is None:
            return
        entry = self._open[spawn]
        event: ev.Event | None = None
        if isinstance(began, ev.CommandStarted):
            if (done := codec.readable(completed.value, CommandResult)) is not None:
                event = ev.CommandFinished(place, spawn, began.request, began.command, None, done, "throw", raised=True)
        elif (answer := codec.readable(completed.value, SessionResult)) is not None:
            event = ev.SessionFinished(place, spawn, began.request, None, Key(""), answer, answer.text)
        if event is not None:
            self(event)
            entry.notes.append("its branch had not continued yet")

    # ------------------------------------------------------------ times

    def _seconds(self, t: int) -> float:
        """Return a time of the journal in seconds, without long idle gaps."""
        return (t - sum(length for end, length in self._cuts if end <= t)) / 1000

    def _clock(self, key: str, *, begins: bool) -> float | None:
        """Set the record's clock for a request that is made (`begins`) or answered; return its duration."""
        took = self._times.get(key)
        if took is None or not took.asked:
            self._now = self._latest
            return None
        asked, answered = self._seconds(took.asked), self._seconds(took.answered or took.asked)
        self._latest = max(self._latest, asked if begins else answered)
        self._now = asked if begins else answered
        return max(answered - asked, 0.0) if took.answered else None

    # ------------------------------------------------------------ the tree

    def __call__(self, event: ev.Event) -> None:
        no_changes: Changes[_StoryActivity] = Changes([], [])
        self._changes = self._activities.take(event) if type(event) is not ev.Failed else no_changes
        closed = list(self._changes.closed)
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(self, event)
        for activity in closed:
            activity.end_turn()
        if type(event) in RunRecord.kinds:
            self.record(event)

    def _opened(self) -> _StoryActivity | None:
        opened = self._changes.opened
        return opened[-1] if opened and opened[-1].kind != "branch" else None

    def _closed(self, kind: Kind) -> _StoryActivity | None:
        closed = self._changes.closed
        return closed[-1] if closed and closed[-1].kind == kind else None

    def _within(self, enclosing: _StoryActivity | None, place: ev.Place) -> list[StoryEntry]:
        """Return the list of the entries in an activity. The first one in a branch adds the entry of the branch."""
        if enclosing is None:
            return self.texts[-1].entries
        if enclosing.kind == "branch" and enclosing.entry is None:
            if enclosing.branches not in self._branches:
                fork, step = enclosing.parent, enclosing.branches[-1]
                iterates = fork is not None and fork.entry is not None and bool(fork.entry.number and fork.entry.asked)
                words = f"item {step.index + 1:,}" if iterates else step.label
                entry = self._branches[enclosing.branches] = self._entry("branch", words, place)
                entry.answered = step.index
                self._within(fork, place).append(entry)
            enclosing.entry = self._branches[enclosing.branches]
            enclosing.entries = enclosing.entry.inner
        return enclosing.entries

    def _around(self, place: ev.Place) -> list[StoryEntry]:
        return self._within(self._activities.innermost_at(place), place)

    def _entry(self, kind: str, words: str, place: ev.Place) -> StoryEntry:
        self.shown += 1
        return StoryEntry(kind, words, place.source, place.span, number=self.shown)

    def _add(self, kind: str, words: str, place: ev.Place, *, request: bool = False) -> StoryEntry:
        """Add an entry at the place of the event, for the activity that it has opened, if any. Frequent entries are
        counted in the last one of their kind and have no number: their parts belong to the enclosing entry."""
        opened = self._opened()
        enclosing = opened.parent if opened is not None else self._activities.innermost_at(place)
        entries, level = self._within(enclosing, place), enclosing.level if enclosing is not None else 1
        self.counts[kind] = self.counts.get(kind, 0) + 1
        key = id(place.source), place.span, kind
        times, last = self._often.get(key, (0, None))
        self._requests += request
        if last is not None and (times >= OFTEN if not request else self._requests > ASKED):
            last.more += 1
            entry = StoryEntry(kind, words, place.source, place.span)
        else:
            entry = self._entry(kind, words, place)
            self._often[key] = times + 1, entry
            entries.append(entry)
        if opened is not None:
            opened.entry, opened.entries = entry, entries
            if entry.number and (level < DEEPEST or opened.kind in ("parallel", "program")):
                opened.entries = entry.inner
            # A program has its own count. A parallel adds no level, its branches do. A loop adds two, with its passes.
            opened.level = 1 if opened.kind == "program" else level if opened.kind == "parallel" else level + 1
        return entry

    # ------------------------------------------------------------ requests

    def on_command_started(self, event: ev.CommandStarted) -> None:
        self._clock(event.request.at, begins=True)
        entry = self._add("command", event.request.command, event.place, request=True)
        entry.state, entry.bound, entry.asked = "running", event.bound_to, event.request
        self._open[event.spawn], self._began[event.spawn] = entry, event

    def on_command_finished(self, event: ev.CommandFinished) -> None:
        took = self._clock(_attempt(event.request), begins=False)
        entry = self._open.pop(event.spawn, None)
        if entry is None:
            return
        result = entry.answered = event.result
        self._commands[event.spawn] = entry
        took = took if took is not None else result.duration or None
        entry.took = entry.took + (took or 0.0) if entry.took is not None else took
        entry.state = "done" if result.kind is None else "failed"
        self._has_failed(entry)
        if entry.state == "failed" and not event.raised:
            entry.notes.append(f"the program continues (on-fail: {event.on_fail})")
        if event.directory_changed:
            entry.notes.append(f"the directory is {event.directory_changed} from here on")
        if event.bound_to:
            self._filled[event.bound_to] = entry

    def on_retried(self, event: ev.Retried) -> None:
        entry = self._open.get(event.spawn)
        if entry is not None and entry.kind == "command":
            request = replace(entry.asked, attempt=event.attempt - 1)
            entry.attempts.append(event.why)
            entry.took = (entry.took or 0.0) + (self._clock(_attempt(request), begins=False) or 0.0)
        self._now = self._latest

    def on_file_shown(self, event: ev.FileShown) -> None:
        if (entry := self._commands.get(event.spawn)) is not None:
            entry.file = event.file

    def on_session_started(self, event: ev.SessionStarted) -> None:
        request = event.request
        self._clock(_attempt(request), begins=True)
        if event.spawn in self._open:
            return
        entry = self._add("session", request.task, event.place, request=True)
        entry.state, entry.bound, entry.asked = "running", event.bound_to, request
        self._open[event.spawn], self._began[event.spawn] = entry, event

    def on_session_finished(self, event: ev.SessionFinished) -> None:
        request = event.request
        took = self._clock(_attempt(request), begins=False)
        entry = self._open.get(event.spawn)
        if entry is None:
            return
        if took is not None:
            entry.took = (entry.took or 0.0) + took
        if event.error is not None:
            entry.attempts.append(event.error.message)
        if event.result is None and not event.final:
            return
        del self._open[event.spawn]
        entry.answered, entry.value = event.result, event.value
        entry.state = "done" if event.result is not None else "failed"
        self._has_failed(entry)
        if event.bound_to:
            self._filled[event.bound_to] = entry

    def on_gate_opened(self, event: ev.GateOpened) -> None:
        request = event.request
        self._clock(f"{request.at}#{request.attempt - 1}" if request.attempt > 1 else request.at, begins=True)
        entry = self._add("gate", request.prompt or request.name, event.place, request=True)
        entry.state, entry.asked = "running", request
        self._open[key_of(event)] = entry
        self.decisions.append(entry)

    def on_gate_resolved(self, event: ev.GateResolved) -> None:
        request = event.request
        took = self._clock(f"{request.at}#{request.attempt - 1}" if request.attempt > 1 else request.at, begins=False)
        entry = self._open.pop(key_of(event), None)
        if entry is not None:
            entry.answered, entry.took = event.decision, took
            entry.state = "done" if event.decision.status == "approved" else "failed"
            self._has_failed(entry)

    def on_judge_asked(self, event: ev.JudgeAsked) -> None:
        self._clock(event.at, begins=True)

    def on_judged(self, event: ev.Judged) -> None:
        took = self._times.get(event.at)
        self._clock(event.at, begins=False)
        entry = self._add("judgement", event.question, event.place)
        entry.answered, entry.value = event, event.answer
        if took is not None and took.asked:
            entry.took = max(took.answered - took.asked, 0) / 1000
        if entry.number:
            self.decisions.append(entry)

    def _has_failed(self, entry: StoryEntry) -> None:
        if entry.state == "failed":
            self.counts["failed"] = self.counts.get("failed", 0) + 1

    # ------------------------------------------------------------ values

    def on_bound(self, event: ev.Bound) -> None:
        filled = self._filled.pop(event.name, None)
        if filled is not None:
            filled.bound = event.name
            return
        kind = event.kind if event.kind in ("input", "output") else "value"
        entry = self._add(kind, event.name, event.place)
        entry.value = event.value

    def on_statement_done(self, event: ev.StatementDone) -> None:
        if event.value is None:
            return
        entries = self._around(event.place)
        last = entries[-1] if entries else None
        if last is None or last.source is not event.place.source or last.span.end <= event.place.span.start:
            self._add("value", "", event.place).value = event.value

    def on_arm_chosen(self, event: ev.ArmChosen) -> None:
        self._add("choice", f"takes branch {event.arm}" if event.arm else "takes no branch", event.place)

    def on_option_chosen(self, event: ev.OptionChosen) -> None:
        self._add("choice", f"takes {event.label}", event.place)

    def on_constrained(self, event: ev.Constrained) -> None:
        words = f"{event.name}: {len(event.violations)} of {event.requirements} requirements violated"
        entry = self._add("constraint", words, event.place)
        entry.state = "failed" if event.violations else "done"
        entry.notes += [*event.violations, *(f"{name}: {full_text(value)}" for name, value in event.bounds.items())]

    def on_caught(self, event: ev.Caught) -> None:
        name = f"{event.name}: " if event.name else ""
        self._add("catch", f"{name}{event.error.message}", event.place)

    def on_finally_entered(self, event: ev.FinallyEntered) -> None:
        self._add("finally", "", event.place)

    def on_pipe_progressed(self, event: ev.PipeProgressed) -> None:
        if event.index == 1:
            self._add("choice", f"{event.operation} over {counted(event.total, 'item')}", event.place)

    def on_failed(self, event: ev.Failed) -> None:
        if isinstance(event.error, ResumeMismatch):
            return  # the run has not failed: it cannot be replayed further
        entries = self._around(event.place)
        last = entries[-1] if entries else None
        if last is not None and last.state == "failed" and last.kind != "error":
            if last.kind != "command" and event.error.message not in (*last.attempts, *last.notes):
                last.notes.append(event.error.message)
            return
        entry = self._add("error", event.error.message, event.place)
        entry.state, entry.answered = "failed", event.error
        self._has_failed(entry)

    def on_warned(self, event: ev.Warned) -> None:
        self._add("warning", f"{event.message} [{event.code}]", event.place)

    # ------------------------------------------------------------ entries that contain others

    def on_parallel_started(self, event: ev.ParallelStarted) -> None:
        count = event.count if event.iterations else len(event.labels)
        strategy = "" if event.strategy == "all" else f", waits for {event.strategy}"
        noun = "iterations" if event.iterations else "branches"
        entry = self._add("parallel", f"{count:,} {noun}{strategy}", event.place)
        entry.asked = event if event.iterations else None

    def on_parallel_joined(self, event: ev.ParallelJoined) -> None:
        activity = self._closed("parallel")
        if activity is not None and activity.entry is not None:
            activity.entry.inner.sort(key=lambda branch: branch.answered if branch.kind == "branch" else -1)

    def on_branch_finished(self, event: ev.BranchFinished) -> None:
        asked = [getattr(entry.asked, "at", "") for entry in self._open.values()] if event.status == "cancelled" else []
        for at in asked:  # work that ends with the branch has no separate event
            if at.startswith(f"{event.place.at}/") and (took := self._times.get(at)) is not None and took.answered:
                self._latest = max(self._latest, self._seconds(took.answered))
        self._now = self._latest
        activity = self._closed("branch")
        entry = activity.entry if activity is not None else None
        if entry is not None:
            entry.state = branch_state(event, self.texts[-1].language)
        if event.status == "cancelled":
            for inner in (one.entry for one in self._changes.closed):
                if inner is not None and inner.state == "running":
                    inner.state = "cancelled"
        elif event.error is not None and entry is not None:
            entry.notes.append(event.error.message)

    def on_loop_pass(self, event: ev.LoopPass) -> None:
        place, loop = event.place, self._opened()
        if loop is not None:
            self._add("loop", "", place)
            loop.turns, loop.level = loop.entries, loop.level + 1
        else:
            loop = self._activities.innermost_at(place)
        if loop is None or loop.kind != "loop" or loop.entry is None:
            return  # an iteration of a parallel loop
        loop.end_turn()
        loop.entry.answered = event.index + 1
        loop.turn = StoryEntry("pass", f"pass {event.index + 1:,}", place.source, place.span)
        loop.entries = loop.turn.inner if loop.entry.number and loop.level <= DEEPEST else loop.turns

    def on_loop_left(self, event: ev.LoopLeft) -> None:
        activity = self._closed("loop")
        if activity is None or activity.entry is None:
            return
        last, loop = activity.turn, activity.entry
        if last is not None and event.reason.startswith("*"):
            last.words = "condition"
        passes = event.index + 1 if event.reason in ("end", "raised", "break") else event.index
        if event.reason == "end":
            passes = loop.answered or 0
        loop.answered = passes
        loop.words = counted(passes, "pass")
        if event.reason not in ("end", "raised"):
            loop.words += f", left: {event.reason}"
        loop.state = "failed" if event.reason == "raised" else ""

    def on_block_entered(self, event: ev.BlockEntered) -> None:
        self._add("call", event.block, event.place).asked = event.arguments

    def on_program_called(self, event: ev.ProgramCalled) -> None:
        entry = self._add("program", event.alias, event.place)
        entry.state = "running"
        entry.notes.append(event.path)
        self._open[key_of(event)] = entry

    def on_program_returned(self, event: ev.ProgramReturned) -> None:
        entry = self._open.pop(key_of(event), None)
        if entry is not None:
            entry.state = "done" if event.error is None else "failed"

    _handlers: ClassVar = ev.handlers(vars())


def _attempt(request: CommandRequest | SessionRequest) -> str:
    """Return the key of a request in the journal."""
    return f"{request.at}#{request.attempt}" if request.attempt else request.at


def _idle(times: Mapping[str, RequestTimes]) -> list[tuple[int, int]]:
    """Return the long gaps without an open request: the end and the length of each, in milliseconds."""
    spans = sorted((took.asked, max(took.answered, took.asked)) for took in times.values() if took.asked)
    found, until = [], 0
    for asked, answered in spans:
        if until and asked - until > IDLE:
            found.append((asked, asked - until))
        until = max(until, answered)
    return found
