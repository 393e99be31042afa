"""Paths resolved to the objects they name, and what covers them (exec-and-tasks.md 3.4).

Nothing is decided by text: with links, collapsing `..` names something else than the system does.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from prose_kernel.commands.exec_tool.capabilities import FsGrant, below
from prose_kernel.commands.exec_tool.patterns import matches

MAGIC = ("/proc", "/sys", "/dev/fd")
"""Where names mean something else for us than for the program."""

_LINKS = 40
_OPENAT2, _AT_FDCWD, _NO_MAGIC_LINKS = 437, -100, 2


@dataclass(frozen=True, slots=True)
class Resolved:
    """A path as the system names it. `status` is None when there is nothing there (or nothing that we may reach).

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


def resolve(path: str) -> Resolved:
    """Resolve to the object. What does not exist is named by its nearest existing directory and the rest."""
    if _magic(os.path.normpath(path)):
        return Resolved(path, reason="paths below /proc, /sys and /dev/fd are refused")
    return _resolve(path, _LINKS)


def _resolve(path: str, links: int) -> Resolved:
    try:
        descriptor = _open(path)
    except OSError as problem:
        if problem.errno == errno.ELOOP or links == 0:
            return Resolved(path, reason="it leads through a link that is refused")
        return _missing(path, links)
    try:
        status = os.fstat(descriptor)
        name = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
    finally:
        os.close(descriptor)
    if not status.st_nlink and name.endswith(" (deleted)"):
        return Resolved(name.removesuffix(" (deleted)"))
    if not name.startswith("/") or _magic(name):
        return Resolved(name, reason="paths below /proc, /sys and /dev/fd are refused")
    return Resolved(name, status)


def _missing(path: str, links: int) -> Resolved:
    """What has no object: a link that leads nowhere is followed, so that it tells nothing about where it leads."""
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
    return any(below(path, each) for each in MAGIC)


def _open(path: str) -> int:
    """Path-only access, not through magic links. Raises `OSError`."""
    how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _NO_MAGIC_LINKS)
    library = _library()
    descriptor = library.syscall(
        ctypes.c_long(_OPENAT2), ctypes.c_int(_AT_FDCWD), os.fsencode(path), how, ctypes.c_size_t(len(how))
    )
    if descriptor >= 0:
        return int(descriptor)
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EPERM):  # an old system, or a container that does not know the call
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    raise OSError(number, os.strerror(number), path)


_loaded: list[ctypes.CDLL] = []


def _library() -> ctypes.CDLL:
    if not _loaded:
        _loaded.append(ctypes.CDLL(None, use_errno=True))
    return _loaded[0]


def covering(path: Resolved, grants: Iterable[FsGrant], *, binary: bool) -> FsGrant | None:
    """The grant that covers a resolved path, each prefix resolved now; None when there is none."""
    if path.reason is not None:
        return None
    for grant in grants:
        if grant.binaries and not binary:
            continue
        prefix = resolve(grant.prefix)
        if prefix.reason is None and below(path.path, prefix.path) and _matches(path.path, prefix.path, grant):
            return grant
    return None


def _matches(path: str, prefix: str, grant: FsGrant) -> bool:
    if grant.pattern is None:
        return True
    rest = grant.pattern.removeprefix(grant.prefix).lstrip("/")
    return matches(path, prefix, rest) or path == prefix


def writable(path: Resolved, grants: Iterable[FsGrant]) -> FsGrant | None:
    """The grant by which the agent itself could write a program or change what is beside it, patterns not counted."""
    for grant in grants:
        if grant.mode == "rw":
            prefix = resolve(grant.prefix)
            if prefix.reason is None and below(path.path, prefix.path):
                return grant
    return None
