"""`prose` and kernels in processes that are forked from one that has everything loaded: an eighth of the cost of a new
interpreter.

For tests of what a command or a cell shows and leaves. Tests of signals, and of how the process itself starts and ends,
run a real one.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import tempfile
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path

import forked_child
import pytest
from pexpect.fdpexpect import fdspawn
from waiting import until

_CONTEXT = multiprocessing.get_context("forkserver")
_UNKNOWN = 255
"""What `multiprocessing` says of a process whose end it could not read."""
_CONTEXT.set_forkserver_preload(["loaded", "forked_child"])


def prose(
    *arguments: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
    broken: Mapping[int, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """`prose ARGUMENTS` without a terminal and with nothing to read, until it ends. `broken`: streams by their numbers
    (`forked_child.to_files`)."""
    with tempfile.TemporaryDirectory() as place:
        out, err, told = Path(place, "out"), Path(place, "err"), Path(place, "status")
        process = _started(forked_child.to_files, (str(out), str(err), broken), arguments, cwd, env, told)
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(arguments, timeout, out.read_text(), err.read_text())
        status = process.exitcode
        if status == _UNKNOWN:  # what forks could not tell; the command itself has
            until(told.exists)
            status = int(told.read_text())
        return subprocess.CompletedProcess(arguments, status, out.read_text(), err.read_text())


@contextlib.contextmanager
def running(*arguments: str, cwd: Path | None = None) -> Iterator[Running]:
    """`prose ARGUMENTS` without a terminal, killed at the end."""
    with tempfile.TemporaryDirectory() as place:
        out, err = Path(place, "out"), Path(place, "err")
        process = _started(forked_child.to_files, (str(out), str(err)), arguments, cwd, None)
        try:
            yield Running(process, err)
        finally:
            process.kill()
            process.join()


@dataclass(frozen=True)
class Running:
    process: multiprocessing.context.ForkServerProcess
    err: Path

    def until_it_says(self, text: str) -> None:
        """Wait until standard error holds the text."""
        until(lambda: self.process.exitcode is not None or (self.err.exists() and text in self.err.read_text()))
        assert text in self.err.read_text()


class Terminal(fdspawn):
    """`prose ARGUMENTS` at a terminal of its own, to talk to as with pexpect."""

    def __init__(self, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, columns: int = 200) -> None:
        self.cwd = cwd
        master, slave = os.openpty()
        termios.tcsetwinsize(slave, (50, columns))
        ready, tell = _CONTEXT.Pipe(duplex=False)
        with ready, tell:
            self.process = _started(forked_child.to_terminal, (os.ttyname(slave), tell), arguments, cwd, env)
            ready.recv()
        os.close(slave)  # so that reading ends with the command
        super().__init__(master, encoding="utf-8", timeout=30)

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self.child_fd, (rows, columns))

    def end(self, wait: float = 30) -> int | None:
        """The exit status; None if it did not end in so many seconds, and is killed."""
        self.process.join(wait)
        status = self.process.exitcode
        self.process.kill()
        self.close()
        return status


class Kernel:
    """A kernel, as `jupyter_client` wants it: like a `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        _ready()
        self._process = _CONTEXT.Process(target=forked_child.kernel, args=(tuple(arguments), cwd, dict(env)))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def _ready() -> None:
    """Start the process that forks, once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # so that it finds what it loads
        forkserver.ensure_running()


def _started(
    streams: Callable[..., None],
    settings: tuple[object, ...],
    arguments: tuple[str, ...],
    cwd: Path | None,
    env: Mapping[str, str] | None,
    told: Path | str = "",
) -> multiprocessing.context.ForkServerProcess:
    environment = dict(os.environ if env is None else env)
    _ready()
    process = _CONTEXT.Process(
        target=forked_child.run, args=(streams, settings, arguments, str(cwd or Path.cwd()), environment, str(told))
    )
    process.start()
    return process
