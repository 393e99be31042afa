"""An engine, a shell, and a look at what is alive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from prose_kernel.processes import Engine, ShellCommands
from prose_kernel.processes.process_table import carries, members
from prose_kernel.runtime.ports import CommandRequest, CommandResult, OnOutput

GRACE = 0.4
"""The tests' time between two steps of a ladder; what it is for users is a test of its own."""


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(grace=GRACE, state_dir=tmp_path_factory.mktemp("state"))
    yield engine
    engine.close()


@pytest.fixture
def commands(engine: Engine) -> ShellCommands:
    return ShellCommands(engine, "bash")


class Runner:
    """Runs commands in a directory of the test's own."""

    def __init__(self, commands: ShellCommands, directory: Path) -> None:
        self.commands = commands
        self.directory = directory

    async def __call__(
        self,
        command: str,
        on_output: OnOutput | None = None,
        *,
        cwd: str | None = None,
        timeout: float = 60.0,
        track: bool = True,
    ) -> CommandResult:
        request = CommandRequest(command, str(self.directory) if cwd is None else cwd, timeout, track)
        return await self.commands.run(request, on_output)

    def start(self, command: str, on_output: OnOutput | None = None, **options: object) -> asyncio.Task[CommandResult]:
        return asyncio.create_task(self(command, on_output, **options))  # type: ignore[arg-type]


@pytest.fixture
def run(commands: ShellCommands, tmp_path: Path) -> Runner:
    return Runner(commands, tmp_path.resolve())


def marked(marker: str) -> list[int]:
    """The live processes that an engine's commands started."""
    return [member.pid for member in members() if carries(member.pid, f"{marker}:exec")]


def named(marker: str, program: str) -> int:
    """How many live processes of an engine's commands run this program."""
    count = 0
    for pid in marked(marker):
        try:
            count += Path(f"/proc/{pid}/comm").read_text() == f"{program}\n"
        except OSError:
            continue
    return count
