"""Lost workers and drivers: no command runs twice, hangs or leaves a process (docs/how-to/many-machines.md)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from remote.cluster import Cluster
from remote.conftest import GRACE, Connect, Workers, marked, wait_until_nothing_is_left
from waiting import appears, eventually, until

from prose_kernel.remote import messages
from prose_kernel.remote.commands import LinkOptions, RemoteCommands
from prose_kernel.remote.messages import Order, Start
from prose_kernel.runtime.ports import CommandRequest, CommandResult

BOUND = 30.0
"""Seconds. Every loss is reported sooner, also on a busy machine; the commands of these tests take longer."""


def request(text: str, directory: Path, timeout: float = 600.0) -> CommandRequest:
    return CommandRequest(text, str(directory), timeout)


async def within(seconds: float, *running: asyncio.Task[CommandResult]) -> list[CommandResult]:
    return list(await asyncio.wait_for(asyncio.gather(*running), seconds))


def start(commands: RemoteCommands, text: str, directory: Path) -> asyncio.Task[CommandResult]:
    return asyncio.ensure_future(commands.run(request(text, directory)))


# ---------------------------------------------------------------- a worker


async def test_commands_of_a_killed_worker_are_lost_and_leave_no_process(
    connect: Connect, workers: Workers, tmp_path: Path
) -> None:
    [pid] = workers()
    commands = connect()
    seen: list[str] = []
    running = asyncio.ensure_future(
        commands.run(
            request("echo begun; echo x >> count; sleep 60", tmp_path), lambda _, text, omitted=None: seen.append(text)
        )
    )
    await appears(tmp_path / "count")
    await eventually(lambda: seen)
    os.kill(pid, signal.SIGKILL)
    [result] = await within(BOUND, running)
    assert (result.outcome, result.exit_code, result.kind, result.stdout) == ("lost", 255, "lost", "begun\n")
    assert result.worker is not None
    wait_until_nothing_is_left(commands.mark)
    workers()
    again = await commands.run(request("cat count", tmp_path))
    assert (again.outcome, again.stdout) == ("exited", "x\n")


MOMENTS = 50 if os.environ.get("DURABILITY_EXAMPLES") else 20
"""A sample; `make durability` takes more."""


@pytest.mark.slow
async def test_workers_killed_at_random_moments_never_run_a_command_twice(
    connect: Connect, workers: Workers, tmp_path: Path
) -> None:
    alive = workers(2, nthreads=4)
    commands = connect()
    await commands.connect()
    random_source, lost, left = random.Random(8), 0, tmp_path / "runs"
    left.mkdir()
    for moment in range(MOMENTS):
        text = "echo x >> runs/{}; sleep 0.02; echo y >> runs/{}; echo done"
        names = [f"{moment}-{index}" for index in range(12)]  # more than can run in parallel: some wait here
        running = [start(commands, text.format(name, name), tmp_path) for name in names]
        await asyncio.sleep(random_source.uniform(0, 0.08))
        os.kill(alive.pop(0), signal.SIGKILL)
        alive += await asyncio.to_thread(workers, 1, 4)
        results = await within(BOUND, *running)
        for name, result in zip(names, results, strict=True):
            path = left / name
            lines = path.read_text().split() if path.exists() else []
            if result.outcome == "exited":
                assert (result.stdout, lines) == ("done\n", ["x", "y"])
            else:
                assert result.outcome == "lost"
                assert lines in ([], ["x"], ["x", "y"])
                lost += 1
    assert lost > MOMENTS * 2 // 5  # so that kills happened while commands ran
    wait_until_nothing_is_left(commands.mark)
    assert all(path.read_text().split() in (["x"], ["x", "y"]) for path in left.iterdir())


async def test_a_stopped_worker_is_lost_and_ends_its_commands_when_it_continues(
    connect: Connect, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "LEASE", 2.5)
    monkeypatch.setattr(messages, "SILENCE", 2.5)
    [pid] = workers()
    commands = connect(lease=2.5)
    running = start(commands, "touch ready; sleep 60", tmp_path)
    await appears(tmp_path / "ready")
    os.kill(pid, signal.SIGSTOP)
    [result] = await within(BOUND, running)
    assert result.outcome == "lost"
    assert marked(commands) != []
    os.kill(pid, signal.SIGCONT)
    await asyncio.to_thread(wait_until_nothing_is_left, commands.mark)


async def test_a_killed_scheduler_ends_the_cluster_and_its_commands_are_lost(own: Cluster, tmp_path: Path) -> None:
    own.worker()
    commands = RemoteCommands(own.address, tmp_path.resolve(), link=LinkOptions(grace=GRACE))
    await commands.connect()
    running = start(commands, "touch ready; sleep 60", tmp_path)
    await appears(tmp_path / "ready")
    os.kill(own.scheduler, signal.SIGKILL)
    assert (await within(BOUND, running))[0].outcome == "lost"
    await asyncio.to_thread(wait_until_nothing_is_left, commands.mark)
    await asyncio.to_thread(commands.close)


async def test_commands_that_were_not_sent_yet_run_on_another_worker(
    connect: Connect, workers: Workers, tmp_path: Path
) -> None:
    [pid] = workers(nthreads=1)
    commands = connect()
    first = start(commands, "touch ready; sleep 60", tmp_path)
    await appears(tmp_path / "ready")
    second = start(commands, "echo fine", tmp_path)
    os.kill(pid, signal.SIGKILL)
    workers(nthreads=1)
    lost, fine = await within(BOUND, first, second)
    assert (lost.outcome, fine.outcome, fine.stdout) == ("lost", "exited", "fine\n")


async def test_commands_cancelled_before_they_are_sent_run_on_no_worker(
    connect: Connect, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker accepts no more orders, so an order that is being sent delays all later ones in this process."""
    monkeypatch.setattr(messages, "SILENCE", 2.0)
    monkeypatch.setattr(messages, "LEASE", 2.5)
    [pid] = workers()
    commands = connect(lease=2.5)
    await commands.run(request("true", tmp_path))
    [worker] = commands._connection.workers.values()
    sent: set[int] = set()
    send_orders = worker._actor.send_orders

    def recording(instance: str, batch: int, orders: Sequence[Order]) -> Awaitable[None]:
        sent.update(order.number for order in orders if isinstance(order, Start))
        return send_orders(instance, batch, orders)

    monkeypatch.setattr(worker._actor, "send_orders", recording)
    os.kill(pid, signal.SIGSTOP)
    running = [start(commands, f"touch later{n}", tmp_path) for n in range(8)]
    await eventually(lambda: sum(state.running for state in commands.state.workers) == 8)
    running[-1].cancel()
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    workers()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running[-1], BOUND)
    results = await within(BOUND, *running[:-1])
    first = 2  # the number of the first order: one has run before
    assert [r.outcome for r in results] == ["lost" if first + n in sent else "exited" for n in range(7)]
    made = {path.name for path in tmp_path.glob("later*")}
    assert made == {f"later{n}" for n in range(7) if first + n not in sent}


async def test_commands_fail_soon_without_any_worker(
    connect: Connect, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prose_kernel.remote.commands.NO_WORKER", 0.5)
    [pid] = workers()
    commands = connect()
    await commands.run(request("true", tmp_path))
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not commands.state.workers)
    [result] = await within(BOUND, start(commands, "true", tmp_path))
    assert (result.outcome, result.exit_code, result.spawn_error) == ("spawn_failed", 127, "no worker is left")


async def test_cancelling_and_interrupting_commands_of_a_stopped_worker_end_soon(
    connect: Connect, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "LEASE", 2.5)
    monkeypatch.setattr(messages, "SILENCE", 2.5)
    [pid] = workers()
    commands = connect(lease=2.5)
    running = [start(commands, f"touch ready{n}; sleep 60", tmp_path) for n in range(2)]
    for n in range(2):
        await appears(tmp_path / f"ready{n}")
    os.kill(pid, signal.SIGSTOP)
    commands.interrupt()
    running[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running[0], BOUND)
    assert (await within(BOUND, running[1]))[0].outcome == "lost"
    os.kill(pid, signal.SIGKILL)


async def test_closing_ends_the_commands_on_all_workers(connect: Connect, workers: Workers, tmp_path: Path) -> None:
    workers(2, nthreads=2)
    commands = connect()
    running = [start(commands, f"sleep 61 & touch ready{n}; sleep 60", tmp_path) for n in range(6)]
    await eventually(lambda: len(list(tmp_path.glob("ready*"))) == 4)
    assert len({state.address for state in commands.state.workers if state.running == 2}) == 2
    await asyncio.to_thread(commands.close)
    results = await within(BOUND, *running)
    assert {result.outcome for result in results} == {"cancelled"}
    assert marked(commands) == []
    assert (await commands.run(request("true", tmp_path))).outcome == "cancelled"


# ---------------------------------------------------------------- the driver


@contextmanager
def host(cluster: Cluster, directory: Path, lease: float, *texts: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A driver in a separate process, and the mark of its commands."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("host.py")), cluster.address, str(directory), str(lease), *texts],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        process.stdout.close()


def test_a_killed_driver_leaves_no_process_on_its_workers(tcp: Cluster, workers: Workers, tmp_path: Path) -> None:
    workers(2, nthreads=2)
    texts = [f"trap '' TERM; sleep 61 & touch ready{n}; while :; do sleep 0.1; done" for n in range(4)]
    with host(tcp, tmp_path, 60.0, *texts) as (process, mark):
        until(lambda: len(list(tmp_path.glob("ready*"))) == 4)
        process.kill()
        wait_until_nothing_is_left(mark, BOUND)


async def test_large_inputs_and_results_arrive_complete(connect: Connect, workers: Workers, tmp_path: Path) -> None:
    workers()
    commands = connect()
    text = "0123456789abcde\n" * 1_000_000
    sent = CommandRequest("cat", str(tmp_path), 60.0, stdin=text, max_output=len(text))
    result = await commands.run(sent)
    assert result.stdout == text


def test_a_stopped_driver_loses_its_commands_and_is_informed(tcp: Cluster, workers: Workers, tmp_path: Path) -> None:
    workers()
    with host(tcp, tmp_path, 2.5, "touch ready; sleep 60") as (process, mark):
        until((tmp_path / "ready").exists)
        process.send_signal(signal.SIGSTOP)
        wait_until_nothing_is_left(mark, BOUND)
        process.send_signal(signal.SIGCONT)
        assert process.stdout is not None
        assert process.stdout.readline() == "lost\n"


# ---------------------------------------------------------------- through the scheduler


async def test_the_scheduler_passes_messages_on_if_workers_cannot_be_reached(
    connect: Connect, workers: Workers, tmp_path: Path
) -> None:
    [pid] = workers()
    commands = connect(direct=False)
    seen: list[str] = []

    def take(_: str, text: str, omitted: object = None) -> None:
        seen.append(text)

    await commands.run(request("seq 200000", tmp_path), take)
    assert "".join(seen) == "".join(f"{n}\n" for n in range(1, 200_001))
    interrupted = start(commands, "touch a; sleep 60", tmp_path)
    await appears(tmp_path / "a")
    commands.interrupt()
    assert (await within(BOUND, interrupted))[0].outcome == "interrupted"
    lost = start(commands, "touch b; sleep 60", tmp_path)
    await appears(tmp_path / "b")
    os.kill(pid, signal.SIGKILL)
    assert (await within(BOUND, lost))[0].outcome == "lost"


async def test_an_interrupt_ends_commands_that_obey_without_waiting_for_the_grace_period(
    connect: Connect, workers: Workers, tmp_path: Path
) -> None:
    workers(2)
    commands = connect(grace=3600.0)
    running = [start(commands, f"touch ready{n}; exec sleep 600", tmp_path) for n in range(8)]
    for n in range(8):
        await appears(tmp_path / f"ready{n}")
    commands.interrupt()
    results = await within(BOUND, *running)
    assert {(result.outcome, result.exit_code) for result in results} == {("interrupted", 130)}
