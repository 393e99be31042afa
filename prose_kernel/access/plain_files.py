"""Opens files that others may have made, if they are plain files (amendment A36; docs/explanation/threat-model.md).

A repository, an archive or a command can put a link, a pipe or a device where a recording, a program or a log is
expected. Every such file is opened here. A link in the last component of its path is never followed, a pipe is never
waited for, anything but a plain file is refused, and at most a limit of bytes is read. Errors are `OSError` with a
`strerror` in plain words (`it is a link`), so callers report them like a missing permission.
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
"""The size limit, in bytes, of files that people write by hand: settings, scripts, lists."""

LARGE: Final = 256 * 1024 * 1024
"""The size limit of a program, a notebook, a recording, a data set."""

HUGE: Final = 1024 * 1024 * 1024
"""The size limit of a value that a run has stored: 100,000,000 characters, escaped."""

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
    """Open a plain file and return its descriptor. Raises `OSError`.

    `follow` follows a link, `make` creates a missing directory. `path` is relative to the open `directory`.
    """
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


def make(path: Path | str, mode: int = 0o666) -> None:
    """Create an empty file if there is none. Raises `OSError` if there is anything but a plain file. An existing one is
    not opened: closing it would release all locks of SQLite on it in this process."""
    with contextlib.suppress(FileExistsError):
        os.close(descriptor(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode))
    check(os.lstat(path).st_mode)


def reading(path: Path | str, limit: int | None = LARGE, *, follow: bool = False) -> BinaryIO:
    """Open a plain file for reading. Raises `OSError`, also for more than `limit` bytes; with `limit` None the caller
    reads piece by piece."""
    file = os.fdopen(descriptor(path, follow=follow), "rb")
    if limit is not None and os.fstat(file.fileno()).st_size > limit:
        file.close()
        raise _too_large(limit)
    return file


def read(path: Path | str, limit: int = LARGE, *, follow: bool = False) -> bytes:
    """Return the bytes of a plain file. Raises `OSError`, also for more than `limit` bytes."""
    with reading(path, limit, follow=follow) as file:
        return _read_all(file, limit)


def head(path: Path | str) -> bytes:
    """Return the beginning of a plain file, which shows its format; links are followed. Raises `OSError`."""
    with reading(path, None, follow=True) as file:
        return file.read(_HEAD)


def read_text(path: Path | str, limit: int = LARGE, *, errors: str = "strict") -> str:
    """Return the text of a plain file in UTF-8, line ends as LF. Raises `OSError` and `UnicodeDecodeError`."""
    text = read(path, limit).decode("utf-8", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def read_named(path: Path | str, limit: int = LARGE, *, follow: bool = True) -> bytes:
    """Return the bytes of a file whose path a person has typed: links are followed, and a pipe that the shell has
    opened is read. Raises `OSError`."""
    if not _OPENED_BY_A_SHELL.fullmatch(str(path)):
        return read(path, limit, follow=follow)
    with open(path, "rb") as file:  # noqa: PTH123 - it may be a pipe, which is waited for
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISFIFO(mode) and not os.isatty(file.fileno()):
            check(mode)
        return _read_all(file, limit)


@contextlib.contextmanager
def reading_if_there(path: Path | str) -> Iterator[BinaryIO | None]:
    """Yield a plain file, open for reading; None if it does not exist. Raises `ValueError` that names the reason."""
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
    """Return the reason of an error together with the name of its file: `a.md is a link`."""
    words = (error.strerror or "it cannot be read").lower()
    return f"{name} {words[3:]}" if words.startswith("it is ") else f"{name}: {words}"


class Stamp(NamedTuple):
    """Size, times (in nanoseconds) and inode of a file: at least one changes whenever it is written or replaced."""

    size: int
    written: int
    changed: int
    inode: int


def stamp(status: os.stat_result) -> Stamp:
    """Return the stamp of the file that has this status."""
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of a file, or of a link itself; None if the path does not exist. Never raises."""
    try:
        return stamp(path.lstat())
    except (OSError, ValueError):
        return None


def is_directory(path: Path | str) -> bool:
    """Return whether the path is a directory. Never raises; before Python 3.14, `Path.is_dir` raises for a long name
    and for a path below another account's directory."""
    return os.path.isdir(path)  # noqa: PTH112


def check(mode: int) -> None:
    """Raise `OSError` that names the kind of file, unless the mode is a plain file's."""
    if stat.S_ISREG(mode):
        return
    known = (OSError(number, words) for matches, number, words in _KINDS if matches(mode))
    raise next(known, OSError(errno.EINVAL, "it is a device"))


def _read_all(file: BinaryIO, limit: int) -> bytes:
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
    """Lock an open file; the lock ends with the process. Raises `BlockingIOError` if another process holds it for more
    than `patience` seconds."""
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
    """Hold the lock of a file, which is created if missing. Raises the errors of `descriptor` and `lock`."""
    with closing(descriptor(path, os.O_RDWR | os.O_CREAT)) as found:
        lock(found, patience)
        try:
            yield
        finally:
            fcntl.flock(found, fcntl.LOCK_UN)  # a process that was forked meanwhile has the descriptor too


def is_locked(path: Path | str) -> bool:
    """Return whether a process, perhaps this one, holds the lock of a file. Raises `OSError` if the file cannot be
    opened."""
    with closing(descriptor(path)) as found:
        try:
            fcntl.flock(found, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
