"""Where an interrupt may stop code that computes without a wait."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from prose_kernel.processes.engine import Engine
from prose_kernel.processes.shell import ShellCommands
from prose_kernel.runs.forced_interrupt import in_cell, may_stop
from prose_kernel.runtime.ports import CommandRequest


@pytest.fixture
def stops() -> list[bool]:
    """The answers at the places that a test visits."""
    return []


@pytest.fixture
def threads(stops: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask just after a thread has started, before its owner knows it."""
    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        start(thread)
        stops.append(may_stop(sys._getframe()))

    monkeypatch.setattr(threading.Thread, "start", started)


@contextmanager
def cell() -> Iterator[None]:
    """Count the code in the block as that of a cell."""
    token = in_cell.set(True)
    try:
        yield
    finally:
        in_cell.reset(token)


async def test_code_of_a_program_may_be_stopped() -> None:
    with cell():
        assert may_stop(sys._getframe())


async def test_the_start_of_the_engine_is_finished_first(stops: list[bool], threads: None, tmp_path: Path) -> None:
    engine = Engine(state_dir=tmp_path)
    try:
        with cell():
            await ShellCommands(engine).run(CommandRequest("true", str(tmp_path), 60.0))
    finally:
        await asyncio.to_thread(engine.close)
    assert stops and not any(stops)


async def test_a_wait_for_a_lock_is_registered_first(stops: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    loop, lock = asyncio.get_running_loop(), asyncio.Lock()
    create_future = loop.create_future

    def created() -> asyncio.Future[None]:
        stops.append(may_stop(sys._getframe()))
        return create_future()

    await lock.acquire()
    with cell():
        waiting = asyncio.create_task(lock.acquire())
    monkeypatch.setattr(loop, "create_future", created)
    await asyncio.sleep(0)
    lock.release()
    await waiting
    assert stops == [False]
