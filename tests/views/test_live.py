"""Live views of running activities; they leave no trace in the outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from notebook.recording import Commands, Recording, bound, place, step
from views.live_time import FakeTime

from prose_kernel.errors import ExecError
from prose_kernel.language.source import Source, Span
from prose_kernel.runs import languages
from prose_kernel.runtime import events
from prose_kernel.runtime.events import Event, ParallelStarted
from prose_kernel.runtime.ports import Key, SessionRequest, SessionResult, Usage
from prose_kernel.runtime.running_loops import OpenLoop
from prose_kernel.runtime.values import Value
from prose_kernel.views.cell_view import CellView
from prose_kernel.views.display import Display
from prose_kernel.views.live_panel import LivePanel, live_display
from prose_kernel.views.live_run import LiveRun
from prose_kernel.views.live_text import BranchNames, LiveLine, elapsed, estimate
from prose_kernel.views.output_limit import Limits
from prose_kernel.views.output_with_panel import MAX_CHARACTERS, OutputWithPanel, PanelRemovingAsker
from prose_kernel.views.refresh import Refresh

SOURCE = Source('parallel for city in cities:\n  exec "make"\n', "cell")
PROSE = languages.default()


class World:
    """A cell with a live view, and a clock that only tests advance."""

    def __init__(self) -> None:
        self.clock = FakeTime()
        self.output = Recording()
        self.loops: list[OpenLoop] = []
        self.panel = LivePanel(
            OutputWithPanel(self.output), self.clock, lambda: self.loops, lambda request: "openai, small"
        )
        self.view = CellView(self.panel.output, live=True, limits=Limits(100_000, 1000), panel=self.panel)

    def observe(self, *observed: Event, seconds: float = 0.0) -> None:
        for event in observed:
            self.view(event)
        self.clock.pass_by(seconds)

    @property
    def panel_lines(self) -> list[str]:
        """The lines of the panel, or of the display of the branches."""
        shown = [call[1] for call in self.output.calls if call[0] in ("display", "update") and call[2]]
        return str(shown[-1].data["text/plain"]).split("\n") if shown else []


@pytest.fixture
def world() -> World:
    return World()


def iteration(index: int, *inner: events.BranchStep) -> events.Place:
    return place(branches=(step(index, f"i{index}"), *inner))


def started(items: Sequence[Value], at: events.Place | None = None, number: int = 1) -> ParallelStarted:
    location = (at or place())._replace(source=SOURCE, span=Span(0, len(SOURCE.text)))
    return ParallelStarted(location, number, (), len(items), True, "all", items)


def done(index: int, error: str = "") -> events.BranchFinished:
    status: Any = "failed" if error else "done"
    return events.BranchFinished(
        iteration(index), 1, index, None, status, None if error else index, ExecError(error) if error else None
    )


def open_loop(text: str, index: int, maximum: int | None, fixed: bool = True, *branches: events.BranchStep) -> OpenLoop:
    source, node = Source(text, "cell"), SimpleNamespace(span=Span(0, len(text)))
    loop: Any = SimpleNamespace(s=SimpleNamespace(branches=branches), source=source, node=node)
    loop.index, loop.maximum, loop.fixed = index, maximum, fixed
    return cast("OpenLoop", loop)


# ---------------------------------------------------------------- lines of the panel


def test_branches_are_shown_with_names_of_their_items_times_and_an_estimate(world: World) -> None:
    commands = Commands()
    world.observe(started(["oslo", "paris", "rome", "ulm", "york", "bonn"]), seconds=1)
    assert world.panel_lines == ["▸ parallel for city in cities · 1 s · 0 of 6", "    6 wait"]
    one, two = (commands.run("compiling a.c\n", at=iteration(index)) for index in (0, 1))
    world.observe(*one[:2], two[0], seconds=3.3)
    assert world.panel_lines == [
        "▸ parallel for city in cities · 4 s · 0 of 6",
        "  ▸ oslo · 3 s · compiling a.c",
        "  ▸ paris · 3 s · $ make",
        "    4 wait",
    ]
    world.observe(one[2], two[1], two[2], done(0), done(1), seconds=4)
    assert world.panel_lines == [
        "▸ parallel for city in cities · 8 s · 2 of 6",  # two are too few for an estimate
        "  ✓ oslo · 0",
        "  ✓ paris · 1",
        "    4 wait",
    ]
    world.observe(done(2), seconds=1.1)
    assert world.panel_lines[0] == "▸ parallel for city in cities · 9 s · 3 of 6 · a few seconds left"


def test_an_estimate_needs_as_many_items_as_run_in_parallel() -> None:
    world = World()
    world.observe(started(list(range(40))))
    for index in range(8):
        world.observe(Commands().run("x", at=iteration(index))[0])
    world.observe(*(done(index) for index in range(4)), seconds=20)
    assert "left" not in world.panel_lines[0]
    world.observe(*(done(index) for index in range(4, 8)), seconds=20)
    assert world.panel_lines[0].endswith("8 of 40 · about 2 min 30 s left")


def test_failed_branches_are_shown_first(world: World) -> None:
    world.observe(started(["a", "b", "c"]), Commands().run("x", at=iteration(0))[0], done(2, "no such file"), seconds=1)
    assert [line.split(" · ")[0] for line in world.panel_lines[1:]] == ["  ✗ c", "  ▸ a", "    1 wait"]
    assert world.panel_lines[0].endswith("1 of 3 · 1 failed") and "no such file" in world.panel_lines[1]


def test_a_loop_shows_its_pass_maximum_and_condition(world: World) -> None:
    world.loops.append(open_loop("loop until **it works** (max: 5):\n  …", 2, 5, False))
    world.observe(events.CellStarted(place(), 1), seconds=2)
    assert world.panel_lines == ["▸ loop until **it works** (max: 5) · 2 s · pass 3, at most 5"]
    world.loops.append(open_loop("for page in pages:\n  …", 0, 9))
    world.observe(events.JudgeAsked(place(), "it works", "c1/j0"), seconds=4.3)
    assert world.panel_lines[1:] == ["▸ for page in pages · 4 s · pass 1 of 9", "▸ deciding **it works** · 4 s"]
    world.loops[1].index = 3
    world.observe(events.Judged(place(), "it works", False, "model", at="c1/j0"), seconds=2)
    assert world.panel_lines[1:] == ["▸ for page in pages · 6 s · pass 4 of 9 · about 10 s left"]


def test_a_branch_that_only_computes_shows_the_pass_of_its_loop(world: World) -> None:
    world.observe(started(["a", "b"]))
    world.loops.append(open_loop("while n < 9:\n  …", 4, None, False, step(1, "i1")))
    world.clock.pass_by(1.7)
    assert world.panel_lines[1:] == ["  ▸ b · 1 s · pass 5", "    1 wait"]


def test_a_retry_shows_a_countdown_and_the_provider(world: World) -> None:
    request = SessionRequest("session", "Write it", "c1/s0", agent="writer")
    world.observe(started(["a"]), events.SessionStarted(iteration(0), 1, request, "text"), seconds=2)
    assert world.panel_lines[1] == "  ▸ a · 2 s · asking openai, small · writer: Write it"
    world.observe(events.Retried(iteration(0), 1, 1, 3, 8.0), seconds=3.3)
    assert world.panel_lines[1] == "  ▸ a · 5 s · asking openai, small · retry 1 of 3 in 5 s · writer: Write it"
    world.observe(events.SessionStarted(iteration(0), 1, request, "text"), seconds=1)
    assert world.panel_lines[1] == "  ▸ a · 6 s · asking openai, small · retry 1 of 3 · writer: Write it"
    assert world.panel.run.status(1) == "asking openai, small · retry 1 of 3 · 6 s"


def test_a25_the_live_view_of_a_vvm_program_has_vvm_markers(world: World) -> None:
    world.panel.run.language = languages.LANGUAGES["vvm"]
    request = SessionRequest("call", "Write it", "c1/s0", agent="writer")
    world.observe(
        events.JudgeAsked(place(), "is it good", "c1/j0"),
        started(["a"]),
        events.SessionStarted(iteration(0), 2, request, "other"),
        seconds=2,
    )
    assert world.panel.run.status(2).startswith("⏳ ")
    assert [line.strip()[0] for line in world.panel_lines[:3]] == ["🎯", "⚡", "⏳"]


def test_the_live_view_sums_usage(world: World) -> None:
    request = SessionRequest("session", "Write it", "c1/s0")
    result = SessionResult("text", usage=Usage(tokens_in=1000, tokens_out=234, cost=0.0125))
    world.observe(
        events.SessionStarted(place(), 1, request, "text"),
        events.SessionFinished(place(), 1, request, "text", Key("text"), result, "text"),
        events.Judged(place(), "q", True, "model", details={"usage": {"tokens_in": 10, "cost": None}}),
        Commands().run("x", bound_to="log")[0],
        seconds=2,
    )
    assert world.panel_lines == ["▸ log = $ make · 2 s", "  1,244 tokens · $0.0125 and more"]


def test_the_last_line_of_a_named_command_is_shown_while_it_runs(world: World) -> None:
    command = Commands().run("10 %\r20 %\r", bound_to="log")
    world.observe(*command[:2], seconds=1)
    assert world.panel_lines == ["▸ log = $ make · 1 s · 20 %"]


def test_the_last_line_is_joined_from_pieces(world: World) -> None:
    command = Commands().run("x", bound_to="log")
    world.observe(command[0])
    for piece in ["fir", "st line\nsec", "ond", " line\n\n", "third\n", "\n"]:
        world.observe(events.CommandOutput(place(), 1, "stdout", piece), seconds=0.2)
    assert world.panel_lines == ["▸ log = $ make · 1 s · third"]


def test_a_command_that_prints_gets_a_panel_after_silence(world: World) -> None:
    command = Commands().run("one\n")
    world.observe(*command[:2], seconds=2)
    assert world.output.kinds == ["stream"]
    world.clock.pass_by(2)
    assert world.panel_lines == ["▸ $ make · 4 s"]


def test_inner_branches_are_counted_on_the_line_of_their_branch(world: World) -> None:
    inner = started(["x", "y"], iteration(0), 2)
    at = iteration(0, step(1, "i1", 2))
    world.observe(started(["a"]), inner, *Commands().run("deep\n", at=at)[:2], seconds=1)
    assert world.panel_lines[1] == "  ▸ a · 1 s · 0 of 2 · deep"


@pytest.mark.parametrize(
    ("items", "names"),
    [
        (["oslo", "oslo", "rome"], ["oslo", "oslo (2)", "rome"]),
        (["a", "a (2)", "a"], ["a", "a (2)", "a (3)"]),
        (["", " \n", 3, True], ["i0", "i1", "3", "true"]),
        ([{"id": 7, "name": "Ada"}, {"from": "Ben", "text": "x" * 90}], ["Ada", "Ben"]),
        ([["a", 1], {"n": 1}], ['["a", 1]', '{"n": 1}']),
        (["first line\nsecond", "x" * 100], ["first line second", "x" * 29 + "…"]),
        (["\x1b[31mred\x1b[0m", "日本"], ["red", "日本"]),
    ],
)
def test_names_of_items_are_short_and_unique(items: list[Value], names: list[str]) -> None:
    assert list(BranchNames(started(items), PROSE)) == names


def test_names_among_very_many_items_have_their_index() -> None:
    assert BranchNames(started(["x"] * 10_001), PROSE)[10_000] == "x (i10000)"


@pytest.mark.parametrize(
    ("finished", "left", "seconds", "text"),
    [
        (0, 10, 50, ""),
        (2, 10, 50, ""),
        (3, 0, 50, ""),
        (3, 3, 5, "a few seconds left"),
        (4, 4, 42, "about 40 s left"),
        (10, 100, 60, "about 10 min 00 s left"),
        (3, 3000, 30, "about 8 h 20 min left"),
    ],
)
def test_estimates_are_rounded_and_need_three_finished_items(
    finished: int, left: int, seconds: float, text: str
) -> None:
    assert estimate(finished, left, seconds) == text


def test_elapsed_times_have_a_readable_form() -> None:
    assert [elapsed(s) for s in (0.4, 59.9, 60, 3599, 3600)] == ["", "59 s", "1 min 00 s", "59 min 59 s", "1 h 00 min"]


def test_hostile_lines_in_the_live_view_are_inert() -> None:
    shown = live_display([LiveLine("<img src=x>", ("<b>",), last="\x1b[2J<i>"), LiveLine("<u>", depth=1, last="<s>")])
    assert not any(tag in shown.data["text/html"] for tag in ("<img", "<b>", "<i>", "<u>", "<s>"))
    assert "\x1b" not in shown.data["text/plain"]


# ---------------------------------------------------------------- outputs after the cell


def replayed(calls: Iterable[tuple[Any, ...]]) -> list[tuple[str, object]]:
    """Return the outputs of a notebook after these messages."""
    recording, pending = Recording(), False
    for call in calls:
        if call[0] == "clear":
            pending = bool(call[1])
            recording.calls = recording.calls if pending else []
            continue
        if pending and call[0] != "update":
            recording.calls, pending = [], False
        recording.calls.append(call)
    return recording.saved()


def test_the_panel_leaves_no_trace_in_the_outputs(world: World) -> None:
    quiet = Recording()
    unwatched = CellView(quiet, live=False, limits=Limits(100_000, 1000))
    commands = Commands()
    first, second = commands.run("one\n", bound_to="a"), commands.run("two\n")
    observed = [*first, bound("a", "one"), *second]
    for at, event in enumerate(observed):
        world.observe(event, seconds=3 if at in (0, 4) else 0)
        unwatched(event)
    assert world.panel_lines
    for view in (world.view, unwatched):
        view.finish(None)
    assert replayed(world.output.calls) == quiet.saved() != []
    assert [call[1] for call in world.output.calls if call[0] == "clear"] == [True]
    assert not [due for due in world.clock.waiting if not due.cancelled]


def test_a_cell_without_outputs_is_empty_after_its_panel(world: World) -> None:
    world.observe(Commands().run("x", consumed=True)[0], seconds=1)
    world.view.fail()
    assert world.panel_lines and replayed(world.output.calls) == []


def test_the_result_is_displayed_after_the_panel_is_removed(world: World) -> None:
    world.observe(Commands().run("x", bound_to="a")[0], seconds=0.7)
    world.observe(bound("a", "x"))
    world.view.finish("x")
    assert world.output.kinds == ["display", "clear", "result"]


def test_a_question_removes_the_panel_for_the_rest_of_the_cell() -> None:
    world, shown = World(), list[str]()
    asker = PanelRemovingAsker(cast("Any", SimpleNamespace(available=True, show=shown.append)))
    asker.output = world.panel.output
    world.observe(Commands().run("x", bound_to="a")[0], seconds=0.7)
    assert asker.available and world.output.kinds == ["display"]
    asker.show("Who?")
    assert shown == ["Who?"] and world.output.kinds == ["display", "clear"]
    world.clock.pass_by(5)
    assert world.output.kinds == ["display", "clear"]


def test_much_output_removes_the_panel(world: World) -> None:
    world.observe(Commands().run("x", bound_to="a")[0], seconds=0.7)
    world.panel.output.stream("stdout", "x" * MAX_CHARACTERS)
    assert world.output.kinds == ["display", "stream"]
    world.panel.output.stream("stdout", "y")
    assert world.output.kinds == ["display", "stream", "stream", "clear", "stream"]
    world.clock.pass_by(5)
    assert len(world.output.calls) == 5


# ---------------------------------------------------------------- frequency of updates


def test_a_thousand_changes_in_a_second_send_ten_messages(world: World) -> None:
    world.observe(started(["a"]), Commands().run("x", at=iteration(0))[0])
    before = len(world.output.calls)
    for number in range(1000):
        world.observe(events.CommandOutput(iteration(0), 1, "stdout", f"{number}\n"), seconds=0.001)
    assert 8 <= len(world.output.calls) - before <= 11


def test_an_unchanged_panel_sends_nothing() -> None:
    clock, shown = FakeTime(), Recording()
    output = OutputWithPanel(shown)
    for _ in range(5):
        output.show_panel(Display({"text/plain": "the same"}))
    assert shown.kinds == ["display"]
    drawn: list[float] = []
    refresh = Refresh(lambda: drawn.append(clock.now()), clock)
    refresh.changed()
    clock.pass_by(100)
    assert len(drawn) == 1


def test_the_live_view_ignores_events_of_hot_loops() -> None:
    hot = {
        events.LoopPass,
        events.LoopLeft,
        events.ArmChosen,
        events.Bound,
        events.PipeProgressed,
        events.StatementDone,
    }
    assert not hot & LiveRun.kinds
    assert not {events.LoopPass, events.LoopLeft, events.ArmChosen, events.PipeProgressed} & CellView.kinds


# ---------------------------------------------------------------- an unreachable store


def test_a50_a_wait_for_the_store_is_shown_until_it_ends(world: World) -> None:
    waits = events.StoreWaits(place(), "PostgreSQL (db/runs)", "connection refused", 600.0)
    world.observe(waits, seconds=5.0)
    assert "waiting for PostgreSQL (db/runs): connection refused" in world.panel_lines[0]
    world.observe(events.StoreWaits(place(), "PostgreSQL (db/runs)"), seconds=5.0)
    assert world.panel.run.lines() == []
