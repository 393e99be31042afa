"""Handle signals that end the running program, but not the process of the command."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupts(interrupt: Callable[[], None], signals: tuple[int, ...] = SIGNALS) -> Iterator[list[int]]:
    """Call `interrupt` for each signal that arrives inside the block, and add it to the yielded list.

    A third signal has its default effect. A signal that was ignored at the start (nohup) stays ignored. These are plain
    signal handlers because handlers of the event loop do not run while it is busy.
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
