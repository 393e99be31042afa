"""Learning that a child has ended without taking its status: by a descriptor, or by a thread that waits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable

from prose_kernel.commands import system
from prose_kernel.commands.spawn import close


class ExitWatch:
    """Calls `ended` in the loop, once, when the child has ended; its status is still there to be taken."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pid: int, ended: Callable[[], None]) -> None:
        self._loop = loop
        self._ended = ended
        self._descriptor = -1
        self._over = False
        try:
            self._descriptor = system.exit_descriptor(pid)
        except OSError:
            threading.Thread(target=self._wait, args=(pid,), name="prose-exit", daemon=True).start()
        else:
            loop.add_reader(self._descriptor, self._seen)

    def _wait(self, pid: int) -> None:
        with contextlib.suppress(ChildProcessError):  # somebody else took the status: reaping will find out
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the engine is closed, and has given this process up
            self._loop.call_soon_threadsafe(self._seen)

    def _seen(self) -> None:
        if not self._over:
            self.stop()
            self._ended()

    def stop(self) -> None:
        """Watch no more. A second call does nothing."""
        self._over = True
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            close((self._descriptor,))
            self._descriptor = -1
