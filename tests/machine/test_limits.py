"""Long and deeply nested programs: their time, memory and use of Python's stack."""

from __future__ import annotations

import asyncio
import gc
import resource
import tracemalloc
from collections.abc import Callable

import pytest
from machine.fakes import World, lines, value_of
from scaling import assert_linear

from prose_kernel.language.openprose import tree
from prose_kernel.language.source import Source
from prose_kernel.runtime.json_data import levels


@pytest.mark.slow
async def test_a_hundred_thousand_passes() -> None:
    w = World(listening=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await w.run(lines("let n = 0", "repeat 100000:", "  n = n + 1"))
    assert w.value("n") == 100_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 7 * 1024


@pytest.mark.parametrize(
    "body",
    [
        ["  n = n + 1"],
        ["  let t = try:", '    throw "x"', "  catch as e:", "    let m = e.message"],
        ["  do f(i)"],
        ["  let xs = for v in [1, 2]:", "    let w = v"],
        ["  parallel:", "    a = do f(1)", "    b = do f(2)"],
    ],
)
async def test_memory_does_not_grow_with_passes(body: list[str]) -> None:
    w = World(listening=False)
    w.store.kept = _Forgetful()
    await w.run(
        lines("let n = 0", "block f(a):", "  let own = a", "  return own", "repeat 200 as i:", *body), cell=True
    )
    gc.collect()
    tracemalloc.start()
    try:
        await w.run(lines("repeat 1000 as i:", *body), cell=True)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 50_000


class _Forgetful(dict[str, object]):  # type: ignore[type-arg]
    """A store that keeps nothing, so that only the machine's own memory counts."""

    def __setitem__(self, key: str, value: object) -> None:
        pass


def nested(levels: int, innermost: str) -> list[str]:
    body: list[str] = []
    for level in range(levels):
        pad = "  " * (level + 1)
        body.append(pad + ["if true:", "do:", "for v in [1]:", "try:"][level % 4])
    body.append("  " * (levels + 1) + innermost)
    for level in reversed(range(levels)):
        if level % 4 == 3:
            body += ["  " * (level + 1) + "finally:", "  " * (level + 2) + "let z = 1"]
    return body


async def test_five_hundred_blocks_of_many_levels() -> None:
    w = World(listening=False)
    text = lines("let n = 0", "block f() (max_depth: 9000):", "  n = n + 1", *nested(48, "do f()"), "do f()")
    error = await w.fail(text)
    assert error.code == "E206"
    assert w.value("n") == 500


def test_sessions_deep_in_a_recursion_cost_no_more_than_shallow_ones() -> None:
    def work(depth: int) -> Callable[[], None]:
        block = ["block f(n) (max_depth: 9000):", '  session "at {n}"', "  if n > 1:", "    do f(n - 1)"]

        def run() -> None:
            w = World(listening=False)
            asyncio.run(w.run(lines(*block, f"do f({depth})")))
            assert len(w.sessions.requests) == depth

        return run

    assert_linear(work, 100)


def deep(levels: int, kind: str) -> tree.Expression:
    node: tree.Expression = tree.Number(1)
    for _ in range(levels):
        if kind == "array":
            node = tree.Array((node,))
        elif kind == "not":
            node = tree.Not(node)
        elif kind == "object":
            node = tree.Object((tree.Entry("k", node),))
        else:
            node = tree.Binary("+", node, tree.Number(1))
    return node


@pytest.mark.parametrize(("kind", "levels"), [("array", 200), ("object", 200), ("sum", 5000), ("not", 2000)])
async def test_deep_expressions(kind: str, levels: int) -> None:
    w = World(listening=False)
    program = tree.Program((tree.Let("let", (tree.Name("x"),), deep(levels, kind)),))
    await w.machine.run(program, Source(""))
    if kind == "sum":
        assert w.value("x") == levels + 1
    if kind == "not":
        assert w.value("x") is True


async def test_a_list_grows_by_ten_thousand() -> None:
    text = lines("let x = []", "repeat 10000 as i:", "  x = x + [i]", "let x = x[9999]")
    assert await value_of(text, listening=False) == 9999


def test_many_cells_stay_cheap() -> None:
    def work(cells: int) -> Callable[[], None]:
        w = World(listening=False)

        async def one(number: int, value: str) -> None:
            await w.run(f"let v{number} = {value}\n", cell=True)

        async def again() -> None:
            for number in range(100):
                await one(number, f"v{number} + 1")
                w.machine.known()

        async def first() -> None:
            for number in range(cells):
                await one(number, str(number))

        asyncio.run(first())
        return lambda: asyncio.run(again())

    assert_linear(work, 500)


@pytest.mark.parametrize("text", ["9" * 3999, "9" * 5000])
async def test_huge_numbers_are_not_python_errors(text: str) -> None:
    w = World(commands_say={"n": text})
    source = lines('let t = exec "n"', "let x = t + 1", 'let y = "{x}"', "let z = t == 1")
    await w.run(source)
    assert len(w.value("y")) >= 3999


async def test_a_number_that_grows_beyond_printing() -> None:
    w = World(listening=False)
    error = await w.fail(lines("let n = 1", "repeat 20000:", "  n = n + n"))
    assert (error.code, error.message) == ("E209", "the number has more than 4,000 digits")


@pytest.mark.parametrize("step", ["a = {x: a, y: a}", "a = [a, a]", "a = [a] + [a]"])
async def test_a32_a_value_that_doubles_ends_with_an_error_where_it_is_bound(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if step != "a = [a, a]":  # once with the real limit of 10,000,000 members
        monkeypatch.setattr("prose_kernel.runtime.json_data.MOST", 1_000_000)
    w = World(listening=False)
    error = await w.fail(lines("let a = 1", "repeat 60:", f"  {step}", 'let b = "{a}"'))
    assert (error.code, error.location is not None and error.location.line) == ("E209", 3)


async def test_a32_a_value_with_shared_members_is_compared_and_stored_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prose_kernel.runtime.json_data.MOST", 1_000_000)
    source = lines(
        "let a = 1",
        "let b = 1",
        "repeat 18:",
        "  a = {x: a, y: a}",
        "  b = {x: b, y: b}",
        "let same = a == b",
        "try:",
        "  repeat 60:",
        "    a = [a, a]",
        "catch as e:",
        "  let code = e.code",
    )
    w = World(listening=False)
    await w.run(source)
    assert (w.value("same"), w.value("code")) == (True, "E209")


async def test_a32_texts_of_many_long_members_are_measured_before_they_are_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("prose_kernel.runtime.json_data.LONGEST_TEXT", 10_000)
    w = World(listening=False)
    error = await w.fail(lines(f'let t = "{"x" * 2000}"', "let a = [t, t, t, t, t, t]", 'let b = "{a}"'))
    assert (error.code, error.location is not None and error.location.line) == ("E209", 3)


@pytest.mark.parametrize("step", ["a = [a]", "a = {x: a}", "a = [a] + [1]"])
async def test_a32_a_value_nests_five_hundred_levels(step: str) -> None:
    w = World(listening=False)
    await w.run(
        lines("let a = [1]", "repeat 499:", f"  {step}", "try:", f"  {step}", "catch as e:", "  let code = e.code")
    )
    assert (levels(w.value("a")), w.value("code")) == (500, "E209")


async def test_a32_data_in_texts_nests_five_hundred_levels() -> None:
    w = World(listening=False, commands_say={"ok": "[" * 500 + "]" * 500, "deep": "[" * 501 + "]" * 501})
    await w.run(lines('let a = exec "ok"', '  format: "json"', "let b = a[0]"))
    error = await w.fail(lines('let c = exec "deep"', '  format: "json"', "let d = c[0]"))
    assert error.code == "E209" and "nested too deeply" in error.message


_DEEP = "[" * 501 + "]" * 501
_DEEP_VALUE: list[object] = [[]]
for _ in range(499):
    _DEEP_VALUE = [_DEEP_VALUE]


@pytest.mark.parametrize("deep", [_DEEP, "[" * 100_000, '{"k":' * 501 + "1" + "}" * 501])
@pytest.mark.parametrize("way", ["supplied", "user_says"])
async def test_a32_an_input_that_nests_too_deeply_fails_where_it_is_declared(way: str, deep: str) -> None:
    w = World(listening=False, **{way: {"a": deep}})
    error = await w.fail(lines("let n = 1", 'input a: "x"', 'session "See {a}"'))
    assert (error.code, error.location is not None and error.location.line) == ("E209", 2)
    w = World(listening=False, **{way: {"a": _DEEP[1:-1]}})
    await w.run(lines('input a: "x"', "let b = a[0]"))
    assert levels(w.value("b")) == 499


@pytest.mark.parametrize("use", ["a[0]", "a.name", "map a:\n  item", 'a["name"]'])
async def test_a32_a_text_nested_too_deeply_is_neither_data_nor_a_question_to_the_judge(use: str) -> None:
    use = use.replace("map a:", "a | map:")
    w = World(listening=False, sessions_say={"x": f"```json\n{_DEEP}\n```"})
    error = await w.fail(lines('let a = session "x"', f"let b = {use}"))
    assert (error.code, error.location is not None and error.location.line, w.judge.asked) == ("E209", 2, [])
    assert "500 levels" in error.message


@pytest.mark.parametrize(("use", "asked"), [("a.name", "extract name"), ("a[0]", "items")])
async def test_a32_a_judges_finding_nests_five_hundred_levels(use: str, asked: str) -> None:
    w = World(listening=False, sessions_say={"x": "some prose"}, judge_says={asked: [_DEEP_VALUE]})
    error = await w.fail(lines('let a = session "x"', f"let b = {use}"))
    assert (error.code, error.location is not None and error.location.line) == ("E209", 2)
