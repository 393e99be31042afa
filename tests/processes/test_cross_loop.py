"""Calls into the engine's loop: their results, and the return of every cancelled call."""

from __future__ import annotations

import asyncio
import threading

import pytest

from prose_kernel.processes.cross_loop import in_engine
from prose_kernel.processes.engine import Engine, EngineClosed

PATIENCE = 20


async def answer() -> str:
    return "done"


async def test_a_call_returns_the_result_and_raises_the_error_of_its_work(engine: Engine) -> None:
    async def broken() -> str:
        raise ValueError("broken")

    assert await in_engine(engine, answer) == "done"
    with pytest.raises(ValueError, match="broken"):
        await in_engine(engine, broken)


async def test_a_cancelled_call_waits_for_the_end_of_its_work(engine: Engine) -> None:
    begun, ended = asyncio.Event(), threading.Event()
    here = asyncio.get_running_loop()

    async def work() -> None:
        here.call_soon_threadsafe(begun.set)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    call = asyncio.create_task(in_engine(engine, work))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, PATIENCE)
    assert ended.is_set()


async def test_a_call_cancelled_before_its_work_began_returns(engine: Engine) -> None:
    engine.start()
    go = threading.Event()
    engine.post(go.wait)  # the engine's loop is busy: it sees the call and its cancellation together
    call = asyncio.create_task(in_engine(engine, answer))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.sleep(0)
    go.set()
    done, _ = await asyncio.wait((call,), timeout=PATIENCE)
    assert done
    assert call.cancelled()


async def test_a_closed_engine_refuses(engine: Engine) -> None:
    engine.close()
    with pytest.raises(EngineClosed):
        await in_engine(engine, answer)
