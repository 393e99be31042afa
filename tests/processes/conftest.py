"""Fixtures for an engine and its shell, and helpers that list live processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from waiting import eventually

from prose_kernel.processes.engine import Engine
from prose_kernel.processes.process_table import job_of, members
from prose_kernel.processes.shell import ShellCommands
from prose_kernel.runtime.ports import CommandRequest, CommandResult, OnOutput

GRACE = 0.4
"""The tests' time between two steps of a termination; the users' default has a separate test."""

HOUR = 3600.0
"""Seconds. However slow the machine, only a clock that a test moves gets there."""

T = TypeVar("T")


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(grace=GRACE, state_dir=tmp_path_factory.mktemp("state"))
    yield engine
    engine.close()


class Clock:
    """The clock of an engine's loop. It runs normally; a test can move it forward or stop it.

    A call that ends before the clock reaches an hour did not wait for that hour, on any machine.
    """

    def __init__(self, engine: Engine) -> None:
        engine.start()
        self._engine = engine
        self._running = engine.loop.time
        self._ahead = 0.0
        self._stopped: float | None = None
        engine.loop.time = self.time  # type: ignore[method-assign]

    def time(self) -> float:
        return self._ahead + (self._running() if self._stopped is None else self._stopped)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the clock. No timer fires unless the test moves the clock beyond it."""
        self._stopped = self._running()
        try:
            yield
        finally:
            self._stopped = None

    async def forward(self, seconds: float) -> None:
        """Advance the clock. On return the engine has done and reported everything due by then."""
        await self._serve()
        await self._in_loop(lambda: self._leap(seconds))
        await self._serve()

    def _leap(self, seconds: float) -> None:
        self._ahead += seconds

    async def _serve(self) -> None:
        """Let the engine's loop and this loop process all pending events."""
        for _ in range(10):
            await self._in_loop(lambda: None)

    async def _in_loop(self, action: Callable[[], None]) -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def act() -> None:
            action()
            loop.call_soon_threadsafe(done.set)

        if self._engine.post(act):  # a closed engine has done everything
            await done.wait()


@pytest.fixture
async def clock(engine: Engine) -> AsyncIterator[Clock]:
    """The clock of an engine that waits an hour between two steps of a ladder (INT, TERM, KILL)."""
    engine.grace = HOUR
    clock = Clock(engine)
    yield clock
    engine.grace = GRACE
    for _ in range(3):  # end the ladders that a failed test left; they have at most three steps
        await clock.forward(HOUR)
    await asyncio.to_thread(engine.close)


async def end_of(call: asyncio.Task[T]) -> T:
    """Return the result of a call that ends now; only a busy machine needs more time."""
    await eventually(call.done, what="the call has ended")
    return await call


@pytest.fixture
def commands(engine: Engine) -> ShellCommands:
    return ShellCommands(engine, "bash")


class Runner:
    """Runs commands in the test's own directory."""

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
    """Return the live processes that an engine's commands started."""
    return [member.pid for member in members() if job_of(member.pid) == f"{marker}:exec"]


def named(marker: str, program: str) -> int:
    """Return how many live processes of an engine's commands run this program."""
    count = 0
    for pid in marked(marker):
        try:
            count += Path(f"/proc/{pid}/comm").read_text() == f"{program}\n"
        except OSError:
            continue
    return count
