"""A run restored from any prefix of its journal continues like the unbroken run, event for event."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import Sequence

import pytest
from durability.live import MemoryLog, Outcome, at_once_in, in_order_of, live, was_interrupted
from durability.programs import Generated, programs
from hypothesis import given, settings
from hypothesis import strategies as st
from machine.fakes import Reply, World

from prose_kernel.language.structs import replace
from prose_kernel.runtime import scheduler
from prose_kernel.runtime.journal import Journal
from prose_kernel.runtime.journal_records import Answered, Interrupted, Record, Repeated
from prose_kernel.runtime.journal_replay import KnownRecords


def world_of(program: Generated, concurrency: int | None = None) -> World:
    def reply(script: object, text: str, otherwise: str) -> Reply:
        if text.split()[0] in program.fails:
            return Reply(code=3, stderr="bad\n", fails="busy" if text.startswith("s") else None)
        return Reply(otherwise)

    world = World(concurrency=concurrency)
    world.reply = reply  # type: ignore[method-assign]
    return world


def delays(seed: int, instant: bool = True) -> dict[str, float | None]:
    """Return the duration of each request, drawn from its key. With `instant`, some answer immediately."""

    class Drawn(dict[str, float | None]):
        def __missing__(self, key: str) -> float | None:
            drawn = random.Random(f"{seed} {key}")
            self[key] = (
                None if instant and drawn.random() < 0.1 else drawn.choice([0.0, 1.0, 2.0, 3.0, drawn.random() * 9])
            )
            return self[key]

    return Drawn()


async def unbroken(
    program: Generated, seed: int, concurrency: int | None, interrupt: int | None = None, *, instant: bool = True
) -> Outcome:
    took = delays(seed, instant)
    return await live(world_of(program, concurrency), [program.text], took.__getitem__, interrupt_after=interrupt)


async def resumed(program: Generated, before: Outcome, known: Sequence[Record], concurrency: int | None) -> Outcome:
    world = world_of(program, concurrency)
    return await live(world, [program.text], in_order_of(before, world, at_once_in(before)), known)


def same(expected: Outcome, actual: Outcome, label: str) -> None:
    assert lasting(actual.records) == lasting(expected.records), label
    assert actual.result == expected.result, label
    assert actual.events == expected.events, label
    assert actual.values == expected.values, label


def lasting(records: Sequence[Record]) -> list[Record]:
    """Return the records that are the same in an unbroken run: without times, and without the notes of repeated requests.
    Cancelled requests that end together are sorted by key, because their order depends on the commands that have a slot.
    """
    kept = [
        replace(record, t=0) if "t" in record.__struct_fields__ else record
        for record in records
        if not isinstance(record, Repeated)
    ]
    together = itertools.groupby(kept, lambda record: isinstance(record, Answered) and record.cancelled)
    return [record for cancelled, group in together for record in (sorted(group, key=_key) if cancelled else group)]


def _key(record: Record) -> str:
    return record.key if isinstance(record, Answered) else ""


def prefixes(records: Sequence[Record], rng: random.Random, limit: int) -> list[int]:
    """Return the lengths of prefixes to test: all, or a sample that includes both ends."""
    every = list(range(1, len(records) + 1))
    return every if len(every) <= limit else sorted({1, 2, len(every), *rng.sample(every, limit)})


EXAMPLES = int(os.environ.get("DURABILITY_EXAMPLES", "8"))
CONCURRENCY = st.sampled_from([None, None, 1, 2])


def check_replay(expected: Outcome, again: Outcome) -> None:
    """Check that the complete journal restores the complete run without any request."""
    same(expected, again, "after all records")
    assert not again.asked_outside


@settings(max_examples=EXAMPLES, deadline=None)
@given(programs(), st.integers(0, 2**16), CONCURRENCY)
def test_a_run_resumes_from_every_prefix_of_its_journal(program: Generated, seed: int, concurrency: int | None) -> None:
    async def run() -> None:
        expected = await unbroken(program, seed, concurrency, instant=False)
        for kept in prefixes(expected.records, random.Random(seed), 8):
            actual = await resumed(program, expected, expected.records[:kept], concurrency)
            same(expected, actual, f"after {kept} of {len(expected.records)} records")
            answered = {r.key for r in expected.records[:kept] if isinstance(r, Answered)}
            assert not answered & set(actual.asked_outside), "an answered request is made again"

    asyncio.run(run())


@settings(max_examples=EXAMPLES, deadline=None)
@given(programs(), st.integers(0, 2**16), CONCURRENCY, CONCURRENCY)
def test_a_run_that_was_resumed_can_be_resumed(
    program: Generated, seed: int, concurrency: int | None, later_concurrency: int | None
) -> None:
    """This holds with immediate answers, another order of answers, and a lower limit of parallel requests."""

    async def run() -> None:
        first = await unbroken(program, seed, concurrency)
        check_replay(first, await resumed(program, first, first.records, later_concurrency))
        for kept in prefixes(first.records, random.Random(seed), 3):
            took = delays(seed + kept)
            second = await live(
                world_of(program, later_concurrency), [program.text], took.__getitem__, first.records[:kept]
            )
            check_replay(second, await resumed(program, second, second.records, concurrency))

    asyncio.run(run())


@settings(max_examples=EXAMPLES, deadline=None)
@given(programs(), st.integers(0, 2**16), st.integers(1, 40))
def test_an_interrupted_run_is_restored(program: Generated, seed: int, after: int) -> None:
    async def run() -> None:
        expected = await unbroken(program, seed, None, after)
        for kept in {len(expected.records), *prefixes(expected.records, random.Random(seed), 2)}:
            actual = await resumed(program, expected, expected.records[:kept], None)
            if kept == len(expected.records) or was_interrupted(expected.records[:kept]):
                assert actual.result == expected.result
            if kept == len(expected.records):
                check_replay(expected, actual)

    asyncio.run(run())


@settings(max_examples=EXAMPLES, deadline=None)
@given(programs(computing=True), st.integers(0, 2**16), st.integers(1, 40), st.integers(0, 6))
def test_a26_a_run_that_was_interrupted_twice_is_restored(
    program: Generated, seed: int, after: int, passes: int
) -> None:
    async def run() -> None:
        took = delays(seed)
        world = world_of(program)
        expected = await live(world, [program.text], took.__getitem__, interrupt_after=after, and_again=passes)
        actual = await resumed(program, expected, expected.records, None)
        if any(isinstance(record, Interrupted) and record.hasty for record in expected.records):
            assert (actual.records, actual.values, actual.asked_outside) == (expected.records, expected.values, [])
            return
        check_replay(expected, actual)
        doubled = [
            one for record in expected.records for one in ([record] * 2 if record == Interrupted() else [record])
        ]
        if len(doubled) > len(expected.records):
            actual = await resumed(program, replace(expected, records=doubled), doubled, None)
            assert (actual.result, actual.values, actual.asked_outside) == (expected.result, expected.values, [])

    asyncio.run(run())


class Ticking:
    """A clock that advances by a random step at every reading."""

    def __init__(self, seed: int) -> None:
        self._drawn, self._time = random.Random(seed), 0.0

    def monotonic(self) -> float:
        self._time += self._drawn.choice([0.0, 0.001, 0.004, 0.01])
        return self._time

    def thread_time(self) -> float:
        self._time += self._drawn.choice([0.0, 0.1, 0.7])
        return self._time


@settings(max_examples=EXAMPLES, deadline=None)
@given(programs(computing=True), st.integers(0, 2**16), st.one_of(st.none(), st.integers(1, 30)))
def test_long_computing_branches_replay_to_the_same_point(program: Generated, seed: int, interrupt: int | None) -> None:
    """They yield to others, and are interrupted, at times of a clock that a replay cannot reproduce."""

    async def run() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scheduler, "time", Ticking(seed))
            expected = await unbroken(program, seed, None, interrupt)
            for again in range(3):
                patch.setattr(scheduler, "time", Ticking(seed + again + 1))
                check_replay(expected, await resumed(program, expected, expected.records, None))

    asyncio.run(run())


async def test_an_interrupted_replay_does_not_change_the_journal() -> None:
    text = 'let a = exec "one"\nparallel:\n  exec "two"\n  exec "three"\noutput done = 1\n'
    program = Generated(text)
    expected = await unbroken(program, 1, None, instant=False)
    texts_first, *known = expected.records
    interrupted = 0
    for kept in range(1, len(known)):
        world, log = world_of(program), MemoryLog()
        host = world.machine.host
        journal = host.journal = Journal(log, host.scheduler, known=KnownRecords(iter(list(enumerate(known[:kept])))))
        task = asyncio.ensure_future(world.run(text, cell=True))
        await asyncio.sleep(0)
        if journal.replaying:
            interrupted += 1
            journal.interrupt(task)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not log.records and not world.commands.ran
        else:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert interrupted and texts_first


@pytest.mark.parametrize("passes", range(4))
async def test_a_computing_branch_ends_at_the_second_interrupt(passes: int) -> None:
    text = 'let n = 0\nparallel:\n  exec "one"\n  do:\n    repeat 100000:\n      n = n + 1\n'
    world, program = World(), Generated(text)
    expected = await live(world, [text], lambda _: 1e9, interrupt_after=2, and_again=passes)
    actual = await resumed(program, expected, expected.records, None)
    assert (actual.result, actual.values, actual.records) == ("interrupted", expected.values, expected.records)
