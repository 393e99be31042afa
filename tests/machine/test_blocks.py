"""Block calls: ids, results, soft exports, limits (openprose.md 3.6)."""

from __future__ import annotations

import pytest
from machine.fakes import World, lines, value_of

from prose_kernel.runtime.events import BlockEntered, BlockLeft


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (["return 5", "let y = 6"], 5),
        (["output 5", "let y = 6"], 5),
        (["output y = 5", "let z = 6"], 5),
        (["output y = 5", "output z = 6"], {"y": 5, "z": 6}),
        (["let y = 5"], 5),
        (["output y = 5", "return", "output z = 6"], 5),
        (["let y = 5", "return", "let z = 6"], 5),
        (["let y = 5", "assert true"], 5),
        (["if false:", "  let y = 1"], None),
        (["output y = 5", "return 7"], 7),
        (["try:", "  return 5", "finally:", "  let w = 1"], 5),
    ],
)
async def test_result_of_a_block(body: list[str], value: object) -> None:
    text = lines("block f():", *(f"  {line}" for line in body), "let x = do f()")
    assert await value_of(text) == value


async def test_an_empty_body_is_null() -> None:
    assert await value_of(lines("block f():", "  # nothing", "let x = do f()")) is None


async def test_missing_arguments_are_null_and_extra_ones_are_dropped() -> None:
    w = World()
    await w.run(lines("block f(a, b):", "  return [a, b]", "let x = do f(1)", "let y = do f(1, 2, 3)"))
    assert w.values("x", "y") == [[1, None], [1, 2]]


async def test_execution_ids_and_keys() -> None:
    w = World()
    await w.run(lines("block f(n):", "  let v = n", "  if n > 1:", "    do f(n - 1)", "do f(3)", "do f(1)"))
    assert [w.store.text(f"v__{i}") for i in (1, 2, 3, 4)] == ["3", "2", "1", "1"]
    entered = w.of(BlockEntered, BlockLeft)
    assert [(type(e).__name__, e.execution_id, e.place.depth) for e in entered] == [
        ("BlockEntered", 1, 0),
        ("BlockEntered", 2, 1),
        ("BlockEntered", 3, 2),
        ("BlockLeft", 3, 2),
        ("BlockLeft", 2, 1),
        ("BlockLeft", 1, 0),
        ("BlockEntered", 4, 0),
        ("BlockLeft", 4, 0),
    ]


async def test_a_bare_do_exports_named_outputs() -> None:
    text = lines("block f():", "  output key = 5", "  let own = 1", "do f()", "let x = key")
    assert await value_of(text) == 5


async def test_a_bound_do_exports_nothing() -> None:
    error = await World().fail(
        lines("block f():", "  output key = 5", "block g():", "  return key", "let x = do f()", "do g()")
    )
    assert error.code == "E208"


async def test_a_bare_do_exports_the_branches_of_a_last_parallel() -> None:
    text = lines(
        "block f():", "  parallel:", '    a = session "A"', '    b = session "B"', "do f()", 'let x = "{a} {b}"'
    )
    assert await value_of(text) == "<A> <B>"


async def test_a_table_entry_hides_an_export_and_a_later_export_replaces_it() -> None:
    text = lines(
        "block f(n):",
        "  output key = n",
        "block g():",
        "  return key",
        "do f(1)",
        "do f(2)",
        "let seen = do g()",
        "let key = 3",
        "do f(4)",
        "let x = [seen, key]",
    )
    assert await value_of(text) == [2, 3]


async def test_an_export_is_seen_by_callees_of_the_caller() -> None:
    text = lines("block f():", "  output key = 5", "block g():", "  return key", "do f()", "let x = do g()")
    assert await value_of(text) == 5


async def test_an_assignment_to_an_export_declares() -> None:
    w = World()
    await w.run(lines("block f():", "  output key = 5", "do f()", "key = key + 1"))
    assert w.value("key") == 6


async def test_exports_of_a_branch_are_published_at_the_join() -> None:
    text = lines("block f(n):", "  output key = n", "parallel:", "  do f(1)", "  do f(2)", "let x = key")
    assert await value_of(text) == 2


async def test_blocks_are_hoisted_within_a_cell() -> None:
    w = World()
    await w.run(lines("let x = do f()", "block f():", "  return 1"), cell=True)
    assert w.value("x") == 1


async def test_per_block_recursion_limit() -> None:
    w = World()
    error = await w.fail(
        lines("block f(n) (max_depth: 5):", "  n = 1", "block g(n) (max_depth: 5):", "  do g(n + 1)", "do g(0)")
    )
    assert (error.code, error.type) == ("E206", "RecursionLimitExceeded")
    assert error.message == "RecursionLimitExceeded: block 'g' exceeded max_depth 5"
    assert [e.execution_id for e in w.of(BlockEntered)] == [1, 2, 3, 4, 5]


async def test_default_limit_counts_frames_of_the_same_block() -> None:
    text = lines("let n = 0", "block f():", "  n = n + 1", "  do g()", "block g():", "  do f()", "do f()")
    w = World(listening=False)
    error = await w.fail(text)
    assert "block 'f' exceeded max_depth 100" in error.message
    assert w.value("n") == 100


async def test_the_limit_of_the_whole_stack() -> None:
    w = World(listening=False)
    error = await w.fail(lines("let n = 0", "block f() (max_depth: 9000):", "  n = n + 1", "  do f()", "do f()"))
    assert "exceeded max_depth 500" in error.message
    assert w.value("n") == 500
    assert len(error.call_stack) == 21


async def test_blocks_share_the_callers_directory() -> None:
    from machine.fakes import Reply

    w = World(commands_say={"cd a": Reply(cwd="/a")})
    await w.run(lines("block f():", '  exec "cd a"', "do f()", 'exec "pwd"'))
    assert [r.cwd for r in w.commands.requests] == ["/start", "/a"]


async def test_arguments_are_evaluated_left_to_right_in_the_caller() -> None:
    w = World(judge_says={"first": True, "second": False})
    await w.run(lines("block f(a, b):", "  return [a, b]", "let x = do f(**first**, **second**)"))
    assert w.judge.asked == ["first", "second"]
    assert w.value("x") == [True, False]
