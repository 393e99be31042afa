"""Starts and ends the monitor, the process that starts agents' programs (exec-and-tasks.md 1.3).

The monitor starts with the first such program and ends with the engine. If it is killed from outside, the next program
starts another one; running programs are not affected, because each has a guard process.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from prose_kernel.processes.spawn import close, script_command

SCRIPT = Path(__file__).with_name("monitor_process.py")
COMMAND = script_command(SCRIPT, ("-I", "-S"))

_AGAIN = 0.005
"""Seconds until a job is sent again if the monitor's queue is full."""

_PATIENCE = 2.0
"""Seconds to wait for a killed monitor."""

_QUEUE = 16384
"""Bytes of the monitor's queue: room for some forty jobs. The system limits the descriptors in transit."""


class Monitor:
    """Owns one monitor process. Call all methods in the engine's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._popen: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._jobs: deque[Sequence[int]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, job: Sequence[int]) -> None:
        """Send a job's descriptors to the monitor, and close them. Raises `OSError` if no monitor can be started."""
        if self._popen is None or self._popen.poll() is not None:
            self._open()
        self._jobs.append(job)
        if self._timer is None:
            self._send()

    def _open(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._popen = subprocess.Popen(
                [*COMMAND, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        self._channel.setblocking(False)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _QUEUE)

    def _send(self) -> None:
        self._timer = None
        while self._jobs and self._channel is not None:
            try:
                socket.send_fds(self._channel, [b"j"], self._jobs[0])
            except BlockingIOError:
                self._timer = self._loop.call_later(_AGAIN, self._send)
                return
            except OSError:
                pass  # the monitor has just been killed: the job ends when its socket closes, like a queued one
            close(self._jobs.popleft())

    def kill(self) -> None:
        """End the monitor and the jobs that it has not taken yet, but no running program."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._jobs:
            close(self._jobs.popleft())
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._popen is not None:
            self._popen.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(_PATIENCE)
            self._popen = None
