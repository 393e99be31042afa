"""Commands that declare needed resources of this machine (exec-and-tasks.md 2.12)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import forked
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prose_kernel.processes.resources import LimitedCommands, covers
from prose_kernel.runtime.ports import CommandRequest, CommandResult, OnOutput


class Commands:
    """A fake that runs nothing: a command ends when the test ends it."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Future[None]] = {}

    async def run(self, request: CommandRequest, on_output: OnOutput | None = None) -> CommandResult:
        ended = self.running[request.command] = asyncio.get_running_loop().create_future()
        try:
            await ended
        finally:
            del self.running[request.command]
        return CommandResult("exited", 0)


def request(name: str, **needs: float) -> CommandRequest:
    return CommandRequest(name, "/", 1.0, needs=needs)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a58_commands_wait_until_their_resources_are_free_and_in_order() -> None:
    commands = Commands()
    limited = LimitedCommands(commands, {"GPU": 2.0, "ssd": 1.0})
    wanted = {"a": {"GPU": 1.0}, "b": {"GPU": 2.0}, "c": {"GPU": 1.0}, "d": {"ssd": 0.0}, "e": {}}
    tasks = {name: asyncio.ensure_future(limited.run(request(name, **needs))) for name, needs in wanted.items()}
    await settle()
    assert sorted(commands.running) == ["a", "d", "e"], "c does not overtake b"
    commands.running["a"].set_result(None)
    await settle()
    assert sorted(commands.running) == ["b", "d", "e"]
    tasks["b"].cancel()
    await settle()
    assert sorted(commands.running) == ["c", "d", "e"]
    for ended in list(commands.running.values()):
        ended.set_result(None)
    assert [r.exit_code for r in await asyncio.gather(*(tasks[name] for name in "acde"))] == [0] * 4


async def test_a58_a_cancelled_command_that_waits_lets_later_ones_begin() -> None:
    commands = Commands()
    limited = LimitedCommands(commands, {"GPU": 1.0})
    tasks = [asyncio.ensure_future(limited.run(request(name, GPU=1.0))) for name in "abc"]
    await settle()
    tasks[1].cancel()
    await settle()
    commands.running["a"].set_result(None)
    await settle()
    assert sorted(commands.running) == ["c"]
    commands.running["c"].set_result(None)
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("has", [{}, {"GPU": 1.0}, {"ssd": 1.0}])
async def test_a58_a_command_that_can_never_run_does_not_start(has: Mapping[str, float]) -> None:
    result = await LimitedCommands(Commands(), has).run(request("x", GPU=2.0))
    assert (result.outcome, result.kind, result.exit_code) == ("spawn_failed", "spawn", 127)
    assert "GPU: 2" in (result.spawn_error or "")


@given(st.lists(st.floats(0.1, 1.0), min_size=1, max_size=10))
def test_a58_parts_that_make_up_a_whole_fit(parts: list[float]) -> None:
    assert covers({"memory": sum(reversed(parts))}, {"memory": parts[0]}, [{"memory": part} for part in parts[1:]])
    assert not covers({"memory": sum(parts)}, {"memory": parts[0]}, [{"memory": part} for part in [*parts, 1.0]])


def test_a58_resources_of_this_machine_are_a_setting(tmp_path: Path) -> None:
    (tmp_path / "p.prose").write_text("""
parallel for n in [1, 2, 3]:
  exec "mkdir busy && sleep 0.05 && rmdir busy"
    needs: { GPU: 1 }
output done = "yes"
""")
    ran = forked.prose("run", "p.prose", cwd=tmp_path)
    assert (ran.returncode, "[E205]" in ran.stderr, (tmp_path / "busy").exists()) == (1, True, False), ran.stderr
    (tmp_path / "prose.toml").write_text("[remote]\nresources = { GPU = 1 }\n")
    ran = forked.prose("run", "p.prose", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "done: yes\n"), ran.stderr
    (tmp_path / "prose.toml").write_text('[remote]\nresources = { GPU = "one" }\n')
    assert forked.prose("run", "p.prose", cwd=tmp_path).returncode == 2
