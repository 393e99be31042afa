"""Starts and informs the watchdog, a small process that ends the processes of a killed kernel (exec-and-tasks.md 1.4).

The watchdog starts with the first command, and receives the process groups through a pipe whose only writer is this
process. If it dies, another one replaces it and gets all groups again. A private file gets the same reports, so that a
later start finds the remaining processes if kernel and watchdog were both killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from prose_kernel.processes import system, watchdog_process
from prose_kernel.processes.process_table import Member, member_of, processes_of_run
from prose_kernel.processes.spawn import ExitWatch, close, script_command

_SCRIPT = Path(__file__).with_name("watchdog_process.py")
_ATTEMPTS = 2
_PROVEN = 10.0
"""Seconds after which a watchdog counts as successfully started."""

_LONGEST_JOURNAL = 256 * 1024
"""Bytes of the private file after which it is rewritten without ended groups."""

_CHECK_INTERVAL: Final = 0.02

_ENDED_DELAY = 0.05
"""Seconds by which reports of ended groups are delayed, to send them together. This is safe: the watchdog checks a
group's members before it signals."""

WARNING = "the watchdog cannot be kept running: commands would survive if the kernel were killed"

_WORKERS_END: Final = 12.0
"""Seconds to wait until a dead kernel's commands have ended on workers of this machine; its own cluster ends first."""

_SWEPT: Final = 6.0
"""Seconds to wait until a dead kernel's commands have ended: the watchdog's start, and its two graces."""


def wait_for_run(run: str, stop: threading.Event) -> bool:
    """Wait until no command of a run is left on this machine; return False if some still are.

    Blocks for a bounded time, or until `stop` is set. Must be called before this process starts a command of the run.
    """
    gone = wait_for_orphans(stop)
    until = time.monotonic() + _WORKERS_END
    while left := processes_of_run(run):
        if stop.wait(5 * _CHECK_INTERVAL) or time.monotonic() >= until:
            return not left
    return gone


def wait_for_orphans(stop: threading.Event) -> bool:
    """Wait until no processes of killed kernels of this user are left; return False if some still are.

    Watchdogs end such processes; this function ends those without a watchdog. Blocks for some seconds at most, or until
    `stop` is set.
    """
    directory = str(private_directory())
    if not watchdog_process.private(directory):
        return True
    until = time.monotonic() + _SWEPT
    while left := watchdog_process.orphans(directory):
        for path in watchdog_process.orphans(directory, watched=False):
            watchdog_process.sweep_one(path)
        if stop.wait(_CHECK_INTERVAL) or time.monotonic() >= until:
            return not left
    return True


def private_directory() -> Path:
    """Return the directory of this user's private files (see `watchdog_process.private`)."""
    return Path(tempfile.gettempdir()) / f"prose_kernel-{os.getuid()}"


class Watchdog:
    """Keeps one watchdog process alive and informed. Call all methods in the engine's loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        marker: str,
        on_warning: Callable[[str], None] | None,
        state_dir: Path | None,
    ) -> None:
        self._loop = loop
        self._marker = marker
        self._on_warning = on_warning
        self._state_dir = state_dir or private_directory()
        self._journal: _Journal | None = None
        self._groups: dict[int, bytes] = {}
        self._unsent = bytearray()  # lines neither in the file nor in the pipe
        self._behind = bytearray()  # lines in the file, and not yet in the pipe
        self._flush_timer: asyncio.TimerHandle | None = None
        self._pipe = -1
        self._popen: subprocess.Popen[bytes] | None = None
        self._exit: ExitWatch | None = None
        self._started_at = 0.0
        self._failures = 0
        self._closed = False
        self._announced = b""

    # ------------------------------------------------------------ reports to the watchdog

    def starting(self) -> None:
        """Announce a start of commands, so that the watchdog finds their processes if the kernel is killed."""
        self._announced = b"?%d\n" % system.now()
        self._unsent += self._announced
        if self._pipe < 0 and self._failures <= _ATTEMPTS:
            self._open()
        self._flush()

    def all_started(self) -> None:
        """Report that the announced commands have been started, or failed to start."""
        self._announced = b""
        self._unsent += b"?\n"
        self._flush()

    def started(self, group: int, ticks: int = 0) -> None:
        """Report a command's running group. `ticks` is its leader's start time, if its members may lack the marker."""
        self._send_line(group, b"+%d %d\n" % (group, ticks) if ticks else b"+%d\n" % group)
        if not self._announced:
            self._flush()

    def left(self, group: int, members: Sequence[Member]) -> None:
        """Report that a command has ended, and left these processes in its group."""
        known = b"".join(b" %d %d" % member.identity for member in members)
        self._send_line(group, b"=%d%b\n" % (group, known))
        self._flush()

    def knows(self, group: int) -> bool:
        """Return whether the watchdog would end this group."""
        return group in self._groups

    def ended(self, group: int) -> None:
        if self._groups.pop(group, None) is None:
            return
        self._unsent += b"-%d\n" % group
        if self._flush_timer is None:
            self._flush_timer = self._loop.call_later(_ENDED_DELAY, self._flush)

    def _send_line(self, group: int, line: bytes) -> None:
        self._groups[group] = line
        self._unsent += line

    def _flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if self._unsent and self._journal is not None:
            self._journal.add(self._unsent, self._groups)
        self._behind += self._unsent
        self._unsent.clear()
        if self._pipe < 0:
            self._behind.clear()  # a new watchdog gets everything
            return
        try:
            del self._behind[: os.write(self._pipe, self._behind)]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            return  # it has died, which its exit shows as well
        if self._behind:
            self._flush_timer = self._loop.call_later(_ENDED_DELAY, self._flush)

    # ------------------------------------------------------------ starting and ending it

    def _open(self) -> None:
        try:
            reader, self._pipe = os.pipe()
        except OSError:  # no descriptor is left: the next command tries again
            return
        os.set_blocking(self._pipe, False)
        self._behind[:] = b"".join(self._groups.values()) + self._announced
        if self._journal is None and watchdog_process.private(str(self._state_dir)):
            self._journal = _Journal(self._state_dir, self._marker)
        # Start it before the command, because the kernel may be killed at any moment; don't wait for its interpreter.
        self._spawn(reader)

    def _spawn(self, reader: int) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PROSE_JOB"}
        argv = [*script_command(_SCRIPT, system.PYTHON_FLAGS), str(os.getpid()), str(self._state_dir), self._marker]
        argv += [str(self._journal.path)] if self._journal is not None else []
        try:
            self._popen = subprocess.Popen(
                argv,
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            self._failed()
        else:
            self._started_at = self._loop.time()
            self._exit = ExitWatch(self._loop, self._popen.pid, self._died)
            if self._journal is not None:
                self._journal.watched_by(self._popen.pid)
        finally:
            close((reader,))

    def _died(self) -> None:
        self._forget()
        if self._closed:
            return
        if self._loop.time() - self._started_at > _PROVEN:
            self._failures = 0
        self._failed()

    def _failed(self) -> None:
        self._forget()
        self._failures += 1
        if self._failures <= _ATTEMPTS:
            self._open()
            self._flush()
        elif self._on_warning is not None:
            self._on_warning(WARNING)
            self._on_warning = None

    def _forget(self) -> None:
        if self._exit is not None:
            self._exit.stop()
            self._exit = None
        close((self._pipe,))
        self._pipe = -1
        if self._popen is not None:
            with contextlib.suppress(ChildProcessError):
                self._popen.poll()
            self._popen = None

    async def close(self) -> None:
        """End the watchdog and reap it."""
        self._closed = True
        if self._popen is None:
            await asyncio.sleep(0)  # a start may be in progress
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        popen = self._popen
        if popen is None:
            self._forget()
            if self._journal is not None and not self._groups:
                self._journal.remove()
            return
        if self._groups:
            close((self._pipe,))  # some processes survived KILL: let the watchdog try to end them, too
            self._pipe = -1
        else:
            popen.kill()  # nothing to watch: don't wait for its interpreter to start
        end = self._loop.time() + 3.0
        while popen.poll() is None:
            if self._loop.time() > end:
                popen.kill()
            await asyncio.sleep(0.001)
        if self._journal is not None:
            self._journal.remove()
        self._forget()

    @property
    def pid(self) -> int | None:
        return self._popen.pid if self._popen is not None else None


class _Journal:
    """The private file: its owner, and each line sent to the watchdog. An error of the file never affects a command."""

    def __init__(self, directory: Path, marker: str) -> None:
        own = member_of(os.getpid())
        identity = own.identity if own is not None else (os.getpid(), 0)
        self.path = directory / f"jobs-{os.getpid()}-{marker[:8]}"
        self._head = f"boot {system.boot_id()}\nowner {identity[0]} {identity[1]}\nmarker {marker}\n".encode()
        self._size = 0
        self._descriptor = -1
        self._begin(b"")

    def _begin(self, lines: bytes) -> None:
        """Rewrite the file from the start. A full disk only disables the later sweep; the watchdog still works."""
        fresh = self.path.with_name(f".{self.path.name}")
        close((self._descriptor,))
        self._descriptor = -1
        try:
            self._descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            self._size = os.write(self._descriptor, self._head + lines)
            fresh.replace(self.path)
        except OSError:
            return

    def add(self, lines: bytes | bytearray, groups: dict[int, bytes]) -> None:
        """Append report lines; `groups` holds the last line of each registered group, for rewriting a full file."""
        if self._size + len(lines) > _LONGEST_JOURNAL:
            self._begin(b"".join(groups.values()))
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                self._size += os.write(self._descriptor, lines)

    def watched_by(self, pid: int) -> None:
        """Record the watchdog's PID and start time. While it lives, no other process ends the remaining processes."""
        watchdog = member_of(pid)
        if watchdog is not None:
            line = b"watchdog %d %d\n" % watchdog.identity
            self._head = self._head.partition(b"watchdog ")[0] + line
            self.add(line, {})

    def remove(self) -> None:
        close((self._descriptor,))
        self._descriptor = -1
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
