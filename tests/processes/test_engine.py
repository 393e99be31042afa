"""The life of the engine: start, close, queueing, leftovers (exec-and-tasks.md 1.2; hazards 31, 32, 50, 89, 90)."""

from __future__ import annotations

import asyncio
import errno
import gc
import mmap
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from processes.conftest import GRACE, HOUR, Clock, Runner, end_of, marked
from waiting import PATIENCE, appears, eventually, processes

from prose_kernel.processes import system
from prose_kernel.processes.child_process import Process
from prose_kernel.processes.command_output import Live
from prose_kernel.processes.cross_loop import ProcessCall
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.process_table import Member, all_ignore, handles, member_of, members
from prose_kernel.processes.shell import ShellCommands
from prose_kernel.processes.stream_reading import Drain
from prose_kernel.processes.termination import BackgroundProcesses
from prose_kernel.runtime.ports import CommandRequest, CommandResult


def zombies() -> set[int]:
    """Return the children of this process that have ended and were not reaped."""
    found = set()
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] == "Z" and int(fields[1]) == os.getpid():
                found.add(int(path.name))
    return found


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def closing(engine: Engine) -> asyncio.Task[None]:
    return asyncio.create_task(asyncio.to_thread(engine.close))


def test_nothing_is_started_before_the_first_command(tmp_path: Path) -> None:
    before = threading.active_count(), descriptors()
    engine = Engine(state_dir=tmp_path)
    ShellCommands(engine)
    assert (threading.active_count(), descriptors()) == before
    engine.close()
    engine.close()
    assert (threading.active_count(), descriptors()) == before


async def test_the_thread_is_not_a_daemon_and_blocks_no_signals(engine: Engine, run: Runner) -> None:
    await run("true")
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "prose-commands"]
    assert not thread.daemon
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    assert "SigBlk:\t0000000000000000" in status


async def test_a_command_is_freed_without_the_collector_of_cycles(engine: Engine, run: Runner) -> None:
    gc.collect()
    gc.disable()
    try:
        await run("echo hello; sleep 0.01; echo again")
        kinds = (Process, Drain, Live, ProcessCall)
        await eventually(lambda: not any(type(each) in kinds for each in gc.get_objects()))
    finally:
        gc.enable()


async def test_closing_ends_everything_and_answers_every_call(engine: Engine, run: Runner, clock: Clock) -> None:
    await run("sleep 600 & echo hi")
    tasks = [run.start(f"touch ready{index}; sleep 600") for index in range(5)]
    for index in range(5):
        await appears(run.directory / f"ready{index}")
    await end_of(closing(engine))  # without the grace
    assert marked(engine.marker) == []
    results = await asyncio.gather(*tasks)
    assert {(result.outcome, result.exit_code, result.kind) for result in results} == {("cancelled", 143, "signal")}
    engine.close()


async def test_acceptance_10_a_background_process_is_gone_after_shutdown(engine: Engine, run: Runner) -> None:
    left = await run("sleep 60 & echo hi")
    immune = await run("(trap '' TERM INT; touch ready; while :; do sleep 0.05; done) & :")
    number = f"60.{os.getpid():07d}"  # it drops our environment, so the arguments identify this test's process
    bare = await run(f"env -i sleep {number} & :")
    assert [result.background_left for result in (left, immune, bare)] >= [1, 1, 1]
    await appears(run.directory / "ready")
    sessions = set(marked(engine.marker))
    assert len(sessions) >= 2
    engine.close()
    assert marked(engine.marker) == []
    assert processes(number) == []


STUBBORN = "trap '' INT; trap 'touch told{0}' TERM; touch ready{0}; while :; do sleep 0.05; done"
"""A command that ignores INT and only notes TERM."""


async def test_hazard_90_shutdown_with_stubborn_children(engine: Engine, run: Runner, clock: Clock) -> None:
    tasks = [run.start(STUBBORN.format(index)) for index in range(20)]
    for index in range(20):
        await appears(run.directory / f"ready{index}")
    close = closing(engine)
    for index in range(20):
        await appears(run.directory / f"told{index}")
    await clock.forward(HOUR / 2)
    assert not close.done() and not any(task.done() for task in tasks)
    await clock.forward(HOUR / 2)
    await end_of(close)
    assert {result.outcome for result in await asyncio.gather(*tasks)} == {"cancelled"}
    assert marked(engine.marker) == []


async def test_shutdown_during_another_ladder_does_not_add_up(engine: Engine, run: Runner, clock: Clock) -> None:
    task = run.start(STUBBORN.format(""))
    await appears(run.directory / "ready")
    run.commands.interrupt()
    close = closing(engine)
    await appears(run.directory / "told")  # the time after INT is not waited for
    await clock.forward(HOUR)
    await end_of(close)
    assert (await task).outcome == "interrupted"


@pytest.mark.linux  # elsewhere the ignored signals of a process are unknown
def test_a_process_that_has_just_ended_is_not_waited_for() -> None:
    """A command that starts short programs in a loop has some in the process table that end before they are looked at."""
    ignoring = subprocess.Popen(["sh", "-c", "trap '' INT; echo; exec sleep 60"], stdout=subprocess.PIPE)
    ended = subprocess.Popen(["sleep", "60"])
    try:
        assert ignoring.stdout is not None
        ignoring.stdout.readline()
        listed = [found for one in (ignoring, ended) if (found := member_of(one.pid)) is not None]
        assert len(listed) == 2 and not all_ignore(listed, signal.SIGINT)
        ended.kill()
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert all_ignore(listed, signal.SIGINT)  # it isn't reaped yet
        ended.wait()
        assert all_ignore(listed, signal.SIGINT) and not handles(ended.pid, signal.SIGINT)
    finally:
        for one in (ignoring, ended):
            one.kill()
            one.communicate()
    assert not all_ignore(listed, signal.SIGINT)


@pytest.mark.linux  # elsewhere the ignored signals of a process are unknown
async def test_term_follows_an_interrupt_that_every_process_ignores(run: Runner, clock: Clock) -> None:
    task = run.start(STUBBORN.format(""))
    await appears(run.directory / "ready")
    run.commands.interrupt()
    await appears(run.directory / "told")  # the time after INT is not waited for, that after TERM is
    assert not task.done()
    await clock.forward(HOUR)
    assert (await end_of(task)).outcome == "interrupted"


async def test_term_waits_for_a_process_that_handles_the_interrupt(run: Runner, clock: Clock) -> None:
    task = run.start("(" + STUBBORN.format("") + ") & trap : INT; wait; touch cleaning; while :; do sleep 0.05; done")
    await appears(run.directory / "ready")
    run.commands.interrupt()
    await appears(run.directory / "cleaning")
    await clock.forward(HOUR / 2)
    assert not (run.directory / "told").exists()
    await clock.forward(HOUR / 2)
    await appears(run.directory / "told")
    await clock.forward(HOUR)
    assert (await end_of(task)).outcome == "interrupted"


async def test_a_closed_engine_starts_nothing(engine: Engine, run: Runner) -> None:
    engine.close()
    result = await run("touch made")
    assert (result.outcome, result.spawn_error) == ("cancelled", "the process engine is closed")
    assert not (run.directory / "made").exists()
    run.commands.interrupt()


async def test_an_engine_without_a_thread_tries_again_at_the_next_command(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as at_the_limit:
        at_the_limit.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            result = await run("touch made")
            assert (result.outcome, result.exit_code) == ("spawn_failed", 127)
            assert result.spawn_error == "cannot start the command: resource temporarily unavailable (EAGAIN)"
    assert (await run("echo works")).stdout == "works\n"


@pytest.mark.parametrize("threads", [True, False])
async def test_an_end_is_noticed_without_a_descriptor(
    run: Runner, monkeypatch: pytest.MonkeyPatch, threads: bool
) -> None:
    def no_descriptor(pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    assert (await run("true")).exit_code == 0  # the engine has its own thread
    monkeypatch.setattr(system, "exit_descriptor", no_descriptor)
    if not threads:
        monkeypatch.setattr(threading.Thread, "start", refuse)
    assert (await run("exit 3")).exit_code == 3


async def test_closing_while_commands_come_in_answers_every_call(engine: Engine, run: Runner) -> None:
    busy = 0

    async def stream() -> list[CommandResult]:
        nonlocal busy
        results: list[CommandResult] = []
        while not results or results[-1].spawn_error is None:
            results.append(await run("true"))
            busy += len(results) == 1
        return results

    streams = [asyncio.create_task(stream()) for _ in range(4)]
    await eventually(lambda: busy == 4)
    await asyncio.to_thread(engine.close)
    async with asyncio.timeout(PATIENCE):
        results = await asyncio.gather(*streams)
    assert {result.outcome for part in results for result in part} <= {"exited", "cancelled"}


def test_many_loops_may_use_one_engine(engine: Engine) -> None:
    commands = ShellCommands(engine, "bash")
    results: list[str] = []

    def work(index: int) -> None:
        for _ in range(5):
            results.append(asyncio.run(commands.run(CommandRequest(f"echo {index}", "/", 10.0))).stdout.strip())

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted(str(index) for index in range(4) for _ in range(5))


def test_an_interrupt_may_come_from_a_signal_handler(engine: Engine, tmp_path: Path) -> None:
    """The handler interrupts the main thread anywhere, even inside the engine's own calls."""
    commands = ShellCommands(engine, "bash")

    async def main() -> CommandResult:
        asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGUSR1)
        return await commands.run(CommandRequest("sleep 30", str(tmp_path), 60.0))

    before = signal.signal(signal.SIGUSR1, lambda *_: commands.interrupt())
    try:
        assert asyncio.run(main()).outcome == "interrupted"
    finally:
        signal.signal(signal.SIGUSR1, before)


async def test_commands_wait_for_their_turn_and_the_limit_does_not_count_the_waiting(tmp_path: Path) -> None:
    engine = Engine(state_dir=tmp_path / "state", grace=GRACE, at_once=2)
    try:
        run, clock = Runner(ShellCommands(engine, "bash"), tmp_path), Clock(engine)
        command = "touch begun{0}; until [ -e go{0} ]; do sleep 0.01; done"
        tasks = [run.start(command.format(index), timeout=HOUR) for index in range(6)]
        for first in (0, 2, 4):
            for index in (first, first + 1):
                await appears(tmp_path / f"begun{index}")
            await clock.forward(0.7 * HOUR)
            assert not (tmp_path / f"begun{first + 2}").exists()
            for index in (first, first + 1):
                (tmp_path / f"go{index}").touch()
                assert (await end_of(tasks[index])).outcome == "exited"
        tasks = [run.start(f": >ready{index}; sleep 30") for index in range(4)]
        await appears(tmp_path / "ready1")
        tasks[3].cancel()
        with pytest.raises(asyncio.CancelledError):
            await end_of(tasks[3])
        run.commands.interrupt()
        outcomes = [(result.outcome, result.exit_code) for result in await asyncio.gather(*tasks[:3])]
        assert outcomes == [("interrupted", 130)] * 3
        assert not (tmp_path / "ready2").exists()
        waiting = [run.start(f"touch later{index}; sleep 30") for index in range(3)]
        await appears(tmp_path / "later0")
        await asyncio.to_thread(engine.close)
        assert {result.outcome for result in await asyncio.gather(*waiting)} == {"cancelled"}
    finally:
        engine.close()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def _many(run: Runner, count: int) -> None:
    for start in range(0, count, 50):
        batch = [run("true" if index % 5 else "echo x; exit 3") for index in range(start, min(start + 50, count))]
        batch.append(run("true", cwd="/no/such/place"))
        await asyncio.gather(*batch)


async def _blocks(clock: Clock) -> int:
    """Return the allocated memory blocks after both loops have dropped the calls and timers of finished commands."""
    await clock.forward(1.0)
    gc.collect()
    return sys.getallocatedblocks()


async def _nothing_grows(run: Runner, clock: Clock, count: int) -> None:
    of_others = zombies()  # left by earlier tests in this process
    await _many(run, 100)
    blocks, memory = await _blocks(clock), _resident()
    before = descriptors(), threading.active_count()
    for _ in range(2):  # a module or a table that a slow command needed first is no leak: a leak grows in each round
        await _many(run, count)
        grown, blocks = await _blocks(clock) - blocks, await _blocks(clock)
        if grown < count / 2:
            break
    assert (descriptors(), threading.active_count()) == before
    assert zombies() <= of_others
    assert _resident() - memory < max(count * 800, 3 * 1024 * 1024)
    assert grown < count / 2


@pytest.mark.slow
async def test_hazards_31_32_nothing_grows_over_hundreds_of_commands(run: Runner, clock: Clock) -> None:
    """Memory doesn't grow by even one object in two commands. The thorough profile runs the ten thousand of the reference."""
    await _nothing_grows(run, clock, 10_000 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 300)


def test_groups_that_have_ended_are_forgotten() -> None:
    """The memory of a kernel does not grow if every command leaves a background process."""
    leftovers = BackgroundProcesses("marker:exec")
    alive = Member(99, group=99, session=99, ticks=7, parent=1)
    forgotten: list[int] = []
    for group in range(100, 300):
        forgotten += leftovers.remember(group, [Member(group + 1000, group, group, 5, 1)], lambda: [alive])
    assert leftovers.remember(99, [alive], lambda: [alive]) == []
    assert len(forgotten) > 100
    assert forgotten == sorted(set(forgotten))


async def test_hazard_30_a_foreign_process_with_a_reused_number_is_never_signalled() -> None:
    """The group left by a command has ended, and its number now belongs to another process."""
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        now = member_of(stranger.pid)
        assert now is not None
        before = Member(now.pid, now.group, now.session, now.ticks - 1, now.parent)
        leftovers = BackgroundProcesses("marker:exec")
        leftovers.remember(stranger.pid, [before], members)
        await leftovers.end(0.1, members)
        assert leftovers.groups == frozenset()
        assert stranger.poll() is None
        leftovers.remember(stranger.pid, [now], members)
        await leftovers.end(0.1, members)
        assert stranger.wait(PATIENCE) == -signal.SIGTERM
    finally:
        stranger.kill()
        stranger.wait()


async def test_hazard_50_a_large_kernel_is_not_copied_for_a_spawn(run: Runner) -> None:
    """After a fork, which is slower the more memory there is, the first write to each page is a fault."""
    pages = 16_384
    with mmap.mmap(-1, pages * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        with suppress(OSError):  # a system that has no large pages
            memory.madvise(mmap.MADV_NOHUGEPAGE)

        def faults() -> int:
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
            for page in range(pages):
                memory[page * mmap.PAGESIZE] = 1
            return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

        assert faults() >= pages  # the memory is new
        assert faults() < pages / 100
        await run("true")
        assert faults() < pages / 100


async def test_hazard_89_the_engines_loop_is_never_blocked_for_long(engine: Engine, run: Runner) -> None:
    """No step takes a third of its thread's processor time. This measure does not depend on the machine."""
    await run("true")
    gaps: list[float] = []
    last = 0.0

    def beat() -> None:
        nonlocal last
        now = time.thread_time()
        gaps.append(now - last)
        last = now
        engine.loop.call_later(0.005, beat)

    engine.post(beat)
    await asyncio.gather(*(run("true") for _ in range(150)))
    await run("yes | head -c 100000000")
    await run("sleep 60 & yes & sleep 60", timeout=0.3)
    assert len(gaps) > 20
    assert max(gaps[1:]) < sum(gaps[1:]) / 3


def test_the_engine_does_not_load_at_import() -> None:
    code = "import sys, prose_kernel.processes; print([m for m in ('asyncio', 'subprocess') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
