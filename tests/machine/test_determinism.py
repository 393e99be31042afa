"""The same program with the same answers gives the same values in any order of completion (openprose.md 3.7)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from hypothesis import given, settings
from hypothesis import strategies as st
from machine.fakes import World, lines

from prose_kernel.runtime.execution_context import ExecutionContext, Node

PROGRAM = lines(
    "block study(topic, depth):",
    '  let found = session "find {topic} {depth}"',
    "  if depth > 0:",
    "    parallel:",
    "      left = do study(topic, depth - 1)",
    '      right = exec "check {topic} {depth}"',
    '  output notes = session "write {topic} {depth} from {found}"',
    'let topics = ["a", "b", "c"]',
    "let all = parallel for t, i in topics:",
    "  let r = do study(t, i)",
    '  session "close {t} {r}"',
    "let checked = topics | pmap:",
    '  exec "run {item}"',
    'parallel (on-fail: "continue"):',
    '  one = session "one"',
    '  two = exec "fails"',
    "  three = do:",
    '    let inner = session "inner"',
    '    session "outer {inner}"',
    'output report = session "sum {one} {three} {inner}"',
    "output list = checked + all",
)


def outcome(order: dict[str, float], concurrency: int | None) -> dict[str, object]:
    async def run() -> dict[str, object]:
        w = World(commands_say={"fails": 3}, order=lambda text: order.get(text, 0.0), concurrency=concurrency)
        await w.run(PROGRAM)
        values: dict[str, object] = {name: w.value(name) for name in w.machine.bindings()}
        paths = sorted((r.at, r.task) for r in w.sessions.requests)
        return {**values, "paths": paths}

    return asyncio.run(run())


SPAWNS = [
    *(f"find {t} {d}" for t in "abc" for d in range(3)),
    *(f"check {t} {d}" for t in "abc" for d in range(1, 3)),
    *(f"run {t}" for t in "abc"),
    "one", "fails", "inner",
]  # fmt: skip
EXPECTED = outcome({}, None)


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=len(SPAWNS), max_size=len(SPAWNS)), st.sampled_from([None, 1, 2, 5]))
def test_any_completion_order_gives_the_same_outcome(times: list[int], concurrency: int | None) -> None:
    order = {name: float(time) for name, time in zip(SPAWNS, times, strict=True)}
    assert outcome(order, concurrency) == EXPECTED


def test_the_program_did_something() -> None:
    assert EXPECTED["checked"] == ["run a", "run b", "run c"]
    assert EXPECTED["two"]["code"] == "E203"  # type: ignore[index]


def test_the_hook_sees_every_statement_and_changes_nothing() -> None:
    async def run() -> tuple[list[tuple[int, int]], object]:
        seen: list[tuple[int, int]] = []

        class Hook:
            def before(self, s: ExecutionContext, node: Node) -> Awaitable[None]:
                place = s.place(node)
                seen.append((place.ordinal, place.source.line_column(place.span.start)[0]))
                return asyncio.sleep(0)

        w = World(hook=Hook())
        await w.run(lines("let n = 0", "block f():", "  n = n + 1", "repeat 2:", "  do f()", "let x = n"))
        w.machine.host.hook = None
        await w.run("let y = 1\n", cell=True)
        return seen, w.value("x")

    seen, value = asyncio.run(run())
    assert value == 2
    assert seen == [(1, 1), (2, 4), (2, 5), (2, 3), (2, 5), (2, 3), (3, 6)]
