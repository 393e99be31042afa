"""`prose` in processes that are forked from one that has everything loaded: a fifth of what an interpreter of its own costs.

For tests of what a command says and leaves. Tests of signals, and of how the command itself starts and ends, run a real
one.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from pexpect.fdpexpect import fdspawn

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["prose_kernel.cli.main", "prose_kernel.cli.run", "prose_kernel.sessions.providers.model_adapter", "nbformat"]
)


def prose(
    *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """`prose ARGUMENTS` without a terminal and with nothing to read, until it ends."""
    with tempfile.TemporaryDirectory() as place:
        out, err = Path(place, "out"), Path(place, "err")
        process = _started(_to_files, (str(out), str(err)), arguments, cwd, env)
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(arguments, timeout, out.read_text(), err.read_text())
        return subprocess.CompletedProcess(arguments, process.exitcode, out.read_text(), err.read_text())


class Terminal(fdspawn):
    """`prose ARGUMENTS` at a terminal of its own, to talk to as with pexpect."""

    def __init__(self, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, columns: int = 200) -> None:
        master, slave = os.openpty()
        termios.tcsetwinsize(slave, (50, columns))
        ready, tell = _CONTEXT.Pipe(duplex=False)
        with ready, tell:
            self.process = _started(_to_terminal, (os.ttyname(slave), tell), arguments, cwd, env)
            ready.recv()
        os.close(slave)  # so that reading ends with the command
        super().__init__(master, encoding="utf-8", timeout=30)

    def end(self) -> int | None:
        """The exit status; None if it did not end, and is killed."""
        self.process.join(30)
        status = self.process.exitcode
        self.process.kill()
        self.close()
        return status


def _started(
    streams: Callable[..., None],
    settings: tuple[object, ...],
    arguments: tuple[str, ...],
    cwd: Path | None,
    env: Mapping[str, str] | None,
) -> multiprocessing.context.ForkServerProcess:
    environment = dict(os.environ if env is None else env)
    process = _CONTEXT.Process(target=_run, args=(streams, settings, arguments, str(cwd or Path.cwd()), environment))
    process.start()
    return process


# ---------------------------------------------------------------- in the forked process


def _to_files(out: str, err: str) -> None:
    for number, path in ((1, out), (2, err)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)


def _to_terminal(name: str, ready: Connection) -> None:
    os.login_tty(os.open(name, os.O_RDWR))
    ready.send(None)
    ready.close()


def _run(
    streams: Callable[..., None],
    settings: tuple[object, ...],
    arguments: tuple[str, ...],
    cwd: str,
    environment: dict[str, str],
) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    streams(*settings)
    lines = 1 if os.isatty(1) else -1
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", lines, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = ["-c", *arguments]
    from prose_kernel.cli.main import main

    try:
        sys.exit(main())
    finally:
        atexit._run_exitfuncs()  # type: ignore[attr-defined]
