"""Processes that commands have detached, and that may outlive their run. They must not decide gates of later runs.

Each is a line `PID TICKS` (process id and start time, together unique until reboot) in a private file of this user.
This is a hurdle, not a security boundary: any process with the user's rights can delete it
(docs/explanation/threat-model.md). Linux only.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_LONGEST: Final = 64 * 1024
"""The file size in bytes above which ended processes are removed."""


def record(pid: int) -> None:
    """Record that a command has detached this process. Never raises."""
    try:
        place = _place()
        if place is None or (ticks := _ticks(pid)) is None:
            return
        line = b"%d %d\n" % (pid, ticks)
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size > _LONGEST:
                alive = [(number, start) for number, start in _recorded(place) if _ticks(number) == start]
                os.truncate(descriptor, 0)
                line = b"".join(b"%d %d\n" % (number, start) for number, start in alive) + line
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
    except OSError:
        return


def any_of(pids: Iterable[int]) -> bool:
    """Return whether a command of a run has detached one of these processes."""
    place = _place()
    noted = _recorded(place) if place is not None else set()
    return bool(noted) and any((pid, _ticks(pid)) in noted for pid in pids)


def _place() -> Path | None:
    """Return the path of the file; None if its directory is not private."""
    directory = Path(tempfile.gettempdir()) / f"prose_kernel-{os.getuid()}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
    except OSError:
        return None
    return directory / "detached" if status.st_uid == os.getuid() and status.st_mode & 0o170077 == 0o040000 else None


def _recorded(place: Path) -> set[tuple[int, int]]:
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return set()
    with os.fdopen(descriptor, "rb") as file:
        lines = file.read(4 * _LONGEST).split(b"\n")
    words = [line.split() for line in lines]
    return {(int(one[0]), int(one[1])) for one in words if len(one) == 2 and one[0].isdigit() and one[1].isdigit()}


def _ticks(pid: int) -> int | None:
    """Return the start of a process in ticks since boot; None if there is no such process, or no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return int(stat[stat.rfind(b")") + 2 :].split()[19])
    except (OSError, IndexError, ValueError):
        return None
