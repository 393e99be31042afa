"""Records the output of a command, and displays it while the command runs.

`Capture` keeps the first characters, for `exec`; `Head` the first bytes, for `Exec`; `BothEnds` the beginning and the
end, for tasks; `Tail` the end, for terminals of CLI agents. Each has constant cost per piece and constant memory,
however long the output is.

Record and display get the same decoded text. The record is its first code points (2.7). The display is a side channel
(1.2, capture point 4; 5.1): a late, blocked or broken `Live` has no effect on the command, unless its consumer displays
without a limit; then the command waits for it, as it would for a pipe.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import io
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import AnyStr, Generic

from prose_kernel.runtime import images
from prose_kernel.runtime.ports import DEFAULT_MAX_OUTPUT, NOTHING_OMITTED, OnOutput, Stream

WAITING = 8 * 1024 * 1024
"""Characters that may wait for a consumer that displays everything; then reading pauses."""
_INTERVAL = 0.05
_CHECK_INTERVAL = 1.0
"""Seconds between two checks whether the loop of an unresponsive consumer is closed."""
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_REPLACEMENT_BYTES = _REPLACEMENT.encode()


class Decoder:
    """Decodes UTF-8 incrementally, replacing and counting invalid bytes. With `pictures`, decoding ends where a picture
    begins; `picture` holds the bytes from there on."""

    __slots__ = ("_pictures", "_rest", "picture", "replaced")

    def __init__(self, pictures: bool = False) -> None:
        self._pictures = pictures
        self._rest = b""
        self.picture = b""
        self.replaced = 0

    def decode(self, data: bytes, final: bool = False) -> str:
        if self._rest:
            data = self._rest + data
        try:
            text, used = codecs.utf_8_decode(data, "strict", final)
        except UnicodeDecodeError as problem:
            held = b""
            if self._pictures and (at := images.find_start(data, problem.start, final)) >= 0:
                held, data, final = data[at:], data[:at], True
            text, used = codecs.utf_8_decode(data, "replace", final)
            self.replaced += _replaced_bytes(data[:used], text)
            if images.media_type(held):
                self.picture = held
            data, used = (held, 0) if held else (data, used)
        self._rest = data[used:]
        return text


def _replaced_bytes(data: bytes, text: str) -> int:
    # Don't count a valid U+FFFD that the program itself has printed: it is in the data as well.
    replacements = text.count(_REPLACEMENT) - data.count(_REPLACEMENT_BYTES)
    return len(data) - (len(text.encode()) - len(_REPLACEMENT_BYTES) * replacements)


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
        """The decoded text, without a character that the cap cuts in two."""
        return Decoder().decode(bytes(self._kept), not self.truncated)


class Beginning:
    """The first `room` characters of a text, and whether there were more."""

    __slots__ = ("_kept", "_room", "truncated")

    def __init__(self, room: int) -> None:
        self._kept = io.StringIO()
        self._room = room
        self.truncated = False

    def add(self, text: str) -> None:
        if len(text) > self._room:
            self.truncated = True
        if self._room:
            self._room -= self._kept.write(text[: self._room])

    @property
    def text(self) -> str:
        return self._kept.getvalue()


class Capture:
    """Records one stream: decodes it, keeps the first `limit` code points, counts all bytes.

    With `pictures`, a stream may be a picture, or become one where it stops being UTF-8. From there on the picture is
    kept as bytes, up to `images.LARGEST`, and one line represents it at the end. To keep text cheap, a picture is only
    looked for in the first piece, and where a piece cannot be decoded.
    """

    __slots__ = ("_decoder", "_first_bytes", "_kept", "_picture", "_picture_bytes", "total_bytes")

    def __init__(self, limit: int = DEFAULT_MAX_OUTPUT, *, pictures: bool = False) -> None:
        self._decoder = Decoder(pictures)
        self._kept = Beginning(limit)
        self._first_bytes: bytes | None = b"" if pictures else None  # while they may belong to a picture
        self._picture: bytearray | None = None
        self._picture_bytes = 0
        self.total_bytes = 0

    def feed(self, data: bytes, final: bool = False) -> str:
        """Add a piece of the stream; return its text, whole code points only."""
        self.total_bytes += len(data)
        if self._first_bytes is not None:
            data = self._first_bytes + data
            if self._may_be_picture(data, final):
                return ""
        if self._picture is not None:
            self._add_to_picture(data)
            return self.text if final and not self.image else ""
        text = self._decoder.decode(data, final)
        if self._decoder.picture:
            self._picture = bytearray()
            self._add_to_picture(self._decoder.picture)
        self._kept.add(text)
        return text

    def _may_be_picture(self, data: bytes, final: bool) -> bool:
        """Examine the first bytes; return True while they may be a picture, and more bytes are needed to decide."""
        if images.media_type(data):
            self._picture = bytearray()
        elif not final and images.may_become_picture(data):
            self._first_bytes = data
            return True
        self._first_bytes = None
        return False

    def _add_to_picture(self, data: bytes) -> None:
        assert self._picture is not None
        self._picture_bytes += len(data)
        if self._picture_bytes <= images.LARGEST:
            self._picture += data
        else:
            del self._picture[4096:]  # enough to know its size

    @property
    def truncated(self) -> bool:
        return self._kept.truncated or self._picture_bytes > images.LARGEST

    @property
    def text(self) -> str:
        if self._picture is None:
            return self._kept.text
        shown = images.picture(bytes(self._picture), self._picture_bytes)
        return self._kept.text + (f"[{shown.text}]\n" if shown is not None else "")

    @property
    def image(self) -> bytes:
        """The picture with which the stream ends; empty without one, and for one that is too large."""
        return bytes(self._picture) if self._picture and self._picture_bytes <= images.LARGEST else b""

    @property
    def replaced_bytes(self) -> int:
        return self._decoder.replaced


STREAM_TAIL = 128_000
COMBINED_TAIL = 256_000
MARK = "\n[… {count:,} characters not shown …]\n"


class Tail(Generic[AnyStr]):
    """The last `cap` characters or bytes of a stream; `empty` is an empty piece of its type."""

    __slots__ = ("_cap", "_empty", "_length", "_pieces")

    def __init__(self, cap: int, empty: AnyStr) -> None:
        self._cap = cap
        self._empty: AnyStr = empty
        self._pieces: deque[AnyStr] = deque()
        self._length = 0

    def add(self, text: AnyStr) -> None:
        if len(text) > self._cap:
            text = text[len(text) - self._cap :]
        self._pieces.append(text)
        self._length += len(text)
        while self._pieces and self._length - len(self._pieces[0]) >= self._cap:
            self._length -= len(self._pieces.popleft())
        if len(self._pieces) > 4096:  # a million one-byte writes
            self._pieces = deque((self._empty.join(self._pieces),))

    def last(self, count: int) -> AnyStr:
        """Return the last `count` characters or bytes, or all that are kept."""
        found: list[AnyStr] = []
        for piece in reversed(self._pieces):
            if count <= 0:
                break
            found.append(piece[-count:])
            count -= len(piece)
        return self._empty.join(reversed(found))


class BothEnds:
    """The first and the last characters of a text, and its length."""

    __slots__ = ("_head", "_tail", "total")

    def __init__(self, tail: int, head: int = STREAM_TAIL) -> None:
        self._head = Beginning(head)
        self._tail = Tail(tail, "")
        self.total = 0

    def add(self, text: str) -> None:
        if not text:
            return
        self.total += len(text)
        self._head.add(text)
        self._tail.add(text)

    def head(self, count: int) -> str:
        return self._head.text[:count]

    def tail(self, count: int) -> str:
        return self._tail.last(count)

    def preview(self, budget: int) -> tuple[str, bool]:
        """Return the text, cut in the middle and marked there if it is longer than `budget`; and whether it was cut."""
        if self.total <= budget:
            head = self.head(self.total)
            return head + self.tail(self.total - len(head)), False
        first = self.head(budget // 2)
        last = self.tail(budget - len(first))
        return first + MARK.format(count=self.total - len(first) - len(last)) + last, True


class Collected:
    """The output of one command as kept in memory: each stream, and both in order of arrival."""

    def __init__(self) -> None:
        self.streams: dict[Stream, BothEnds] = {"stdout": BothEnds(STREAM_TAIL), "stderr": BothEnds(STREAM_TAIL)}
        self.combined = BothEnds(COMBINED_TAIL)

    def add(self, stream: Stream, text: str) -> None:
        self.streams[stream].add(text)
        self.combined.add(text)

    def previews(self, budget: int) -> dict[Stream, tuple[str, bool]]:
        """Return each stream's preview. They share the budget: a short stream leaves its unused part to the other."""
        half = budget // 2
        total = sum(ends.total for ends in self.streams.values())
        return {
            name: ends.preview(max(half, budget - min(total - ends.total, half))) for name, ends in self.streams.items()
        }


class _Undelivered:
    """The undelivered text of one stream. With `spare`, at least that many characters of each end are kept, and the
    middle is counted and dropped; 0 keeps everything."""

    __slots__ = ("_spare", "_tail_size", "head", "omitted", "size", "tail")

    def __init__(self, spare: int) -> None:
        self.head: list[str] = []
        self.tail: deque[str] = deque()
        self.size = 0
        self.omitted = NOTHING_OMITTED
        self._spare = spare
        self._tail_size = 0

    def add(self, text: str) -> None:
        if not self._spare or self.size < self._spare:
            self.head.append(text)
            self.size += len(text)
            return
        self.tail.append(text)
        self._tail_size += len(text)
        while self._tail_size - len(self.tail[0]) >= self._spare:
            dropped = self.tail.popleft()
            self._tail_size -= len(dropped)
            self.omitted = self.omitted.and_(dropped)
        if len(self.tail) > 4096:  # a million one-byte writes
            self.tail = deque(("".join(self.tail),))


class Live:
    """Passes a command's output to a consumer in another event loop, in few and large pieces.

    Output is passed immediately after a pause, otherwise at most 20 times a second. If the consumer is slow, pieces are
    merged, and the undelivered text is bounded. A consumer that displays only `displayed` bytes gets both ends and the
    size of the dropped middle, so a blocked or broken consumer has no effect on the command. For a consumer that wants
    everything (`displayed` 0), reading must pause while `full`; `resume` is called in the engine's loop when the
    consumer has caught up.
    """

    def __init__(
        self,
        engine_loop: asyncio.AbstractEventLoop,
        post: Callable[[Callable[[], None]], bool],
        consumer: OnOutput,
        displayed: int = 0,
    ) -> None:
        """`post` calls a function in the consumer's loop; it returns False if that loop is closed."""
        self.resume: Callable[[], None] = no_op
        self.full = False
        self._loop = engine_loop
        self._post = post
        self._consumer = consumer
        self._spare = displayed + 1 if displayed else 0
        self._lock = threading.Lock()
        self._pending: dict[Stream, _Undelivered] = {}
        self._posted = False
        self._gone = False
        self._due = self._next_check = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._check_timer: asyncio.TimerHandle | None = None
        self._complained = False

    def feed(self, stream: Stream, text: str) -> None:
        """Add decoded text. Called in the engine's loop."""
        if not text or self._gone:
            return
        with self._lock:
            waiting = self._pending.get(stream)
            if waiting is None:
                waiting = self._pending[stream] = _Undelivered(self._spare)
            waiting.add(text)
            self.full = not self._spare and sum(one.size for one in self._pending.values()) >= WAITING
        if self.full and self._check_timer is None:
            self._check_timer = self._loop.call_later(_CHECK_INTERVAL, self._check)
        if self._timer is None:
            # The schedule may run half an interval ahead, so a program that prints about every 50 ms sees no long
            # delay from jitter; the rate stays at 20 a second.
            wait = self._due - _INTERVAL / 2 - self._loop.time()
            if wait <= 0:
                self._send()
            else:
                self._timer = self._loop.call_later(wait, self._send)

    def _send(self) -> None:
        now, self._timer = self._loop.time(), None
        self._due = max(self._due, now) + _INTERVAL
        with self._lock:  # `_take` in the other thread resets `_posted`
            if self._posted and now < self._next_check:
                return
            # If the loop was closed after `deliver` was posted, only another post shows that.
            call = no_op if self._posted else self.deliver
            self._posted, self._next_check = True, now + _CHECK_INTERVAL
        if not self._post(call):
            self._gone = True
            self._take()

    def _check(self) -> None:
        """Post again while reading is paused: only this shows that the consumer's loop was closed."""
        self._check_timer = None
        if self.full:
            self._send()
            self._check_timer = self._loop.call_later(_CHECK_INTERVAL, self._check)

    def stop(self) -> None:
        """Stop the timer: the command's end delivers the remaining output."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take(self) -> dict[Stream, _Undelivered]:
        with self._lock:
            pending, self._pending = self._pending, {}
            self._posted = False
            was_full, self.full = self.full, False
        if was_full:
            with contextlib.suppress(RuntimeError):  # the engine is closed
                self._loop.call_soon_threadsafe(self.resume)
        return pending

    def deliver(self) -> None:
        """Deliver all waiting text: one piece for each stream, or two around a dropped middle. Called in the consumer's
        loop."""
        for stream, waiting in self._take().items():
            try:
                if waiting.omitted.size:
                    self._consumer(stream, "".join(waiting.head))
                    self._consumer(stream, "".join(waiting.tail), waiting.omitted)
                else:
                    self._consumer(stream, "".join((*waiting.head, *waiting.tail)))
            except Exception:
                if not self._complained:
                    self._complained = True
                    logging.getLogger(__name__).exception("a consumer of command output raised")


def no_op() -> None:
    """Do nothing: the `resume` callback of a feed that never pauses the reading."""
