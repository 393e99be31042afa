"""A limit of time for one cell or program, and Ctrl-C: both end what runs and never the process.

An interrupt cancels the program. If the loop never gets a turn, because code computes and never waits, a signal
stops that code where it is, as the kernel does (`notebook/kernel.py`); it arrives only in the main thread.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from prose_kernel.notebook.forced_interrupt import may_stop

GRACE = 3.0
"""Seconds between the steps: interrupt, interrupt again (which kills), stop the code where it is."""
STEPS = 3
AGAIN = 0.1
"""Seconds after which code that was writing is stopped."""


@dataclass(slots=True)
class Watch:
    """The cause that ended the work early, if any: the limit of time, or the person."""

    over: bool = False
    interrupted: bool = False


@contextmanager
def watched(seconds: float, interrupt: Callable[[], None]) -> Iterator[Watch]:
    """Call `interrupt` when the time is over, and when the person interrupts. Inside of a running loop."""
    watch, task, done = Watch(), asyncio.current_task(), threading.Event()
    signals = threading.current_thread() is threading.main_thread()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if forced.is_set():
            if asyncio.current_task() is not task:
                forced.clear()
            elif may_stop(frame):
                forced.clear()
                raise asyncio.CancelledError
            return  # still set: a write is finished first
        watch.interrupted = True
        interrupt()

    def keep_time() -> None:
        if done.wait(seconds):
            return
        watch.over = True
        for _ in range(STEPS):
            interrupt()
            if done.wait(GRACE):
                return
            if signals:
                forced.set()
                while forced.is_set() and not done.is_set():
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                    done.wait(AGAIN)

    forced = threading.Event()
    former = signal.signal(signal.SIGINT, on_signal) if signals else None
    keeper = threading.Thread(target=keep_time, daemon=True)
    keeper.start()
    try:
        yield watch
    finally:
        done.set()
        keeper.join()
        if signals:
            signal.signal(signal.SIGINT, former)
