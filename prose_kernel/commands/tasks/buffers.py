"""What is kept of a command's output in memory: the beginning and the end of each stream and of both together.

Constant cost a piece and constant memory however much comes (exec-and-tasks.md 4.5).
"""

from __future__ import annotations

from collections import deque

from prose_kernel.runtime.ports import Stream

STREAM_TAIL = 128_000
COMBINED_TAIL = 256_000
MARK = "\n[… {count:,} characters not shown …]\n"


class Tail:
    """The last characters of a text that comes in pieces."""

    __slots__ = ("_cap", "_length", "_pieces")

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._pieces: deque[str] = deque()
        self._length = 0

    def add(self, text: str) -> None:
        if len(text) > self._cap:
            text = text[-self._cap :]
        self._pieces.append(text)
        self._length += len(text)
        while self._length - len(self._pieces[0]) >= self._cap:
            self._length -= len(self._pieces.popleft())
        if len(self._pieces) > 4096:  # a million one-byte writes
            self._pieces = deque(("".join(self._pieces),))

    def last(self, count: int) -> str:
        found: list[str] = []
        for piece in reversed(self._pieces):
            if count <= 0:
                break
            found.append(piece[-count:])
            count -= len(piece)
        return "".join(reversed(found))


class BothEnds:
    """The first and the last characters of a text, and how long it was."""

    __slots__ = ("_head", "_room", "_tail", "total")

    def __init__(self, tail: int) -> None:
        self._head: list[str] = []
        self._room = STREAM_TAIL
        self._tail = Tail(tail)
        self.total = 0

    def add(self, text: str) -> None:
        if not text:
            return
        self.total += len(text)
        if self._room:
            part = text[: self._room]
            self._head.append(part)
            self._room -= len(part)
            if len(self._head) > 4096:
                self._head = ["".join(self._head)]
        self._tail.add(text)

    def head(self, count: int) -> str:
        return "".join(self._head)[:count]

    def tail(self, count: int) -> str:
        return self._tail.last(count)

    def preview(self, budget: int) -> tuple[str, bool]:
        """The text, or its first and last halves with a mark between when it is over budget; whether it was cut."""
        if self.total <= budget:
            head = self.head(self.total)
            return head + self.tail(self.total - len(head)), False
        first = self.head(budget // 2)
        last = self.tail(budget - len(first))
        return first + MARK.format(count=self.total - len(first) - len(last)) + last, True


class Collected:
    """All that memory holds of one command's output."""

    def __init__(self) -> None:
        self.streams: dict[Stream, BothEnds] = {"stdout": BothEnds(STREAM_TAIL), "stderr": BothEnds(STREAM_TAIL)}
        self.combined = BothEnds(COMBINED_TAIL)

    def add(self, stream: Stream, text: str) -> None:
        self.streams[stream].add(text)
        self.combined.add(text)

    def previews(self, budget: int) -> dict[Stream, tuple[str, bool]]:
        """Each stream's preview. They share the budget; a short one leaves what it does not need to the other."""
        half = budget // 2
        total = sum(ends.total for ends in self.streams.values())
        return {
            name: ends.preview(max(half, budget - min(total - ends.total, half)))  # the rest is the other's
            for name, ends in self.streams.items()
        }
