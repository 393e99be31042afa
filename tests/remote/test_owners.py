"""Runs that are resumed while their commands still run on workers, and workers that are being retired (A52, A58)."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import pytest
from needs import needs_module
from remote.cluster import Cluster
from remote.conftest import Connect, Workers, wait_until_nothing_is_left
from remote.test_loss import BOUND, start, within
from waiting import appears, eventually, until

from prose_kernel.runtime.ports import Owner

LOOP = """
import fcntl, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # so that only KILL ends it
with open("lock", "w") as lock:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        open("twice", "w").close()
    open("began", "a").write(os.environ["PROSE_ATTEMPT"] + "\\n")
    while os.environ["PROSE_ATTEMPT"] == sys.argv[1]:
        time.sleep(0.05)
"""
"""A command that creates a file if two of it run at the same time. It never ends in the attempt of its argument."""


pytestmark = pytest.mark.usefixtures("dask")


# ---------------------------------------------------------------- a run that is resumed


def test_a52_a_resumed_run_never_runs_a_command_while_the_old_one_runs(tmp_path: Path, tcp: Cluster) -> None:
    """The workers take longer to end the old command than the run takes to start again."""
    pids = [tcp.worker(4, grace="5") for _ in range(2)]
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "p.prose").write_text(f'exec "{sys.executable} loop.py $PROSE_ATTEMPT"\n  timeout: "10m"\n')
    arguments = ["run", "p.prose", "--remote", tcp.address]
    try:
        for number in (1, 2):
            with forked.running(*arguments, cwd=tmp_path):  # killed at the end
                until(functools.partial(_has_lines, tmp_path / "began", number))
            arguments = ["run", "--resume", "--remote", tcp.address]
        (tmp_path / "loop.py").write_text(LOOP.replace("while", "if"))
        ended = forked.prose(*arguments, cwd=tmp_path, env=dict(os.environ))
        assert ended.returncode == 0, ended.stderr
        assert (tmp_path / "began").read_text().split() == ["1", "2", "3"]
        assert not (tmp_path / "twice").exists()
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def _has_lines(path: Path, count: int) -> bool:
    return path.exists() and len(path.read_text().splitlines()) == count


def test_a52_a_run_with_its_own_cluster_is_resumed_after_that_has_ended(tmp_path: Path) -> None:
    needs_module("cryptography")
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "p.prose").write_text(f'exec "{sys.executable} loop.py 1"\n  timeout: "10m"\n')
    with forked.running("run", "p.prose", "--remote", "local", cwd=tmp_path):  # killed at the end
        until((tmp_path / "began").exists)
    ended = forked.prose("run", "--resume", cwd=tmp_path, env=dict(os.environ))
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "began").read_text().split() == ["1", "2"]
    assert not (tmp_path / "twice").exists()


async def test_a52_a_worker_refuses_an_owner_that_was_replaced(
    connect: Connect, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers()
    old, new = connect(), connect()
    await old.connect(Owner("r", 1))
    running = start(old, "touch began; sleep 60", tmp_path)
    await appears(tmp_path / "began")
    await new.connect(Owner("r", 2, resumed=True))
    assert [result.outcome for result in await within(BOUND, running)] == ["lost"]
    wait_until_nothing_is_left(old.mark, 0.1)
    monkeypatch.setattr("prose_kernel.remote.commands.NO_WORKER", 0.5)
    [refused] = await within(2 * BOUND, start(old, "touch never", tmp_path))
    assert (refused.outcome, (tmp_path / "never").exists()) == ("spawn_failed", False)
    assert old.state.refused == ("another process has taken the run over",)
    assert [result.exit_code for result in await within(BOUND, start(new, "true", tmp_path))] == [0]


async def test_a52_resuming_a_run_does_not_end_other_runs_on_the_same_workers(
    connect: Connect, workers: Workers, tmp_path: Path
) -> None:
    workers()
    one, other = connect(), connect()
    await one.connect(Owner("one", 5))
    running = start(one, "touch began; until [ -e go ]; do sleep 0.02; done", tmp_path)
    await appears(tmp_path / "began")
    await other.connect(Owner("other", 1))
    await other.connect(Owner("third", 9, resumed=True))
    (tmp_path / "go").touch()
    assert [result.exit_code for result in await within(BOUND, running)] == [0]
    await one.connect(Owner("other", 6, resumed=True))  # `other` runs `third` by now
    assert [result.exit_code for result in await within(BOUND, start(other, "true", tmp_path))] == [0]


# ---------------------------------------------------------------- retirement


def client(running: Cluster, call: Callable[[Any], object]) -> None:
    """Call a function with a separate client of the cluster."""
    from distributed import Client

    with Client(running.address, set_as_default=False) as one:
        call(one)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a58_a_retired_worker_finishes_its_commands_and_accepts_no_others(
    own: Cluster, connect: Connect, tmp_path: Path
) -> None:
    first = own.worker(4)
    commands = connect(own.address)
    [worker] = (await commands.connect()).workers
    text = "touch began{}; until [ -e go ]; do sleep 0.02; done; echo done"
    running = [start(commands, text.format(n), tmp_path) for n in range(4)]
    await eventually(lambda: len(list(tmp_path.glob("began*"))) == 4)
    own.worker(4)
    await eventually(lambda: len(commands.state.workers) == 2)
    await asyncio.to_thread(client, own, lambda c: c.retire_workers([worker.address]))
    later = await within(BOUND, *[start(commands, "echo $PPID", tmp_path) for _ in range(4)])
    assert {result.outcome for result in later} == {"exited"}
    assert worker.address not in {str(result.worker).split()[1] for result in later}
    assert alive(first)
    (tmp_path / "go").touch()
    assert [result.stdout for result in await within(BOUND, *running)] == ["done\n"] * 4
    await eventually(lambda: not alive(first))
    await eventually(lambda: len(commands.state.workers) == 1)
    assert [result.exit_code for result in await within(BOUND, start(commands, "true", tmp_path))] == [0]


async def test_a58_a_worker_whose_lifetime_is_over_finishes_its_commands(
    own: Cluster, connect: Connect, tmp_path: Path
) -> None:
    first = own.worker(4)
    commands = connect(own.address)
    [worker] = (await commands.connect()).workers
    own.worker(1)
    text = "touch began{0}; until [ -e go ]; do sleep 0.02; done; echo {0}"
    running = [start(commands, text.format(n), tmp_path) for n in range(20)]
    await eventually(lambda: len(list(tmp_path.glob("began*"))) == 5)

    def retire(dask_worker: Any) -> None:  # as Dask does at the end of a lifetime
        dask_worker.loop.call_later(0, dask_worker.close_gracefully, reason="worker-lifetime-reached")

    await asyncio.to_thread(client, own, lambda c: c.run(retire, workers=[worker.address]))
    await eventually(lambda: sum(worker.places for worker in commands.state.workers if not worker.leaving) == 1)
    assert alive(first)
    (tmp_path / "go").touch()
    results = await within(3 * BOUND, *running)
    assert [result.stdout for result in results] == [f"{n}\n" for n in range(20)]
    assert len(list(tmp_path.glob("began*"))) == 20
    await eventually(lambda: not alive(first))


def _start_worker(running: Cluster, name: str) -> subprocess.Popen[bytes]:
    """Start a worker as users do, with a nanny that waits for its commands."""
    preload = ("--preload-nanny", "prose_kernel.remote.worker_draining")
    options = ("--name", name, "--nthreads", "4", "--no-dashboard", *preload)
    return subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", running.address, *options], stderr=subprocess.DEVNULL
    )


async def test_a58_a_worker_that_gets_sigterm_finishes_its_commands(
    own: Cluster, connect: Connect, tmp_path: Path
) -> None:
    nanny = _start_worker(own, "first")
    commands = connect(own.address)
    try:
        await asyncio.to_thread(client, own, lambda c: c.wait_for_workers(1))
        [worker] = (await commands.connect()).workers
        text = "touch began{0}; until [ -e go ]; do sleep 0.02; done; echo {0}"
        running = [start(commands, text.format(n), tmp_path) for n in range(4)]
        await eventually(lambda: len(list(tmp_path.glob("began*"))) == 4)
        nanny.terminate()
        await eventually(lambda: all(one.leaving for one in commands.state.workers))
        own.worker(4)
        later = await within(3 * BOUND, start(commands, "true", tmp_path))
        assert worker.address not in {str(result.worker).split()[1] for result in later}
        assert nanny.poll() is None
        (tmp_path / "go").touch()
        assert [result.stdout for result in await within(BOUND, *running)] == [f"{n}\n" for n in range(4)]
        assert await asyncio.to_thread(nanny.wait, 3 * BOUND) is not None
        await eventually(lambda: len(commands.state.workers) == 1)
    finally:
        nanny.kill()
        nanny.wait()
