"""Processes on systems other than Linux: psutil, kqueue if available, temporary files. `linux` has the docstrings."""

from __future__ import annotations

import contextlib
import os
import select
import tempfile
import time
from typing import Any

import psutil

PYTHON_FLAGS: tuple[str, ...] = ("-I",)  # with `site`, which finds psutil

_HUNDREDTHS = 100
_BOOTED: float = psutil.boot_time()  # read once, because this opens a file, and later no descriptor may be free
_GONE = (psutil.Error, OSError)


def now() -> int:
    boottime = getattr(time, "CLOCK_BOOTTIME", None)  # on Linux psutil counts from a rounded time of boot
    present = time.time() if boottime is None else _BOOTED + time.clock_gettime(boottime)
    return int((present - 0.02) * _HUNDREDTHS)  # systems round start times


def boot_id() -> str:
    return f"booted at {_BOOTED:.0f}"


def pids() -> list[int]:
    return [int(pid) for pid in psutil.pids()]


def process_info(pid: int) -> tuple[int, int, int, int] | None:
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                return None
            ticks, parent = int(process.create_time() * _HUNDREDTHS), process.ppid()
        return os.getpgid(pid), os.getsid(pid), ticks, parent
    except _GONE:
        return None


def environment(pid: int) -> list[bytes]:
    try:
        return [os.fsencode(f"{name}={value}") for name, value in psutil.Process(pid).environ().items()]
    except _GONE:
        return []


def program_of(pid: int) -> bytes:
    try:
        process = psutil.Process(pid)
        return b"\0".join(map(os.fsencode, (process.exe(), *process.cmdline())))
    except _GONE:
        return b""


def children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except _GONE:
        return []


def signal_masks(pid: int) -> tuple[int, int, int] | None:
    return None  # only `ps` shows them, on some systems, in a different form on each


def has_exited(pid: int) -> bool:
    if hasattr(os, "waitid"):
        try:
            return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:
            return True
    return process_info(pid) is None


def exit_descriptor(pid: int) -> int:
    if not hasattr(select, "kqueue"):
        raise OSError("neither pidfd nor kqueue")
    kqueue: Any = select  # a type checker on Linux does not know its kqueue names
    queue = kqueue.kqueue()
    try:
        flags = kqueue.KQ_EV_ADD | kqueue.KQ_EV_ONESHOT
        queue.control([kqueue.kevent(pid, kqueue.KQ_FILTER_PROC, flags, kqueue.KQ_NOTE_EXIT)], 0)
        return os.dup(queue.fileno())
    finally:
        queue.close()


def memory_file(data: bytes) -> int:
    """Return a descriptor of a temporary file, which has a name only until it is open."""
    descriptor, path = tempfile.mkstemp(prefix="prose-")
    try:
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108 - no pathlib here
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def prefer_for_out_of_memory(pid: int) -> None:
    """Do nothing: these systems have no such setting."""
