"""The first bytes of each stream of a program, and its lines while they come (exec-and-tasks.md 3.7)."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Callable

from prose_kernel.runtime.ports import Stream
from prose_kernel.runtime.services import ExecChunk

DISPLAY_CAP = 8 * 1024 * 1024
_PIECE = 8192
_INTERVAL = 0.05


class Head:
    """The first `cap` bytes of a stream."""

    __slots__ = ("_cap", "_kept", "total")

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._kept = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        room = self._cap - len(self._kept)
        if room > 0:
            self._kept += data[:room]
        self.total += len(data)

    @property
    def truncated(self) -> bool:
        return self.total > self._cap

    @property
    def text(self) -> str:
        """Decoded; a character that the cap cuts through is left out."""
        # not final: an incomplete sequence at the end stays with the decoder
        return codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._kept), not self.truncated)


class Lines:
    """Pieces of one stream for a consumer: a line, 8 KiB, or what came in 50 ms, whichever is first."""

    def __init__(self, kind: Stream, loop: asyncio.AbstractEventLoop, send: Callable[[ExecChunk], None]) -> None:
        self._kind: Stream = kind
        self._loop = loop
        self._send = send
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._left = DISPLAY_CAP
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, data: bytes, final: bool) -> None:
        text = self._rest + self._decoder.decode(data, final)
        start = 0
        while start < len(text):
            end = text.find("\n", start, start + _PIECE) + 1
            if not end:
                if len(text) - start < _PIECE:
                    break
                end = start + _PIECE
            self._emit(text[start:end])
            start = end
        self._rest = text[start:]
        if final:
            self._flush()
        elif self._rest and self._timer is None:
            self._timer = self._loop.call_later(_INTERVAL, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        rest, self._rest = self._rest, ""
        if rest:
            self._emit(rest)

    def _emit(self, text: str) -> None:
        if self._left > 0:
            self._left -= len(text)
            self._send(ExecChunk(self._kind, text))


class Output:
    """Both streams of one call: what is kept, and what is streamed. Fed in the engine's loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, cap: int, send: Callable[[ExecChunk], None] | None = None
    ) -> None:
        self.heads: dict[Stream, Head] = {"stdout": Head(cap), "stderr": Head(cap)}
        self._lines: dict[Stream, Lines] = {}
        if send is not None:
            self._lines = {"stdout": Lines("stdout", loop, send), "stderr": Lines("stderr", loop, send)}

    def take(self, stream: Stream, data: bytes, final: bool) -> None:
        self.heads[stream].feed(data)
        if self._lines:
            self._lines[stream].feed(data, final)
