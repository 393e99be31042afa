"""`try`, `catch`, `finally` and `throw` (openprose.md 3.12)."""

from __future__ import annotations

import pytest
from machine.fakes import Reply, World, lines, value_of

from prose_kernel.runtime.events import Caught, Failed, FinallyEntered, TryEntered


def steps(*body: str) -> str:
    return lines("let x = []", *body)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (["try:", "  x = x + 1", "catch:", "  x = x + 2", "finally:", "  x = x + 3"], [1, 3]),
        (["try:", '  throw "a"', "  x = x + 1", "catch:", "  x = x + 2", "finally:", "  x = x + 3"], [2, 3]),
        (["try:", "  try:", '    throw "a"', "  finally:", "    x = x + 1", "catch:", "  x = x + 2"], [1, 2]),
        (
            ["try:", "  try:", '    throw "a"', "  catch as e:", '    throw "b"', "catch as e:", "  x = x + e.message"],
            ["b"],
        ),
        (["try:", "  try:", '    throw "a"', "  catch:", "    throw", "catch as e:", "  x = x + e.message"], ["a"]),
        (
            ["try:", "  try:", '    throw "a"', "  finally:", '    throw "b"', "catch as e:", "  x = x + e.message"],
            ["b"],
        ),
        (["try:", '  throw "a"', "catch:", "  x = x + 1", "try:", "  x = x + 2", "catch:", "  x = x + 3"], [1, 2]),
    ],
)
async def test_order_of_try_catch_and_finally(body: list[str], value: object) -> None:
    assert await value_of(steps(*body)) == value


async def test_value_of_try() -> None:
    w = World()
    await w.run(
        lines(
            "let a = try:",
            "  let q = 1",
            "finally:",
            "  let q = 2",
            "let b = try:",
            '  throw "x"',
            "catch:",
            "  let q = 3",
        )
    )
    assert w.values("a", "b") == [1, 3]


async def test_throw_rethrows_the_same_error() -> None:
    w = World(commands_say={"boom": 7})
    error = await w.fail(lines("try:", '  exec "boom"', "catch as e:", "  let kept = e", "  throw e"))
    assert (error.code, error.details["exit_code"], error.details["line"]) == ("E203", 7, 2)
    assert error.location is not None
    assert error.location.line == 2
    assert len(w.of(Failed)) == 1


async def test_bare_throw_in_a_block_called_from_catch() -> None:
    error = await World(commands_say={"boom": 7}).fail(
        lines("block again():", "  throw", "try:", '  exec "boom"', "catch:", "  do again()")
    )
    assert (error.code, error.details["exit_code"]) == ("E203", 7)


async def test_bare_throw_elsewhere() -> None:
    error = await World().fail("throw\n")
    assert (error.code, error.type, error.message) == ("E207", "ThrowError", "")


async def test_throw_of_another_value() -> None:
    error = await World().fail(lines("let n = 3", "throw n"))
    assert error.message == "3"


async def test_throw_interpolates() -> None:
    error = await World().fail(lines("let n = 3", 'throw "only {n} left"'))
    assert error.message == "only 3 left"


async def test_fields_in_the_order_of_the_table() -> None:
    w = World(commands_say={"make it": Reply("out\n", code=2, stderr="bad\n")})
    await w.run(
        lines("block f():", "  parallel:", '    t = exec "make it"', "try:", "  do f()", "catch as e:", "  let x = e")
    )
    assert list(w.value("x")) == [
        "type", "code", "message", "statement", "line", "execution_id", "branch", "command", "exit_code", "stderr",
        "stdout", "timed_out", "kind",
    ]  # fmt: skip
    assert w.value("x") == {
        "type": "ExecError", "code": "E203", "message": "exec failed with exit code 2", "statement": 't = exec "make it"',
        "line": 3, "execution_id": 1, "branch": "t", "command": "make it", "exit_code": 2, "stderr": "bad\n",
        "stdout": "out\n", "timed_out": False, "kind": "exit",
    }  # fmt: skip


async def test_a_catch_variable_ends_with_its_body_and_is_kept() -> None:
    w = World()
    await w.run(lines("try:", '  throw "a"', "catch as err:", '  session "why"', "    context: err"))
    assert w.store.kept["err"].kind == "const"
    assert w.sessions.requests[0].context[0].location == "bindings/err.md"  # type: ignore[index]
    assert "err" not in w.machine.bindings()


async def test_a_catch_variable_does_not_overwrite_a_variable() -> None:
    w = World()
    await w.run(
        lines('let err = "mine"', "try:", '  throw "a"', "catch as err:", '  session "why"', "    context: err")
    )
    assert w.store.text("err") == "mine"
    assert "message: a" in (w.sessions.requests[0].context[0].text or "")  # type: ignore[index]


async def test_events() -> None:
    w = World()
    await w.run(lines("try:", '  throw "a"', "catch as e:", "  let q = 1", "finally:", "  let q = 2"))
    kinds = [type(e).__name__ for e in w.of(TryEntered, Failed, Caught, FinallyEntered)]
    assert kinds == ["TryEntered", "Failed", "Caught", "FinallyEntered"]
    assert w.of(Caught)[0].name == "e"


async def test_bindings_of_a_failed_run_are_kept() -> None:
    w = World()
    await w.fail(lines('let a = session "A"', "let b = 1", 'throw "stop"'))
    assert w.values("a", "b") == ["<A>", 1]
    assert w.store.text("b") == "1"


async def test_finally_runs_on_return_and_its_return_wins() -> None:
    text = lines("block f():", "  try:", "    return 1", "  finally:", "    return 2", "let x = do f()")
    assert await value_of(text) == 2


async def test_recursion_errors_can_be_caught() -> None:
    text = lines("block f():", "  do f()", "try:", "  do f()", "catch as e:", "  let x = e.type", "let y = 1")
    assert await value_of(text) == "RecursionLimitExceeded"


async def test_error_at_the_offending_operand() -> None:
    error = await World().fail(lines("let a = 1", 'let b = a + (a - "x")'))
    assert error.code == "E209"
    assert error.location is not None
    assert error.location.line == 2
    assert error.message == '`-` needs two numbers; "x" is not a number'
