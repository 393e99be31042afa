"""The running activities of a run, for the live views of both front ends: a listener that turns them into lines.

Nothing here runs in a hot loop: passes of loops are looked up when lines are made (`Host.loops`), and an ended branch
leaves only a count. Estimates need enough finished branches or passes. Lines are volatile: they are shown while the run
is watched, and never stored.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final

from prose_kernel.runs import languages
from prose_kernel.runtime import events as ev
from prose_kernel.runtime.open_loops import OpenLoop
from prose_kernel.runtime.ports import SessionRequest
from prose_kernel.views.branch_names import BranchNames
from prose_kernel.views.cards import branch_state, branch_text
from prose_kernel.views.live_words import (
    RUNS,
    TITLE,
    Line,
    consumed_text,
    estimate,
    fork_line,
    head_line,
    pass_text,
    some,
    span,
)
from prose_kernel.views.run_record import Figures, consumed
from prose_kernel.views.safety import clip
from prose_kernel.views.session_cards import as_shown

ROWS: Final = 12
"""Rows shown for one parallel construct; further branches are counted."""
FAILURES: Final = 6
"""Failed branches shown by name."""
_LINE: Final = 100
_TAIL: Final = 2_000

Branches = tuple[ev.BranchStep, ...]


@dataclass(slots=True)
class Work:
    """A running activity: a command, a session with its attempts, a question."""

    title: str
    branches: Branches
    began: float
    who: str = ""
    bound_to: str | None = None
    tail: str = ""
    doing: str = ""
    attempt: str = ""
    until: float | None = None  # a retry begins
    bare: bool = False
    session: bool = False
    judge: bool = False
    heard: float = 0.0  # when it printed something last

    def last_line(self) -> str:
        """The last line that isn't blank, as a terminal would show it."""
        for line in reversed(self.tail.split("\n")):
            shown = line.rstrip("\r").rpartition("\r")[2]
            if shown.strip():
                return clip(shown, _LINE)
        return ""


@dataclass(slots=True)
class _Fork:
    event: ev.ParallelStarted
    names: BranchNames
    began: float
    running: dict[int, float] = field(default_factory=dict)
    widest: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    failures: dict[int, str] = field(default_factory=dict)
    results: dict[int, ev.BranchFinished] = field(default_factory=dict)  # of few branches

    @property
    def ended(self) -> int:
        return self.done + self.failed + self.cancelled


class LiveRun:
    """The listener. `lines` describes the running activities; `since` is the start of the oldest one.

    `loops` returns the running loops, `asked` names the provider of a session. `now` is a monotonic clock in seconds.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        loops: Callable[[], Collection[OpenLoop]] = tuple,
        asked: Callable[[SessionRequest], str] | None = None,
    ) -> None:
        self.now = now
        self.loops = loops
        self.asked = asked or (lambda request: request.model or "")
        self.own: Callable[[Work], bool] = lambda work: False
        """Whether its output is already shown elsewhere, line by line."""
        self.apart: Callable[[Work], bool] = lambda work: False
        """Whether it has a live view of its own elsewhere."""
        self.tells_results = True
        """Whether the values of ended branches are shown, if there are few."""
        self.language = languages.default()
        self.consumed = Figures()
        self._work: dict[object, Work] = {}
        self._forks: dict[tuple[Branches, int], _Fork] = {}
        self._passes: dict[int, tuple[OpenLoop, float, int]] = {}  # since when a loop is seen, at which pass

    def __call__(self, event: ev.Event) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(self, event)

    # ------------------------------------------------------------ what happens

    def on_cell_started(self, event: ev.CellStarted) -> None:
        self._work.clear()
        self._forks.clear()
        self._passes.clear()

    def begin(self, key: object, work: Work) -> Work:
        """Add an activity that has no event."""
        self._work[key] = work
        self._step(work.branches, work.began)
        return work

    def end(self, key: object) -> None:
        self._work.pop(key, None)

    def _step(self, branches: Branches, at: float) -> None:
        """Mark a branch and all outer branches as running."""
        for depth, step in enumerate(branches):
            fork = self._forks.get((branches[:depth], step.parallel))
            if fork is not None and step.index not in fork.running:
                fork.running[step.index] = at
                fork.widest = max(fork.widest, len(fork.running))

    def on_command_started(self, event: ev.CommandStarted) -> None:
        title, bare = f"$ {clip(event.command, TITLE)}", event.bound_to is None and not event.consumed
        work = Work(title, event.place.branches, self.now(), bound_to=event.bound_to, bare=bare)
        self.begin(event.spawn, work)

    def on_command_output(self, event: ev.CommandOutput) -> None:
        if (work := self._work.get(event.spawn)) is not None:
            work.tail = (work.tail + event.text[-_TAIL:])[-_TAIL:]
            work.heard = self.now()

    def unprinted(self, spawn: int) -> None:
        """The output of a command is no longer shown elsewhere."""
        if (work := self._work.get(spawn)) is not None:
            work.bare = False

    def on_command_finished(self, event: ev.CommandFinished) -> None:
        self._work.pop(event.spawn, None)

    def on_session_started(self, event: ev.SessionStarted) -> None:
        work, request = self._work.get(event.spawn), as_shown(event)
        if work is not None:  # another attempt
            work.until, work.tail, work.doing = None, "", ""
            return
        who = request.agent or request.label or "session"
        asked = self.asked(request)
        title = f"{who}: {clip(request.task, TITLE)}"
        branches = event.place.branches
        self.begin(event.spawn, Work(title, branches, self.now(), asked, event.bound_to, session=True))

    def on_session_progressed(self, event: ev.SessionProgressed) -> None:
        work = self._work.get(event.spawn)
        if work is None:
            return
        if event.kind == "text":
            work.tail, work.doing = (work.tail + event.text[-_TAIL:])[-_TAIL:], ""
        elif event.kind == "note":
            work.doing = clip(event.text, _LINE)
        elif event.tool is not None:
            work.doing = f"{event.tool.tool} {clip(event.tool.summary, _LINE)}"

    def on_session_finished(self, event: ev.SessionFinished) -> None:
        result, work = event.result, self._work.get(event.spawn)
        if result is None and not event.final:
            if work is not None:
                work.doing = clip(event.error.message, _LINE) if event.error is not None else ""
            return
        self._work.pop(event.spawn, None)
        self.consumed.add(consumed(event))

    def on_retried(self, event: ev.Retried) -> None:
        if (work := self._work.get(event.spawn)) is not None:
            work.attempt = f"retry {event.attempt} of {event.maximum}"
            work.until = self.now() + event.delay

    def on_judge_asked(self, event: ev.JudgeAsked) -> None:
        mark = self.language.delimiters[-1]
        work = Work(f"deciding {mark}{clip(event.question, TITLE)}{mark}", event.place.branches, self.now(), judge=True)
        self.begin(("judge", event.at), work)

    def on_judged(self, event: ev.Judged) -> None:
        self._work.pop(("judge", event.at), None)
        self.consumed.add(consumed(event))

    def on_gate_opened(self, event: ev.GateOpened) -> None:
        title = f"gate {event.request.name}: waiting for a decision"
        self.begin(("gate", event.request.id), Work(title, event.place.branches, self.now()))

    def on_gate_resolved(self, event: ev.GateResolved) -> None:
        self._work.pop(("gate", event.request.id), None)

    def on_store_waits(self, event: ev.StoreWaits) -> None:
        self.end(event.store)
        if event.reason is not None:
            title = f"waiting for {event.store}: {clip(event.reason, TITLE)}"
            self.begin(event.store, Work(title, (), self.now(), doing=f"at most {span(event.seconds)}"))

    def on_failed(self, event: ev.Failed) -> None:
        """Remove an open question of the branch: it has no answer."""
        self._forget(lambda key, work: isinstance(key, tuple) and work.branches == event.place.branches)

    def _forget(self, gone: Callable[[object, Work], bool]) -> None:
        for key in [key for key, work in self._work.items() if gone(key, work)]:
            del self._work[key]

    def on_parallel_started(self, event: ev.ParallelStarted) -> None:
        names = BranchNames(event, self.language)
        self._forks[event.place.branches, event.parallel] = _Fork(event, names, self.now())
        self._step(event.place.branches, self.now())

    def on_branch_finished(self, event: ev.BranchFinished) -> None:
        *outer, _ = steps = event.place.branches
        fork = self._forks.get((tuple(outer), event.parallel))
        if fork is None:
            return
        fork.running.pop(event.index, None)
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
            # nothing inside a cancelled branch runs
            self._forget(lambda _, work: work.branches[: len(steps)] == steps)
            for key in [key for key in self._forks if key[0][: len(steps)] == steps]:
                del self._forks[key]

    def on_parallel_joined(self, event: ev.ParallelJoined) -> None:
        self._forks.pop((event.place.branches, event.parallel), None)

    # ------------------------------------------------------------ what is seen

    @property
    def under_way(self) -> bool:
        return bool(self._work or self._forks or self.loops())

    def since(self, silent: float = 0.0) -> float | None:
        """Return the start of the oldest running activity, or None. A loop starts when it is first seen; a command with
        output that is shown elsewhere starts after `silent` seconds without output."""
        self._look_at_loops()
        began = [
            *(
                max(work.began, work.heard) + silent if work.bare and self.own(work) else work.began
                for work in self._work.values()
                if not self.apart(work)
            ),
            *(fork.began for fork in self._forks.values()),
            *(seen for _, seen, _ in self._passes.values()),
        ]
        return min(began, default=None)

    def alone(self) -> float | None:
        """Return the start of the oldest session with a live view of its own, or None."""
        return min((work.began for work in self._work.values() if self.apart(work)), default=None)

    def status(self, spawn: int) -> str:
        """Return the status line for a session with a live view of its own."""
        work, now = self._work.get(spawn), self.now()
        if work is None:
            return ""
        mark = self.language.markers.get("session", "")
        return f"{mark} {' · '.join(some([*self._beside(work, now), span(now - work.began)]))}".lstrip()

    def _mark(self, what: str) -> str:
        """Return the marker of an activity in the running language."""
        return self.language.markers.get(what, what if len(what) == 1 else RUNS)

    def lines(self, rows: int = ROWS) -> list[Line]:
        """Return the lines of all running activities, outer ones first, failures before running branches. `rows` is the
        limit for one parallel construct."""
        self._look_at_loops()
        now = self.now()
        passes = self._passes.values()
        found = [self._loop_line(loop, seen, first, now) for loop, seen, first in passes if not loop.s.branches]
        outside = [work for work in self._work.values() if not work.branches and not self.apart(work)]
        found += [self._work_line(work, now) for work in outside]
        for (branches, _), fork in self._forks.items():
            if not branches:
                found += self._fork_lines(fork, now, rows)
        if found and (total := consumed_text(self.consumed)):
            found.append(Line(total, mark=" "))
        return found

    def _look_at_loops(self) -> None:
        running = {id(loop): loop for loop in self.loops()}
        self._passes = {key: seen for key, seen in self._passes.items() if key in running}
        for key, loop in running.items():
            if key not in self._passes:
                self._passes[key] = loop, self.now(), loop.index
                self._step(loop.s.branches, self.now())

    def _loop_line(self, loop: OpenLoop, seen: float, first: int, now: float) -> Line:
        about, done = [pass_text(loop)], None
        if loop.fixed and loop.maximum:
            done = loop.index, loop.maximum
            about.append(estimate(loop.index - first, loop.maximum - loop.index, now - seen))
        head, mark = head_line(loop.source.slice(loop.node.span)), self._mark("loop")
        return Line(head, some(about), mark, time=span(now - seen), done=done)

    def _work_line(self, work: Work, now: float) -> Line:
        name = f"{work.bound_to} = {work.title}" if work.bound_to else work.title
        last = work.doing if self.own(work) else work.last_line() or work.doing
        return Line(name, some(self._beside(work, now)), self._mark_of(work), time=span(now - work.began), last=last)

    def _mark_of(self, work: Work | None) -> str:
        if work is None:
            return RUNS
        return self._mark("session" if work.session else "judge" if work.judge else RUNS)

    def _beside(self, work: Work, now: float) -> list[str]:
        wait = f"in {span(math.ceil(work.until - now))}" if work.until is not None and work.until > now else ""
        return [f"asking {work.who}" if work.who else "", f"{work.attempt} {wait}".strip()]

    def _fork_lines(self, fork: _Fork, now: float, rows: int) -> Iterator[Line]:
        event = fork.event
        counts = [f"{fork.ended:,} of {event.count:,}", f"{fork.failed:,} failed" if fork.failed else ""]
        if event.iterations and fork.ended >= min(fork.widest, event.count - fork.ended):
            counts.append(estimate(fork.ended, event.count - fork.ended, now - fork.began))
        heading = fork_line(event.place.source.slice(event.place.span))
        time_of_fork, done = span(now - fork.began), (fork.ended, event.count)
        yield Line(heading, some(counts), self._mark("parallel"), time=time_of_fork, done=done)
        for index in sorted(fork.failures):
            yield Line(fork.names[index], some([fork.failures[index]]), mark=self._mark("✗"), depth=1)
        unnamed = fork.failed - len(fork.failures)
        doing = self._doing(event)
        room = max(1, rows - len(fork.failures))
        for index in sorted(fork.running)[:room]:
            yield self._row(fork, index, doing.get(index), now)
        for index in sorted(fork.results):
            text = branch_text(fork.results[index], self.language) if self.tells_results else ""
            yield Line(fork.names[index], some([text]), mark=self._mark("✓"), depth=1)
        hidden = len(fork.running) - room
        waiting = event.count - fork.ended - len(fork.running)
        rest = [
            f"{unnamed:,} more failed" if unnamed > 0 else "",
            f"{hidden:,} more run" if hidden > 0 else "",
            f"{waiting:,} wait" if waiting > 0 else "",
        ]
        if text := ", ".join(part for part in rest if part):
            yield Line(text, mark=" ", depth=1)

    def _doing(self, event: ev.ParallelStarted) -> dict[int, Work]:
        """Return for each branch of a parallel construct the activity that began last."""
        depth, outer = len(event.place.branches), event.place.branches
        found: dict[int, Work] = {}
        for work in self._work.values():
            steps = work.branches
            if len(steps) > depth and steps[:depth] == outer and steps[depth].parallel == event.parallel:
                found[steps[depth].index] = work
        return found

    def _row(self, fork: _Fork, index: int, work: Work | None, now: float) -> Line:
        about: list[str] = []
        inner = [
            f"{one.ended:,} of {one.event.count:,}"
            for (branches, _), one in self._forks.items()
            if branches and _within(branches, fork, index)
        ]
        passes = [pass_text(loop) for loop, _, _ in self._passes.values() if _within(loop.s.branches, fork, index)]
        about += inner[:1] + passes[:1]
        last = ""
        if work is not None:
            last = work.doing if self.own(work) else work.last_line() or work.doing
            about += [*self._beside(work, now), "" if last else work.title]
        time_of_branch = span(now - fork.running[index])
        return Line(fork.names[index], some(about), self._mark_of(work), depth=1, time=time_of_branch, last=last)

    _handlers: ClassVar = ev.handlers(vars())
    kinds: ClassVar = frozenset(_handlers)


def _within(branches: Branches, fork: _Fork, index: int) -> bool:
    depth = len(fork.event.place.branches)
    return (
        len(branches) > depth
        and branches[:depth] == fork.event.place.branches
        and branches[depth].parallel == fork.event.parallel
        and branches[depth].index == index
    )
