"""Calls from any event loop into the engine's, one hop each way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TypeVar

from prose_kernel.commands.cross_loop import answered
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
    running: list[asyncio.Task[T]] = []

    def begin() -> None:
        task = engine.loop.create_task(work())
        task.add_done_callback(ended)  # not an `except` in the task: one that is cancelled early never runs
        running.append(task)

    def ended(task: asyncio.Task[T]) -> None:
        problem = closed if task.cancelled() else task.exception()

        def complete() -> None:
            if problem is not None:
                answer.set_exception(problem)
            else:
                answer.set_result(task.result())

        with contextlib.suppress(RuntimeError):  # the caller's loop is closed: nobody waits
            loop.call_soon_threadsafe(complete)

    def cancel() -> None:
        for task in running:
            task.cancel()

    if not engine.post(begin):
        raise closed
    return await answered(answer, lambda: engine.post(cancel))
