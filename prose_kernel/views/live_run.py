"""Describe the running activities of a run as lines, for the live views of both front ends.

Nothing here runs in a hot loop: passes of loops are looked up when lines are made (`Host.loops`), and of an ended
branch only a count is kept. Estimates need enough finished branches or passes. Lines are volatile: they are shown while
the run is watched, and never stored.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from typing import ClassVar, Final

from msgspec import Struct, field

from prose_kernel.runs import languages
from prose_kernel.runtime import events as ev
from prose_kernel.runtime.activities import Activities, Activity, Branches
from prose_kernel.runtime.ports import SessionRequest
from prose_kernel.runtime.running_loops import OpenLoop
from prose_kernel.views.cards import branch_state, branch_text
from prose_kernel.views.escaping import clip
from prose_kernel.views.live_text import (
    RUNS,
    TITLE,
    BranchNames,
    LiveLine,
    consumed_text,
    elapsed,
    estimate,
    fork_line,
    head_line,
    nonempty,
    pass_text,
)
from prose_kernel.views.run_record import Figures, consumed
from prose_kernel.views.session_cards import as_shown

ROWS: Final = 12
"""The most rows for one parallel construct; further branches are counted."""
FAILURES: Final = 6
"""The most failed branches that are shown by name."""
_LINE: Final = 100
_TAIL: Final = 2_000


class _Fork(Struct):
    """The branches of a parallel construct. Its running branches are its `inner` activities."""

    event: ev.ParallelStarted
    names: BranchNames
    widest: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    failures: dict[int, str] = field(default_factory=dict)
    results: dict[int, ev.BranchFinished] = field(default_factory=dict)  # only if there are few branches

    @property
    def ended(self) -> int:
        return self.done + self.failed + self.cancelled


class Work(Activity, eq=False):
    """A running activity: a command, a session with its attempts, a question, a parallel construct."""

    title: str = ""
    provider: str = ""
    bound_to: str | None = None
    tail: str = ""
    doing: str = ""
    attempt: str = ""
    until: float | None = None  # the start of the next attempt
    bare: bool = False
    last_output: float = 0.0  # the time of the last output
    fork: _Fork | None = None

    def last_line(self) -> str:
        """Return the last line that isn't blank, as a terminal would show it."""
        for line in reversed(self.tail.split("\n")):
            shown = line.rstrip("\r").rpartition("\r")[2]
            if shown.strip():
                return clip(shown, _LINE)
        return ""


class LiveRun:
    """Listens to a run. `lines` describes its running activities; `since` is the start of the oldest one.

    `loops` returns the running loops, `asked` the provider of a session. `now` is a monotonic clock in seconds.
    `is_shown_elsewhere` returns whether the output of an activity is shown elsewhere, line by line, `has_own_view`
    whether it has a separate live view. `prints_results`: the values of ended branches are shown, if there are few.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        loops: Callable[[], Collection[OpenLoop]] = tuple,
        asked: Callable[[SessionRequest], str] | None = None,
        *,
        is_shown_elsewhere: Callable[[Work], bool] = lambda work: False,
        has_own_view: Callable[[Work], bool] = lambda work: False,
        prints_results: bool = True,
    ) -> None:
        self.now = now
        self.loops = loops
        self.provider_of = asked or (lambda request: request.model or "")
        self._is_shown_elsewhere = is_shown_elsewhere
        self._has_own_view = has_own_view
        self._prints_results = prints_results
        self.language = languages.default()
        self.consumed = Figures()
        self._activities = Activities(Work, now)
        self._waits: dict[object, Work] = {}
        """The waits for a store, which are not activities of the program."""
        self._passes: dict[int, tuple[OpenLoop, float, int]] = {}  # with the time and pass when first seen

    def __call__(self, event: ev.Event) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(self, event)

    # ------------------------------------------------------------ events

    def on_cell_started(self, event: ev.CellStarted) -> None:
        self._activities = Activities(Work, self.now)
        self._waits.clear()
        self._passes.clear()

    @property
    def _open(self) -> dict[object, Work]:
        return {**self._activities.open, **self._waits} if self._waits else self._activities.open

    def _began(self, event: ev.Event) -> Work | None:
        """Return the activity that an event opens; None for another attempt of an open activity."""
        opened = self._activities.take(event).opened
        for one in opened:
            _widen(one)
        return opened[-1] if opened else None

    def _take(self, event: ev.Event) -> None:
        self._activities.take(event)

    on_command_finished = on_gate_resolved = on_failed = on_parallel_joined = _take

    def on_command_started(self, event: ev.CommandStarted) -> None:
        if (work := self._began(event)) is not None:
            work.title, work.bound_to = f"$ {clip(event.command, TITLE)}", event.bound_to
            work.bare = event.bound_to is None and not event.consumed

    def on_command_output(self, event: ev.CommandOutput) -> None:
        if (work := self._open.get(event.spawn)) is not None:
            work.tail = (work.tail + event.text[-_TAIL:])[-_TAIL:]
            work.last_output = self.now()

    def no_longer_shown(self, spawn: int) -> None:
        """Note that the output of a command is no longer shown elsewhere."""
        if (work := self._open.get(spawn)) is not None:
            work.bare = False

    def on_session_started(self, event: ev.SessionStarted) -> None:
        request, work = as_shown(event), self._began(event)
        if work is not None:
            work.title = f"{request.agent or request.label or 'session'}: {clip(request.task, TITLE)}"
            work.provider, work.bound_to = self.provider_of(request), event.bound_to
        elif (work := self._open.get(event.spawn)) is not None:  # another attempt
            work.until, work.tail, work.doing = None, "", ""

    def on_session_progressed(self, event: ev.SessionProgressed) -> None:
        work = self._open.get(event.spawn)
        if work is None:
            return
        if event.kind == "text":
            work.tail, work.doing = (work.tail + event.text[-_TAIL:])[-_TAIL:], ""
        elif event.kind == "note":
            work.doing = clip(event.text, _LINE)
        elif event.tool is not None:
            work.doing = f"{event.tool.tool} {clip(event.tool.summary, _LINE)}"

    def on_session_finished(self, event: ev.SessionFinished) -> None:
        work = self._open.get(event.spawn)
        self._take(event)
        if event.result is not None or event.final:
            self.consumed.add(consumed(event))
        elif work is not None:
            work.doing = clip(event.error.message, _LINE) if event.error is not None else ""

    def on_retried(self, event: ev.Retried) -> None:
        if (work := self._open.get(event.spawn)) is not None:
            work.attempt = f"retry {event.attempt} of {event.maximum}"
            work.until = self.now() + event.delay

    def on_judge_asked(self, event: ev.JudgeAsked) -> None:
        mark = self.language.delimiters[-1]
        if (work := self._began(event)) is not None:
            work.title = f"deciding {mark}{clip(event.question, TITLE)}{mark}"

    def on_judged(self, event: ev.Judged) -> None:
        self._take(event)
        self.consumed.add(consumed(event))

    def on_gate_opened(self, event: ev.GateOpened) -> None:
        if (work := self._began(event)) is not None:
            work.title = f"gate {event.request.name}: waiting for a decision"

    def on_store_waits(self, event: ev.StoreWaits) -> None:
        self._waits.pop(event.store, None)
        if event.reason is not None:
            work = self._waits[event.store] = Work("command", event.store, event.place, self.now(), None)
            work.title = f"waiting for {event.store}: {clip(event.reason, TITLE)}"
            work.doing = f"at most {elapsed(event.seconds)}"

    def on_parallel_started(self, event: ev.ParallelStarted) -> None:
        if (work := self._began(event)) is not None:
            work.fork = _Fork(event, BranchNames(event, self.language))

    def on_branch_finished(self, event: ev.BranchFinished) -> None:
        construct = self._open.get(("parallel", event.place.branches[:-1], event.parallel))
        self._take(event)
        fork = construct.fork if construct is not None else None
        if fork is None:
            return
        if branch_state(event, self.language) == "failed":
            fork.failed += 1
            if len(fork.failures) < FAILURES:
                fork.failures[event.index] = branch_text(event, self.language)
        elif event.status == "done":
            fork.done += 1
            if fork.event.count <= ROWS:
                fork.results[event.index] = event
        else:
            fork.cancelled += 1

    # ------------------------------------------------------------ lines

    def since(self, silent: float = 0.0) -> float | None:
        """Return the start of the oldest running activity, or None. A loop starts when it is first seen; a command with
        output that is shown elsewhere starts after `silent` seconds without output."""
        self._look_at_loops()
        began = [
            max(work.begin, work.last_output) + silent if work.bare and self._is_shown_elsewhere(work) else work.begin
            for work in self._open.values()
            if not self._has_own_view(work)
        ]
        began += [seen for _, seen, _ in self._passes.values()]
        return min(began, default=None)

    def oldest_with_own_view(self) -> float | None:
        """Return the start of the oldest session that has a separate live view, or None."""
        return min((work.begin for work in self._open.values() if self._has_own_view(work)), default=None)

    def status(self, spawn: int) -> str:
        """Return the status line for a session that has a separate live view."""
        work, now = self._open.get(spawn), self.now()
        if work is None:
            return ""
        mark = self.language.markers.get("session", "")
        return f"{mark} {' · '.join(nonempty([*self._details(work, now), elapsed(now - work.begin)]))}".lstrip()

    def _mark(self, kind: str) -> str:
        """Return the marker of an activity in the running language."""
        return self.language.markers.get(kind, kind if len(kind) == 1 else RUNS)

    def lines(self, rows: int = ROWS) -> list[LiveLine]:
        """Return the lines of all running activities, outer ones first, failures before running branches. `rows` is the
        limit for one parallel construct."""
        self._look_at_loops()
        now = self.now()
        passes = self._passes.values()
        found = [self._loop_line(loop, seen, first, now) for loop, seen, first in passes if not loop.s.branches]
        outside = [work for work in self._open.values() if not work.branches and not self._has_own_view(work)]
        found += [self._work_line(work, now) for work in outside if work.fork is None]
        for work in outside:
            if work.fork is not None:
                found += self._fork_lines(work, work.fork, now, rows)
        if found and (total := consumed_text(self.consumed)):
            found.append(LiveLine(total, mark=" "))
        return found

    def _look_at_loops(self) -> None:
        running = {id(loop): loop for loop in self.loops()}
        self._passes = {key: seen for key, seen in self._passes.items() if key in running}
        for key, loop in running.items():
            if key not in self._passes:
                self._passes[key] = loop, self.now(), loop.index
                place = ev.Place(loop.source, loop.node.span, 0, branches=loop.s.branches)
                _widen(self._activities.innermost_at(place))

    def _loop_line(self, loop: OpenLoop, seen: float, first: int, now: float) -> LiveLine:
        about, done = [pass_text(loop)], None
        if loop.fixed and loop.maximum:
            done = loop.index, loop.maximum
            about.append(estimate(loop.index - first, loop.maximum - loop.index, now - seen))
        head, mark = head_line(loop.source.slice(loop.node.span)), self._mark("loop")
        return LiveLine(head, nonempty(about), mark, time=elapsed(now - seen), done=done)

    def _work_line(self, work: Work, now: float) -> LiveLine:
        name = f"{work.bound_to} = {work.title}" if work.bound_to else work.title
        last = work.doing if self._is_shown_elsewhere(work) else work.last_line() or work.doing
        details, time_of_work = nonempty(self._details(work, now)), elapsed(now - work.begin)
        return LiveLine(name, details, self._mark_of(work), time=time_of_work, last=last)

    def _mark_of(self, work: Work | None) -> str:
        if work is None:
            return RUNS
        return self._mark({"session": "session", "judgement": "judge"}.get(work.kind, RUNS))

    def _details(self, work: Work, now: float) -> list[str]:
        wait = f"in {elapsed(math.ceil(work.until - now))}" if work.until is not None and work.until > now else ""
        return [f"asking {work.provider}" if work.provider else "", f"{work.attempt} {wait}".strip()]

    def _fork_lines(self, construct: Work, fork: _Fork, now: float, rows: int) -> Iterator[LiveLine]:
        event = fork.event
        counts = [f"{fork.ended:,} of {event.count:,}", f"{fork.failed:,} failed" if fork.failed else ""]
        if event.iterations and fork.ended >= min(fork.widest, event.count - fork.ended):
            counts.append(estimate(fork.ended, event.count - fork.ended, now - construct.begin))
        heading = fork_line(event.place.source.slice(event.place.span))
        time_of_fork, done = elapsed(now - construct.begin), (fork.ended, event.count)
        yield LiveLine(heading, nonempty(counts), self._mark("parallel"), time=time_of_fork, done=done)
        for index in sorted(fork.failures):
            yield LiveLine(fork.names[index], nonempty([fork.failures[index]]), mark=self._mark("✗"), depth=1)
        unnamed = fork.failed - len(fork.failures)
        running = sorted(construct.inner.values(), key=lambda branch: branch.branches[-1].index)
        room = max(1, rows - len(fork.failures))
        for branch in running[:room]:
            yield self._row(fork, branch, now)
        for index in sorted(fork.results):
            text = branch_text(fork.results[index], self.language) if self._prints_results else ""
            yield LiveLine(fork.names[index], nonempty([text]), mark=self._mark("✓"), depth=1)
        hidden = len(running) - room
        waiting = event.count - fork.ended - len(running)
        rest = [
            f"{unnamed:,} more failed" if unnamed > 0 else "",
            f"{hidden:,} more run" if hidden > 0 else "",
            f"{waiting:,} wait" if waiting > 0 else "",
        ]
        if text := ", ".join(part for part in rest if part):
            yield LiveLine(text, mark=" ", depth=1)

    def _row(self, fork: _Fork, branch: Work, now: float) -> LiveLine:
        steps = branch.branches
        inside = [one for one in self._open.values() if _is_in(one.branches, steps) and one.kind != "branch"]
        work = next((one for one in reversed(inside) if one.fork is None), None)  # the latest one
        inner = [f"{one.fork.ended:,} of {one.fork.event.count:,}" for one in inside if one.fork is not None]
        passes = [pass_text(loop) for loop, _, _ in self._passes.values() if _is_in(loop.s.branches, steps)]
        about, last = inner[:1] + passes[:1], ""
        if work is not None:
            last = work.doing if self._is_shown_elsewhere(work) else work.last_line() or work.doing
            about += [*self._details(work, now), "" if last else work.title]
        name, time_of_branch = fork.names[steps[-1].index], elapsed(now - branch.begin)
        return LiveLine(name, nonempty(about), self._mark_of(work), depth=1, time=time_of_branch, last=last)

    _handlers: ClassVar = ev.handlers(vars())
    kinds: ClassVar = frozenset(_handlers)


def _is_in(branches: Branches, outer: Branches) -> bool:
    return branches[: len(outer)] == outer


def _widen(branch: Work | None) -> None:
    """Note that a branch runs, to know the most branches of its construct that ran at the same time."""
    if branch is not None and branch.parent is not None and (fork := branch.parent.fork) is not None:
        fork.widest = max(fork.widest, len(branch.parent.inner))
