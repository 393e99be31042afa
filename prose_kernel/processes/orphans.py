"""Adopts and reaps orphans, processes that a command has left without a parent (exec-and-tasks.md 1.4).

On Linux the process of a run is a sub-reaper. However its commands and helpers try to leave (`setsid`, a double fork,
an empty environment), they stay below the run, which is how a gate recognizes them (`access/peers.py`). In return this
process has to reap them: a zombie still answers `kill -0`, and scripts wait for that to fail.

Only orphans are reaped. They are children of the first thread, while the engine's processes are children of the
engine's thread. A child in a session that is neither ours nor its own is certainly an orphan, and so is a child with
the marker of the engine's commands. A session leader without the marker may have been started by other code in this
process, which may ask for its status at any time. It is reaped only in a process that runs nothing but this package (a
kernel, the command line), and only after a moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from prose_kernel.processes import process_table, system
from prose_kernel.processes.spawn import ExitWatch
from prose_kernel.runtime import detached_processes

_PAUSE: Final = 0.2
"""Seconds between two checks for new orphans, while commands run."""

_MOMENT: Final = 1.0
"""Seconds after which other code in this process must have reaped its own child."""

_sub_reaper = 0
_excluded: Final = set[int]()


def exclude(pid: int) -> None:
    """Register a session leader that other code of this package reaps."""
    _excluded.add(pid)


def adopt() -> bool:
    """Make this process a sub-reaper, once. Return False if the system cannot do this, or does not list children."""
    global _sub_reaper
    if _sub_reaper == os.getpid():
        return True
    if not system.LINUX or not Path(f"/proc/self/task/{os.getpid()}/children").is_file():
        return False
    from prose_kernel.processes import sandbox_syscalls  # imports ctypes, which is slow

    try:
        sandbox_syscalls.become_sub_reaper()
    except OSError:
        return False
    _sub_reaper = os.getpid()
    return True


class Orphans:
    """Reaps orphans, in the engine's loop. `mark` is the prefix of the marker of the engine's commands. `busy` returns
    whether running processes may leave orphans, `ends` whether the engine will end a session or group when it closes;
    orphans that it will not end are noted (`detached_processes.py`)."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, mark: str, busy: Callable[[], bool], ends: Callable[[int], bool]
    ) -> None:
        self._loop = loop
        self._mark = mark
        self._busy = busy
        self._ends = ends
        self._children: dict[int, ExitWatch] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Look for orphans repeatedly while commands run."""
        if self._timer is None and _sub_reaper == os.getpid():
            self._timer = self._loop.call_later(_PAUSE, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.reap()
        if self._busy() or self._children:
            self.watch()

    def reap(self) -> None:
        """Find new orphans, and reap those that have ended."""
        if _sub_reaper != os.getpid():
            return
        now = set(system.children(os.getpid()))
        for pid in self._children.keys() - now:
            self._forget(pid)
        for pid in now - self._children.keys():
            sure = self._is_orphan(pid)
            if sure is not None and not (sure and _take(pid)):
                info = system.process_info(pid)
                if info is not None and not any(map(self._ends, info[:2])):
                    detached_processes.record(pid)
                self._children[pid] = ExitWatch(self._loop, pid, functools.partial(self._ended, pid, sure))

    def _ended(self, pid: int, sure: bool) -> None:
        if sure:
            _take(pid)
            self._forget(pid)
        else:
            self._loop.call_later(_MOMENT, self._ended, pid, True)

    def _forget(self, pid: int) -> None:
        if (watch := self._children.pop(pid, None)) is not None:
            watch.stop()

    def _is_orphan(self, pid: int) -> bool | None:
        """Return whether a child of the first thread is certainly an orphan; None if it must not be reaped here."""
        try:
            session = os.getsid(pid)
            if session == os.getsid(0) or pid in _excluded:
                return None
        except ProcessLookupError:
            return None
        if session != pid or process_table.carries_prefix(pid, self._mark):
            return True
        return False if _is_own_program() else None

    def close(self) -> None:
        """Reap ended orphans, and stop watching."""
        self.reap()
        if self._timer is not None:
            self._timer.cancel()
        for pid in tuple(self._children):
            self._forget(pid)


@functools.cache
def _is_own_program() -> bool:
    """Return whether this process runs nothing but this package."""
    program = sys.modules.get("__main__")
    spec = getattr(program, "__spec__", None)
    if spec is not None:
        return str(spec.name).startswith("prose_kernel.")
    return Path(getattr(program, "__file__", None) or "").name == "prose"


def _take(pid: int) -> bool:
    """Reap a child if it has ended; return whether it had."""
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return True
