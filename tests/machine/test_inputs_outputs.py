"""`input`, `output` and the end of a program (openprose.md 3.1, 3.16, 6.3, 6.4)."""

from __future__ import annotations

import pytest
from machine.fakes import World, lines

from prose_kernel.runtime.events import Bound, CommandStarted, StatementDone


async def test_supplied_values_come_first() -> None:
    w = World(supplied={"b": "from the start"}, user_says={"c": "asked"})
    await w.run(lines('input a: "A?"', 'input b: "B?"', 'input c: "C?"'), inputs={"a": "from the call"})
    assert w.values("a", "b", "c") == ["from the call", "from the start", "asked"]
    assert [(q.name, q.prompt) for q in w.user.questions] == [("c", "C?")]
    assert w.store.kept["a"].kind == "input"


async def test_first_inputs_are_asked_for_before_anything_runs() -> None:
    w = World(user_says={"a": "x", "b": "y"})
    await w.run(lines('input a: "A?"', "agent z:", '  prompt: "p"', 'input b: "B?"', 'exec "go {a} {b}"'))
    kinds = [type(e) for e in w.events]
    assert kinds.index(CommandStarted) > max(i for i, k in enumerate(kinds) if k is Bound)
    assert w.commands.ran == ["go x y"]


async def test_later_inputs_pause_the_program_and_may_show_results() -> None:
    w = World(user_says={"sure": "yes"}, sessions_say={"plan": "the plan"})
    await w.run(lines('let p = session "plan"', "input sure: **do you want {p}**", "let x = sure"))
    assert w.user.questions[0].prompt == "do you want the plan"
    assert w.value("x") == "yes"


async def test_an_input_in_a_loop_asks_every_pass() -> None:
    w = World(user_says={"more": ["a", "b"]})
    await w.run(lines("let x = []", "repeat 2:", '  input more: "?"', "  x = x + more"))
    assert w.value("x") == ["a", "b"]


async def test_an_input_in_a_block_belongs_to_its_frame() -> None:
    w = World(user_says={"who": "me"})
    await w.run(lines("block f():", '  input who: "?"', "  return who", "let x = do f()"))
    assert w.value("x") == "me"
    assert "who" not in w.machine.bindings()
    assert "who__1" in w.store.kept


async def test_an_empty_answer_is_a_value() -> None:
    w = World(user_says={"a": ""})
    await w.run(lines('input a: "optional"'))
    assert w.value("a") == ""


async def test_an_unanswered_input_is_e212_and_nothing_runs() -> None:
    w = World()
    error = await w.fail(lines('input a: "A?"', 'exec "go"'))
    assert (error.code, error.type, error.no_answer) == ("E212", "InputError", True)
    assert error.location is not None
    assert error.location.line == 1
    assert w.commands.ran == []


async def test_a_value_can_be_supplied_between_cells() -> None:
    w = World()
    w.machine.host.supplied["a"] = "now"
    await w.run('input a: "?"\n', cell=True)
    assert w.value("a") == "now"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (lines("let a = 1", "let b = 2"), 2),
        (lines("output a = 1", "let b = 2"), {"a": 1}),
        (lines("output a = 1", "a = 2"), {"a": 2}),
        (lines("output a = 1", "if true:", "  output b = 2", "output a = 3"), {"a": 3, "b": 2}),
        (lines("let a = 1", "output a = a"), {"a": 1}),
        (lines("let a = 1", "output a", "output b = 2"), {"result": 1}),
        (lines("return { a: 1, b: [2] }", "output c = 2"), {"a": 1, "b": [2]}),
        (lines("output a = 1", "if true:", "  return", "output b = 2"), {"a": 1}),
        (lines("block f():", "  output a = 1", "let x = do f()", "if false:", "  output y = 1"), None),
        (lines("output result = { a: 1 }", "output b = 2"), {"result": {"a": 1}, "b": 2}),
        ("# nothing\n", None),
    ],
)
async def test_the_result_of_a_program(text: str, result: object) -> None:
    w = World()
    assert await w.run(text) == result


async def test_outputs_in_a_branch_are_program_outputs() -> None:
    w = World()
    await w.run(lines("parallel:", "  do:", "    output a = 1", "  do:", "    output b = 2"))
    assert w.machine.outputs() == {"a": 1, "b": 2}


async def test_the_value_of_a_cell() -> None:
    w = World()
    assert await w.run(lines("output a = 1", "let b = 2"), cell=True) == 2
    assert await w.run(lines("[1, 2] | map:", "  item + a"), cell=True) == [2, 3]
    assert await w.run("output b\n", cell=True) == 2
    assert await w.run("# nothing\n", cell=True) is None
    assert w.machine.outputs() == {"a": 1, "result": 2}


async def test_a_later_cell_may_turn_an_output_into_a_variable() -> None:
    w = World()
    await w.run("output a = 1\n", cell=True)
    await w.run("let a = 2\n", cell=True)
    assert w.machine.outputs() == {}
    assert w.machine.bindings()["a"].kind == "let"


async def test_destructuring() -> None:
    w = World(sessions_say={"s": 'Here:\n```json\n{"a": 1, "b": [2]}\n```'})
    await w.run(lines('let r = session "s"', "let { a, b } = r", "const { k } = { k: 5 }"))
    assert w.values("a", "b", "k") == [1, [2], 5]
    error = await w.fail(lines("let { a, nope } = { a: 9 }"), cell=True)
    assert error.code == "E209"
    assert error.location is not None
    assert error.location.column == 10
    assert w.value("a") == 1  # nothing is bound when one is missing


async def test_top_level_events_and_ordinals() -> None:
    w = World()
    await w.run(lines('input a: "?"', 'exec "x"', "let b = 1", "if true:", "  let c = 1"), inputs={"a": "v"})
    await w.run('exec "y"\n', cell=True)
    assert [e.place.ordinal for e in w.of(StatementDone)] == [1, 3, 4]
    assert [(e.name, e.place.ordinal, e.previous) for e in w.of(Bound)] == [
        ("a", 0, False),
        ("b", 2, False),
        ("c", 3, False),
    ]


async def test_run_events() -> None:
    w = World()
    await w.run("let a = 1\n", cell=True)
    await w.run("let a = 2\n", cell=True)
    await w.machine.end()
    await w.machine.end()
    names = [type(e).__name__ for e in w.events]
    assert names == ["RunStarted", "CellStarted", "Bound", "CellStarted", "Bound", "RunEnded"]
