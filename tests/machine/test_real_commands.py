"""The machine with the real process engine: directories, failures, interrupts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from machine.fakes import World, lines
from msgspec import structs
from waiting import eventually

from prose_kernel.processes.engine import Engine
from prose_kernel.processes.shell import ShellCommands


class Shells(World):
    def __init__(self, engine: Engine, cwd: Path) -> None:
        super().__init__()
        host = self.machine._shared.host
        host.ports = structs.replace(host.ports, commands=ShellCommands(engine))
        self.machine.cwd = str(cwd)


@pytest.fixture
async def shells(tmp_path: Path) -> AsyncIterator[Shells]:
    engine = Engine()
    yield Shells(engine, tmp_path.resolve())
    await asyncio.to_thread(engine.close)


async def test_directories_and_values(shells: Shells, tmp_path: Path) -> None:
    await shells.run(
        lines(
            'exec "mkdir sub && cd sub"', 'let here = exec "pwd"', 'let n = exec "echo 3"', "let sum = n + 1",
            "parallel:", '  exec "cd /"', '  b = exec "pwd"', 'let after = exec "pwd"',
        )
    )  # fmt: skip
    sub = str(tmp_path.resolve() / "sub")
    assert [shells.value(name).strip() for name in ("here", "b", "after")] == [sub] * 3
    assert shells.value("sum") == 4
    assert shells.machine.cwd == sub


async def test_failures(shells: Shells) -> None:
    await shells.run(
        lines("try:", '  exec "echo out; echo bad >&2; exit 3"', "catch as e:", "  let x = [e.exit_code, e.stderr, e.stdout, e.kind]",
              "try:", '  exec "true"', '    cwd: "gone"', "catch as e:", "  let y = [e.code, e.kind, e.exit_code]",
              "try:", '  exec "sleep 9"', '    timeout: "50ms"', "catch as e:", "  let z = [e.code, e.timed_out, e.exit_code, e.message]")
    )  # fmt: skip
    assert shells.value("x") == [3, "bad\n", "out\n", "exit"]
    assert shells.value("y") == ["E205", "cwd", 127]
    assert shells.value("z") == ["E204", True, 124, "exec timed out after 50ms"]


async def test_an_interrupt_ends_all_commands(shells: Shells, tmp_path: Path) -> None:
    text = lines(
        "try:",
        "  parallel for n in [1, 2, 3]:",
        '    exec "touch started{n}; sleep 60"',
        "finally:",
        '  exec "touch cleaned"',
    )
    task = asyncio.create_task(shells.run(text))
    await eventually(lambda: len(list(tmp_path.glob("started*"))) >= 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "cleaned").exists()
