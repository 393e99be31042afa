"""Signals that end what a command runs, and not its process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupts(interrupt: Callable[[], None], signals: tuple[int, ...] = SIGNALS) -> Iterator[list[int]]:
    """Call `interrupt` for each signal that comes inside the block; the signals are yielded as they come.

    A third one is taken literally. A signal that was ignored when we were started (nohup) stays ignored. Plain signal
    handlers run even while the loop is busy, which a handler of the loop would not.
    """
    received: list[int] = []

    def hear(number: int, _: FrameType | None) -> None:
        received.append(number)
        if len(received) > 2:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        interrupt()

    before = {number: signal.getsignal(number) for number in signals}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, hear)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
