"""The process engine: one thread with its own event loop, which owns every child process from spawn to reap.

It runs from the first command to `close`, so that reading output, time limits and termination never depend on the
running cell (exec-and-tasks.md 1.2, spawn point 8).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import secrets
import signal
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prose_kernel.processes import orphans, process_table
from prose_kernel.processes.spawn import Child, ExitWatch
from prose_kernel.processes.termination import GRACE, BackgroundProcesses
from prose_kernel.processes.watchdog import Watchdog

if TYPE_CHECKING:
    from prose_kernel.processes.child_process import EngineProcess
    from prose_kernel.processes.monitor import Monitor

_DESCRIPTORS_EACH = 8
_DESCRIPTORS_SPARED = 128
_HIGHEST_LIMIT = 1000
_BURST = 16


class EngineClosed(Exception):
    """The engine is closed and starts no more processes."""


class Engine:
    """Owns the processes of one kernel or command line.

    - `grace`: seconds between two signals that end a process.
    - `on_warning`: called in the engine's thread with a line for the person if the watchdog cannot be kept alive.
    - `state_dir`: holds the private file by which a later start finds processes that survived a killed kernel and a
      killed watchdog; None means a directory of this user.
    - `at_once`: the limit of simultaneous commands; None means as many as the limit on open files allows, at most 1000.
    - `mark`: the prefix of the marker in the environment of all commands.
    """

    def __init__(
        self,
        *,
        grace: float = GRACE,
        on_warning: Callable[[str], None] | None = None,
        state_dir: Path | None = None,
        at_once: int | None = None,
        mark: str = "",
    ) -> None:
        self.grace = grace
        self.marker = mark + secrets.token_hex(16)
        self.loop: asyncio.AbstractEventLoop
        self._monitor: Monitor | None = None
        self._on_warning = on_warning
        self._state_dir = state_dir
        # reentrant, because a signal handler may interrupt a thread that is inside `post`
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._stopped = False
        self._ready = False
        self._running: dict[EngineProcess, None] = {}
        self._waiting: deque[EngineProcess] = deque()
        self._limit = at_once or _default_limit()
        self._burst = _BURST
        self._resting = False
        self._table: tuple[float, list[process_table.Member]] = (-1.0, [])
        self._adopted: dict[Child, ExitWatch] = {}
        self._idle = asyncio.Event()

    # ------------------------------------------------------------ life

    def start(self) -> None:
        """Start the thread, once. Called by the first command.

        Raises `EngineClosed`, and `OSError` if the system has no thread or descriptor left; a later call tries again.
        """
        if self._ready and not self._closed:
            return
        with self._lock:
            if self._closed:
                raise EngineClosed
            if self._thread is not None:
                return
            _close_at_exit(self)
            self.loop = asyncio.new_event_loop()
            self._watchdog = Watchdog(self.loop, f"{self.marker}:exec", self._on_warning, self._state_dir)
            self._background = BackgroundProcesses(f"{self.marker}:exec")
            busy = lambda: bool(self._running or self._background.groups)  # noqa: E731
            self.orphans = orphans.Orphans(self.loop, self.marker, busy, self._watchdog.knows)
            thread = threading.Thread(target=self._run, name="prose-commands", daemon=False)
            try:
                thread.start()
            except RuntimeError:
                self.loop.close()
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
            self._thread = thread
            self._ready = True

    def _run(self) -> None:
        # A child inherits the mask of the thread that spawns it.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        orphans.adopt()
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        with self._lock:
            self._stopped = True
        # calls posted before the close still get their answer
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    def close(self) -> None:
        """End all processes (TERM to all together, KILL after the grace), then the watchdog and the thread. Idempotent.

        Returns when nothing is left. Running commands get the outcome `cancelled`.
        """
        with self._lock:
            if not self._closed:
                self._closed = True
                if self._thread is not None:
                    self.loop.call_soon_threadsafe(self._begin_shutdown)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called: the engine starts nothing more."""
        return self._closed

    def _begin_shutdown(self) -> None:
        self._shutting_down = self.loop.create_task(self._shut_down())

    async def _shut_down(self) -> None:
        for process in tuple(self._running):
            process.shutdown()
        while self._waiting:
            self._waiting.popleft().refuse("cancelled")
        known = self._background.groups
        leftovers = self.loop.create_task(self._background.end(self.grace, self.table))
        while self._running:
            self._idle.clear()
            await self._idle.wait()
        await leftovers
        for group in known - self._background.groups:
            self._watchdog.ended(group)
        if self._monitor is not None:
            self._monitor.kill()
        await self._watchdog.close()
        self.orphans.close()
        # coroutines that still wait in this loop would wait forever
        waiting = asyncio.all_tasks(self.loop) - {asyncio.current_task(self.loop)}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        self.loop.stop()

    # ------------------------------------------------------------ commands

    def submit(self, process: EngineProcess) -> None:
        """Start a process, or queue it. In the engine's loop."""
        if self._closed:
            process.refuse("cancelled")
            return
        self._waiting.append(process)
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Start queued processes, a few at a time, because a spawn blocks the loop for the running ones."""
        if self._waiting and self._burst and len(self._running) < self._limit:
            self.orphans.watch()
            self._watchdog.starting()
            while self._waiting and self._burst and len(self._running) < self._limit:
                self._burst -= 1
                process = self._waiting.popleft()
                self._running[process] = None
                process.start()
            self._watchdog.all_started()
        if self._burst < _BURST and not self._resting:
            self._resting = True
            self.loop.call_soon(self._rested)

    def _rested(self) -> None:
        self._resting = False
        self._burst = _BURST
        if self._waiting:
            self._start_waiting()

    def post(self, callback: Callable[..., None], *arguments: object) -> bool:
        """Call a function in the engine's loop, from any thread; return False if the loop isn't running."""
        with self._lock:
            if self._thread is None or self._stopped:
                return False
            self.loop.call_soon_threadsafe(callback, *arguments)
        return True

    def interrupt(self) -> None:
        """Interrupt all foreground commands for the user, from any thread, and refuse the waiting ones."""
        self.post(self._interrupt)

    def _interrupt(self) -> None:
        for process in tuple(self._running):
            if process.foreground:
                process.interrupt()
        while self._waiting:
            self._waiting.popleft().refuse("interrupted")

    def cancel(self, process: EngineProcess) -> None:
        """End a process that the caller no longer needs. In the engine's loop."""
        if process in self._waiting:
            self._waiting.remove(process)
            process.refuse("cancelled")
        else:
            process.stop("cancelled")

    # ------------------------------------------------------------ reports of processes

    @property
    def monitor(self) -> Monitor:
        """The monitor of agents' programs."""
        if self._monitor is None:
            from prose_kernel.processes.monitor import Monitor

            self._monitor = Monitor(self.loop)
        return self._monitor

    def started(self, pid: int, ticks: int = 0) -> None:
        """Record a new group leader. `ticks` is its start time, for a process that may not carry the marker."""
        self._watchdog.started(pid, ticks)

    def ended(self, process: EngineProcess, left: Sequence[process_table.Member]) -> None:
        del self._running[process]
        pid = process.pid
        if pid is not None:
            if left:
                for gone in self._background.remember(pid, left, self.table):
                    self._watchdog.ended(gone)
                self._watchdog.left(pid, left)
            else:
                self._watchdog.ended(pid)
        if self._waiting:
            self.loop.call_soon(self._start_waiting)
        if not self._running:
            self._idle.set()

    def forget(self, leader: int) -> None:
        """Forget an ended program that had a guard. Until then the watchdog ends it if kernel and guard are killed."""
        self._watchdog.ended(leader)

    def guards(self, number: int) -> bool:
        """Return whether `number` is the process group or session of a command that runs, or has left processes
        running. May be called from any thread."""
        return self._ready and self._watchdog.knows(number)

    def adopt(self, child: Child) -> None:
        """Adopt a leader that survived KILL: reap it when it ends."""
        self._adopted[child] = ExitWatch(self.loop, child.pid, lambda: self._reap_adopted(child))

    def _reap_adopted(self, child: Child) -> None:
        del self._adopted[child]
        _, status = os.waitpid(child.pid, os.WNOHANG)
        child.reaped(status)

    def table(self, *, fresh: bool = False) -> list[process_table.Member]:
        """Return the process table, read at most once every few milliseconds, or now (`fresh`).

        If no descriptor is left to read it, return the last table: the same object, so that no command seems to have
        ended.
        """
        taken, table = self._table
        if fresh or self.loop.time() - taken > 0.002:
            with contextlib.suppress(OSError):
                table = process_table.members()
                self._table = (self.loop.time(), table)
        return table


def _default_limit() -> int:
    """Return how many commands may run simultaneously without exceeding the limit on open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _HIGHEST_LIMIT
    return max(8, min(_HIGHEST_LIMIT, (soft - _DESCRIPTORS_SPARED) // _DESCRIPTORS_EACH))


_open: weakref.WeakSet[Engine] = weakref.WeakSet()


def _close_at_exit(engine: Engine) -> None:
    """Close an open engine before the exiting interpreter waits for threads: the engine's thread isn't a daemon."""
    if not _registered:
        register = getattr(threading, "_register_atexit", None)
        if register is None:
            import atexit

            register = atexit.register
        try:
            register(_close_all)
        except RuntimeError:  # the interpreter is ending
            raise EngineClosed from None
        _registered.append(True)
    _open.add(engine)


_registered: list[bool] = []


def _close_all() -> None:
    for engine in tuple(_open):
        engine.close()
