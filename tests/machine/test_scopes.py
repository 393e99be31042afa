"""Names, tables and temporary names (openprose.md 3.1, 3.5)."""

from __future__ import annotations

import pytest
from machine.fakes import World, lines, value_of


async def test_bodies_open_no_scope() -> None:
    w = World()
    await w.run(lines("if true:", "  let a = 1", "do:", "  let b = 2", "for i in [1]:", "  let c = a + b"))
    assert w.values("a", "b", "c") == [1, 2, 3]


async def test_let_in_a_nested_body_is_an_assignment() -> None:
    text = lines("let n = 0", "repeat 3:", "  let n = n + 1")
    assert await value_of(text, "n") == 3


async def test_temporary_names_hide_and_end() -> None:
    w = World()
    await w.run(lines('let i = "outer"', "let seen = []", "for i in [1, 2]:", "  seen = seen + i", "let after = i"))
    assert w.values("seen", "after") == [[1, 2], "outer"]


@pytest.mark.parametrize("body", ["i = 5", "let i = 5", "output i = 5"])
async def test_a_temporary_name_cannot_be_written(body: str) -> None:
    error = await World().fail(lines("for i in [1]:", f"  {body}"))
    assert error.code == "E137"
    assert (error.location.line, error.location.text) == (2, f"  {body}") if error.location else False


@pytest.mark.parametrize(("declared", "code"), [("const x = 1", "E130"), ('input x: "?"', "E137")])
async def test_const_and_input_cannot_be_reassigned(declared: str, code: str) -> None:
    error = await World(user_says={"x": "v"}).fail(lines(declared, "x = 2"))
    assert error.code == code
    assert error.location is not None
    assert (error.location.line, error.location.column) == (2, 1)


async def test_an_assignment_declares_where_nothing_is_found() -> None:
    assert await value_of("x = 4\n") == 4


async def test_blocks_see_their_caller_and_write_to_it() -> None:
    text = lines("block inc():", "  n = n + 1", "  let own = n", "let n = 1", "do inc()", "do inc()", "let x = n")
    w = World()
    await w.run(text)
    assert w.value("x") == 3
    assert "own" not in w.machine.bindings()


async def test_let_in_a_block_is_a_new_variable() -> None:
    text = lines("block f():", "  let n = 9", "  n = n + 1", "let n = 1", "do f()", "let x = n")
    assert await value_of(text) == 1


async def test_scope_is_dynamic_through_two_blocks() -> None:
    text = lines(
        "block inner():",
        "  return secret",
        "block outer():",
        "  let secret = 7",
        "  return do inner()",
        "let x = do outer()",
    )
    assert await value_of(text) == 7


async def test_an_unknown_name_is_e208_at_its_place() -> None:
    error = await World().fail(lines("block f():", "  let y = 1 + nowhere", "do f()"))
    assert (error.code, error.type) == ("E208", "TypeError")
    assert error.location is not None
    assert (error.location.line, error.location.column) == (2, 15)
    assert error.call_stack == ("in block f #1, called at line 3 of main.prose",)


async def test_a_gate_is_not_a_value() -> None:
    error = await World().fail(lines("block f():", "  let y = ok", "gate ok:", '  prompt: "?"', "do f()"))
    assert (error.code, error.hint) == ("E208", "a gate binds nothing")


async def test_cells_continue_the_same_frame() -> None:
    w = World()
    await w.run("const a = 1\nblock f():\n  return a + 1\n", cell=True)
    await w.run("let b = do f()\n", cell=True)
    await w.run("let a = 10\nblock f():\n  return a + 2\n", cell=True)
    assert await w.run("let b = do f()\n", cell=True) == 12
    assert list(w.machine.bindings()) == ["a", "b"]
    assert w.machine.bindings()["a"].kind == "let"


async def test_known_names_for_the_next_cell() -> None:
    w = World()
    await w.run(
        lines(
            "agent a:",
            "  persist: project",
            "block f(x, y):",
            "  output z = x",
            'let r = exec "ls"',
            "const c = 1",
            "do f(1, 2)",
            "gate ok:",
            '  prompt: "?"',
        ),
        cell=True,
    )
    known = w.machine.known()
    assert dict(known.variables)["r"].from_exec
    assert {name: v.kind for name, v in known.variables.items()} == {"r": "let", "c": "const"}
    assert known.blocks == {"f": ("x", "y")}
    assert known.agents["a"].persist == "project"
    assert known.soft_exports == {"z"}
    assert known.gates == {"ok"}


async def test_bindings_record_their_kind_and_source() -> None:
    w = World()
    await w.run(lines("let a = 1", 'let b = exec "ls"'))
    info = w.machine.bindings()["b"]
    assert (info.kind, info.spawned, info.statement, info.location.line) == ("let", "exec", 'let b = exec "ls"', 2)


async def test_names_with_hyphens() -> None:
    assert await value_of(lines("let a-b = 3", "let x = a-b - 1")) == 2


async def test_a49_a_frame_of_the_call_stack_shows_its_arguments_shortened() -> None:
    error = await World().fail(lines("block f(a, b, c):", "  let y = 1 + nowhere", f'do f(1, "{"x" * 90}", [1, 2])'))
    (line,) = error.call_stack
    assert line.startswith('in block f(1, "xxx') and line.endswith(") #1, called at line 3 of main.prose")
    assert "list of 2" in line and len(line) < 130
