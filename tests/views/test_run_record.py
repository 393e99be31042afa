"""The record of a run: bounded, in source order, with times of an injected clock."""

from __future__ import annotations

import gc
import xml.etree.ElementTree as ElementTree

import pytest
from notebook.recording import SOURCE

from prose_kernel.errors import ExecError
from prose_kernel.language.source import Source, Span
from prose_kernel.runs import languages
from prose_kernel.runtime import events
from prose_kernel.runtime.ports import CommandRequest, CommandResult, Key, SessionRequest, SessionResult, Usage
from prose_kernel.views import run_record
from prose_kernel.views.run_pictures import marks, profile_display, seconds, timeline_display
from prose_kernel.views.run_record import RunRecord, lanes


class World:
    """A record with a clock that tests advance, and events at any line of a program."""

    def __init__(self) -> None:
        self.now = 100.0
        self.record = RunRecord(lambda: self.now)
        self.begin()

    def begin(self, text: str = "one\ntwo\nthree\n") -> None:
        self.source = Source.of(text)
        self.record.begin(self.source, languages.default())

    def place(self, line: int, *branches: tuple[int, int, str]) -> events.Place:
        start = self.source.line_starts[line - 1]
        return events.Place(
            self.source, Span(start, start + 3), 1, branches=tuple(events.BranchStep(*b) for b in branches)
        )

    def command(self, spawn: int, line: int = 1, *branches: tuple[int, int, str]) -> events.CommandStarted:
        request = CommandRequest(f"run {spawn}", "/", 10.0)
        event = events.CommandStarted(self.place(line, *branches), spawn, request, f"run {spawn}", None)
        self.record(event)
        return event

    def finish(self, event: events.CommandStarted, code: int = 0) -> None:
        result = CommandResult("exited", code, kind="exit" if code else None)
        self.record(
            events.CommandFinished(
                event.place, event.spawn, event.request, event.command, None, result, "throw", bool(code)
            )
        )


@pytest.fixture
def world() -> World:
    return World()


def test_a_session_is_recorded_with_retries_tokens_and_cost(world: World) -> None:
    request = SessionRequest("session", "Write", "c1/1/s0", agent="writer")
    place, key = world.place(2), Key("x")
    world.record(events.SessionStarted(place, 1, request, None))
    world.now += 2
    world.record(events.SessionFinished(place, 1, request, None, key, error=ExecError("busy"), final=False))
    world.record(events.Retried(place, 1, 1, 2, 4.0))
    world.now += 4
    world.record(events.SessionStarted(place, 1, request, None))
    world.now += 1
    result = SessionResult("text", provider="stub", origin="model", usage=Usage(1, 1000, 200, 0.25))
    world.record(events.SessionFinished(place, 1, request, None, key, result=result))
    world.record.end()
    (cell,) = world.record.cells
    (activity,) = cell.activities
    assert (activity.label, activity.state, activity.by) == ("writer: Write", "done", "model")
    assert activity.waits == ((102.0, 4.0),)
    assert marks([cell], world.source)[place.span].figures == "7.0 s, 1,200 tokens, $0.2500"
    timeline, profile = timeline_display([cell]), profile_display([cell])
    assert timeline.person["text/plain"].endswith("✓, 1 retry, model  7.0 s, 1,200 tokens, $0.2500, 4.0 s waited")
    assert profile.person["text/plain"].splitlines()[1].split() == [
        *("2", "two", "1", "model", "7.0", "s", "100%", "1,000", "200", "$0.2500")
    ]
    bar, wait = list(ElementTree.fromstring(timeline.person["image/svg+xml"]).iter("{http://www.w3.org/2000/svg}rect"))[
        1:
    ]
    share = float(wait.get("width", "")) / float(bar.get("width", ""))
    assert share == pytest.approx(4 / 7, abs=0.01)
    assert timeline.facts == {"seconds": 7.0} and profile.facts["cost"] == 0.25


def test_a_question_lasts_from_its_beginning_to_its_answer(world: World) -> None:
    place = world.place(2)
    for later, event in (
        (0, events.JudgeAsked(place, "is it good", "c1/j0")),
        (3, events.Judged(place, "is it good", True, "human", at="c1/j0")),
        (1, events.JudgeAsked(place, "is it bad", "c1/j1")),
        (2, events.Failed(place, ExecError("stopped"))),
    ):
        world.now += later
        if type(event) in RunRecord.kinds:  # as a run passes them
            world.record(event)
    world.record.end()
    (cell,) = world.record.cells
    assert [(one.label, one.state, one.figures.seconds) for one in cell.activities] == [
        ("is it good", "done", 3.0),
        ("is it bad", "failed", 2.0),
    ]
    assert "✓, human  3.0 s" in timeline_display([cell]).person["text/plain"]


def test_replayed_answers_cost_nothing(world: World) -> None:
    request, place = SessionRequest("session", "Write", "c1/1/s0"), world.place(1)
    world.record(events.SessionStarted(place, 1, request, None))
    result = SessionResult("text", origin="model", usage=Usage(1, 1000, 200, 0.25), replayed=True)
    world.record(events.SessionFinished(place, 1, request, None, Key("x"), result=result))
    world.record.end()
    assert profile_display(world.record.cells).facts["cost"] == 0.0


def test_branches_are_in_source_order() -> None:
    def shown(order: list[int]) -> tuple[str, str]:
        world = World()
        started = {index: world.command(index, 2, (1, index, f"b{index}")) for index in range(3)}
        for index in order:
            world.now += 1
            world.finish(started[index], code=index == 2)
        inner = world.command(9, 3, (1, 0, "b0"), (2, 1, "i1"))
        world.finish(inner)
        world.finish(world.command(10, 3))
        world.record.end()
        data = timeline_display(list(world.record.cells)).data
        return data["text/plain"], data["image/svg+xml"]

    assert shown([0, 1, 2]) == shown([2, 1, 0])
    assert [line.split()[0] for line in shown([0, 1, 2])[0].splitlines()] == [
        *("branch", "[b0]", "[b0/i1]", "[b1]", "[b2]", "$")
    ]


def test_activities_of_cancelled_branches_and_interrupted_cells_are_cancelled(world: World) -> None:
    world.command(1, 2, (1, 0, "slow"))
    world.command(2, 3)
    world.record(events.BranchFinished(world.place(2, (1, 0, "slow")), 1, 0, "slow", "cancelled"))
    world.now += 5
    world.record.end()
    (cell,) = world.record.cells
    assert [(one.state, one.figures.seconds) for one in cell.activities] == [("cancelled", 0.0), ("cancelled", 5.0)]
    assert {mark.words for mark in marks([cell], world.source).values()} == {"cancelled"}
    world.record(event := events.CommandStarted(world.place(1), 3, CommandRequest("x", "/", 1.0), "x", None))
    assert event.spawn == 3 and len(cell.activities) == 2  # events between cells are not recorded


def test_a_mark_counts_outcomes(world: World) -> None:
    for spawn, code in enumerate([0, 1, 0]):
        world.finish(world.command(spawn), code)
    world.record.end()
    (mark,) = marks(list(world.record.cells), world.source).values()
    assert (mark.state, mark.words) == ("done", "✓ done ×3, 1 failed")
    assert marks(list(world.record.cells), SOURCE) == {}


def test_the_record_is_bounded(world: World) -> None:
    for spawn in range(run_record.MAX_PER_CELL + 500):
        world.finish(world.command(spawn))
    world.record.end()
    for _ in range(4):
        world.begin()
        for spawn in range(run_record.MAX_PER_CELL):
            world.finish(world.command(spawn))
        world.record.end()
    cells = list(world.record.cells)
    assert sum(len(cell.activities) for cell in cells) <= run_record.ACTIVITIES
    assert len(cells[-1].activities) == run_record.MAX_PER_CELL and cells[0].left_out == run_record.MAX_PER_CELL + 500
    assert profile_display(cells[:1]).data["text/plain"].splitlines()[1].split() == ["1", "one", "2,500"]
    assert "… and 2,500 more" in timeline_display(cells[:2]).data["text/plain"] or cells[1].activities == []
    assert "… and 1,900 more" in timeline_display(cells[-1:]).data["text/plain"]
    for _ in range(run_record.CELLS + 10):
        world.begin()
        world.finish(world.command(1))
        world.record.end()
    assert len(world.record.cells) == run_record.CELLS
    assert sum(len(cell.activities) for cell in world.record.cells) == run_record.CELLS
    gc.collect()


def test_an_empty_record_has_no_lanes() -> None:
    assert lanes([]).items == []


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 ms"), (0.0123, "12 ms"), (3.44, "3.4 s"), (306, "5 min 06 s"), (7200, "120 min 00 s")]
)
def test_durations_have_a_readable_form(count: float, text: str) -> None:
    assert seconds(count) == text
