"""Calls from any event loop into the engine's loop and back, with one hop each way.

A caller and the engine have an event loop each, in different threads. `ProcessCall` runs one process there, `in_engine`
a coroutine. Both always answer; a cancelled caller waits for the answer, so nothing is left running after the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar

from prose_kernel.processes.child_process import EngineProcess
from prose_kernel.processes.engine import Engine, EngineClosed

T = TypeVar("T")


def call_in_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: object) -> bool:
    """Call a function in a loop, from any thread; return False if the loop is closed."""
    try:
        loop.call_soon_threadsafe(callback, *arguments)
    except RuntimeError:
        return False
    return True


async def await_answer(answer: asyncio.Future[T], cancel: Callable[[], object]) -> T:
    """Return the result of `answer`, or raise its exception.

    Each cancellation of this call runs `cancel`, which must complete `answer`; only then is `CancelledError` raised.
    """
    cancelled: asyncio.CancelledError | None = None
    while not answer.done():
        try:
            await asyncio.wait((answer,))
        except asyncio.CancelledError as cancellation:
            cancelled = cancellation
            cancel()
    if cancelled is not None:
        if not answer.cancelled():
            answer.exception()  # seen
        raise cancelled
    return answer.result()


class ProcessCall(Generic[T]):
    """One process that a caller waits for. Create it in the caller's loop. Raises `EngineClosed`.

    Create the process with `post` for its output and `done` for its end, then pass it to `wait`.
    """

    def __init__(self, engine: Engine) -> None:
        engine.start()
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[T] = self._loop.create_future()
        self._process: EngineProcess | None = None

    def post(self, callback: Callable[[], None]) -> bool:
        """Call a function in the caller's loop. If the loop is closed, stop the process and return False."""
        open_ = call_in_loop(self._loop, callback)
        if not open_ and self._process is not None:
            self._process.stop("cancelled")
        return open_

    def done(self, result: T, last: Callable[[], None] | None = None) -> None:
        """Report the end of the process; `last` is called in the caller's loop before the result is set."""

        def complete() -> None:
            if last is not None:
                last()
            if not self._answer.done():
                self._answer.set_result(result)

        self.post(complete)

    async def wait(self, process: EngineProcess) -> T:
        """Run the process to its end, even if this call is cancelled. Raises `EngineClosed`."""
        self._process = process
        try:
            if not self._engine.post(self._engine.submit, process):
                raise EngineClosed
            return await await_answer(self._answer, lambda: self._engine.post(self._engine.cancel, process))
        finally:
            self._process = None  # break the reference cycle


async def in_engine(engine: Engine, work: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run a coroutine in the engine's loop and return its result. Raises `EngineClosed`.

    A cancelled call cancels the coroutine and waits for its end before it raises `CancelledError`, even if it is
    cancelled again.
    """
    engine.start()
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()
    running: list[asyncio.Task[T]] = []

    def begin() -> None:
        if engine.is_closed:  # a later task would not be cancelled by the shutdown, and never end
            call_in_loop(loop, answer.set_exception, EngineClosed())
            return
        task = engine.loop.create_task(work())
        task.add_done_callback(ended)  # not an `except` in the task: a task that is cancelled early never runs
        running.append(task)

    def ended(task: asyncio.Task[T]) -> None:
        problem = EngineClosed() if task.cancelled() else task.exception()

        def complete() -> None:
            if problem is not None:
                answer.set_exception(problem)
            else:
                answer.set_result(task.result())

        call_in_loop(loop, complete)

    def cancel() -> None:
        for task in running:
            task.cancel()

    if not engine.post(begin):
        raise EngineClosed
    return await await_answer(answer, lambda: engine.post(cancel))
