"""An event loop in a separate thread, for callers whose thread has a busy loop, or none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, TypeVar

T = TypeVar("T")
_POLL_SECONDS: Final = 0.05


@contextmanager
def ctrl_c(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Replace the handler of Ctrl-C, if this is the main thread. Python's handler raises at any instruction, and that
    of ipykernel in a cell with `await` doesn't raise at all."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before in (None, signal.SIG_IGN):
        yield
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class LoopThread:
    """An event loop in a daemon thread, from first use to `close`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = loop = asyncio.new_event_loop()
            thread = threading.Thread(target=self._run, args=(loop,), name="prose", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can be started
                self._loop = None
                loop.close()
                raise
            self._thread = thread
        return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop until `close`. A task that raises `SystemExit` or `KeyboardInterrupt` stops the loop; callers
        that wait for the task get the exception when the loop runs again."""
        while True:
            try:
                return loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                if self._loop is None:
                    return None

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine in the loop, in a copy of the caller's context: its output goes to the caller's output."""
        result = concurrent.futures.Future[T]()

        async def run() -> None:
            try:
                value = await work
            except BaseException as error:
                result.set_exception(error)
            else:
                result.set_result(value)

        asyncio.run_coroutine_threadsafe(run(), self.loop)  # copies the context of this thread
        return result

    def wait(
        self,
        work: Coroutine[Any, Any, T],
        interrupt: Callable[[], None],
        meanwhile: Callable[[], None] = lambda: None,
        *,
        raises: bool = True,
    ) -> T:
        """Return the result of the work, calling `meanwhile` until it is ready. Each Ctrl-C calls `interrupt`: a second
        one kills what is left. With `raises`, a `KeyboardInterrupt` is raised when the work has ended."""
        pressed, passed, passing = 0, 0, False

        def press(*_: object) -> None:
            nonlocal pressed
            pressed += 1
            pass_on()

        def pass_on() -> None:
            nonlocal passed, passing
            if not passing:  # otherwise a signal has interrupted this function
                passing = True
                while passed < pressed:
                    passed += 1
                    interrupt()
                passing = False

        with ctrl_c(press):
            future = self.submit(work)
            while not future.done():
                try:
                    meanwhile()
                    # a signal that another thread receives does not wake a thread that waits without a timeout
                    concurrent.futures.wait([future], timeout=_POLL_SECONDS)
                except KeyboardInterrupt:  # from a question in `meanwhile`
                    pressed += 1
                pass_on()
        result = future.result()
        if raises and pressed:
            raise KeyboardInterrupt
        return result

    def close(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=5)
            loop.close()
