"""Open files that others may have made: plain files only (amendment A36; docs/explanation/threat-model.md).

A repository, an archive or a command can put a link, a pipe or a device where a recording, a program or a log is
expected. Every such file is opened here. A link in the last component of its path is never followed, a pipe is never
waited for, anything but a plain file is refused, and at most a limit of bytes is read. Errors are `OSError` with a
`strerror` in plain words (`it is a link`), so callers report them like a missing permission.

A path that a person has typed on the command line is different: `read_named` follows its links, and reads a pipe that
the shell has opened (`/dev/stdin`, `/dev/fd/63` of a process substitution).

`atomic.py` replaces a file in full, `jsonl.py` adds lines to one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

_PIECE: Final = 1024 * 1024

SMALL: Final = 16 * 1024 * 1024
"""Bytes of a file that people write by hand: settings, scripts, lists."""

LARGE: Final = 256 * 1024 * 1024
"""Bytes of a program, a notebook, a recording, a data set."""

HUGE: Final = 1024 * 1024 * 1024
"""Bytes of a value that a run has kept: 100,000,000 characters, escaped."""

_HEAD: Final = 4096
_LOCK_PAUSE: Final = 0.01
_SAFE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OPENED_BY_A_SHELL: Final = re.compile(r"/dev/(?:stdin|fd/\d+)|/proc/(?:self|\d+)/fd/\d+")
_KINDS: Final = (
    (stat.S_ISDIR, errno.EISDIR, "it is a directory"),
    (stat.S_ISLNK, errno.ELOOP, "it is a link"),
    (stat.S_ISFIFO, errno.EINVAL, "it is a pipe"),
    (stat.S_ISSOCK, errno.EINVAL, "it is a socket"),
)


# ---------------------------------------------------------------- opening


def descriptor(
    path: Path | str,
    flags: int = os.O_RDONLY,
    mode: int = 0o666,
    *,
    follow: bool = False,
    make: bool = False,
    directory: int | None = None,
) -> int:
    """Open a plain file and return its descriptor. With `follow` a link is followed; with `make` a missing directory is
    made; `path` is relative to the open `directory`. Raises `OSError`."""
    safe = _SAFE & ~os.O_NOFOLLOW if follow else _SAFE
    try:
        found = os.open(path, flags | safe, mode, dir_fd=directory)
    except FileNotFoundError:
        if not make:
            raise
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return descriptor(path, flags, mode)
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ELOOP, errno.ENXIO):  # ENXIO: a socket, or a pipe without a reader
            check(os.lstat(path).st_mode)
        raise
    if flags & os.O_EXCL:  # it is new, and thereby plain
        return found
    try:
        check(os.fstat(found).st_mode)
    except OSError:
        os.close(found)
        raise
    return found


def reading(path: Path | str, limit: int | None = LARGE, *, follow: bool = False) -> BinaryIO:
    """Open a plain file for reading. With `limit` None the caller reads it piece by piece. Raises `OSError`, also for
    more than `limit` bytes."""
    file = os.fdopen(descriptor(path, follow=follow), "rb")
    if limit is not None and os.fstat(file.fileno()).st_size > limit:
        file.close()
        raise _too_large(limit)
    return file


def read(path: Path | str, limit: int = LARGE, *, follow: bool = False) -> bytes:
    """Return the bytes of a plain file. Raises `OSError`, also for more than `limit` bytes."""
    with reading(path, limit, follow=follow) as file:
        return _whole(file, limit)


def head(path: Path | str) -> bytes:
    """Return the beginning of a plain file, whose links are followed: it shows what a file is. Raises `OSError`."""
    with reading(path, None, follow=True) as file:
        return file.read(_HEAD)


def read_text(path: Path | str, limit: int = LARGE, *, errors: str = "strict") -> str:
    """Return the text of a plain file in UTF-8, line ends as LF. Raises `OSError` and `UnicodeDecodeError`."""
    text = read(path, limit).decode("utf-8", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def read_named(path: Path | str, limit: int = LARGE, *, follow: bool = True) -> bytes:
    """Return the bytes of a file whose path a person has typed: links are followed, and pipes that the shell has opened
    are read. Raises `OSError`."""
    if not _OPENED_BY_A_SHELL.fullmatch(str(path)):
        return read(path, limit, follow=follow)
    with open(path, "rb") as file:  # noqa: PTH123 - it may be a pipe, which is waited for
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISFIFO(mode) and not os.isatty(file.fileno()):
            check(mode)
        return _whole(file, limit)


@contextlib.contextmanager
def reading_if_there(path: Path | str) -> Iterator[BinaryIO | None]:
    """Open a plain file for reading; None if there is no such file. Raises `ValueError` that names the reason."""
    try:
        found = descriptor(path)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise ValueError(named(error, os.path.basename(path))) from None  # noqa: PTH119 - text in, text out
    with os.fdopen(found, "rb") as file:
        yield file


def named(error: OSError, name: str) -> str:
    """Return the reason of an error with the name of its file: `a.md is a link`."""
    words = (error.strerror or "it cannot be read").lower()
    return f"{name} {words[3:]}" if words.startswith("it is ") else f"{name}: {words}"


class Stamp(NamedTuple):
    """Values of which one changes whenever a file is written or replaced; times in nanoseconds."""

    size: int
    written: int
    changed: int
    inode: int


def stamp(status: os.stat_result) -> Stamp:
    """Return the stamp of a file."""
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of a file, or of the link that is there; None if there is none. Never raises."""
    try:
        return stamp(path.lstat())
    except (OSError, ValueError):
        return None


def is_directory(path: Path | str) -> bool:
    """Whether there is a directory. Never raises, as `Path.is_dir` does before Python 3.14 for a long name and below a
    directory of another account."""
    return os.path.isdir(path)  # noqa: PTH112


def check(mode: int) -> None:
    """Raise `OSError` with the kind of the file for the mode of anything but a plain file."""
    if stat.S_ISREG(mode):
        return
    known = (OSError(number, words) for matches, number, words in _KINDS if matches(mode))
    raise next(known, OSError(errno.EINVAL, "it is a device"))


def _whole(file: BinaryIO, limit: int) -> bytes:
    """Read to the end. `file.read(limit)` would reserve memory for the whole limit, which may not be available."""
    asked = min(os.fstat(file.fileno()).st_size, limit) + 1
    data = file.read(asked)
    pieces = [data]
    whole = len(data)
    while len(data) == asked and whole <= limit:  # a pipe, or a file that grows
        asked = min(_PIECE, limit + 1 - whole)
        data = file.read(asked)
        pieces.append(data)
        whole += len(data)
    if whole > limit:
        raise _too_large(limit)
    return b"".join(pieces)


def _too_large(limit: int) -> OSError:
    size = f"{limit // 1024**2} megabytes" if limit >= 1024**2 else f"{limit:,} bytes"
    return OSError(errno.EFBIG, f"it is larger than {size}, the limit")


# ---------------------------------------------------------------- one process at a time


def lock(descriptor: int, patience: float = 0) -> None:
    """Take the lock of an open file; it ends with the process. Raises `BlockingIOError` if another process has it for
    more than `patience` seconds."""
    end = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise BlockingIOError(errno.EAGAIN, "another process is writing to it") from None
        time.sleep(_LOCK_PAUSE)


@contextlib.contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Close a descriptor at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path | str, patience: float = 0) -> Iterator[None]:
    """Hold the lock of a file, which is made if it is missing. Raises what `descriptor` and `lock` raise."""
    with closing(descriptor(path, os.O_RDWR | os.O_CREAT)) as found:
        lock(found, patience)
        try:
            yield
        finally:
            fcntl.flock(found, fcntl.LOCK_UN)  # a process that was forked meanwhile has the descriptor too


def is_locked(path: Path | str) -> bool:
    """Whether a process, perhaps this one, has the lock of a file. Raises `OSError` for one that cannot be opened."""
    with closing(descriptor(path)) as found:
        try:
            fcntl.flock(found, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
