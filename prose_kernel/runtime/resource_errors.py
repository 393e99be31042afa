"""Recognizes errors caused by a lack of resources, which are errors of neither the program nor this package."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from typing import Final, NamedTuple


class Shortage(NamedTuple):
    """A lacking resource, and what to do about it."""

    message: str
    hint: str


_MEMORY: Final = Shortage("there is not enough memory", "end other programs, or raise the limit (`ulimit -v`)")
_THREADS: Final = Shortage(
    "no further thread can be started", "end other programs, or raise the limits (`ulimit -u`, `ulimit -v`)"
)
_FILES: Final = Shortage("too many open files", "raise the limit (`ulimit -n`) where this program is started")
_DISK: Final = Shortage("no space left on device", "make room on the disk")
_BY_NUMBER: Final[Mapping[int | None, Shortage]] = {
    errno.ENOMEM: _MEMORY,
    errno.EMFILE: _FILES,
    errno.ENFILE: Shortage("too many open files in the system", "end other programs"),
    errno.ENOSPC: _DISK,
    errno.EDQUOT: Shortage("the disk quota is used up", "make room on the disk"),
}
_ERROR_NAME: Final = re.compile(r"\((E[A-Z]+)\)$")


def hint_for_start(reason: str) -> str | None:
    """Return what to do about a process that could not be started, from a reason that ends with the system's error."""
    named = _ERROR_NAME.search(reason)
    number = getattr(errno, named[1], None) if named is not None else None
    found = _THREADS if number == errno.EAGAIN else _BY_NUMBER.get(number)
    return found.hint if found is not None else None


def shortage(error: BaseException) -> Shortage | None:
    """Return the lacking resource that caused an error; None if it has another cause."""
    match error:
        case MemoryError():
            return _MEMORY
        case RuntimeError() if str(error).startswith("can't start new thread"):
            return _THREADS
        case OSError():
            return _BY_NUMBER.get(error.errno)
    return None
