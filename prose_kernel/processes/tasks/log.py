"""A task's log: a file with the task's output, limited to its beginning and its end (exec-and-tasks.md 4.5).

The first 4 MiB go to the file itself. Later output goes to small segment files next to it; beginning a new one removes
the oldest, so that their sum never exceeds 12 MiB. When the task ends, they are appended to the file, after one line
with the number of dropped bytes. A full disk ends the logging, never the task: a log leaves the last `RECORDS_ROOM`
bytes of a disk to the records of the tasks, which are written after the output that fills it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from prose_kernel.access import plain_files
from prose_kernel.errors import reason_of

_SEGMENTS = 4
_MARK_ROOM = 256
_IN_MEMORY = 256 * 1024
_COPY = 1024 * 1024

RECORDS_ROOM = 256 * 1024
"""Bytes of the disk that logs leave free, because a command may fill the disk before its record is written."""


def mark(dropped: int) -> str:
    return f"\n[… {dropped:,} bytes dropped here …]\n"


class Log:
    """Writes one task's log. Until `open` (or until much output) the output is in memory and there is no file."""

    def __init__(self, path: Path | None, head: int, tail: int) -> None:
        """`head` and `tail` are the most bytes to keep of each end. With `path` None nothing is kept, only counted."""
        self.path = path
        self.error: str | None = None
        self.seen = 0
        self._waiting: list[bytes] = []
        self._stored = 0
        self._descriptor = -1
        self._room = head
        self._segment_size = max(1, (tail - _MARK_ROOM) // _SEGMENTS)
        self._segments: deque[tuple[Path, int]] = deque()
        self._segment_room = 0
        self._number = 0
        self._dropped = 0
        self._in_head = True

    # ------------------------------------------------------------ writing

    def add(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        self.seen += len(data)
        if self.path is None or self.error is not None:
            return
        if self._descriptor < 0:
            self._waiting.append(data)
            if self.seen > _IN_MEMORY:
                self.open()
            return
        self._write(data)

    def open(self) -> None:
        """Create the file and write the output so far. Sets `error` instead of raising."""
        if self.path is None or self._descriptor >= 0 or self.error is not None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._descriptor = _create(self.path)
        except OSError as problem:
            self._fail(problem)
            return
        waiting, self._waiting = b"".join(self._waiting), []
        self._write(waiting)

    def _write(self, data: bytes) -> None:
        try:
            while data and self.error is None:
                data = self._write_part(data)
        except OSError as problem:
            self._fail(problem)

    def _write_part(self, data: bytes) -> bytes:
        """Write as much as fits into the current file; return the rest."""
        room = self._room if self._in_head else self._segment_room
        part = _whole_characters(data, room)
        if not part:
            self._next_segment()
            return data
        _leave_room(self._descriptor, len(part))
        _write_all(self._descriptor, part)
        self._stored += len(part)
        if self._in_head:
            self._room -= len(part)
        else:
            self._segment_room -= len(part)
            path, size = self._segments[-1]
            self._segments[-1] = (path, size + len(part))
        return data[len(part) :]

    def _next_segment(self) -> None:
        assert self.path is not None
        os.close(self._descriptor)
        self._descriptor = -1
        self._in_head = False
        if len(self._segments) == _SEGMENTS:
            oldest, size = self._segments.popleft()
            oldest.unlink(missing_ok=True)
            self._dropped += size
        self._number += 1
        path = self.path.with_name(f"{self.path.name}.{self._number}")
        self._descriptor = _create(path)
        self._segments.append((path, 0))
        self._segment_room = self._segment_size

    def _fail(self, problem: OSError) -> None:
        self.error = f"the log could not be written: {reason_of(problem, 'unknown reason')}"
        self._close()

    # ------------------------------------------------------------ the end

    @property
    def kept(self) -> int:
        """Bytes of the output that are in the file."""
        return self._stored - self._dropped

    @property
    def truncated(self) -> bool:
        return self._dropped > 0 or self.error is not None

    def finish(self) -> None:
        """Join the parts to one file. Sets `error` instead of raising."""
        self._close()
        if self.path is None or not self._segments:
            return
        target = -1
        try:
            target = plain_files.descriptor(self.path, os.O_WRONLY | os.O_APPEND)
            if self._dropped:
                _write_all(target, mark(self._dropped).encode())
            while self._segments:
                self._join(target, self._segments[0][0])
                self._segments.popleft()
        except OSError as problem:
            self.error = self.error or f"the log could not be written: {reason_of(problem, 'unknown reason')}"
        finally:
            if target >= 0:
                os.close(target)

    @staticmethod
    def _join(target: int, path: Path) -> None:
        """Append a part completely or not at all, then remove it."""
        before = os.fstat(target).st_size
        try:
            with plain_files.reading(path, None) as source:
                _leave_room(target, os.fstat(source.fileno()).st_size)
                while piece := source.read(_COPY):
                    _write_all(target, piece)
        except OSError:
            os.ftruncate(target, before)
            raise
        path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove the log."""
        self._close()
        self._waiting.clear()
        if self.path is not None:
            remove(self.path)

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read(path: Path) -> Iterator[str]:
    """Yield a log in pieces, even an unfinished one. Raises `OSError` if there is none."""
    parts = [path, *sorted(_segments_of(path), key=lambda part: int(part.suffix[1:]))]
    for number, part in enumerate(parts):
        if number == 1 and not part.name.endswith(".1"):
            yield "\n[… some output dropped here …]\n"
        with io.TextIOWrapper(plain_files.reading(part, None), "utf-8", "replace", "") as file:
            while piece := file.read(_COPY):
                yield piece


def remove(path: Path) -> None:
    """Remove a log and its parts."""
    for part in (path, *_segments_of(path)):
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _segments_of(path: Path) -> list[Path]:
    return [part for part in path.parent.glob(f"{path.name}.*") if part.suffix[1:].isdigit()]


def _create(path: Path) -> int:
    found = plain_files.descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.ftruncate(found, 0)
    return found


def _leave_room(descriptor: int, size: int) -> None:
    """Raise `OSError` if writing `size` bytes would use the space reserved for the records."""
    disk = os.fstatvfs(descriptor)
    if disk.f_bavail * disk.f_frsize < size + RECORDS_ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = os.write(descriptor, view)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[written:]


def _whole_characters(data: bytes, room: int) -> bytes:
    """Return the beginning of UTF-8 data that fits into `room` bytes, without cutting a character."""
    if len(data) <= room:
        return data
    while room > 0 and data[room] & 0xC0 == 0x80:
        room -= 1
    return data[:room]
