"""The guarantees of the `Commands` port, for commands on this machine and on the workers of a cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from processes.conftest import GRACE, Runner
from remote.cluster import Dask
from sample_files import png
from waiting import appears, eventually, until

from prose_kernel.processes.engine import Engine
from prose_kernel.processes.process_table import carries_prefix, members
from prose_kernel.processes.shell import ShellCommands
from prose_kernel.remote.commands import LinkOptions, RemoteCommands
from prose_kernel.runtime.ports import NOTHING_OMITTED, CommandRequest, CommandResult, Omitted, Stream

Seen = list[tuple[str, str]]


@dataclass(frozen=True)
class Side:
    """One implementation: a function that makes it with options, and the mark of its processes."""

    make: Callable[..., Any]
    mark: str

    def left(self) -> list[int]:
        return [member.pid for member in members() if carries_prefix(member.pid, self.mark)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared").resolve()


@pytest.fixture(scope="module", params=["here", "on workers"])
def side(request: pytest.FixtureRequest, directory: Path) -> Iterator[Side]:
    if request.param == "here":
        engine = Engine(grace=GRACE, state_dir=directory / "state")
        yield Side(lambda **options: ShellCommands(engine, "bash", **options), engine.marker)
        engine.close()
        return
    dask: Dask = request.getfixturevalue("dask")
    with dask.cluster() as running:
        running.worker(16)
        running.worker(16)
        made: dict[int, RemoteCommands] = {}

        def make(displayed: int = 0) -> RemoteCommands:
            if displayed not in made:
                options: Any = {"link": LinkOptions(grace=GRACE), "shell": "bash", "displayed": displayed}
                made[displayed] = RemoteCommands(running.address, directory, **options)
            return made[displayed]

        yield Side(make, make().mark)
        for commands in made.values():
            commands.close()


@pytest.fixture
def commands(side: Side) -> Any:
    return side.make()


@pytest.fixture
def run(commands: Any, directory: Path, request: pytest.FixtureRequest) -> Runner:
    own = directory / f"{abs(hash(request.node.nodeid)):x}"
    own.mkdir()
    return Runner(commands, own)


class Recorder:
    """A consumer that records its input."""

    def __init__(self) -> None:
        self.pieces: Seen = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, stream: Stream, text: str, omitted: Omitted | None = None) -> None:
        self.pieces.append((stream, text))
        self.threads.add(threading.current_thread())

    def text(self, stream: Stream = "stdout") -> str:
        return "".join(text for name, text in self.pieces if name == stream)


def facts(result: CommandResult) -> tuple[object, ...]:
    return result.outcome, result.exit_code, result.kind, result.signal


# ---------------------------------------------------------------- the end of a command


async def test_exit_codes_and_signals_are_reported(run: Runner) -> None:
    assert facts(await run("exit 7")) == ("exited", 7, "exit", None)
    assert facts(await run("kill -KILL $$")) == ("signaled", 137, "signal", "SIGKILL")
    assert facts(await run("no_such_program_anywhere"))[:2] == ("exited", 127)
    fine = await run("echo out; echo warning >&2")
    assert (fine.exit_code, fine.kind, fine.stdout, fine.stderr) == (0, None, "out\n", "warning\n")


async def test_a_command_that_cannot_start_returns_a_result(run: Runner) -> None:
    missing = await run("true", cwd=str(run.directory / "missing"))
    assert facts(missing) == ("spawn_failed", 127, "cwd", None)
    assert missing.stderr == missing.spawn_error == f"directory not found: {run.directory}/missing"
    assert facts(await run("echo a\0b")) == ("spawn_failed", 127, "spawn", None)
    assert facts(await run("echo \ud800")) == ("spawn_failed", 127, "spawn", None)


async def test_a_command_ends_at_its_time_limit(run: Runner, side: Side) -> None:
    result = await run("echo before; trap '' TERM; while :; do sleep 0.05; done", timeout=2.0)
    assert facts(result) == ("timed_out", 124, "timeout", None)
    assert (result.timed_out, result.stdout, result.cwd_after) == (True, "before\n", None)
    assert side.left() == []


async def test_an_interrupt_ends_all_commands_and_lets_a_program_exit_itself(run: Runner, side: Side) -> None:
    polite = run.start("trap 'echo bye; exit 7' INT; touch ready; while :; do sleep 0.02; done")
    stubborn = run.start("trap '' INT TERM; touch stubborn; while :; do sleep 0.02; done")
    await appears(run.directory / "ready")
    await appears(run.directory / "stubborn")
    run.commands.interrupt()
    result = await polite
    assert (result.outcome, result.exit_code, result.stdout) == ("interrupted", 7, "bye\n")
    assert facts(await stubborn) == ("interrupted", 137, "signal", None)
    assert side.left() == []
    assert (await run("echo fine")).stdout == "fine\n"


async def test_a_cancelled_call_leaves_nothing_however_often_it_is_cancelled(run: Runner, side: Side) -> None:
    task = run.start("trap '' TERM; (trap '' TERM; sleep 30; sleep 30) & touch ready; while :; do sleep 0.05; done")
    await appears(run.directory / "ready")
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert side.left() == []


async def test_commands_cancelled_before_their_start_leave_no_process(run: Runner, side: Side) -> None:
    tasks = [run.start("sleep 30") for _ in range(60)]  # more than can run in parallel
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(task.cancelled() for task in tasks)
    assert side.left() == []


async def test_many_interrupts_while_commands_start_leave_no_process(run: Runner, side: Side) -> None:
    async def storm() -> None:
        for _ in range(100):
            run.commands.interrupt()
            await asyncio.sleep(0.001)

    storming = asyncio.create_task(storm())
    outcomes = set()
    while not storming.done():
        outcomes |= {result.outcome for result in await asyncio.gather(*(run("sleep 0.01") for _ in range(5)))}
    assert outcomes <= {"exited", "interrupted", "signaled"}
    assert side.left() == []


@pytest.mark.parametrize("waiting", [False, True])
def test_a_closed_event_loop_leaves_no_process(commands: Any, side: Side, tmp_path: Path, waiting: bool) -> None:
    """`waiting`: output of the command is waiting for the loop when it is closed."""
    loop, printed = asyncio.new_event_loop(), tmp_path / "printed"
    request = CommandRequest(f"while :; do echo x; echo >> {printed}; sleep 0.05; done", "/", 60.0)
    task = loop.create_task(commands.run(request, lambda stream, text, omitted=None: None))

    async def begun() -> None:
        await eventually(lambda: side.left() != [])

    loop.run_until_complete(begun())
    if waiting:
        until(lambda: printed.exists() and printed.stat().st_size > 5)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    until(lambda: side.left() == [])
    task.get_coro().close()


# ---------------------------------------------------------------- the input of a command


async def test_standard_input_environment_and_long_commands(commands: Any, directory: Path) -> None:
    async def stdout(command: str, **more: Any) -> str:
        request = CommandRequest(command, str(directory), 60.0, **more)
        return str((await commands.run(request)).stdout)

    assert await stdout("cat") == ""
    assert await stdout("wc -c", stdin="ä" * 500_000) == "1000000\n"
    assert await stdout('echo "$A-$B"', env={"A": "a b", "B": "ü"}) == "a b-ü\n"
    assert await stdout(f": {'x' * 300_000}; echo $0 $#") == "exec 0\n"
    assert await stdout("echo ${BASH_ENV-none}") == "none\n"


async def test_the_final_directory_is_reported(run: Runner) -> None:
    (run.directory / "a").mkdir()
    assert (await run("cd a; exit 3")).cwd_after == f"{run.directory}/a"
    assert (await run("(cd a)")).cwd_after == str(run.directory)
    assert (await run("cd a", track=False)).cwd_after is None
    assert (await run("cd a; kill -9 $$")).cwd_after is None


# ---------------------------------------------------------------- the output of a command


@pytest.mark.parametrize("character", ["x", "😀"])
async def test_max_output_counts_characters(commands: Any, directory: Path, character: str) -> None:
    for count, cut in ((1000, False), (1001, True)):
        text = f"printf '{character}%.0s' $(seq {count})"
        result = await commands.run(CommandRequest(text, str(directory), 60.0, max_output=1000))
        assert (result.stdout, result.stdout_truncated) == (character * 1000, cut)
        assert result.stdout_bytes == count * len(character.encode())


async def test_bytes_that_are_not_utf8_are_replaced(run: Runner) -> None:
    recorded = Recorder()
    result = await run(
        r"printf 'a\377\376b\0c\r\n\033[31m'; for b in '\303' '\244'; do printf $b; sleep .06; done", recorded
    )
    assert result.stdout == recorded.text() == "a\ufffd\ufffdb\0c\r\n\x1b[31mä"
    assert result.replaced_bytes == 2


async def test_an_image_is_passed_on_unchanged(run: Runner, commands: Any) -> None:
    (run.directory / "a.png").write_bytes(png())
    recorded = Recorder()
    result = await run("echo drawing; cat a.png", recorded)
    assert (result.image, result.stdout) == (png(), "drawing\n[PNG image, 3 × 2, 72 bytes]\n")
    assert recorded.text() == "drawing\n"
    again = CommandRequest("cmp - a.png", str(run.directory), 60.0, stdin=result.image)
    assert (await commands.run(again)).exit_code == 0


async def test_two_hundred_thousand_lines_are_complete_and_in_order(run: Runner) -> None:
    recorded = Recorder()
    result = await run("seq 200000; seq 200000 >&2", recorded)
    expected = "".join(f"{number}\n" for number in range(1, 200_001))
    assert recorded.text() == expected
    assert recorded.text("stderr") == expected
    assert recorded.threads == {threading.current_thread()}
    assert result.stdout_bytes == len(expected)


async def test_many_small_writes_on_both_streams_keep_their_order(run: Runner) -> None:
    recorded = Recorder()
    await run("for i in $(seq 2000); do echo $i; echo e$i >&2; done", recorded)
    assert recorded.text() == "".join(f"{i}\n" for i in range(1, 2001))
    assert recorded.text("stderr") == "".join(f"e{i}\n" for i in range(1, 2001))


async def test_output_arrives_while_the_command_runs(run: Runner) -> None:
    recorded = Recorder()
    task = run.start("printf 'x? '; until [ -e go ]; do sleep 0.01; done; echo rest", recorded)
    await eventually(lambda: recorded.pieces)
    assert recorded.pieces == [("stdout", "x? ")]
    (run.directory / "go").touch()
    await task
    assert recorded.text() == "x? rest\n"


async def test_writes_to_both_streams_arrive_in_order_when_there_is_time_between_them(run: Runner) -> None:
    recorded = Recorder()
    await run("echo 1; sleep .2; echo 2 >&2; sleep .2; echo 3", recorded)
    assert recorded.pieces == [("stdout", "1\n"), ("stderr", "2\n"), ("stdout", "3\n")]


async def test_a_consumer_that_raises_does_not_change_the_result(run: Runner, caplog: pytest.LogCaptureFixture) -> None:
    def bad(stream: Stream, text: str, omitted: Omitted | None = None) -> None:
        raise RuntimeError("no screen")

    assert (await run("seq 100000", bad)).stdout_bytes == 588_895
    assert "no screen" in caplog.text


async def test_a_command_waits_for_a_slow_display_without_a_limit(run: Runner) -> None:
    """While the caller's loop is blocked, the command waits; all output arrives afterwards."""
    size = 30_000_000
    recorded: list[int] = []

    def consume(stream: Stream, text: str, omitted: Omitted | None = None) -> None:
        if not recorded:
            time.sleep(0.5)
            assert not (run.directory / "done").exists()
        recorded.append(len(text))

    result = await run(f"yes | head -c {size}; touch done", consume)
    assert sum(recorded) == result.stdout_bytes == size
    assert (run.directory / "done").exists()


async def test_a_slow_display_with_a_limit_does_not_delay_the_command(side: Side, run: Runner) -> None:
    pieces: list[tuple[str, Omitted]] = []

    def consume(stream: Stream, text: str, omitted: Omitted = NOTHING_OMITTED) -> None:
        pieces.append((text, omitted))

    shown = Runner(side.make(displayed=100_000), run.directory)
    assert (await shown("true")).exit_code == 0
    task = shown.start("echo first; yes | head -c 30000000; echo last; touch done", consume)
    await asyncio.sleep(0)
    until((run.directory / "done").exists)  # on purpose: blocks this loop
    result = await task
    shown_text = "".join(text for text, _ in pieces)
    assert (shown_text[:8], shown_text[-7:]) == ("first\ny\n", "y\nlast\n")
    assert sum(gap.size for _, gap in pieces) + sum(len(text) for text, _ in pieces) == result.stdout_bytes


@pytest.mark.parametrize("how", ["cancelled", "interrupted", "timed out"])
async def test_a_command_that_waits_for_its_display_can_be_ended(run: Runner, side: Side, how: str) -> None:
    reached = asyncio.Event()

    def consume(stream: Stream, text: str, omitted: Omitted | None = None) -> None:
        reached.set()
        time.sleep(0.01)

    task = run.start("yes", consume, timeout=1.0 if how == "timed out" else 60.0)
    await reached.wait()
    if how == "cancelled":
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        if how == "interrupted":
            run.commands.interrupt()
        assert (await task).outcome == how.replace(" ", "_")
    assert side.left() == []


# ---------------------------------------------------------------- background processes


async def test_a_background_process_is_counted_and_ended_at_the_end(run: Runner, side: Side) -> None:
    result = await run("sleep 61.3 & echo hi")
    assert (result.stdout, result.pipes_held, result.background_left) == ("hi\n", True, 1)
    for pid in side.left():
        os.kill(pid, signal.SIGKILL)
