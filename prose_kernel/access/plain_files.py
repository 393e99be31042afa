"""Open files that others may have made: plain files only (amendment A36; docs/threat-model.md).

A repository, an archive or a command can put a link, a pipe or a device where a recording, a program or a log is
expected. Every such file is opened here. The last component of its path is never followed if it is a link, a pipe is
never waited for, anything but a plain file is refused, and no more than a limit is read. Errors are `OSError` with a
`strerror` in plain words (`it is a link`), so callers report them as they report a missing permission.

A path that a person has typed on the command line is different: `read_named` follows its links, and reads a pipe that
the shell has opened (`/dev/stdin`, `/dev/fd/63` of a process substitution).

Writing is atomic: a file is written under a temporary name in its directory and then renamed, so it exists in full or
not at all (exec-and-tasks.md 2.8, hazards 77 and 78). Measured: 50 to 110 microseconds for a small file, 290 to 400
with `fsync`. So only decisions (`durable`) wait for the disk: files survive the end of the process, but a power cut
may lose the last seconds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

SMALL: Final = 16 * 1024 * 1024
"""Bytes of a file that people write by hand: settings, scripts, lists."""

LARGE: Final = 256 * 1024 * 1024
"""Bytes of a program, a notebook, a recording, a data set."""

HUGE: Final = 1024 * 1024 * 1024
"""Bytes of a value that a run has kept: 100,000,000 characters, escaped."""

_PIECE: Final = 1 << 20
_SAFE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OPENED_BY_A_SHELL: Final = re.compile(r"/dev/(?:stdin|fd/\d+)|/proc/(?:self|\d+)/fd/\d+")
_KINDS: Final = (
    (stat.S_ISDIR, errno.EISDIR, "it is a directory"),
    (stat.S_ISLNK, errno.ELOOP, "it is a link"),
    (stat.S_ISFIFO, errno.EINVAL, "it is a pipe"),
    (stat.S_ISSOCK, errno.EINVAL, "it is a socket"),
)


# ---------------------------------------------------------------- opening


def descriptor(path: Path | str, flags: int = os.O_RDONLY, mode: int = 0o666, *, follow: bool = False) -> int:
    """Open a plain file and return its descriptor. With `follow` a link is followed. Raises `OSError`."""
    safe = _SAFE & ~os.O_NOFOLLOW if follow else _SAFE
    try:
        found = os.open(path, flags | safe, mode)
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ELOOP, errno.ENXIO):  # ENXIO: a socket, or a pipe without a reader
            _check(os.lstat(path).st_mode)
        raise
    try:
        _check(os.fstat(found).st_mode)
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
            _check(mode)
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
        name = os.path.basename(path)  # noqa: PTH119 - text in, text out
        words = (error.strerror or "it cannot be read").lower()
        raise ValueError(f"{name} {words[3:]}" if words.startswith("it is ") else f"{name}: {words}") from None
    with os.fdopen(found, "rb") as file:
        yield file


def _check(mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    known = (OSError(number, words) for matches, number, words in _KINDS if matches(mode))
    raise next(known, OSError(errno.EINVAL, "it is a device"))


def _whole(file: BinaryIO, limit: int) -> bytes:
    data = file.read(limit + 1)
    if len(data) > limit:
        raise _too_large(limit)
    return data


def _too_large(limit: int) -> OSError:
    size = f"{limit // 1024**2} megabytes" if limit >= 1024**2 else f"{limit:,} bytes"
    return OSError(errno.EFBIG, f"it is larger than {size}, the limit")


# ---------------------------------------------------------------- writing


def write_whole(
    path: Path | str, *texts: str | bytes, durable: bool = False, contended: bool = False, in_place: bool = False
) -> None:
    """Create or replace `path` with the texts, joined (UTF-8; a lone surrogate becomes `?`). Raises `OSError`.

    A missing directory is created. A link in place of the file is replaced, never followed. `contended`: others may
    write the same file at the same time; the last one wins, with a whole file. `in_place`: the file is a person's own
    and is edited: it keeps its mode, and anything but a plain file is refused.
    """
    mode = _mode(path) if in_place else None
    directory, _, name = str(path).rpartition("/")
    temporary = f".{os.urandom(8).hex()}.tmp" if contended or in_place else f".{name}.tmp"
    temporary = f"{directory}/{temporary}" if directory else temporary
    try:
        _write(temporary, _pieces(*texts), mode, durable=durable)
        os.replace(temporary, path)  # noqa: PTH105 - measured: half the cost of the pathlib call
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def append(path: Path, data: bytes, *, durable: bool = False, truncate: bool = False) -> int:
    """Append to a file, creating it and its directory; `truncate` empties it first. Returns the number of bytes
    written, which is less than `len(data)` if the disk fills up. Raises `OSError` if nothing could be written."""
    opened = _writing(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    written = 0
    try:
        if truncate:
            os.ftruncate(opened, 0)
        while written < len(data):
            try:
                written += os.write(opened, memoryview(data)[written:])
            except OSError:
                if not written:
                    raise
                break
        if durable:
            os.fsync(opened)
    finally:
        os.close(opened)
    return written


def _mode(path: Path | str) -> int | None:
    """The mode of a file that is there. Raises `OSError` if it is not a plain file."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return None
    _check(mode)
    return stat.S_IMODE(mode)


def _write(path: str, pieces: Iterable[bytes], mode: int | None, *, durable: bool) -> None:
    flags, private = os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600
    try:
        opened = _writing(path, flags, private)
    except FileExistsError:  # left by a process that was killed, or put in the way
        os.unlink(path)  # noqa: PTH108
        opened = _writing(path, flags, private)
    try:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(opened, rest) :]
        if mode is not None:
            os.fchmod(opened, mode)
        if durable:
            os.fsync(opened)
    finally:
        os.close(opened)


def _writing(path: Path | str, flags: int, mode: int = 0o666) -> int:
    try:
        return descriptor(path, flags, mode)
    except FileNotFoundError:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return descriptor(path, flags, mode)


def _pieces(*texts: str | bytes) -> Iterator[bytes]:
    """Encode the texts in pieces, so that memory does not hold a value of 100 MB twice."""
    if all(isinstance(text, str) for text in texts) and sum(map(len, texts)) < _PIECE:
        yield "".join(texts).encode("utf-8", "replace")  # type: ignore[arg-type]  # they are all texts
        return
    for text in texts:
        for start in range(0, len(text), _PIECE):
            piece = text[start : start + _PIECE]
            yield piece if isinstance(piece, bytes) else piece.encode("utf-8", "replace")


# ---------------------------------------------------------------- out of version control


def keep_out_of_git(directory: str) -> None:
    """Make a directory of state with a `.gitignore` of its own, which excludes all of it. Raises `OSError`."""
    os.makedirs(directory, exist_ok=True)  # noqa: PTH103
    name, unfinished = f"{directory}/.gitignore", f"{directory}/.gitignore.tmp"
    if not os.path.lexists(name):
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with os.fdopen(descriptor, "w") as file:
            file.write("*\n")
        try:
            os.rename(unfinished, name)  # noqa: PTH104
        except FileNotFoundError:  # another process has done so with the same file
            if not os.path.lexists(name):
                raise
