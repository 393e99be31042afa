"""Files of imported programs: whether they changed, and their bytes; the same limits for every language."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

Stamp = tuple[int, int, int]
"""Changes when a file does."""

_LARGEST: Final = 256 * 1024 * 1024


class Unreadable(Exception):
    """The file cannot be read; the message is the reason, to be put behind a name and a colon.

    `missing` is true if there is no such file.
    """

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing


def stamp(path: str) -> Stamp:
    """The stamp of a regular file of a reasonable size. Raises `Unreadable` for anything else."""
    try:
        status = os.stat(path)  # noqa: PTH116 - the path is text
    except (OSError, ValueError) as error:
        raise _unreadable(error) from None
    if stat.S_ISDIR(status.st_mode):
        raise Unreadable("it is a directory, not a program")
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("it is a device, not a program")
    if status.st_size > _LARGEST:
        raise Unreadable("no program is that large")
    return status.st_mtime_ns, status.st_size, status.st_ino


def read(path: str) -> bytes:
    """The bytes of a file. Raises `Unreadable`."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(error) from None


def _unreadable(error: OSError | ValueError) -> Unreadable:
    if isinstance(error, FileNotFoundError):
        return Unreadable("there is no such file", missing=True)
    return Unreadable((getattr(error, "strerror", None) or "no file can be called so").lower())
