"""Files of imported programs, the same for every language: whether they changed, their bytes, the order of checking."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from prose_kernel.access import plain_files
from prose_kernel.language.diagnostics import Diagnostic

T = TypeVar("T")

Stamp = tuple[int, int, int]
"""Changes when a file does."""

_LARGEST: Final = 256 * 1024 * 1024


class Unreadable(Exception):
    """The file cannot be read; the message is the reason, to be put after a name and a colon.

    `missing` is true if there is no such file.
    """

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing


def stamp(path: str) -> Stamp:
    """The stamp of a regular file of a reasonable size. Raises `Unreadable` for anything else."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError) as error:
        raise _unreadable(error) from None
    if stat.S_ISDIR(status.st_mode):
        raise Unreadable("it is a directory, not a program")
    if stat.S_ISLNK(status.st_mode):
        raise Unreadable("it is a link, not a program")
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("it is a device, not a program")
    if status.st_size > _LARGEST:
        raise Unreadable("no program is that large")
    return status.st_mtime_ns, status.st_size, status.st_ino


def read(path: str) -> bytes:
    """The bytes of a file. Raises `Unreadable`."""
    try:
        return plain_files.read(path, _LARGEST)
    except OSError as error:
        raise _unreadable(error) from None


def _unreadable(error: OSError | ValueError) -> Unreadable:
    if isinstance(error, FileNotFoundError):
        return Unreadable("there is no such file", missing=True)
    return Unreadable((getattr(error, "strerror", None) or "no file can be called so").lower())


def innermost_first(
    start: T,
    paths: Callable[[T], Iterable[str]],
    enter: Callable[[T, str], T | None],
    check: Callable[[list[T]], object],
) -> None:
    """Check a program after all that it imports, and these after their own imports. Not recursive: imports nest to any
    depth.

    `paths` are the imports of a program, `enter` gives the one at such a path, or None where it need not be visited.
    `check` gets the way from `start` to the program whose turn it is.
    """
    way: list[T] = [start]
    ahead: list[Iterator[str]] = [iter(paths(start))]
    while way:
        path = next(ahead[-1], None)
        if path is None:
            check(way)
            way.pop()
            ahead.pop()
        elif (inner := enter(way[-1], path)) is not None:
            way.append(inner)
            ahead.append(iter(paths(inner)))


def errors_in(name: str, errors: Sequence[Diagnostic]) -> str:
    """Return the message about an import that has these errors."""
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    place = f"line {first.line}, column {first.column}"
    return f'"{name}" cannot be loaded, it has errors: {place}: {first.message} [{first.code}]{more}'
