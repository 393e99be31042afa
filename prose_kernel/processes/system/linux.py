"""Processes on Linux: /proc, pidfd, memfd."""

from __future__ import annotations

import os
import time

PYTHON_FLAGS: tuple[str, ...] = ("-I", "-S")
"""Options of the watchdog's interpreter: without `site` it starts in a few milliseconds."""

_ZOMBIE = (b"Z", b"X", b"x")
_NO_MORE_THREADS = (b"0", b"1")  # a live process whose first thread has ended looks like a zombie, with more threads
_OUT_OF_MEMORY_RAISE = 300
_TICKS = os.sysconf("SC_CLK_TCK")


def now() -> int:
    """Return the current time in the unit of process start times."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS)


def boot_id() -> str:
    """Return the id of this boot of the machine."""
    return read("/proc/sys/kernel/random/boot_id").decode().strip()


def pids() -> list[int]:
    """Return the PIDs of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - no pathlib here


def process_info(pid: int) -> tuple[int, int, int, int] | None:
    """Return group, session, start time and parent of a live process; None for a zombie or a missing process."""
    stat = read(f"/proc/{pid}/stat")
    # the program's name is in parentheses and may contain anything, even spaces and parentheses
    fields = stat[stat.rfind(b")") + 2 :].split()
    if len(fields) < 20 or (fields[0] in _ZOMBIE and fields[17] in _NO_MORE_THREADS):
        return None
    return int(fields[2]), int(fields[3]), int(fields[19]), int(fields[1])


def environment(pid: int) -> list[bytes]:
    """Return the entries of the process's initial environment; empty if we may not read it."""
    return read(f"/proc/{pid}/environ").split(b"\0")


def program_of(pid: int) -> bytes:
    """Return the path and the arguments of a process's program; empty if it has ended or isn't visible to us."""
    try:
        return os.readlink(f"/proc/{pid}/exe".encode()) + b"\0" + read(f"/proc/{pid}/cmdline")  # noqa: PTH115
    except OSError:
        return b""


def children(pid: int) -> list[int]:
    """Return the children of a process's first thread."""
    return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]


def signal_masks(pid: int) -> tuple[int, int, int] | None:
    """Return the signals that a process blocks, ignores and handles, as bit masks; None if they cannot be read."""
    masks = {}
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith((b"SigBlk:", b"SigIgn:", b"SigCgt:")):
            masks[line[:6]] = int(line[7:], 16)
    return (masks[b"SigBlk"], masks[b"SigIgn"], masks[b"SigCgt"]) if len(masks) == 3 else None


def has_exited(pid: int) -> bool:
    """Return whether a child has ended; does not reap it."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True


def exit_descriptor(pid: int) -> int:
    """Return a descriptor that becomes readable when the process ends. Raises `OSError`."""
    return os.pidfd_open(pid)


def memory_file(data: bytes) -> int:
    """Return a descriptor from which the data can be read; it has no name and needs no clean-up. Raises `OSError`."""
    descriptor = os.memfd_create("prose", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


_adjustment: bytes | None = None


def prefer_for_out_of_memory(pid: int) -> None:
    """Make the system kill this command before the kernel that started it if memory runs out (hazard 64)."""
    global _adjustment
    try:
        if _adjustment is None:
            _adjustment = str(min(1000, int(read("/proc/self/oom_score_adj")) + _OUT_OF_MEMORY_RAISE)).encode()
        descriptor = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return
    try:
        os.write(descriptor, _adjustment)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def read(path: str) -> bytes:
    """Return the contents of a small file; empty if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        data = b""
        while chunk := os.read(descriptor, 65536):
            data += chunk
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return data
