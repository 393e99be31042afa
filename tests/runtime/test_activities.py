"""The rules of `runtime/activities.py`, on traces of real programs, prefixes of them, and traces with missing events."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from machine.fakes import World, lines

from prose_kernel.runtime.activities import Activities, Activity
from prose_kernel.runtime.events import CommandStarted, Event, JudgeAsked, Judged, LoopPass

PROGRAM = lines(
    'use "inner.prose" as inner',
    "block study(topic, depth):",
    '  let found = session "find {topic} {depth}"',
    "  if depth > 0:",
    "    parallel:",
    "      left = do study(topic, depth - 1)",
    '      right = exec "check {topic} {depth}"',
    '  output notes = session "write {topic} {depth}"',
    "block breaks(topic):",
    '  exec "fails"',
    "try:",
    '  do breaks("a")',
    "catch:",
    '  exec "after"',
    'let topics = ["a", "b"]',
    "let all = parallel for t, i in topics:",
    "  let r = do study(t, i)",
    '  exec "close {t}"',
    "repeat 2:",
    "  for topic in topics:",
    '    exec "look at {topic}"',
    "loop until **it works** (max: 3):",
    '  exec "work"',
    'parallel (on-fail: "continue"):',
    '  one = session "one"',
    "  two = do breaks(1)",
    'parallel ("first"):',
    '  quick = exec "quick"',
    '  slow = session "slow"',
    "gate release:",
    '  prompt: "Go on?"',
    'let answer = inner(topic: "x")',
)
INNER = lines('input topic: "What?"', "for each in [1, 2]:", '  exec "in {each}"', 'output found = session "inside"')


def trace() -> list[Event]:
    async def run() -> World:
        waits = {"slow": 5.0, "find a 0": 1.0}
        w = World(
            commands_say={"fails": 3},
            judge_says={"it works": True},
            files={"inner.prose": INNER},
            order=lambda text: waits.get(text, 0.0),
        )
        await w.run(PROGRAM)
        return w

    return asyncio.run(run()).events


TRACE = trace()


class Watched:
    """Activities with lists of those opened and closed so far, checked after each event."""

    def __init__(self) -> None:
        self.times = itertools.count()
        self.activities = Activities(Activity, lambda: float(next(self.times)))
        self.opened: list[Activity] = []
        self.closed: list[Activity] = []

    def take(self, events: Iterable[Event]) -> Watched:
        for event in events:
            changes = self.activities.take(event)
            assert all(one.end is not None and one.state != "running" for one in changes.closed)
            assert all(one.parent is None or one.parent.begin < one.begin for one in changes.opened)
            self.opened += changes.opened
            self.closed += changes.closed
            self.check()
        return self

    def check(self) -> None:
        running = list(self.activities.open.values())
        assert [one for one in self.opened if one.end is None] == running
        assert all(one.state == "running" and (one.parent is None or one.parent.end is None) for one in running)
        assert all(self.activities.open[one.key] is one for one in running)
        for one in running:
            assert list(one.inner.values()) == [other for other in running if other.parent is one]

    def end(self) -> None:
        self.closed += self.activities.end()
        assert not self.activities.open
        assert Counter(map(id, self.opened)) == Counter(map(id, self.closed))
        assert len({id(one) for one in self.closed}) == len(self.closed)
        for one in self.closed:
            assert one.end is not None and one.end > one.begin
            assert one.parent is None or (one.parent.end is not None and one.parent.end > one.end)


def test_the_activities_of_a_run_that_has_ended() -> None:
    watched = Watched().take(TRACE)
    assert not watched.activities.open
    assert Counter(one.kind for one in watched.closed) == {
        "command": 13,
        "session": 9,
        "judgement": 1,
        "gate": 1,
        "parallel": 4,
        "branch": 8,
        "loop": 5,
        "block": 5,
        "program": 1,
    }
    assert Counter(one.state for one in watched.closed if one.kind == "branch") == {
        "done": 6,
        "failed": 1,
        "cancelled": 1,
    }
    assert [one.state for one in watched.closed if one.kind == "block"].count("failed") == 1
    watched.end()


def test_parents_are_the_enclosing_activities() -> None:
    def path(one: Activity | None) -> list[str]:
        return [] if one is None else [*path(one.parent), one.kind]

    paths = {" ".join(path(one)) for one in Watched().take(TRACE).opened}
    assert paths >= {
        "parallel branch block session",
        "parallel branch block parallel branch block session",
        "parallel branch command",
        "loop loop command",
        "loop judgement",
        "program loop command",
        "block command",
        "gate",
    }


@given(st.integers(0, len(TRACE)))
def test_any_prefix_of_a_trace_is_a_valid_state(length: int) -> None:
    Watched().take(TRACE[:length]).end()


@given(st.sets(st.integers(0, len(TRACE) - 1)), st.sets(st.sampled_from(sorted({type(e).__name__ for e in TRACE}))))
def test_the_rules_hold_whatever_events_are_missing(missing: set[int], unheard: set[str]) -> None:
    kept = [event for at, event in enumerate(TRACE) if at not in missing and type(event).__name__ not in unheard]
    Watched().take(kept).end()


@given(st.permutations(TRACE))
def test_the_rules_hold_in_any_order(events: list[Event]) -> None:
    Watched().take(events).end()


def test_a_judgement_whose_question_was_missed_is_opened_and_closed_together() -> None:
    judged = next(event for event in TRACE if isinstance(event, Judged))
    activities = Activities(Activity, lambda: 0.0)
    changes = activities.take(judged)
    assert changes.opened == changes.closed and changes.closed[0].state == "done"
    asked = JudgeAsked(judged.place, judged.question, judged.at)
    (opened,) = activities.take(asked).opened
    assert activities.of(asked) is opened and activities.take(judged) == ([], [opened])


def test_an_iteration_of_a_parallel_loop_is_a_branch_and_no_loop() -> None:
    passes = [event for event in TRACE if isinstance(event, LoopPass) and event.place.branches]
    assert passes and not any(
        one.kind == "loop" and one.place.branches for one in Watched().take(TRACE).opened if not one.place.program
    )


def test_a_command_started_again_with_the_same_number_replaces_the_earlier_one() -> None:
    started = next(event for event in TRACE if isinstance(event, CommandStarted))
    watched = Watched().take([started, started])
    assert [one.state for one in watched.opened] == ["cancelled", "running"]
    watched.end()
