"""Reads both streams of a child until they end, or until no more output is expected (1.2).

A child may close its streams before it exits, and other processes may hold them after. After the exit, reading
continues until both streams end, until 100 ms of silence, or for 1 s.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from prose_kernel.runtime.ports import Stream

_CHUNK = 65536
_CHUNKS_AT_ONCE = 16
_IDLE = 0.1
_TOTAL = 1.0

Take = Callable[[Stream, bytes, bool], None]
"""Called with each piece of a stream; the last argument is True for the last piece, which may be empty."""


class Drain:
    """Owns our ends of two pipes. Call all methods in the loop's thread; `take` is called there."""

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Take, ended: Callable[[], None]) -> None:
        """`ended` is called whenever a stream has ended by itself."""
        self._loop = loop
        self._take = take
        self._ended = ended
        self._open: dict[Stream, int] = {}
        self._until: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_read = 0.0
        self._paused = False
        self._finish: Callable[[], None] | None = None
        self._hurried = False

    def start(self, stdout: int, stderr: int) -> None:
        self._open = {"stdout": stdout, "stderr": stderr}
        for stream, descriptor in tuple(self._open.items()):
            self._loop.add_reader(descriptor, self._readable, stream, descriptor)

    def _readable(self, stream: Stream, descriptor: int) -> None:
        chunks: list[bytes] = []
        ended = False
        while len(chunks) < _CHUNKS_AT_ONCE:
            try:
                chunk = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            if not chunk:
                ended = True
                break
            chunks.append(chunk)
            if len(chunk) < _CHUNK:
                break
        self._last_read = self._loop.time()
        if chunks:
            self._take(stream, chunks[0] if len(chunks) == 1 else b"".join(chunks), False)
        if ended:
            self._close(stream)
            self._ended()

    def pause(self) -> None:
        """Leave output in the pipes until `resume`. A program that writes more has to wait."""
        if not self._paused:
            self._paused = True
            for descriptor in self._open.values():
                self._loop.remove_reader(descriptor)

    def resume(self) -> None:
        if not self._paused:
            return
        self._paused = False
        for stream, descriptor in self._open.items():
            self._loop.add_reader(descriptor, self._readable, stream, descriptor)
        if self._finish is not None and self._open:
            self._until = None
            self.finish_soon(self._finish, hurried=self._hurried)

    def _close(self, stream: Stream) -> None:
        descriptor = self._open.pop(stream)
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        self._take(stream, b"", True)

    @property
    def over(self) -> bool:
        """Whether both streams have ended."""
        return not self._open

    def finish_soon(self, finish: Callable[[], None], *, hurried: bool) -> None:
        """Call `finish` after 100 ms of silence, or after 1 s: the child has exited, and another process holds a pipe.

        While reading is paused, this time does not begin, unless the command is being ended (`hurried`).
        """
        self._finish, self._hurried = finish, hurried
        if self._paused and not hurried:
            return
        now = self._loop.time()
        if self._until is None:
            self._until = now + _TOTAL
            self._last_read = now
        self._check_silence(finish)

    def _check_silence(self, finish: Callable[[], None]) -> None:
        assert self._until is not None
        if self._timer is not None:
            self._timer.cancel()
        end = min(self._until, self._last_read + _IDLE)
        if self._loop.time() < end:
            self._timer = self._loop.call_at(end, self._check_silence, finish)
        elif self._paused and not self._hurried:
            self._timer = None
        else:
            finish()

    def stop(self) -> bool:
        """Stop reading. Return whether a process still held a pipe."""
        if self._timer is not None:
            self._timer.cancel()
        held = bool(self._open)
        for stream in tuple(self._open):
            self._close(stream)
        # break the reference cycle, so that owner and output are freed without the collector
        self._take, self._ended, self._finish = _ignore, _ignore, None
        return held


def _ignore(*_: object) -> None: ...
