"""Work on files in a worker thread, so that the loop stays free; a cancelled call ends what it started."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from prose_kernel.sessions.tools.tool import ToolFailed

T = TypeVar("T")


class Stopped(ToolFailed):
    """The call was cancelled while its thread was at work; nobody sees this."""


class Stop:
    """Asked now and then by long work: whether it should go on."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raises `Stopped` when the call was cancelled."""
        if self._event.is_set():
            raise Stopped("stopped")


async def in_thread(work: Callable[[Stop], T]) -> T:
    """The result of `work`, run in a thread. When cancelled, the thread is told and awaited first."""
    stop = Stop()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await _ended(running)
        raise


async def _ended(running: asyncio.Future[T]) -> None:
    """Wait for the thread however often we are cancelled: it may be writing."""
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError:
            continue
    if not running.cancelled():
        running.exception()  # seen
