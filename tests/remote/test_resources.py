"""Commands that need resources of workers (docs/how-to/many-machines.md)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from remote.conftest import Connect, Workers
from remote.test_loss import BOUND, within
from waiting import eventually

from prose_kernel.remote.commands import RemoteCommands
from prose_kernel.runtime.ports import CommandRequest, CommandResult

EXCLUSIVE = "mkdir busy && sleep 0.05 && rmdir busy"


def start(commands: RemoteCommands, text: str, directory: Path, **needs: float) -> asyncio.Task[CommandResult]:
    return asyncio.ensure_future(commands.run(CommandRequest(text, str(directory), 600.0, needs=needs)))


def address(result: CommandResult) -> str:
    return str(result.worker).split()[1]


async def test_a58_commands_run_on_workers_that_meet_their_needs(
    connect: Connect, workers: Workers, tmp_path: Path
) -> None:
    workers(2, nthreads=4)
    workers(1, nthreads=4, resources={"GPU": 1, "ssd": 1})
    commands = connect()
    state = await commands.connect()
    [gpu] = [worker.address for worker in state.workers if worker.resources.get("GPU")]
    one_by_one = [start(commands, EXCLUSIVE, tmp_path, GPU=1.0) for _ in range(4)]
    tagged = [start(commands, "true", tmp_path, ssd=0.0) for _ in range(8)]
    others = [start(commands, "true", tmp_path) for _ in range(8)]
    results = await within(3 * BOUND, *one_by_one, *tagged, *others)
    assert {result.exit_code for result in results} == {0}
    assert {address(result) for result in results[:12]} == {gpu}
    assert len({address(result) for result in results[12:]}) > 1


async def test_a58_a_need_that_no_worker_meets_is_an_error(
    connect: Connect, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prose_kernel.remote.commands.NO_WORKER", 0.3)
    workers(1, nthreads=2, resources={"GPU": 1})
    commands = connect()
    unmet = [start(commands, "true", tmp_path, GPU=amount) for amount in (2.0, 4.0, 2.0)]
    fine = start(commands, "true", tmp_path)
    results = await within(BOUND, *unmet, fine)
    assert [result.kind for result in results] == ["spawn", "spawn", "spawn", None]
    assert "GPU: 2" in (results[0].spawn_error or "")
    again, met = await within(
        BOUND, start(commands, "true", tmp_path, GPU=2.0), start(commands, "true", tmp_path, GPU=1.0)
    )
    assert (again.kind, met.kind) == ("spawn", None)
    workers(1, nthreads=2, resources={"GPU": 4})
    commands.close()
    later = connect()
    [result] = await within(BOUND, start(later, "true", tmp_path, GPU=4.0))
    assert result.kind is None


async def test_a58_a_local_cluster_has_its_resources_once(connect: Connect, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    commands = connect("local", resources={"GPU": 1.0})
    await commands.connect()
    await eventually(lambda: len(commands.state.workers) == 2)
    assert sorted(worker.resources.get("GPU", 0.0) for worker in commands.state.workers) == [0.0, 1.0]
    results = await within(3 * BOUND, *[start(commands, EXCLUSIVE, tmp_path, GPU=1.0) for _ in range(3)])
    assert {result.exit_code for result in results} == {0}
