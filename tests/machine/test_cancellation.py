"""Interrupts and cancelled branches: `finally` runs and no task or command remains (openprose.md 3.7, 3.12)."""

from __future__ import annotations

import asyncio
import time

import pytest
from machine.fakes import Reply, World, lines
from waiting import PATIENCE

from prose_kernel.errors import UsageError
from prose_kernel.runtime import scheduler as turns
from prose_kernel.runtime.events import BranchFinished, Caught, CommandFinished


async def interrupt(w: World, text: str, *, once: bool = True) -> None:
    """Run a text and interrupt it once the command `wait` has started; if not `once`, again once `again` has."""
    task = asyncio.create_task(w.run(text, cell=True))
    for marker in ["wait"] if once else ["wait", "again"]:
        while marker not in w.commands.ran and not task.done():
            await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def waiting(**more: Reply) -> World:
    return World(commands_say={"wait": Reply(after=1e6), **more})


async def test_an_interrupt_is_not_caught_and_finally_may_run_commands() -> None:
    w = waiting()
    await interrupt(
        w,
        lines(
            "let x = []",
            "try:",
            '  exec "wait"',
            "catch:",
            "  x = x + 1",
            "finally:",
            '  exec "clean"',
            "  x = x + 2",
            "x = x + 3",
        ),
    )
    assert w.commands.ran == ["wait", "clean"]
    assert w.commands.cancelled == ["wait"]
    assert w.value("x") == [2]
    assert not w.of(Caught)


@pytest.mark.parametrize("last", ["return 1", 'throw "no"', 'exec "fails"'])
async def test_finally_cannot_swallow_an_interrupt(last: str) -> None:
    w = World(commands_say={"wait": Reply(after=1e6), "fails": 1})
    await interrupt(
        w, lines("let x = 0", "block f():", "  try:", '    exec "wait"', "  finally:", f"    {last}", "do f()", "x = 1")
    )
    assert w.value("x") == 0


async def test_finally_of_a_cancelled_branch_cannot_return() -> None:
    w = World(commands_say={"slow": Reply(after=9)})
    text = lines(
        '  parallel ("first"):',
        "    do:",
        "      try:",
        '        exec "slow"',
        "      finally:",
        "        return 1",
        '    b = exec "quick"',
        "  return b",
    )
    await w.run("block f():\n" + text + "let x = do f()\n")
    assert w.value("x") == "quick"


async def test_a_second_interrupt_stops_finally() -> None:
    w = waiting(again=Reply(after=1e6))
    await interrupt(w, lines("try:", '  exec "wait"', "finally:", '  exec "again"', '  exec "never"'), once=False)
    assert w.commands.ran == ["wait", "again"]


async def test_the_frame_is_usable_after_an_interrupt() -> None:
    w = waiting()
    await interrupt(w, lines("block f(a):", '  let t = exec "wait"', "let kept = 1", "for i in [1]:", "  do f(2)"))
    assert w.value("kept") == 1
    assert await w.run("let next = kept + 1\n", cell=True) == 2
    assert (await w.fail(lines("block g():", "  return i", "do g()"), cell=True)).code == "E208"


async def test_an_interrupt_reaches_every_branch_and_its_finally() -> None:
    w = waiting()
    body = lines("  do:", "    try:", '      exec "wait"', "    finally:", '      exec "clean {n}"')
    await interrupt(w, "parallel:\n" + body.replace("{n}", "1") + body.replace("{n}", "2"))
    assert sorted(w.commands.ran) == ["clean 1", "clean 2", "wait", "wait"]
    assert [e.status for e in w.of(BranchFinished)] == ["cancelled", "cancelled"]
    assert w.commands.live == 0


async def test_a_cancelled_sibling_runs_finally_without_new_spawns() -> None:
    w = World(commands_say={"slow": Reply(after=9), "boom": Reply(code=1, after=1)})
    text = lines(
        "let x = []",
        "try:",
        "  parallel:",
        "    do:",
        "      try:",
        '        exec "slow"',
        "      catch:",
        "        x = x + 1",
        "      finally:",
        '        exec "clean"',
        '        session "clean"',
        "        x = x + 2",
        '    exec "boom"',
        "catch:",
        "  x = x + 3",
    )
    await w.run(text)
    assert w.value("x") == [2, 3]
    assert w.commands.ran == ["slow", "boom"]
    assert w.sessions.tasks == []
    assert [(e.index, e.status) for e in w.of(BranchFinished)] == [(1, "failed"), (0, "cancelled")]


async def test_nested_branches_are_cancelled_with_their_branch() -> None:
    w = World(commands_say={"slow 1": Reply(after=9), "slow 2": Reply(after=9), "boom": Reply(code=1, after=1)})
    inner = lines(
        "  parallel:",
        *(
            x
            for n in "12"
            for x in ("    do:", "      try:", f'        exec "slow {n}"', "      finally:", '        exec "clean"')
        ),
    )
    await w.fail("parallel:\n" + inner + '  exec "boom"\n')
    assert sorted(w.commands.cancelled) == ["slow 1", "slow 2"]
    assert "clean" not in w.commands.ran


async def test_an_interrupt_while_siblings_are_being_cancelled() -> None:
    w = World(commands_say={"boom": Reply(code=1)})
    stubborn = asyncio.Event()
    released = asyncio.Event()
    run = w.commands.run

    async def slow(request: object, on_output: object = None) -> object:
        if request.command != "slow":  # type: ignore[attr-defined]
            return await run(request, on_output)  # type: ignore[arg-type]
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            stubborn.set()
            await released.wait()
            raise

    w.commands.run = slow  # type: ignore[method-assign,assignment]
    task = asyncio.create_task(w.run(lines("parallel:", '  exec "slow"', '  exec "boom"')))
    await stubborn.wait()
    task.cancel()
    await asyncio.sleep(0)
    released.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [t for t in asyncio.all_tasks() if t is not asyncio.current_task() and t is not w.clock._pump] == []


@pytest.mark.parametrize(
    "text",
    [
        lines("let n = 0", "loop:", "  n = n + 1"),
        lines("let n = 0", "repeat 100000000:", "  n = n + 1"),
        lines("loop:", "  if true:", "    let n = 1"),
        lines("block f():", "  let n = 1", "loop:", "  do f()"),
        lines("parallel:", "  loop:", "    let n = 1", "  loop:", "    let m = 1"),
        lines("try:", "  loop:", "    let n = 1", "finally:", "  let done = true"),
    ],
)
async def test_computing_can_be_interrupted_and_yields_to_the_event_loop(text: str) -> None:
    w = World(listening=False)
    task = asyncio.create_task(w.run(text))
    await asyncio.sleep(0)  # let it compile
    longest, ticks, last = 0.0, 0, time.thread_time()
    while ticks < 10:
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, last, ticks = max(longest, now - last), now, ticks + 1
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert longest < 0.5


async def test_a_computing_branch_keeps_its_turn() -> None:
    """Branches switch only when one waits, even if a branch computes for several time slices."""
    work = lines("  do:", "    let mine = n", "    repeat 30000:", "      let q = 1", "    n = mine + 1")
    w = World(listening=False)
    await w.run("let n = 0\nparallel:\n" + work * 4)
    assert w.value("n") == 4


async def test_siblings_wait_for_a_computing_branch_in_order() -> None:
    w = World(listening=False)
    text = lines("let log = []", "parallel:", "  do:", "    repeat 30000:", "      let q = 1", "    log = log + 1")
    for n in (2, 3, 4):
        text += lines("  do:", f'    exec "{n}"', f"    log = log + {n}")
    await w.run(text)
    assert w.value("log") == [1, 2, 3, 4]


async def test_a_failure_cancels_a_sibling_that_only_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.05)
    w = World(commands_say={"fails": 1}, order=lambda text: float(text == "fails"))
    error = await w.fail(
        lines(
            "let log = []",
            "parallel:",
            "  do:",
            '    exec "fails"',
            "  do:",
            '    exec "works"',
            "    try:",
            "      let n = 0",
            "      loop:",
            "        n = n + 1",
            "    finally:",
            '      log = log + ["ended"]',
        )
    )
    assert (error.code, w.value("log")) == ("E203", ["ended"])


async def test_a_sibling_finishes_a_short_computation_before_it_is_cancelled() -> None:
    w = World(commands_say={"fails": 1}, order=lambda text: float(text == "fails"))
    text = lines(
        "let i = 0", "parallel:", '  exec "fails"', "  do:", '    exec "works"', "    repeat 100:", "      i = i + 1"
    )
    await w.fail(text)
    assert w.value("i") == 100


async def test_one_run_at_a_time() -> None:
    w = waiting()
    first = asyncio.create_task(w.run('exec "wait"\n', cell=True))
    while not w.commands.ran:
        await asyncio.sleep(0)
    with pytest.raises(UsageError, match="a program is running here already"):
        await w.run("let x = 1\n", cell=True)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await w.run("let x = 1\n", cell=True)
    assert w.value("x") == 1


async def test_an_interrupt_releases_the_concurrency_slot_of_a_command() -> None:
    w = World(concurrency=1)
    text = lines("parallel:", "  do:", '    exec "a"', "    loop:", "      let n = 0", '  exec "b"')
    task = asyncio.create_task(w.run(text, cell=True))
    while not w.of(CommandFinished):
        await asyncio.sleep(0)
    for _ in range(5):  # the first branch computes; the second one's command has its concurrency slot
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(w.run('exec "c"\n', cell=True), PATIENCE)
    assert w.commands.ran == ["a", "b", "c"]
