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


async def test_a_call_made_while_the_engine_closes_is_answered(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    here = asyncio.get_running_loop()
    begun, refused, ending = asyncio.Event(), threading.Event(), threading.Event()

    async def slow() -> None:
        here.call_soon_threadsafe(begun.set)
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await asyncio.to_thread(refused.wait, PATIENCE)  # the engine waits for this before its loop stops

    async def endless() -> None:
        await asyncio.Event().wait()

    def create_future() -> asyncio.Future[None]:
        """Close the engine between the two checks of the call: it is not closed, and its loop runs."""
        monkeypatch.undo()
        closer.start()
        assert ending.wait(PATIENCE)
        return here.create_future()

    async def late() -> None:
        monkeypatch.setattr(here, "create_future", create_future)
        await in_engine(engine, endless)

    first = asyncio.create_task(in_engine(engine, slow))
    await begun.wait()
    closer = threading.Thread(target=engine.close)
    second = asyncio.create_task(late())
    await asyncio.to_thread(ending.wait, PATIENCE)
    engine.post(refused.set)
    with pytest.raises(EngineClosed):
        await asyncio.wait_for(second, PATIENCE)
    with pytest.raises(EngineClosed):
        await first
    closer.join()
