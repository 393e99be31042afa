"""The outputs of a cell for its events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from notebook.recording import Commands, Recording, bound, exec_text, place, session_finished, step
from waiting import eventually

from prose_kernel.runtime import events
from prose_kernel.runtime.events import Event
from prose_kernel.runtime.ports import GateDecision, GateRequest
from prose_kernel.runtime.values import Value
from prose_kernel.views import cards
from prose_kernel.views.cell_view import MAX_DISPLAYS, CellView
from prose_kernel.views.output_limit import Limits

LIMITS = Limits(1000, 100)


def show(happened: Iterable[Event], value: Value = None, *, live: bool = False, **options: Any) -> Recording:
    output = Recording()
    view = CellView(output, live=live, limits=options.pop("limits", LIMITS), **options)
    for event in happened:
        view(event)
    view.finish(value)
    return output


def test_a_bare_exec_streams_and_says_nothing_more() -> None:
    happened = Commands().run("one\ntwo\n", "careful\n")
    output = show(happened, happened[-1].result and exec_text("one\ntwo\n"))
    assert output.calls[:2] == [("stream", "stdout", "one\ntwo\n"), ("stream", "stderr", "careful\n")]


def test_the_value_of_a_bare_exec_is_not_shown_twice() -> None:
    happened = Commands().run("one\n")
    finished = happened[-1]
    assert isinstance(finished, events.CommandFinished)
    from prose_kernel.runtime.values import ExecText

    assert show(happened, ExecText("one\n", finished.result)).kinds == ["stream"]


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ({"exit_code": 3, "kind": "exit"}, "exit code 3"),
        ({"exit_code": 143, "kind": "signal", "signal": "TERM", "outcome": "signaled"}, "ended by signal TERM"),
        ({"exit_code": 124, "kind": "timeout", "timed_out": True, "outcome": "timed_out"}, "ended at its time limit"),
        ({"stdout_truncated": True, "stdout_bytes": 2_000_000}, "stdout was 2,000,000 bytes"),
        ({"replaced_bytes": 3}, "3 bytes were not UTF-8 and are shown as"),
        ({"replaced_bytes": 1}, "1 byte was not UTF-8 and is shown as"),
        ({"background_left": 2}, "processes left running: 2"),
    ],
)
def test_a_result_card_says_what_was_not_ordinary(result: dict[str, Any], says: str) -> None:
    output = show(Commands().run("text\n", **result))
    assert output.kinds == ["stream", "display"]
    display = output.calls[1][1]
    assert says in display.data["text/plain"] and "$ make" in display.data["text/plain"]
    assert sorted(display.data) == ["text/html", "text/plain"]
    assert "duration" in display.facts
    assert "stdout:" not in display.data["text/plain"]  # it is seen above


def test_a_raised_failure_leaves_the_card_to_the_error() -> None:
    assert show(Commands().run("", "no\n", raised=True, exit_code=2, kind="exit")).kinds == ["stream"]


def test_a_changed_directory_is_named_only_when_its_name_is_stable() -> None:
    changed = Commands().run(directory="/home/me/book/sub")
    assert "directory: sub" in show(changed, directory_name=lambda p: "sub").texts[0]
    assert show(changed).calls == []


def test_a21_the_middle_of_a_long_output_is_left_out_visibly() -> None:
    output = show(Commands().run("x" * 5000 + "end"))
    assert output.texts == [
        "x" * 1000,
        "… 3,903 bytes not displayed; `let NAME = exec …` keeps all of it",
        "x" * 97 + "end",
    ]


def test_escape_sequences_never_reach_the_screen() -> None:
    output = show(Commands().run("\x1b]0;title\x07\x1b[32mgreen\x1b[0m\n"))
    assert output.texts == ["␛]0;title␇\x1b[32mgreen\x1b[0m\n"]


def test_a_bound_value_is_a_card_and_the_last_one_the_result() -> None:
    output = show([bound("a", "first"), bound("b", 2, place(2))], 2)
    assert output.kinds == ["display", "result"]
    assert output.texts == ["a: text = first", "b: number = 2"]
    assert sorted(output.calls[0][1].data) == ["text/html", "text/plain"]


def test_a_bound_exec_shows_its_exit_code_and_stderr() -> None:
    value = exec_text("out\n", exit_code=2, kind="exit", stderr="warning\n")
    output = show([bound("log", value, spawned="exec")], value)
    assert output.texts == ["log: text from exec = out\n[exit code 2]\n[stderr: warning]"]


def test_rows_of_a_table_are_one_line_of_compact_json() -> None:
    values: list[Value] = [["news", "figures"], {"a": "b" * 200}, "two\nlines"]
    output = show([bound(f"v{at}", value) for at, value in enumerate(values)], None)
    first, second, third = output.texts[0].split("\n")
    assert first == 'v0: array = ["news", "figures"]'
    assert second.startswith('v1: object = {"a": "bbb') and second.endswith("…") and len(second) < 100
    assert third == "v2: text = two …"


def test_a_consumed_command_prints_nothing() -> None:
    assert show(Commands().run("one\n", "careful\n", consumed=True, directory="/elsewhere")).calls == []


def test_a_consumed_command_that_fails_tells_so() -> None:
    output = show(Commands().run("one\n", "no such file\n", consumed=True, exit_code=2, kind="exit"))
    assert output.texts == ["$ make\n  exit code 2\n  stderr: no such file"]
    named = Commands().run("one\n", consumed=True, bound_to="x", exit_code=2, kind="exit")
    assert show(named).calls == []


def test_a_named_branch_that_fails_and_continues_is_reported() -> None:
    at = place(branches=(step(0, "build"),))
    happened: list[Event] = [
        events.ParallelStarted(place(), 1, ("build",), 1, False),
        *Commands().run("one\n", "oh\n", consumed=True, bound_to="build", at=at, exit_code=2, kind="exit"),
        events.BranchFinished(at, 1, 0, "build", "done", "one"),
        events.ParallelJoined(place(), 1),
    ]
    assert show(happened).texts == ["parallel, 1 branch: 1 done\n  ✓ build: one", "$ make\n  exit code 2\n  stderr: oh"]


def test_a_directory_that_comes_back_at_the_join_is_not_news() -> None:
    at = place(branches=(step(0, "a"),))
    happened: list[Event] = [
        events.ParallelStarted(place(), 1, ("a",), 1, False),
        *Commands().run("x\n", at=at, directory="/elsewhere"),
        events.ParallelJoined(place(), 1),
    ]
    assert not any("directory" in text for text in show(happened).texts)


async def test_a_consumed_command_shows_its_progress_next_to_its_branch() -> None:
    output = Recording()
    view = CellView(output, live=True, limits=LIMITS)
    at = place(branches=(step(0, "i0"),))
    command = Commands().run("20 %\n40 %\n", consumed=True, at=at)
    for event in [events.ParallelStarted(place(), 1, (), 1, True), *command[:2]]:
        view(event)
    await eventually(lambda: "update" in output.kinds)
    assert output.texts[-1] == "▸ made · 0 of 1\n  ▸ i0 · 40 %"
    for event in [command[2], events.BranchFinished(at, 1, 0, None, "done", "done"), events.ParallelJoined(place(), 1)]:
        view(event)
    view.finish(None)
    assert [kind for kind, _ in output.saved()] == ["display"]


def test_bindings_in_a_loop_make_one_table() -> None:
    commands = Commands()
    happened: list[Event] = []
    for i in range(200):
        happened += commands.run(bound_to="x")
        happened += [bound("x", str(i)), bound(f"y{i % 50}", i)]
    output = show(happened)
    assert output.kinds == ["display"]
    assert "x: text, bound 200 times = 199" in output.texts[0]
    assert "and 21 more; %bindings lists them" in output.texts[0]


def test_bindings_before_a_long_statement_are_shown_when_it_begins() -> None:
    commands = Commands()
    happened = [bound("a", "1"), *commands.run("hello\n", at=place(2))]
    assert show(happened).kinds == ["display", "stream"]


def test_a_cell_never_makes_fifty_outputs() -> None:
    commands = Commands()
    happened: list[Event] = []
    for i in range(300):
        happened += [bound(f"n{i}", i, place(i))]
        happened += commands.run(f"{i}\n", f"{i}\n", at=place(i), exit_code=1, kind="exit")
    output = show(happened)
    assert len(output.saved()) < 50
    text = "".join(t for kind, t in output.saved() if kind == "stream stdout")
    assert text == "".join(f"{i}\n" for i in range(300))
    errors = "".join(t for kind, t in output.saved() if kind == "stream stderr")
    assert errors == text


def test_a_session_is_markdown_with_its_facts_in_metadata() -> None:
    output = show([session_finished("# Title", "ref-1", model="m", tokens=3)], "other")
    assert output.kinds == ["display", "result"]
    display = output.calls[0][1]
    assert display.data == {
        "text/markdown": "<small>session · scripted</small>\n\n# Title",
        "text/plain": "session · scripted\n# Title",
    }
    facts = display.metadata["prose"]
    assert {**facts, "seconds": 0} == {
        **{"at": "c1/s0", "provider": "scripted", "origin": "scripted", "replayed": False},
        **{"model": "m", "tokens": 3, "seconds": 0},
    }


def test_the_last_session_is_shown_once_and_as_a_display_whether_it_streamed_or_not() -> None:
    value = "the answer"
    assert show([session_finished(value, value)], value).kinds == ["display"]


def test_a_bound_session_is_shown_under_its_name() -> None:
    output = show([session_finished("text", "ref", bound_to="plan")])
    assert output.calls[0][1].data["text/markdown"] == ("<small><code>plan</code> · session · scripted</small>\n\ntext")


def test_decisions_are_quiet_lines() -> None:
    gate = GateRequest("deploy", "deploy", "Deploy?", ("user",), 60.0, "1m", "throw")
    happened = [
        events.Judged(place(), "the tests pass", True, "rules", "exit: tests exit code is 0"),
        events.Judged(place(), "tone", "formal", "human"),
        events.Judged(place(), "ready", None, "rules"),
        events.GateOpened(place(), gate),
        events.GateResolved(place(), gate, GateDecision("approved", "user", "go on")),
        events.Warned(place(), "W118", "memory is kept"),
    ]
    output = show(happened)
    assert output.kinds == ["display"]
    assert output.texts[0].split("\n") == [
        "the tests pass → yes (rule: tests exit code is 0)",
        "tone → formal (human)",
        "ready → uncertain (rule)",
        "gate deploy: approved by user: go on",
        "Warning: memory is kept [W118]",
    ]


def test_a_condition_is_set_apart_and_cannot_act() -> None:
    output = show([events.Judged(place(), "<b>$a$</b> is good", True, "human")])
    markup = output.calls[0][1].data["text/html"]
    assert "<em>&lt;b&gt;$a$&lt;/b&gt; is good</em> → yes (human)" in markup
    assert markup.startswith('<div class="mathjax_ignore tex2jax_ignore"')


@pytest.mark.parametrize(("passes", "lines"), [(3, ["ready → no (rule)"] * 3), (4, ["ready → no, 4 times (rule)"])])
def test_the_same_verdict_of_many_passes_is_one_line(passes: int, lines: list[str]) -> None:
    happened = [events.Judged(place(), "ready", False, "rules") for _ in range(passes)]
    output = show([*happened, events.Judged(place(), "ready", True, "rules")])
    assert output.texts[0].split("\n") == [*lines, "ready → yes (rule)"]


def test_of_many_reasons_the_last_one_is_given() -> None:
    happened: list[Event] = [events.Judged(place(), "n is 9", False, "rules", f"word: n is {n}") for n in range(8)]
    assert show(happened).texts == ["n is 9 → no, 8 times (rule: n is 7, the last time)"]


def _parallel() -> list[Event]:
    commands = Commands()
    happened: list[Event] = [events.ParallelStarted(place(), 1, ("slow", None), 2, False)]
    fast = commands.run("fast 1\nfast 2", at=place(branches=(step(1, "_2"),)))
    slow = commands.run("slow\n", at=place(branches=(step(0, "slow"),)))
    happened += [slow[0], *fast, events.BranchFinished(place(branches=(step(1, "_2"),)), 1, 1, None, "done", "fast")]
    happened += [*slow[1:], events.BranchFinished(place(branches=(step(0, "slow"),)), 1, 0, "slow", "done", "slow")]
    return [*happened, events.ParallelJoined(place(), 1)]


def test_parallel_shows_branches_in_source_order() -> None:
    output = show(_parallel())
    assert output.kinds == ["display", "stream", "stream"]
    assert output.texts[0] == "parallel, 2 branches: 2 done\n  ✓ slow: slow\n  ✓ _2: fast"
    assert "".join(output.texts[1:]) == "[slow] slow\n[_2] fast 1\n[_2] fast 2\n"


async def test_a_person_sees_progress_and_the_notebook_keeps_the_same() -> None:
    quiet = show(_parallel())
    output = Recording()
    view = CellView(output, live=True, limits=LIMITS)
    happened = _parallel()
    for event in happened[:-1]:
        view(event)
    assert output.kinds == ["display"]
    assert "<progress" in output.calls[0][1].data["text/html"]
    await eventually(lambda: len(output.calls) >= 2)
    assert output.kinds == ["display", "update"]
    view(happened[-1])
    view.finish(None)
    assert output.saved() == quiet.saved()


def test_nested_parallel_folds_into_its_branch() -> None:
    commands = Commands()
    outer = step(0, "a")
    happened: list[Event] = [
        events.ParallelStarted(place(), 1, ("a", "b"), 2, False),
        events.ParallelStarted(place(branches=(outer,)), 2, ("x", "y"), 2, False),
        *commands.run("in y\n", at=place(branches=(outer, step(1, "y", 2)))),
        *commands.run("in x\n", at=place(branches=(outer, step(0, "x", 2)))),
        events.ParallelJoined(place(branches=(outer,)), 2),
        *commands.run("after\n", at=place(branches=(outer,))),
        *commands.run("in b\n", at=place(branches=(step(1, "b"),))),
        events.ParallelJoined(place(), 1),
    ]
    text = "".join(t for k, t in show(happened).saved() if k == "stream stdout")
    assert text == "[a] [x] in x\n[a] [y] in y\n[a] after\n[b] in b\n"


def test_a_parallel_left_by_an_error_still_shows_its_branches() -> None:
    output = Recording()
    view = CellView(output, live=False, limits=LIMITS)
    for event in _parallel()[:-2]:
        view(event)
    view.fail()
    assert output.kinds[0] == "display" and "cancelled" in output.texts[0]
    assert "[slow] slow\n" in output.texts


def test_ten_thousand_branches_make_few_outputs() -> None:
    commands = Commands()
    happened: list[Event] = [events.ParallelStarted(place(), 1, (), 10_000, True)]
    for i in range(10_000):
        at = place(branches=(step(i, f"i{i}"),))
        happened += commands.run(f"{i}\n", at=at, exit_code=1, kind="exit")
        happened.append(events.BranchFinished(at, 1, i, None, "done", i))
    output = show([*happened, events.ParallelJoined(place(), 1)])
    assert len(output.saved()) < 10
    text = "".join(t for k, t in output.saved() if k == "stream stdout")
    assert text.count("\n") == 2 * cards.ENDS and text.startswith("[i0] 0\n[i1] 1\n")
    assert "what 9,960 more branches have shown" in output.texts[-1]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("text", "text"),
        (3, "3"),
        (True, "true"),
        ([1, {"a": 2}], '[1, {"a": 2}]'),
        (["x" * 60, "y" * 60], '[\n  "' + "x" * 60 + '",\n  "' + "y" * 60 + '"\n]'),
    ],
)
def test_a_last_value_is_the_result(value: Value, shown: str) -> None:
    output = show([events.StatementDone(place(), value)], value)
    assert output.kinds == ["result"] and output.texts == [shown]


def test_null_is_not_a_result() -> None:
    assert show([], None).calls == []


def test_hostile_values_stay_text_in_cards() -> None:
    output = show([bound("x", "<script>alert(1)</script>\x1b[2J")], None)
    display = output.calls[0][1]
    assert "<script" not in display.data["text/html"] and "\x1b" not in display.data["text/html"]


@pytest.mark.parametrize(
    "happened",
    [
        [bound("x", "$5 and $6")],
        [bound("x", "$5 and $6"), bound("x", "$5 and $6")],
        [*Commands().run(exit_code=1, kind="exit", command="echo $5 and $6")],
        _parallel(),
    ],
    ids=["card", "table", "command", "parallel"],
)
def test_dollar_signs_begin_no_formula(happened: list[Event]) -> None:
    markup = show(happened).calls[0][1].data["text/html"]
    assert markup.partition(">")[0].partition(" ")[2].startswith('class="mathjax_ignore tex2jax_ignore"')


def test_displays_beyond_the_budget_are_gathered() -> None:
    happened = [session_finished(f"answer {i}", f"r{i}", place(i)) for i in range(MAX_DISPLAYS + 30)]
    output = show(happened)
    assert len(output.calls) == MAX_DISPLAYS + 1
    assert f"answer {MAX_DISPLAYS + 29}" in output.texts[-1] and "answer 20" in output.texts[-1]
