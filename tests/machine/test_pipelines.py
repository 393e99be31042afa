"""`map`, `pmap`, `filter` and `reduce` (openprose.md 3.14)."""

from __future__ import annotations

import pytest
from machine.fakes import Reply, World, lines, value_of

from prose_kernel.runtime.events import PipeProgressed


@pytest.mark.parametrize(
    ("pipe", "value"),
    [
        (["[1, 2] | map:", "  item + 1"], [2, 3]),
        (["[1, 2] | pmap:", "  item + 1"], [2, 3]),
        (["[1, 2, 3] | filter:", "  item > 1"], [2, 3]),
        (["[1, 2, 3] | reduce(sum, n):", "  sum + n"], 6),
        (["[7] | reduce(sum, n):", "  sum + n"], 7),
        (["[] | reduce(sum, n):", "  sum + n"], None),
        (["[] | map:", "  item"], []),
        (["[3, 1, 2]", "  | filter:", "    item > 1", "  | map:", "    item + 10"], [13, 12]),
        (["[[1, 2], [3]] | map:", "  let inner = item | map:", "    item + 1", "  inner"], [[2, 3], [4]]),
        (["[1, 2] | map:", "  let y = item + 1", "  assert y > 0"], [2, 3]),
        (["[[1, 2], [3]]", "  | reduce(a, b):", "    a + b", "  | map:", "    item"], [1, 2, 3]),
    ],
)
async def test_values(pipe: list[str], value: object) -> None:
    assert await value_of(lines(f"let x = {pipe[0]}", *pipe[1:])) == value


async def test_filter_keeps_the_original_items() -> None:
    w = World(
        sessions_say={"keep a?": "yes", "keep b?": "no", "keep c?": "hard to say"}, judge_says={"hard to say": True}
    )
    await w.run(lines('let x = ["a", "b", "c"]', "  | filter:", '    session "keep {item}?"'))
    assert w.value("x") == ["a", "c"]
    assert w.judge.asked == ["hard to say"]


async def test_map_runs_in_sequence_and_pmap_in_parallel() -> None:
    for kind, peak in (("map", 1), ("pmap", 3)):
        w = World(order=lambda task: float(9 - int(task)))
        await w.run(lines(f"let x = [1, 2, 3] | {kind}:", '  session "{item}"'))
        assert w.value("x") == ["<1>", "<2>", "<3>"]
        assert w.sessions.peak == peak


async def test_pmap_cancels_the_rest_and_raises_at_the_first_failure() -> None:
    w = World(commands_say={"1": Reply(after=5), "2": Reply(code=1, after=1)})
    error = await w.fail(lines("let x = [1, 2] | pmap:", '  exec "{item}"'))
    assert error.code == "E203"
    assert w.commands.cancelled == ["1"]


async def test_elements_are_anonymous_bindings() -> None:
    w = World()
    await w.run(lines("let x = [1, 2] | pmap:", '  session "s{item}"', "let y = [1] | map:", '  exec "e{item}"'))
    assert sorted(w.store.kept) == ["anon_001__i0", "anon_002__i1", "anon_003", "x", "y"]
    assert w.store.text("anon_003") == "e1\n"


async def test_names_end_with_the_operation() -> None:
    error = await World().fail(lines("let x = [1] | map:", "  item", "block f():", "  return item", "do f()"))
    assert error.code == "E208"


async def test_the_source_must_be_a_collection() -> None:
    error = await World().fail(lines("let n = 3", "let x = n | map:", "  item"))
    assert error.code == "E210"
    assert error.location is not None
    assert (error.location.line, error.location.column) == (2, 9)


async def test_progress() -> None:
    w = World()
    await w.run(lines("let x = [5, 6] | map:", "  item"))
    assert [(e.operation, e.index, e.total) for e in w.of(PipeProgressed)] == [("map", 1, 2), ("map", 2, 2)]
