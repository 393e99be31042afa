"""`parallel` and `parallel for`: join and failure modes, names, values (openprose.md 3.7)."""

from __future__ import annotations

from typing import Any

import pytest
from machine.fakes import Reply, World, lines, value_of

from prose_kernel.runtime.events import Bound, BranchFinished, CommandStarted, ParallelJoined, ParallelStarted

OK, BAD = "ok", "bad"


def world(**branches: tuple[str, float]) -> World:
    """Return a world in which each branch runs the command of its name, with the given ending and seconds."""
    replies = {n: Reply(n, code=0 if how == OK else 1, after=after) for n, (how, after) in branches.items()}
    return World(commands_say=replies)


def program(modifiers: str, *names: str) -> str:
    head = f"parallel ({modifiers}):" if modifiers else "parallel:"
    return lines(f"let v = {head}", *(f'  {n} = exec "{n}"' for n in names))


ERR = "error"

# modifiers, branches (how, seconds), value, names, cancelled, the branch that fails the block
MATRIX: list[tuple[str, dict[str, tuple[str, float]], Any, dict[str, Any], list[str], str | None]] = [
    ("", {"a": (OK, 2), "b": (OK, 1)}, {"a": "a", "b": "b"}, {"a": "a", "b": "b"}, [], None),
    ("", {"a": (OK, 1), "b": (BAD, 2), "c": (OK, 3)}, None, {"a": "a", "b": None, "c": None}, ["c"], "b"),
    ('on-fail: "continue"', {"a": (BAD, 1), "b": (OK, 2)}, {"a": ERR, "b": "b"}, {"a": ERR, "b": "b"}, [], None),
    ('on-fail: "ignore"', {"a": (BAD, 1), "b": (OK, 2)}, {"a": None, "b": "b"}, {"a": None, "b": "b"}, [], None),
    ('"first"', {"a": (OK, 2), "b": (OK, 1)}, "b", {"a": None, "b": "b"}, ["a"], None),
    ('"first"', {"a": (OK, 2), "b": (BAD, 1)}, None, {"a": None, "b": None}, ["a"], "b"),
    (
        '"first", on-fail: "continue"',
        {"a": (OK, 2), "b": (BAD, 1), "c": (OK, 3)},
        "a",
        {"a": "a", "b": ERR, "c": None},
        ["c"],
        None,
    ),
    ('"first", on-fail: "continue"', {"a": (BAD, 2), "b": (BAD, 1)}, None, {"a": ERR, "b": ERR}, [], None),
    ('"first", on-fail: "ignore"', {"a": (OK, 2), "b": (BAD, 1)}, None, {"a": None, "b": None}, ["a"], None),
    ('"first", on-fail: "ignore"', {"a": (OK, 1), "b": (BAD, 2)}, "a", {"a": "a", "b": None}, ["b"], None),
    ('"any"', {"a": (BAD, 1), "b": (OK, 2), "c": (OK, 3)}, "b", {"a": None, "b": "b", "c": None}, ["c"], None),
    (
        '"any", count: 2',
        {"a": (OK, 3), "b": (BAD, 1), "c": (OK, 2)},
        ["c", "a"],
        {"a": "a", "b": None, "c": "c"},
        [],
        None,
    ),
    (
        '"any", count: 2',
        {"a": (OK, 4), "b": (BAD, 1), "c": (BAD, 2)},
        None,
        {"a": None, "b": None, "c": None},
        ["a"],
        "c",
    ),
    ('"any", count: 1', {"a": (OK, 1), "b": (OK, 2)}, ["a"], {"a": "a", "b": None}, ["b"], None),
    (
        '"any", count: 2, on-fail: "continue"',
        {"a": (BAD, 1), "b": (OK, 2), "c": (OK, 3)},
        ["b", "c"],
        {"a": ERR, "b": "b", "c": "c"},
        [],
        None,
    ),
    ('"any", count: 2, on-fail: "continue"', {"a": (BAD, 1), "b": (OK, 2)}, ["b"], {"a": ERR, "b": "b"}, [], None),
    ('"any", on-fail: "continue"', {"a": (BAD, 1), "b": (BAD, 2)}, None, {"a": ERR, "b": ERR}, [], None),
    (
        '"any", count: 2, on-fail: "ignore"',
        {"a": (BAD, 1), "b": (OK, 2), "c": (OK, 3)},
        [None, "b"],
        {"a": None, "b": "b", "c": None},
        ["c"],
        None,
    ),
    ('"any", count: 3', {"a": (OK, 1), "b": (OK, 2)}, ["a", "b"], {"a": "a", "b": "b"}, [], None),
    ('"any", count: 3', {"a": (OK, 1), "b": (BAD, 2)}, None, {"a": "a", "b": None}, [], "b"),
]


def seen(value: Any) -> Any:
    if isinstance(value, dict):
        return ERR if value.get("type") == "ExecError" else {k: seen(v) for k, v in value.items()}
    return value


@pytest.mark.parametrize(("modifiers", "branches", "value", "names", "cancelled", "fails"), MATRIX)
async def test_join_and_failure_modes(
    modifiers: str,
    branches: dict[str, tuple[str, float]],
    value: Any,
    names: dict[str, Any],
    cancelled: list[str],
    fails: str | None,
) -> None:
    w = world(**branches)
    text = program(modifiers, *branches)
    if fails is None:
        await w.run(text)
        assert seen(w.value("v")) == value
    else:
        error = await w.fail(text)
        assert (error.code, error.details["branch"], error.details["command"]) == ("E203", fails, fails)
    assert {name: seen(w.value(name)) for name in names} == names
    assert w.commands.cancelled == cancelled
    assert len(w.of(ParallelJoined)) == 1


async def test_ties_are_resolved_in_source_order() -> None:
    for _ in range(3):
        w = world(a=(OK, 1), b=(OK, 1), c=(BAD, 1))
        await w.run(program('"first"', "a", "b", "c"))
        assert w.value("v") == "a"


async def test_values_by_naming() -> None:
    w = World()
    await w.run(
        lines("let all = parallel:", '  a = session "A"', "  b = [2] | map:", "    item")
        + lines(
            "let none = parallel:",
            '  session "A"',
            '  session "B"',
            "let mixed = parallel:",
            '  session "A"',
            '  c = session "C"',
            '  session "D"',
        )
    )
    assert w.value("all") == {"a": "<A>", "b": [2]}
    assert w.value("none") == ["<A>", "<B>"]
    assert w.value("mixed") == {"_1": "<A>", "c": "<C>", "_3": "<D>"}


async def test_branch_lets_are_local_until_the_join() -> None:
    text = lines(
        'let t = "before"',
        "let seen = []",
        "parallel:",
        "  do:",
        '    let t = "one"',
        '    exec "slow"',
        "    seen = seen + t",
        "  do:",
        '    exec "quick"',
        "    seen = seen + t",
        '    let t = "two"',
        "let x = t",
    )
    w = World(commands_say={"slow": Reply(after=2), "quick": Reply(after=1)})
    await w.run(text)
    assert w.values("seen", "x") == [["before", "one"], "two"]


async def test_plain_assignments_take_effect_immediately() -> None:
    text = lines(
        "let n = 0",
        "let x = []",
        "parallel:",
        "  do:",
        "    n = n + 1",
        '    exec "slow"',
        "    x = x + n",
        "  do:",
        "    n = n + 1",
    )
    assert await value_of(text, commands_say={"slow": Reply(after=1)}) == [2]


async def test_siblings_see_values_from_before_the_fork() -> None:
    w = World(commands_say={"slow": Reply(after=1)})
    await w.run(
        lines('let a = "old"', "parallel:", '  a = session "new"', "  b = do:", '    exec "slow"', "    let y = a")
    )
    assert w.values("a", "b") == ["<new>", "old"]


async def test_a_branch_name_that_exists_is_assigned() -> None:
    w = World()
    await w.run(lines("let a = 1", "parallel:", '  a = session "A"', "let b = a"))
    assert w.value("b") == "<A>"
    assert w.store.text("a") == "<A>"


async def test_accumulating_in_parallel_for() -> None:
    w = World(order=lambda text: float(9 - int(text[-1])) if text.startswith("go") else 0)
    await w.run(
        lines(
            "let acc = []",
            "let x = parallel for v, i in [1, 2, 3]:",
            '  let r = exec "go {v}"',
            "  acc = acc + [v]",
            "  let y = [v, i]",
        )
    )
    assert w.values("acc", "x") == [[3, 2, 1], [[1, 0], [2, 1], [3, 2]]]
    assert "r" not in w.machine.bindings()
    assert [name for name in w.store.kept if name.startswith("r")] == ["r__i2", "r__i1", "r__i0"]


@pytest.mark.parametrize(
    ("modifiers", "value"),
    [
        ('on-fail: "continue"', ["1", ERR, "3"]),
        ('on-fail: "ignore"', ["1", None, "3"]),
        ('"first"', "3"),
        ('"any", count: 2', ["3", "1"]),
    ],
)
async def test_parallel_for_with_modifiers(modifiers: str, value: object) -> None:
    w = World(commands_say={"1": Reply("1", after=2), "2": Reply(code=1, after=3), "3": Reply("3", after=1)})
    await w.run(lines(f"let x = parallel for v in [1, 2, 3] ({modifiers}):", '  exec "{v}"'))
    assert [seen(v) for v in w.value("x")] == value if isinstance(value, list) else w.value("x") == value


async def test_parallel_for_fails_fast() -> None:
    w = World(commands_say={"1": Reply(after=5), "2": Reply(code=1, after=1)})
    error = await w.fail(lines("parallel for v in [1, 2]:", '  exec "{v}"'))
    assert error.details["branch"] == "i1"
    assert w.commands.cancelled == ["1"]


async def test_continue_ends_an_iteration_and_break_the_rest() -> None:
    text = lines("let x = parallel for v in [1, 2]:", "  if v == 1:", "    continue", "  let y = v")
    assert await value_of(text) == [None, 2]
    w = World(commands_say={"slow": Reply(after=5)})
    await w.run(lines("let x = parallel for v in [1, 2]:", "  if v == 2:", "    break", '  exec "slow"'))
    assert w.value("x") == [None, None]
    assert w.commands.cancelled == ["slow"]


async def test_return_in_a_branch_leaves_the_block() -> None:
    w = World(commands_say={"slow": Reply(after=5)})
    await w.run(
        lines(
            "block f():", "  parallel:", '    exec "slow"', "    do:", "      return 7", "  return 8", "let x = do f()"
        )
    )
    assert w.value("x") == 7
    assert w.commands.cancelled == ["slow"]


async def test_branches_start_in_source_order_and_ids_follow() -> None:
    w = World(order=lambda text: {"A": 3.0, "B": 2.0, "C": 1.0}.get(text, 0))
    await w.run(
        lines(
            "block f(t):", '  output r = session "{t}"', "parallel:", *(f'  {n.lower()} = do f("{n}")' for n in "ABC")
        )
    )
    assert w.sessions.tasks == ["A", "B", "C"]
    assert [w.store.text(f"r__{i}") for i in (1, 2, 3)] == ["<A>", "<B>", "<C>"]


async def test_events() -> None:
    w = world(a=(OK, 2), b=(BAD, 1))
    await w.run(program('on-fail: "continue"', "a", "b"))
    started = w.of(ParallelStarted)[0]
    assert (started.labels, started.count, started.iterations, started.strategy) == (("a", "b"), 2, False, "all")
    assert [(e.index, e.label, e.status) for e in w.of(BranchFinished)] == [(1, "b", "failed"), (0, "a", "done")]
    assert [(s.parallel, s.index, s.label) for s in w.of(BranchFinished)[0].place.branches] == [(1, 1, "b")]
    assert [e.place.branches[0].label for e in w.of(CommandStarted)] == ["a", "b"]
    assert [(e.name, len(e.place.branches)) for e in w.of(Bound)] == [("a", 1), ("b", 1), ("v", 0)]


async def test_working_directories_are_snapshots() -> None:
    w = World(commands_say={"cd a": Reply(cwd="/a"), "cd b": Reply(cwd="/b"), "pwd 1": Reply(after=1)})
    await w.run(
        lines(
            'exec "cd a"', "parallel:", "  do:", '    exec "cd b"', '    exec "pwd 1"', '  exec "pwd 2"', 'exec "pwd 3"'
        )
    )
    assert {r.command: r.cwd for r in w.commands.requests} == {
        "cd a": "/start", "cd b": "/a", "pwd 2": "/a", "pwd 1": "/b", "pwd 3": "/a",
    }  # fmt: skip
    assert w.machine.cwd == "/a"


@pytest.mark.parametrize("cap", [1, 2, 3, None])
async def test_a_cap_changes_no_result(cap: int | None) -> None:
    w = World(concurrency=cap, order=lambda text: float(len(text)))
    await w.run(
        lines(
            "parallel:",
            *(f'  b{n} = session "{"x" * n}"' for n in range(1, 6)),
            "let y = parallel for v in [3, 1, 2]:",
            '  session "go {v}"',
        )
    )
    assert w.values("b1", "b5", "y") == ["<x>", "<xxxxx>", ["<go 3>", "<go 1>", "<go 2>"]]
    assert w.sessions.peak == (cap or 5)


async def test_two_thousand_iterations_keep_few_alive() -> None:
    w = World(listening=False)
    await w.run(lines("let xs = repeat 2000 as i:", "  let y = i", "let x = parallel for v in xs:", '  session "{v}"'))
    assert w.sessions.peak <= 256
    assert len(w.value("x")) == 2000
    assert w.value("x")[1999] == "<1999>"


async def test_a_cancelled_name_in_a_context_has_no_result() -> None:
    w = world(a=(OK, 2), b=(OK, 1))
    await w.run(program('"first"', "a", "b") + lines('session "go"', "  context: { a, b }"))
    context = w.sessions.requests[0].context
    assert context is not None
    assert [(item.name, item.missing, item.location) for item in context] == [
        ("a", True, None),
        ("b", False, "bindings/b.md"),
    ]


async def test_two_branches_with_one_inner_name_keep_their_own_values() -> None:
    text = lines(
        "parallel:",
        "  one = do:",
        '    let t = session "A"',
        '    session "use {t}"',
        "  two = do:",
        '    let t = session "B"',
        '    session "use {t}"',
    )
    w = World(order=lambda task: {"A": 1.0, "B": 2.0}.get(task, 5))
    await w.run(text)
    assert w.values("one", "two") == ["<use <A>>", "<use <B>>"]
