"""An event loop in a thread of its own, for callers whose thread has a busy loop, or none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread, from first use to `close`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="prose", daemon=True)
            self._thread.start()
        return self._loop

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine there, in a copy of the caller's context: output goes where the caller's does."""
        context, result = contextvars.copy_context(), concurrent.futures.Future[T]()

        async def run() -> None:
            try:
                value = await work
            except BaseException as error:
                result.set_exception(error)
            else:
                result.set_result(value)

        loop = self.loop

        def start() -> None:
            task = loop.create_task(run(), context=context)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        tasks: set[asyncio.Task[None]] = set()
        loop.call_soon_threadsafe(start)
        return result

    def close(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=5)
            loop.close()
