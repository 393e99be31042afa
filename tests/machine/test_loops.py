"""`repeat`, `for` and `loop` (openprose.md 3.8)."""

from __future__ import annotations

import pytest
from machine.fakes import World, lines, value_of

from prose_kernel.runtime.events import LoopLeft, LoopPass


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (["let x = for v in [3, 4]:", "  let y = v + 1"], [4, 5]),
        (["let x = for v, i in [3, 4]:", "  let y = [v, i]"], [[3, 0], [4, 1]]),
        (["let x = repeat 2 as i:", "  let y = i"], [0, 1]),
        (["let x = loop (max: 3) as i:", "  let y = i"], 2),
        (["let x = for v in []:", "  let y = v"], []),
        (["let x = for v in [1, 2, 3]:", "  if v == 2:", "    continue", "  let y = v"], [1, None, 3]),
        (["let n = 2", "let x = repeat n:", "  let y = n"], [2, 2]),
    ],
)
async def test_values(code: list[str], value: object) -> None:
    assert await value_of(lines(*code)) == value


async def test_the_collection_is_computed_once() -> None:
    text = lines("let xs = [1, 2]", "let x = []", "for v in xs:", "  xs = xs + v", "  x = x + v")
    assert await value_of(text) == [1, 2]


async def test_the_condition_is_tested_before_every_pass() -> None:
    w = World(judge_says={"enough now": [False, False, True]})
    await w.run(lines("let n = 0", "loop until **enough now** (max: 9) as i:", "  n = n + i"))
    assert w.value("n") == 1
    assert [(e.index, e.maximum) for e in w.of(LoopPass)] == [(0, 9), (1, 9), (2, 9)]
    assert [(e.index, e.reason) for e in w.of(LoopLeft)] == [(2, "**enough now**")]
    assert [(r.loop, r.loop_index, r.loop_maximum) for r in w.judge.requests] == [("until", i, 9) for i in range(3)]


async def test_while_continues_while_true() -> None:
    w = World(judge_says={"more to do": [True, True, False]})
    await w.run(lines("let n = 0", "loop while **more to do**:", "  n = n + 1"))
    assert w.value("n") == 2


@pytest.mark.parametrize("mode", ["until", "while"])
async def test_uncertain_continues(mode: str) -> None:
    w = World(judge_says={"are we done": ["uncertain"] * 5})
    await w.run(lines("let n = 0", f"loop {mode} **are we done** (max: 4):", "  n = n + 1"))
    assert w.value("n") == 4
    assert w.of(LoopLeft)[0].reason == "max"
    assert len(w.judge.asked) == 5  # judged once more before the maximum is checked


async def test_no_progress_ends_a_loop() -> None:
    w = World(judge_says={"are we done": [False, "no-progress"]})
    await w.run(lines("let n = 0", "loop until **are we done** (max: 4):", "  n = n + 1"))
    assert (w.value("n"), w.of(LoopLeft)[0].reason) == (1, "no-progress")


BARE = ['let t = "it looks fine"', "let n = 0", "loop {mode} t (max: 3):", "  n = n + 1"]


@pytest.mark.parametrize("mode", ["until", "while"])
async def test_a_text_as_condition_is_judged_like_a_marker(mode: str) -> None:
    w = World(judge_says={"it looks fine": ["uncertain"] * 9})
    await w.run("\n".join(BARE).format(mode=mode) + "\n")
    assert (w.value("n"), w.of(LoopLeft)[0].reason) == (3, "max")
    asked = [(r.loop, r.loop_index, r.loop_maximum) for r in w.judge.requests]
    assert asked == [(mode, index, 3) for index in range(4)]


async def test_no_progress_of_a_text_ends_the_loop() -> None:
    w = World(judge_says={"it looks fine": [True, "no-progress"]})
    await w.run("\n".join(BARE).format(mode="while") + "\n")
    assert (w.value("n"), w.of(LoopLeft)[0].reason) == (1, "no-progress")


async def test_break_and_continue_take_the_innermost_loop() -> None:
    text = lines(
        "let x = []",
        "for a in [1, 2]:",
        "  for b in [1, 2, 3]:",
        "    if b == 2:",
        "      break",
        "    x = x + [[a, b]]",
        "  if a == 1:",
        "    continue",
        "  x = x + a",
    )
    assert await value_of(text) == [[1, 1], [2, 1], 2]


async def test_break_in_a_loop_runs_finally() -> None:
    text = lines("let x = []", "loop:", "  try:", "    break", "  finally:", "    x = x + 1")
    assert await value_of(text) == [1]


async def test_return_leaves_a_loop_in_a_block() -> None:
    text = lines("block f():", "  for v in [1, 2, 3]:", "    if v == 2:", "      return v", "let x = do f()")
    assert await value_of(text) == 2


@pytest.mark.parametrize(
    ("count", "code"), [('"many"', "E161"), ("0", "E160"), ("-1", "E160"), ("1.5", "E161"), ("true", "E161")]
)
async def test_a_count_from_a_name(count: str, code: str) -> None:
    error = await World().fail(lines(f"let n = {count}", "repeat n:", "  let y = 1"))
    assert error.code == code
    assert error.location is not None
    assert error.location.column == 8


async def test_a_count_from_text() -> None:
    assert await value_of(
        lines('let n = exec "count"', "let x = repeat n as i:", "  let y = i"), commands_say={"count": "3\n"}
    ) == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ('["a", {"b": 1}]', ["a", {"b": 1}]),
        ("here:\n```json\n[1, 2]\n```\n", [1, 2]),
        ('{"items": ["a"], "n": 1}', ["a"]),
        ("- one\n- two\n  - inner\n", ["one", "two"]),
        ("Intro\n1. one\n2) two\n", ["one", "two"]),
        ("one\n\n  two\nthree\n", ["one", "two", "three"]),
    ],
)
async def test_text_as_a_collection(text: str, items: list[object]) -> None:
    w = World(commands_say={"list": text})
    await w.run(lines('let r = exec "list"', "let x = for v in r:", "  let y = v"))
    assert w.value("x") == items


async def test_prose_is_split_by_the_judge_before_lines() -> None:
    w = World(sessions_say={"list": "one and two\nand three"}, judge_says={"items": [["one", "two", "three"]]})
    await w.run(lines('let r = session "list"', "let x = for v in r:", "  let y = v"))
    assert w.value("x") == ["one", "two", "three"]


@pytest.mark.parametrize("value", ["null", "true", "7", '"one line"', '""', "{ a: 1 }", "{ a: [1], b: [2] }"])
async def test_no_collection(value: str) -> None:
    error = await World().fail(lines(f"let v = {value}", "for i in v:", "  let y = i"))
    assert error.code == "E210"


async def test_a_last_loop_of_the_root_collects_nothing() -> None:
    assert await World().run(lines("repeat 3 as i:", "  let y = i")) is None


async def test_fixed_loops_report_their_passes() -> None:
    w = World()
    await w.run(lines("repeat 2:", "  let y = 1", "for v in []:", "  let y = 1"))
    assert [(e.index, e.maximum) for e in w.of(LoopPass)] == [(0, 2), (1, 2)]
    assert [(e.index, e.maximum, e.reason) for e in w.of(LoopLeft)] == [(1, 2, "end"), (-1, 0, "end")]


async def test_a_loop_of_exec_keeps_elements_if_its_value_is_used() -> None:
    w = World()
    await w.run(lines("let x = for v in [1, 2]:", '  exec "run {v}"', "for v in [3]:", '  exec "run {v}"'))
    assert w.value("x") == ["run 1", "run 2"]
    assert [name for name in w.store.kept if name.startswith("anon")] == ["anon_001", "anon_002"]


async def test_a49_a_pass_ended_by_break_adds_no_element() -> None:
    w = World()
    passes = ["  if v == 2:", "    continue", "  if v == 3:", "    break", "  let y = v"]
    await w.run(lines("let x = for v in [1, 2, 3, 4]:", *passes, "let z = repeat 4 as v:", *passes))
    assert w.values("x", "z") == [[1, None], [0, 1, None]]


async def test_a49_an_object_as_a_collection_is_its_only_array_field() -> None:
    w = World()
    await w.run(lines('let o = {items: [1, 2], name: "n"}', "let x = for v in o:", "  let y = v + 1"))
    assert w.value("x") == [2, 3]
    assert (await World().fail(lines("let o = {a: [1], b: [2]}", "for v in o:", "  let y = v"))).code == "E210"
    error = await World().fail(lines("let o = {items: [1, 2]}", "let x = o[0]"))
    assert (error.code, error.location and (error.location.line, error.location.column)) == ("E209", (2, 11))
