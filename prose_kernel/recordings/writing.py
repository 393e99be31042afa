"""Records are put on disk: one write each, under a lock that other kernels honour; rewriting is all or nothing."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prose_kernel.recordings.records import encoded, head

if TYPE_CHECKING:
    from filelock import FileLock

PATIENCE: Final = 10.0
"""Seconds that a record waits for another kernel to finish writing."""

LOCK: Final = ".lock"


class Busy(OSError):
    """Another process is writing."""


class Writer:
    """The cassette that is written. Everything here raises `OSError`, and `Busy` when the lock cannot be had.

    Nothing is kept open between two records: another kernel may have put a new file in its place.
    """

    def __init__(self, path: Path, *, private: bool = False) -> None:
        self.path = path
        self._private = private
        self._lock: FileLock | None = None
        self._known = (0, 0, 0)  # inode, size and lines of the file as we left it

    def append(self, lines: bytes, *, patience: float = PATIENCE) -> int:
        """Add whole lines; the number of the first one is returned. A file that cannot take all of them is left as it
        was."""
        self._prepare()
        with self._locked(patience):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, self._mode)
            try:
                return self._append(descriptor, lines)
            finally:
                os.close(descriptor)

    def rewrite(self, change: Callable[[bytes], bytes | None], *, patience: float = PATIENCE) -> bool:
        """Put `change` of what is there in its place, at once or not at all; None from it changes nothing."""
        if not self.path.exists():
            return False
        with self._locked(patience):
            data = change(self.path.read_bytes())
            if data is None:
                return False
            replace_whole(self.path, data)
            return True

    def _append(self, descriptor: int, lines: bytes) -> int:
        """Write to the end of an open file, after a line end if the last writer did not come to one."""
        found = os.fstat(descriptor)
        size = found.st_size
        if size == 0:
            before, lines = 0, encoded(head()) + lines
            first = 2
        elif self._known[:2] == (found.st_ino, size):
            before = self._known[2]
            first = before + 1
        else:
            before = _line_ends(descriptor, size)
            first = before + 1
            if os.pread(descriptor, 1, size - 1) != b"\n":
                lines, first = b"\n" + lines, first + 1
        written = 0
        try:
            while written < len(lines):
                written += os.write(descriptor, memoryview(lines)[written:])
        except OSError:
            os.ftruncate(descriptor, size)
            raise
        self._known = (found.st_ino, size + len(lines), before + lines.count(b"\n"))
        return first

    @property
    def _mode(self) -> int:
        return 0o600 if self._private else 0o666

    def _prepare(self) -> None:
        directory = self.path.parent
        if not directory.is_dir():
            try:
                directory.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                raise NotADirectoryError(errno.ENOTDIR, f"{directory.name} is not a directory") from None
            with (
                contextlib.suppress(FileExistsError),
                (directory / ".gitignore").open("x", encoding="utf-8") as ignored,
            ):
                ignored.write(f"{LOCK}\n.gitignore\n")

    @contextlib.contextmanager
    def _locked(self, patience: float) -> Iterator[None]:
        from filelock import FileLock, Timeout

        if self._lock is None:
            self._lock = FileLock(self.path.parent / LOCK, thread_local=False)
        try:
            self._lock.acquire(timeout=patience, poll_interval=0.01)
        except Timeout:
            raise Busy(None, "another process is writing to it") from None
        try:
            yield
        finally:
            self._lock.release()


def _line_ends(descriptor: int, size: int) -> int:
    count = at = 0
    while at < size:
        piece = os.pread(descriptor, 1 << 20, at)
        if not piece:
            break
        count += piece.count(b"\n")
        at += len(piece)
    return count


def replace_whole(path: Path, data: bytes) -> None:
    """A file's new content, at once or not at all; its permissions stay, and a link stays a link. Raises `OSError`."""
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    mode = target.stat().st_mode & 0o7777 if target.exists() else None
    try:
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else 0o600
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
