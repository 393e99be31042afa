"""Numbers under concurrency (openprose.md 3.6, 6.5, 7.4)."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from machine.fakes import MemoryStore, World, lines

from prose_kernel.machine.openprose.program_text import Needs
from prose_kernel.runtime.events import BlockEntered
from prose_kernel.runtime.numbering import ForkAllocation, Kind, NumberSequence

NOTHING = Needs(calls_blocks=False, programs=frozenset(), spawns=False, stores=False)
THINGS = Kind("thing", lambda needs: 0 if needs.spawns else 1 if needs.stores else None)


def branches(outer: NumberSequence, split: ForkAllocation) -> list[NumberSequence]:
    return [NumberSequence(outer, split, index) for index in range(split.total)]


def joined(outer: NumberSequence, lanes: list[NumberSequence]) -> None:
    for lane in lanes:
        outer.ended(lane)
    outer.joined()


def test_branches_take_turns_in_source_order() -> None:
    root = NumberSequence()
    assert [root.next(THINGS), root.next(THINGS)] == [1, 2]
    lanes = branches(root, ForkAllocation(3))
    assert [[lane.next(THINGS) for _ in range(2)] for lane in reversed(lanes)] == [[5, 8], [4, 7], [3, 6]]
    joined(root, lanes)
    assert root.next(THINGS) == 9


def test_branches_that_need_no_numbers_get_none_and_uncertain_ones_come_last() -> None:
    maybe, sure = NOTHING._replace(stores=True), NOTHING._replace(spawns=True)
    root = NumberSequence()
    lanes = branches(root, ForkAllocation(4, [maybe, NOTHING, sure, sure]))
    assert [lanes[i].next(THINGS) for i in (0, 2, 3, 2)] == [3, 1, 2, 4]
    joined(root, lanes)
    assert root.next(THINGS) == 5


def test_a_fork_in_a_fork() -> None:
    root = NumberSequence()
    outer = branches(root, ForkAllocation(2))
    inner = branches(outer[1], ForkAllocation(2))
    assert [inner[1].next(THINGS), outer[0].next(THINGS), inner[0].next(THINGS)] == [4, 1, 2]
    joined(outer[1], inner)
    assert [outer[1].next(THINGS), outer[0].next(THINGS)] == [6, 3]
    joined(root, outer)
    assert root.next(THINGS) == 7


Shape = list[object]
SHAPES: st.SearchStrategy[Shape] = st.recursive(
    st.lists(st.just("number"), max_size=3),
    lambda inner: st.lists(st.lists(inner, max_size=3), max_size=3),
    max_leaves=12,
)


def taken(lane: NumberSequence, shape: Shape, into: list[int]) -> None:
    """Take a number for each leaf of `shape`; a list of lists is a fork."""
    if all(item == "number" for item in shape):
        into.extend(lane.next(THINGS) for _ in shape)
        return
    for fork in shape:
        lanes = branches(lane, ForkAllocation(len(fork)))  # type: ignore[arg-type]
        for branch, inner in zip(lanes, fork, strict=True):  # type: ignore[call-overload]
            taken(branch, inner, into)
        joined(lane, lanes)


@given(SHAPES)
def test_no_number_is_given_twice(shape: Shape) -> None:
    root, numbers = NumberSequence(), list[int]()
    taken(root, shape, numbers)
    assert len(set(numbers)) == len(numbers)
    assert root.next(THINGS) > max(numbers, default=0)


# ---------------------------------------------------------------- in programs

USED = lines('input x: ""', 'output y = exec "inner {x}"')
PROGRAM = lines(
    'use "./inner.prose" as inner',
    "block leaf(n):",
    '  session "leaf {n}"',
    "block twice(n):",
    '  exec "before {n}"',
    "  do leaf(n)",
    "  parallel:",
    "    do leaf(n + 10)",
    '    one = session "named {n}"',
    '    session "second {n}"',
    "    three = do leaf(n + 20)",
    "parallel:",
    "  a = do twice(1)",
    '  exec "only"',
    "  c = do:",
    '    exec "wait c"',
    "    do twice(2)",
    '    inner(x: "c")',
    "  d = do:",
    '    session "d"',
    '    inner(x: "d")',
    '    session "d again"',
    "parallel for n in [3, 4, 5]:",
    '  exec "iteration {n}"',
    "  do twice(n)",
    '  inner(x: "{n}")',
    "do leaf(9)",
    'inner(x: "last")',
)
SPAWNS = (
    *(f"{word} {n}" for word in ("before", "named", "second", "iteration") for n in range(1, 6)),
    *(f"leaf {n}" for n in (1, 2, 3, 4, 5, 11, 12, 13, 14, 15, 21, 22, 23, 24, 25)),
    *("only", "wait c", "d", "d again", "inner c", "inner d"),
)


def kept(order: dict[str, float], concurrency: int | None = None) -> dict[str, object]:
    """Return each binding's text, also of imported programs, and each block call's id with its arguments."""

    async def run() -> dict[str, object]:
        w = World(files={"./inner.prose": USED}, order=lambda text: order.get(text, 0.0), concurrency=concurrency)
        await w.run(PROGRAM)
        ids = sorted((e.execution_id, e.block, e.arguments) for e in w.of(BlockEntered))
        places = sorted((r.at, r.task, r.target and r.target.location) for r in w.sessions.requests)
        return {"files": files(w.store), "ids": ids, "places": places}

    return asyncio.run(run())


def files(store: MemoryStore) -> dict[str, object]:
    found: dict[str, object] = {name: store.text(name) for name in store.kept}
    return {**found, **{f"{name}/": files(inner) for name, inner in store.inner.items()}}


EXPECTED = kept({})


@settings(deadline=None)
@given(st.lists(st.integers(0, 20), min_size=len(SPAWNS), max_size=len(SPAWNS)), st.sampled_from([None, 1, 2, 5]))
def test_any_completion_order_leaves_the_same_files(times: list[int], concurrency: int | None) -> None:
    order = {name: float(time) for name, time in zip(SPAWNS, times, strict=True)}
    assert kept(order, concurrency) == EXPECTED


def test_ids_are_given_in_source_order_when_branches_are_scheduled() -> None:
    ids = EXPECTED["ids"]
    assert isinstance(ids, list)
    assert ids[:2] == [(1, "twice", (1,)), (2, "twice", (2,))]
    numbers = [number for number, _, _ in ids]
    assert len(set(numbers)) == len(numbers)


async def test_a_typical_program_numbers_without_gaps() -> None:
    w = World()
    await w.run(
        lines(
            "block f(n):",
            '  session "in {n}"',
            "parallel:",
            '  a = session "a"',
            "  b = do f(1)",
            "  c = do f(2)",
            "do f(3)",
            'session "end"',
        )
    )
    assert [e.execution_id for e in w.of(BlockEntered)] == [1, 2, 3]
    assert [name for name in sorted(w.store.kept) if "anon" in name] == [
        "anon_001__1",
        "anon_002__2",
        "anon_003__3",
        "anon_004",
    ]


async def test_a_race_gives_no_number_twice() -> None:
    w = World(order=lambda text: float(text.rpartition(" ")[2] or 0) if text.startswith("in") else 0.0)
    await w.run(lines("block f(n):", '  session "in {n}"', 'parallel ("first"):', "  do f(3)", "  do f(1)", "do f(2)"))
    numbers = [e.execution_id for e in w.of(BlockEntered)]
    assert numbers == [1, 2, 3]
