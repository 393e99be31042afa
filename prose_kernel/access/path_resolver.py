"""The only path resolver: it finds the object that the system finds under a path.

Paths are never resolved as text: with links, collapsing `..` names another object than the system does
(docs/reference/exec-and-tasks.md 3.4).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import stat
import struct
import sys
from collections.abc import Callable
from typing import Final

from msgspec import Struct

MAGIC: Final = ("/proc", "/sys", "/dev/fd")
"""Directories whose names mean something else for this process than for the process that uses the path."""

_BELOW_MAGIC: Final = tuple(f"{each}/" for each in MAGIC)

TOO_LONG: Final = "the name is too long"

_LINKS: Final = 40
_OPENAT2, _AT_FDCWD, _NO_MAGIC_LINKS = 437, -100, 2
_MAGIC_REFUSED: Final = "paths below /proc, /sys and /dev/fd are refused"


class Resolved(Struct, frozen=True):
    """A path as the system names it. `status` is None if nothing exists there, or nothing that this process can reach.

    `reason` says why the path can never be used, whatever is granted.
    """

    path: str
    status: os.stat_result | None = None
    reason: str | None = None

    @property
    def identity(self) -> tuple[int, int] | None:
        return (self.status.st_dev, self.status.st_ino) if self.status is not None else None

    @property
    def regular(self) -> bool:
        return self.status is not None and stat.S_ISREG(self.status.st_mode)

    @property
    def directory(self) -> bool:
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)


def is_below(path: str, directory: str) -> bool:
    """Return whether the path is the directory or inside it, compared by whole segments."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def resolve(path: str) -> Resolved:
    """Resolve an absolute path to its object. A path that doesn't exist is named by its nearest existing directory."""
    if _magic(os.path.normpath(path)):
        return Resolved(path, reason=_MAGIC_REFUSED)
    try:
        return _resolve(path, _LINKS)
    except ValueError:  # a NUL character
        return Resolved(path, reason="this is not a path")


def _resolve(path: str, links: int) -> Resolved:
    try:
        name, status = _found(path)
    except OSError as problem:
        if problem.errno == errno.ELOOP or links == 0:
            return Resolved(path, reason="it leads through a link that is refused")
        if problem.errno == errno.ENAMETOOLONG:
            return Resolved(path, reason=TOO_LONG)
        return _missing(path, links)
    if not status.st_nlink and name.endswith(" (deleted)"):
        return Resolved(name.removesuffix(" (deleted)"))
    if not name.startswith("/") or _magic(name):
        return Resolved(name, reason=_MAGIC_REFUSED)
    return Resolved(name, status)


def _missing(path: str, links: int) -> Resolved:
    """Resolve a path without an object. A dangling link is followed, so that it reveals nothing about its target."""
    path = path.rstrip("/") or "/"
    parent, name = os.path.split(path)
    if name in ("..", ".", "") or parent == path:
        return Resolved(path, reason="it leads nowhere")
    above = _resolve(parent, links)
    if above.reason is not None:
        return above
    target = None
    with contextlib.suppress(OSError):
        target = os.readlink(os.path.join(above.path, name))  # noqa: PTH115, PTH118
    if target is not None:
        return _resolve(os.path.join(above.path, target), links - 1)  # noqa: PTH118
    return Resolved(os.path.join(above.path, name))  # noqa: PTH118


def _magic(path: str) -> bool:
    return path.startswith(_BELOW_MAGIC) or path in MAGIC


def _found(path: str) -> tuple[str, os.stat_result]:
    """Return the name and the status of the object at a path. Raises `OSError`."""
    if sys.platform != "linux":
        return os.path.realpath(path, strict=True), os.stat(path)  # noqa: PTH116
    descriptor = _opened(path)
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor)  # noqa: PTH115
    except FileNotFoundError:
        if os.path.isdir("/proc/self/fd"):  # noqa: PTH112
            raise
        return os.path.realpath(path, strict=True), os.stat(path)  # noqa: PTH116
    finally:
        os.close(descriptor)


_OPEN_HOW: Final = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _NO_MAGIC_LINKS) if sys.platform == "linux" else b""


def _opened(path: str) -> int:
    """Open a path for path-only access without following magic links, on Linux. Raises `OSError`."""
    descriptor = _system_call()(_OPENAT2, _AT_FDCWD, os.fsencode(path), _OPEN_HOW, len(_OPEN_HOW))
    if descriptor >= 0:
        return int(descriptor)
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EPERM):  # an old system, or a container that does not know the call
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    raise OSError(number, os.strerror(number), path)


@functools.cache
def _system_call() -> Callable[..., int]:
    """Return the C library's `syscall` with the argument types of `openat2`."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    return call
