"""Calls from any event loop into the engine's, one hop each way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

from prose_kernel.commands.engine import Engine, EngineClosed
from prose_kernel.errors import TaskRefused

T = TypeVar("T")


async def in_engine(engine: Engine, work: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run a coroutine in the engine's loop and return what it returns.

    A cancelled call cancels the coroutine and waits for its end before it raises `CancelledError`, however often it is
    cancelled. Raises `TaskRefused` when the engine is closed.
    """
    closed = TaskRefused("runtime_closed", "the run has ended; no command can be started in it")
    try:
        engine.start()
    except EngineClosed:
        raise closed from None
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()
    running: list[asyncio.Task[None]] = []

    async def run() -> None:
        try:
            result = await work()
        except asyncio.CancelledError:
            _post(loop, answer, None, asyncio.CancelledError())
        except Exception as problem:
            _post(loop, answer, None, problem)
        else:
            _post(loop, answer, result, None)

    def cancel() -> None:
        for task in running:
            task.cancel()

    if not engine.post(lambda: running.append(engine.loop.create_task(run()))):
        raise closed
    cancelled: asyncio.CancelledError | None = None
    while not answer.done():
        try:
            await asyncio.shield(answer)
        except asyncio.CancelledError as cancellation:
            if answer.done():
                break
            cancelled = cancellation
            engine.post(cancel)
        except Exception:
            break  # the answer is this exception
    if cancelled is not None:
        if not answer.cancelled():
            answer.exception()  # seen
        raise cancelled
    if answer.cancelled():
        raise closed
    return answer.result()


def _post(
    loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], result: T | None, problem: BaseException | None
) -> None:
    def complete() -> None:
        if answer.done():
            return
        if isinstance(problem, asyncio.CancelledError):
            answer.cancel()
        elif problem is not None:
            answer.set_exception(problem)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    try:
        loop.call_soon_threadsafe(complete)
    except RuntimeError:
        return  # the caller's loop is closed: nobody waits
