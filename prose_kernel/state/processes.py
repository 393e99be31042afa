"""Which process is which: enough to tell whether a call comes from inside a run (openprose.md 5.10)."""

from __future__ import annotations

import os
from pathlib import Path


def identity(pid: int | None = None) -> str:
    """A process as `pid:start`, so that a reused number is not taken for the same process; this one by default."""
    pid = os.getpid() if pid is None else pid
    parts = _stat(pid)
    return f"{pid}:{parts[19] if parts else 0}"


def ancestors() -> frozenset[str]:
    """The identities of all processes above this one; empty where the system does not tell."""
    found: set[str] = set()
    pid = os.getppid()
    while pid > 0 and (parts := _stat(pid)):
        found.add(f"{pid}:{parts[19]}")
        pid = int(parts[1])
    return frozenset(found)


def _stat(pid: int) -> list[str]:
    """The fields of `/proc/PID/stat` from the state on: the parent is at 1, the start time at 19."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()
