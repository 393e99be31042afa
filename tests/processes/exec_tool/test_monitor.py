"""One monitor starts the programs of all agents; each program has a guard, which owns all its processes (1.3)."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from processes.exec_tool.conftest import Bench, ended, result
from waiting import PATIENCE, appears, eventually, processes

from prose_kernel.processes import system
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.process_table import member_of
from prose_kernel.runtime.services import ExecOutcome


@pytest.fixture
def bench(own_bench: Bench) -> Bench:
    """These tests kill, stop and count the processes of the engine."""
    return own_bench


class Program:
    """A shell that has run a script and now sleeps; `name` is in the command line of each of its processes."""

    def __init__(self, bench: Bench, name: str, script: str = "", **arguments: object) -> None:
        self._ready = bench.directory / name
        self._name = name
        text = f"{script} touch {name}; sleep {name}; sleep {name}"
        self.call = asyncio.ensure_future(bench("/bin/sh", "-c", text, **arguments))

    async def running(self) -> Program:
        await appears(self._ready)
        leaders = [m for pid in self.pids if (m := member_of(pid)) is not None and m.session == m.pid]
        (self.guard,) = {leader.parent for leader in leaders if leader.parent not in self.pids}
        guard = member_of(self.guard)
        assert guard is not None
        self.monitor = guard.parent
        return self

    @property
    def pids(self) -> list[int]:
        return processes(self._name)

    async def outcome(self) -> ExecOutcome:
        outcome = await self.call
        assert self.pids == []
        return outcome


async def test_programs_share_a_monitor_and_have_a_guard_each(bench: Bench) -> None:
    first = await Program(bench, "91.1").running()
    second = await Program(bench, "91.2").running()
    assert first.monitor == second.monitor and first.guard != second.guard
    await asyncio.to_thread(bench.engine.close)
    assert ended([first.monitor, first.guard, second.guard])
    assert {(await each.outcome()).error for each in (first, second)} == {"tool_failed"}


async def test_the_end_of_a_program_ends_its_own_tree_only(bench: Bench) -> None:
    detached = "setsid sleep {0} & (setsid env -i sleep {0} &);"
    stays = await Program(bench, "92.1", detached.format("92.1")).running()
    before = sorted(stays.pids)
    over = Program(bench, "92.2", detached.format("92.2"), timeout_s=1)
    assert result(await over.outcome())["timed_out"]
    assert sorted(stays.pids) == before and len(before) >= 4
    bench.engine.interrupt()
    assert (await stays.outcome()).error == "tool_failed"


async def test_a_killed_monitor_leaves_programs_running_and_is_replaced(bench: Bench) -> None:
    stays = await Program(bench, "93.1", "setsid sleep 93.1 &").running()
    os.kill(stays.monitor, signal.SIGKILL)
    assert ended([stays.monitor])
    later = await Program(bench, "93.2").running()
    assert later.monitor != stays.monitor and member_of(stays.guard) is not None
    bench.engine.interrupt()
    for each in (stays, later):
        assert "interrupted" in (await each.outcome()).message
    assert ended([stays.guard, *later.pids])


async def test_a_guard_serves_one_program_after_another(own_bench: Bench) -> None:
    """The processes and the consumption of one program do not count for the next."""
    idle = "import os; print(os.getppid())"
    burn = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n" + idle
    guards = set()
    for _ in range(6):
        guards.add(result(await own_bench.python(burn))["stdout"])
        guards.add(result(await own_bench.python(idle))["stdout"])
    assert len(guards) <= 3
    spent = [event["cpu_s"] for event in own_bench.events("finished")]
    assert min(spent[::2]) >= 0.3 > max(spent[1::2])


async def test_a_stopped_monitor_fails_the_call_and_is_replaced(own_bench: Bench) -> None:
    bench = own_bench
    first = await Program(bench, "94.1").running()
    os.kill(first.monitor, signal.SIGSTOP)
    second = await Program(bench, "94.2").running()  # the spare guard takes this one
    waits = asyncio.ensure_future(bench("/bin/true"))
    await eventually(lambda: bench.events("dispatched")[2:])
    waits.cancel()
    assert await asyncio.wait([waits], timeout=PATIENCE) and waits.cancelled()
    assert result(await bench("/bin/true"))["exit_code"] == 0
    for each in (first, second):
        each.call.cancel()
        assert await asyncio.wait([each.call]) and each.pids == []


async def test_a_program_starts_only_if_its_guard_is_awake(bench: Bench) -> None:
    """Otherwise a program could start that nothing guards if the monitor, or the kernel, is killed at that moment."""

    def waiting() -> list[int]:
        return [child for guard in system.children(first.monitor) for child in system.children(guard)]

    def has_job(pid: int) -> bool:
        asleep = system.read(f"/proc/{pid}/stat").rpartition(b")")[2].startswith(b" S")
        return asleep and os.path.realpath(f"/proc/{pid}/fd/1") != os.devnull

    first = await Program(bench, "97.1").running()
    first.call.cancel()
    assert await asyncio.wait([first.call])
    await eventually(waiting)
    guards = system.children(first.monitor)
    try:
        for guard in guards:
            os.kill(guard, signal.SIGSTOP)
        second = Program(bench, "97.2", "(setsid env -i sleep 97.2 &);")
        await eventually(lambda: any(map(has_job, waiting())))
        os.kill(first.monitor, signal.SIGKILL)
        outcome = await second.outcome()
        assert outcome.error == "tool_failed" and "monitor" in outcome.message
    finally:
        for guard in guards:
            with suppress(ProcessLookupError):
                os.kill(guard, signal.SIGKILL)


async def test_detached_processes_of_a_killed_guard_are_ended(bench: Bench) -> None:
    """Hazard 73."""
    script = "(setsid env -i sh -c 'setsid sleep 95.1 & sleep 95.1' &) ;"
    program = await Program(bench, "95.1", script).running()
    pids = program.pids
    os.kill(program.guard, signal.SIGKILL)
    outcome = await program.call
    assert outcome.error == "tool_failed" and "monitor" in outcome.message
    assert ended([*pids, *program.pids])


async def test_a_second_interrupt_does_not_wait(tmp_path: Path) -> None:
    """It does not wait the grace of an hour, though the program ignores INT and TERM."""
    engine = Engine(grace=3600, state_dir=tmp_path / "state")
    try:
        bench = Bench(engine, tmp_path.resolve())
        program = await Program(bench, "96.1", "trap '' INT TERM; setsid sleep 96.1 &").running()
        engine.interrupt()
        engine.interrupt()
        assert "interrupted" in (await asyncio.wait_for(program.outcome(), 30)).message
    finally:
        engine.close()


async def test_programs_get_the_limits_that_the_kernel_has_now(bench: Bench) -> None:
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_NPROC)[0])"
    assert result(await bench.python(code))["exit_code"] == 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    lower = 4000 if soft == resource.RLIM_INFINITY else soft - 1
    resource.setrlimit(resource.RLIMIT_NPROC, (lower, hard))
    try:
        assert result(await bench.python(code))["stdout"] == f"{lower}\n"
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))


async def test_more_parallel_programs_than_the_monitor_can_be_sent(bench: Bench) -> None:
    agent = bench.agent(("/usr", "r"), ("/bin", "r"))
    answers = await asyncio.gather(*(bench("/bin/true", agent=agent, cwd="/usr") for _ in range(80)))
    assert {result(each)["exit_code"] for each in answers} == {0}
