"""Options of tests, and the time limit that ends a cell or program.

At the limit, and on Ctrl-C, an interrupt cancels the program; the process continues. If the event loop is blocked
because code computes and never waits, a signal (or a second Ctrl-C) stops that code at its current place, as in the
kernel (`notebook/kernel.py`). Signals arrive only in the main thread.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from msgspec import Struct

from prose_kernel.runs.forced_interrupt import may_stop
from prose_kernel.testing.outputs import Rules

SECONDS = 300.0
"""The default time limit."""
GRACE = 3.0
"""Seconds between the steps: interrupt (the second time, this kills), stop the code at its current place."""
AGAIN = 0.1
"""Seconds between two attempts to stop code, which may have to finish a write first."""


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """Options of tests. `live` allows calls of providers, `lax` compares only outputs of cells marked for it, `first`
    ends at the first failure. `seconds` is the time limit of a cell or program, `rules` are from sanitize files."""

    update: bool = False
    live: bool = False
    lax: bool = False
    first: bool = False
    seconds: float = SECONDS
    rules: Rules = field(default_factory=Rules, compare=False)

    @property
    def overrides(self) -> Mapping[str, Any]:
        """The settings of a run under test. A run with `live` records new answers."""
        answers = {"cassette_mode": "auto"} if self.live else {"offline": True}
        return {**answers, "telemetry_otel": False, "telemetry_log": ""}


class EarlyEnd(Struct):
    """The cause that ended the work early, if any: the time limit, or an interrupt by the person."""

    over: bool = False
    interrupted: bool = False


@contextmanager
def time_limited(seconds: float, interrupt: Callable[[], None]) -> Iterator[EarlyEnd]:
    """Call `interrupt` when the time is over, or when the person interrupts. Must be used in a running loop."""
    watch, done = EarlyEnd(), threading.Event()
    signals = threading.current_thread() is threading.main_thread()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stops = watch.interrupted
        if forced.is_set():
            stops = True
            forced.clear()
        else:
            watch.interrupted = True
            interrupt()
        if stops and may_stop(frame):
            raise asyncio.CancelledError
        if stops and asyncio.current_task() is not None:
            again.set()  # the code has to finish a write first

    def keep_time() -> None:
        if done.wait(seconds):
            return
        watch.over = True
        while True:
            interrupt()
            if done.wait(GRACE):
                return
            again.set()
            while signals and again.is_set() and not done.is_set():
                again.clear()
                forced.set()  # one signal at a time: another one is the person's
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                while not done.wait(AGAIN) and forced.is_set():
                    pass

    forced, again = threading.Event(), threading.Event()
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
