"""Identify the process at the other end of a socket, and its run (docs/reference/openprose.md 5.10).

A gate is decided outside its run. Processes that a run started are recognized in four ways, each of which is sufficient
to refuse: the mark `PROSE_JOB` in the environment that a process, one of its ancestors or another process of its
session was started with; a session or process group that the run's engine started; descent from the run, or from a
worker of its `--remote` on this machine. On Linux all processes of a live run stay its descendants, because the run is
a sub-reaper (`processes/orphans.py`). A process that another program of the user starts for a command, or that outlives
the run with a clean environment, cannot be distinguished from the user's own terminal: see
docs/explanation/threat-model.md; the remedy is `--gates=ask`. Therefore detached processes are noted
(`runtime/detached_processes.py`), in a file that a command could remove.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prose_kernel.runtime import detached_processes

if TYPE_CHECKING:
    import psutil

MARK = "PROSE_JOB"
_ATTEMPTS = 3
_SO_PEERPIDFD = 77  # Linux 6.5; the socket module does not name it yet


class PeerRefused(Exception):
    """The process at the other end may not decide, or is not the run. The message is the reason."""


class Insider(PeerRefused):
    """The process belongs to a run."""

    def __init__(self, why: str) -> None:
        super().__init__(f"called from inside a run: {why}")


def identity(pid: int | None = None) -> str:
    """Return `pid:start` for a process (by default this one), which detects a reused process id."""
    import psutil

    number = os.getpid() if pid is None else pid
    try:
        return f"{number}:{psutil.Process(number).create_time():.2f}"
    except psutil.Error:
        return f"{number}:0"


def is_alive(known: str) -> bool:
    """Return whether the process of an `identity` still runs."""
    number = known.partition(":")[0]
    return number.isdigit() and int(number) > 0 and identity(int(number)) == known and not known.endswith(":0")


def is_marked(pid: int | None = None) -> bool:
    """Return whether the process, an ancestor of it, or another process of its session was started by a run."""
    import psutil

    try:
        process = psutil.Process(pid)
        return any(map(_carries_mark, _relatives(process))) or _was_detached(process)
    except (psutil.Error, ProcessLookupError):
        return True


def inside_a_run() -> bool:
    """Return whether this process was started by a run: then its input may come from the program instead of a
    person."""
    return MARK in os.environ or is_marked()


def descends_from(known: str) -> bool:
    """Return whether this process was started, directly or not, by the process of an `identity`, which still runs."""
    import psutil

    try:
        return any(identity(ancestor.pid) == known for ancestor in _ancestors(psutil.Process()))
    except psutil.Error:
        return True


@contextlib.contextmanager
def peer_of(connection: socket.socket) -> Iterator[int]:
    """Yield the id of the process that connected, or that listens; raise `PeerRefused` unless it is alive and this
    user's.

    A file descriptor holds the process while the body runs, and it is checked again afterwards, so that a reused id is
    noticed.
    """
    pid, uid = _credentials(connection)
    if uid != os.getuid():
        raise PeerRefused("the process that asked belongs to another user")
    held = _hold(connection, pid)
    try:
        yield pid
        if held is not None and select.select([held], [], [], 0)[0]:
            raise PeerRefused("the process that asked has ended")
    finally:
        if held is not None:
            os.close(held)


def refuse_insiders(pid: int, started: Callable[[int], bool]) -> None:
    """Raise `PeerRefused` if the process belongs to the run of this process.

    `started` returns whether the run started a session, a process group or a worker with that id.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        born = process.create_time()
        ancestors = _ancestors(process)
        if any(ancestor.pid == os.getpid() for ancestor in (process, *ancestors)):
            raise Insider("it was started by the run itself")
        known = (os.getsid(pid), os.getpgid(pid), *(ancestor.pid for ancestor in ancestors))
        if any(map(started, known)):
            raise Insider("it belongs to a command of the run")
        process.environ()  # must be readable for the process itself, if not for its relatives
        if any(map(_carries_mark, _relatives(process))) or _was_detached(process):
            raise Insider("it was started by a command of a run")
        if psutil.Process(pid).create_time() != born:
            raise PeerRefused("the process that asked has ended")
    except (psutil.AccessDenied, PermissionError):
        raise PeerRefused("the system does not show what started the process that asked") from None
    except (psutil.Error, ProcessLookupError):
        raise PeerRefused("the process that asked has ended") from None


def _ancestors(process: psutil.Process) -> list[psutil.Process]:
    """Return the ancestors, up to the first process of the system. Raises `psutil.NoSuchProcess` if the chain is
    broken: an ancestor that ends meanwhile would hide the run above it, and a process can cause that."""
    import psutil

    for _ in range(_ATTEMPTS):
        found: list[psutil.Process] = process.parents()
        top = found[-1] if found else process
        if top.ppid() == 0:
            return found
    raise psutil.NoSuchProcess(process.pid)


def _relatives(process: psutil.Process) -> Iterator[psutil.Process]:
    """Yield the process, its ancestors, and all others of its session."""
    import psutil

    yield process
    yield from _ancestors(process)
    session = os.getsid(process.pid)
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if pid != process.pid and os.getsid(pid) == session:
                yield psutil.Process(pid)


def _was_detached(process: psutil.Process) -> bool:
    """Return whether a command of a finished run detached the process, an ancestor or the leader of its session."""
    return detached_processes.any_of((process.pid, os.getsid(process.pid), *(one.pid for one in _ancestors(process))))


def _carries_mark(process: psutil.Process) -> bool:
    import psutil

    try:
        return MARK in process.environ()
    except psutil.Error:  # gone, another user's (sshd above a login shell), or a zombie
        return False


def _credentials(connection: socket.socket) -> tuple[int, int]:
    """Return the process id and user of the other end, as the system recorded them when the connection was made."""
    credentials = getattr(socket, "SO_PEERCRED", None)
    if credentials is not None:
        pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, credentials, struct.calcsize("3i")))
        return pid, uid
    import psutil

    level, peer_pid = 0, 2  # SOL_LOCAL, LOCAL_PEERPID of macOS
    pid = connection.getsockopt(level, peer_pid)
    try:
        return pid, psutil.Process(pid).uids().effective
    except psutil.Error:
        raise PeerRefused("the process that asked has ended") from None


def _hold(connection: socket.socket, pid: int) -> int | None:
    """Return a descriptor of the process, which becomes readable when it ends; None if the system has none."""
    if not hasattr(os, "pidfd_open"):
        return None
    with contextlib.suppress(OSError):
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise PeerRefused("the process that asked has ended") from None
    except OSError:
        return None
