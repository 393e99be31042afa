"""Identify processes, to detect whether a call comes from inside a run (openprose.md 5.10)."""

from __future__ import annotations

import os
from pathlib import Path


def identity(pid: int | None = None) -> str:
    """Return `pid:start`, which a reused pid does not match; by default for this process."""
    pid = os.getpid() if pid is None else pid
    parts = _stat(pid)
    return f"{pid}:{parts[19] if parts else 0}"


def ancestors() -> frozenset[str]:
    """Return the identities of all ancestors of this process; empty where `/proc` is missing."""
    found: set[str] = set()
    pid = os.getppid()
    while pid > 0 and (parts := _stat(pid)):
        found.add(f"{pid}:{parts[19]}")
        pid = int(parts[1])
    return frozenset(found)


def _stat(pid: int) -> list[str]:
    """Return the fields of `/proc/PID/stat` from the state on: 1 is the parent's pid, 19 the start time."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()
