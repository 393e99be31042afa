"""Commands of agents with enforced rules: a denied network and lists of files (exec-and-tasks.md 3.12)."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path

import pytest
from processes.tasks.desk import PERSON, Desk
from waiting import PATIENCE

from prose_kernel.errors import TaskRefused
from prose_kernel.processes.sandbox import mechanisms
from prose_kernel.runtime.services import CommandCompleted, CommandPromoted, TaskCaller, TaskReceipt
from prose_kernel.runtime.session_options import Rule

FOUND = mechanisms()
needs_network = pytest.mark.skipif(bool(FOUND.monitor or FOUND.network), reason="no network namespace: NOT TESTED here")
needs_landlock = pytest.mark.skipif(bool(FOUND.monitor) or not FOUND.landlock, reason="no Landlock: NOT TESTED here")

OFFLINE = TaskCaller(session="s0", rules={"network": "deny", "read": "workspace", "write": "deny"})


async def confined(desk: Desk, cmd: str, caller: TaskCaller = OFFLINE, **fields: object) -> TaskReceipt:
    return await desk.service.start({"cmd": cmd, **fields}, caller)


def completed(receipt: TaskReceipt) -> CommandCompleted:
    assert isinstance(receipt, CommandCompleted), receipt
    return receipt


@needs_network
async def test_without_the_network_a_listener_of_this_machine_is_out_of_reach(desk: Desk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo connected"
        assert "connected" not in completed(await confined(desk, connect)).stdout_preview
        free = TaskCaller(session="s0", rules={"network": "allow"})
        assert "connected" in completed(await confined(desk, connect, free)).stdout_preview


@needs_network
async def test_a_confined_command_is_a_command_like_every_other(desk: Desk) -> None:
    done = completed(await confined(desk, "echo out; echo err >&2; umask; exit 5"))
    assert (done.exit_status, done.stderr_preview) == (5, "err\n")
    mask = os.umask(0o022)
    os.umask(mask)
    assert done.stdout_preview == f"out\n{mask:04o}\n"
    assert completed(await confined(desk, "sleep 60 & echo hi")).background_ended == 1
    assert not desk.processes


@needs_network
async def test_a_confined_command_is_promoted_stopped_and_killed(desk: Desk) -> None:
    receipt = await confined(desk, "trap '' TERM; echo up; setsid env -i sleep 61 & sleep 62", yield_time_ms=300)
    assert isinstance(receipt, CommandPromoted)
    assert receipt.initial_output_preview == "up\n"
    stopping = await desk.service.stop(receipt.task_id, PERSON)
    assert stopping.status == "cancelling"
    began = time.monotonic()
    await desk.service.stop(receipt.task_id, PERSON)
    ended = await desk.end(receipt.task_id)
    assert ended.status == "cancelled"
    assert time.monotonic() - began < PATIENCE
    assert not desk.processes


@needs_network
async def test_the_end_of_the_run_ends_a_confined_command(desk: Desk) -> None:
    await confined(desk, "sleep 63", yield_time_ms=0)
    await asyncio.wait_for(desk.service.close(), PATIENCE)
    assert not desk.processes


@needs_landlock
@needs_network
async def test_lists_of_files_are_enforced(desk: Desk, tmp_path: Path) -> None:
    for name in ("docs", "out", "private"):
        (tmp_path / name).mkdir()
    (tmp_path / "docs" / "a.txt").write_text("for the agent")
    (tmp_path / "private" / "b.txt").write_text("not for the agent")
    listed = TaskCaller(
        session="s0", rules={"network": "allow", "read": ("docs/",), "write": ("out/",)}, lists_bind=True
    )
    shown = completed(
        await confined(desk, "cat docs/a.txt; cat private/b.txt; echo new > out/c; echo x > docs/d", listed)
    )
    assert shown.stdout_preview == "for the agent"
    assert shown.stderr_preview.lower().count("permission denied") == 2
    assert (tmp_path / "out" / "c").read_text() == "new\n"
    assert not (tmp_path / "docs" / "d").exists()


@needs_landlock
@needs_network
@pytest.mark.parametrize("window", [10_000, 0])
async def test_a35_a_command_that_creates_code_has_failed(desk: Desk, tmp_path: Path, window: int) -> None:
    rules: dict[str, Rule] = {"network": "allow", "read": "allow", "write": ("out/",)}
    caller = TaskCaller(session="s0", rules=rules, lists_bind=True)
    (tmp_path / "out").mkdir()
    command = "echo evil > out/conftest.py"
    if window:
        with pytest.raises(TaskRefused) as refused:
            await confined(desk, command, caller)
        assert (refused.value.kind, "out/conftest.py" in refused.value.message) == ("permission_denied", True)
        completed(await confined(desk, "echo more > out/fine.py", caller))
        return
    waits = f"until test -e out/go; do sleep 0.05; done; {command}"
    task = await confined(desk, waits, caller, yield_time_ms=0)
    assert isinstance(task, CommandPromoted)
    (tmp_path / "out" / "go").touch()
    found = await desk.service.output(task.task_id, caller)
    assert found.task.status == "failed" and "out/conftest.py" in str(found.task.error)


async def test_unenforceable_rules_are_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from prose_kernel.processes.sandbox import Mechanisms
    from prose_kernel.processes.tasks import monitored as module

    monkeypatch.setattr(module, "mechanisms", lambda: Mechanisms("", 0, "user namespaces are switched off"))
    with pytest.raises(TaskRefused) as refused:
        await confined(desk, "touch ran")
    assert refused.value.kind == "permission_denied"
    assert "user namespaces are switched off" in refused.value.message
    assert not (desk.directory / "ran").exists()


async def test_a_command_too_long_to_be_confined_is_refused(desk: Desk) -> None:
    with pytest.raises(TaskRefused, match="too long"):
        await confined(desk, f": {'x' * 200_000}")
