"""End a cell or program at its time limit or on Ctrl-C, without ending the process.

An interrupt cancels the program. If the event loop is blocked because code computes and never waits, a signal stops
that code at its current place, as in the kernel (`notebook/kernel.py`). Signals arrive only in the main thread.
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
"""Seconds between the steps: interrupt, interrupt again (which kills), stop the code at its current place."""
STEPS = 3
AGAIN = 0.1
"""Seconds between two attempts to stop code, which may have to finish a write first."""


@dataclass(slots=True)
class EarlyEnd:
    """The cause that ended the work early, if any: the time limit, or an interrupt by the person."""

    over: bool = False
    interrupted: bool = False


@contextmanager
def time_limited(seconds: float, interrupt: Callable[[], None]) -> Iterator[EarlyEnd]:
    """Call `interrupt` when the time is over, or when the person interrupts. Must be used in a running loop."""
    watch, task, done = EarlyEnd(), asyncio.current_task(), threading.Event()
    signals = threading.current_thread() is threading.main_thread()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if forced.is_set():
            if asyncio.current_task() is not task:
                forced.clear()
            elif may_stop(frame):
                forced.clear()
                raise asyncio.CancelledError
            return  # `forced` stays set: the code has to finish a write first
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
