"""Standard streams that may be closed, full or without a reader, and signals that end the running program.

Text that cannot be written is dropped, so that a command completes its work, and the exit status reports the failure
(docs/reference/openprose.md 8). Only a run ends early, when a pipe has lost its reader. A stream that was closed when
the command began is opened: otherwise the first opened file would get its descriptor, and all that is printed.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_CLOSED: Final = {0: os.O_RDONLY, 1: os.O_RDONLY, 2: os.O_WRONLY}
"""The mode in which /dev/null replaces each closed stream. Writing to a closed standard output must still fail."""

_NAMES: Final = ("stdin", "stdout", "stderr")


class StandardStream(io.FileIO):
    """Standard output or standard error. A failed write raises nothing; the first error is kept in `problem`. `unread`
    is called when a pipe has lost its reader."""

    problem: OSError | None = None
    unread: Callable[[], None] | None = None

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self.problem is not None:
            return size
        try:
            written = super().write(data)
        except OSError as error:
            self.problem = error
            if error.errno == errno.EPIPE and self.unread is not None:
                self.unread()
            return size
        return written if written is not None else self._write_when_ready(data)

    def _write_when_ready(self, data: Any) -> int:
        """Write data when a full non-blocking pipe has room again."""
        import select

        select.select([], [self.fileno()], [])
        return self.write(data)


def prepare() -> None:
    """Replace the standard streams of this process, except those that were replaced before."""
    for number, name in enumerate(_NAMES):
        stream = getattr(sys, name)
        if stream is None:
            _open(number)
        if number == 0:
            sys.stdin = sys.stdin or io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
        elif stream is None or _is_our_own(stream, number):
            setattr(sys, name, _replacement(stream, number))


def _open(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        null = os.open(os.devnull, _CLOSED[number])
        if null != number:
            os.dup2(null, number)
            os.close(null)


def _is_our_own(stream: Any, number: int) -> bool:
    """Return whether a stream is the original one, opened by Python."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None) or getattr(stream, "buffer", None)
    return type(stream) is io.TextIOWrapper and type(raw) is io.FileIO and raw.fileno() == number


def _replacement(stream: io.TextIOWrapper | None, number: int) -> io.TextIOWrapper:
    if stream is not None:
        stream.flush()
    line_buffering = stream.line_buffering if stream is not None else number == 2
    return io.TextIOWrapper(
        io.BufferedWriter(StandardStream(number, "wb", closefd=False)),
        encoding=stream.encoding if stream is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=line_buffering,
        write_through=stream.write_through if stream is not None else False,
    )


def without_colour() -> bool:
    """Return whether the environment requests output without colours (https://no-color.org)."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


@contextmanager
def until_unread(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` if the reader of standard output goes away inside the block (`prose run FILE | head -1`)."""
    output = _output()
    if output is not None:
        output.unread = stop
    try:
        yield
    finally:
        if output is not None:
            output.unread = None


def _output() -> StandardStream | None:
    """Return standard output; None if it was replaced."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, StandardStream) else None


def output_problem() -> str | None:
    """Return the reason why some output could not be written; None if all was written."""
    stream = getattr(sys.stdout, "unguarded", sys.stdout)
    if stream.closed:
        return None  # the command itself has closed it, as the language server does
    stream.flush()
    output = _output()
    found = output.problem if output is not None else None
    if found is None:
        return None
    return "it is closed" if found.errno == errno.EBADF else (found.strerror or type(found).__name__).lower()


# ---------------------------------------------------------------- signals

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupts(
    interrupt: Callable[[FrameType | None], None],
    signals: tuple[int, ...] = SIGNALS,
    loop: AbstractEventLoop | None = None,
) -> Iterator[list[int]]:
    """Add each signal that arrives inside the block to the yielded list, and call `interrupt` with the running frame.

    A third signal has its default effect. A signal that was ignored at the start (nohup) stays ignored. These are plain
    signal handlers because handlers of the event loop do not run while it is busy. A signal still wakes `loop`, which
    may be about to wait.
    """
    received: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 2:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        interrupt(frame)

    before = {number: signal.getsignal(number) for number in signals}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            if loop is not None:
                loop.add_signal_handler(number, int)
            signal.signal(number, hear)
    try:
        yield received
    finally:
        for number, handler in before.items():
            if loop is not None:
                loop.remove_signal_handler(number)
            signal.signal(number, handler)
