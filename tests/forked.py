"""`prose` and kernels in processes that are forked from one that has everything loaded: an eighth of the cost of a new
interpreter.

For tests of what a command or a cell shows and leaves. Tests of signals, and of how the process itself starts and ends,
run a real one.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Self

import forked_child
import pytest
from pexpect.fdpexpect import fdspawn
from waiting import RUN, until

_CONTEXT = multiprocessing.get_context("forkserver")
_UNKNOWN = 255
"""What `multiprocessing` says of a process whose end it could not read."""
_PRELOADED = ("loaded", "forked_child")
_CONTEXT.set_forkserver_preload([*_PRELOADED])
_SHARED_ALSO = ("remote.loaded_dask",) if importlib.util.find_spec("distributed") is not None else ()
"""Loaded by the process that all workers of pytest share: a fork does not cost more for it, a process of its own would."""


def prose(
    *arguments: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
    broken: Mapping[int, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """`prose ARGUMENTS` without a terminal and with nothing to read, until it ends. `broken`: streams by their numbers
    (`forked_child.to_files`)."""
    return _ended(arguments, cwd, env, timeout, broken)


def printed(*arguments: str, cwd: Path) -> bytes:
    """Standard output of `prose ARGUMENTS`, which succeeds, as the bytes that it wrote into a pipe."""
    with Command(*arguments, cwd=cwd) as command, ThreadPoolExecutor(2) as threads:
        out, err = (threads.submit(stream.buffer.read) for stream in (command.stdout, command.stderr))
        shown, said = out.result(60), err.result(60)
        command._process.join(60)
        assert command.returncode == 0, said
        return shown


def python(
    code: str, *arguments: str, cwd: Path, env: Mapping[str, str], package: Path
) -> subprocess.CompletedProcess[str]:
    """`python -c CODE ARGUMENTS` with the prose_kernel in the directory `package`, of which nothing is loaded unless it is
    ours; all that it needs of others is."""
    return _ended((code, *arguments), cwd, env, 120, None, str(package))


def _ended(
    arguments: tuple[str, ...],
    cwd: Path | None,
    env: Mapping[str, str] | None,
    timeout: float,
    broken: Mapping[int, str] | None,
    package: str = "",
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as place:
        out, err, told = Path(place, "out"), Path(place, "err"), Path(place, "status")
        process = _started(
            forked_child.to_files, (str(out), str(err), broken), arguments, cwd, env, (str(told), package)
        )
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(arguments, timeout, out.read_text(), err.read_text())
        status = process.exitcode
        if status == _UNKNOWN:  # the fork could not report it; the command itself has
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


class Command:
    """`prose ARGUMENTS` with nothing to read, its output in pipes: used like a `subprocess.Popen`, and killed at the end.
    With `package` it is `python -c ARGUMENTS`, as `python` says."""

    def __init__(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        package: Path | None = None,
    ) -> None:
        self.args = arguments
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        with contextlib.ExitStack() as given:
            ends = [given.enter_context(Connection(n)) for n in (os.open(os.devnull, os.O_RDONLY), out_end, err_end)]
            self._process = _started(forked_child.to_given, tuple(ends), arguments, cwd, env, ("", str(package or "")))
        self.stdout, self.stderr = (open(number, encoding="utf-8") for number in (out, err))  # noqa: PTH123, SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()
        self.stdout.close()
        self.stderr.close()

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        return self._process.exitcode

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """What is left of its output and errors, when it has ended."""
        with ThreadPoolExecutor(2) as threads:
            read = [threads.submit(stream.read) for stream in (self.stdout, self.stderr)]
            self._process.join(timeout)
            if self._process.exitcode is None:
                self._process.kill()
                raise subprocess.TimeoutExpired(self.args, timeout)
            out, err = (one.result(timeout) for one in read)
        return out, err


class Terminal(fdspawn):
    """`prose ARGUMENTS` at its own terminal, for dialogues as with pexpect; with `package` `python -c ARGUMENTS`, as
    `python` says."""

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        columns: int = 200,
        package: Path | None = None,
    ) -> None:
        self.cwd = cwd
        master, slave = os.openpty()
        termios.tcsetwinsize(slave, (50, columns))
        ready, tell = _CONTEXT.Pipe(duplex=False)
        settings, more = (os.ttyname(slave), tell), ("", str(package or ""))
        with ready, tell:
            self.process = _started(forked_child.to_terminal, settings, arguments, cwd, env, more)
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


_ASKS = """#!{python} -IS
import os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    socket.send_fds(asked, [repr((sys.argv[1:], os.getcwd(), dict(os.environ))).encode() + b"\\n"], [0, 1, 2])
    sys.exit(int(asked.recv(16)))
"""
"""A command that has this process run `prose` with its arguments, directory, environment and streams."""


@contextlib.contextmanager
def in_shells(place: Path) -> Iterator[None]:
    """`prose` in the commands of a program is a fork too, not a new interpreter: that of `place` is first in PATH."""
    with pytest.MonkeyPatch.context() as patch, socket.socket(socket.AF_UNIX) as asked:
        _ready()
        address, command = place / "asked", place / "prose"
        asked.bind(str(address))
        asked.listen()
        command.write_text(_ASKS.format(python=sys.executable, address=str(address)))
        command.chmod(0o755)
        patch.setenv("PATH", os.pathsep.join([str(place), str(Path(sys.executable).parent), os.environ["PATH"]]))
        threading.Thread(target=_answer_all, args=(asked, _started_in_streams), daemon=True).start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                asked.shutdown(socket.SHUT_RDWR)  # so that the thread ends


_StartsInStreams = Callable[
    [tuple[Connection, ...], tuple[str, ...], str, dict[str, str]], multiprocessing.context.ForkServerProcess
]


def _started_in_streams(
    streams: tuple[Connection, ...], arguments: tuple[str, ...], cwd: str, environment: dict[str, str]
) -> multiprocessing.context.ForkServerProcess:
    return _started(forked_child.to_given, streams, arguments, Path(cwd), environment)


@contextlib.contextmanager
def as_kernels(place: Path, kernels: Mapping[str, Path]) -> Iterator[Path]:
    """A directory for JUPYTER_PATH with these kernels (their names and specifications), which another program, such as a
    Jupyter server, starts as forks. The process that it starts lives as long as the kernel, and ends it when it is killed."""
    _ready()
    address, command = place / "asked", place / "kernel"
    for name, given in kernels.items():
        spec = json.loads(given.read_text())
        module = spec["argv"].index("-m") + 1
        spec["argv"] = [sys.executable, "-IS", str(command), *spec["argv"][module:]]
        written = place / "kernels" / name / "kernel.json"
        written.parent.mkdir(parents=True)
        written.write_text(json.dumps(spec))
    command.write_text(_ASKS.format(python=sys.executable, address=str(address)))
    started: list[multiprocessing.context.ForkServerProcess] = []

    def start(
        streams: tuple[Connection, ...], arguments: tuple[str, ...], cwd: str, environment: dict[str, str]
    ) -> multiprocessing.context.ForkServerProcess:
        module, *more = arguments
        process = _CONTEXT.Process(target=forked_child.kernel, args=(module, tuple(more), cwd, environment, streams))
        process.start()
        started.append(process)
        return process

    with socket.socket(socket.AF_UNIX) as asked:
        asked.bind(str(address))
        asked.listen()
        threading.Thread(target=_answer_all, args=(asked, start), daemon=True).start()
        try:
            yield place
        finally:
            with contextlib.suppress(OSError):
                asked.shutdown(socket.SHUT_RDWR)  # so that the thread ends
            for process in started:  # those that the other program has left
                process.kill()


def _answer_all(asked: socket.socket, start: _StartsInStreams) -> None:
    while True:
        try:
            one, _ = asked.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(one, start), daemon=True).start()


def _answer(asked: socket.socket, start: _StartsInStreams) -> None:
    """Run one command of another process; it is killed when that process's own is."""
    with asked, contextlib.ExitStack() as streams:
        text, numbers, *_ = socket.recv_fds(asked, 1 << 20, 3)
        passed = [streams.enter_context(Connection(number)) for number in numbers]
        while not text.endswith(b"\n"):
            if not (more := asked.recv(1 << 20)):
                return
            text += more
        arguments, cwd, environment = ast.literal_eval(text.decode())
        process = start(tuple(passed), tuple(arguments), cwd, environment)
        streams.close()
        wait([process.sentinel, asked])
        process.join(0)
        if process.exitcode is None:
            process.kill()
            process.join()
        else:
            with contextlib.suppress(BrokenPipeError):
                asked.sendall(str(process.exitcode).encode())


class Kernel:
    """A kernel, as `jupyter_client` wants it: like a `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, module: str, arguments: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        _ready()
        self._process = _CONTEXT.Process(target=forked_child.kernel, args=(module, tuple(arguments), cwd, dict(env)))
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


def load_also(*modules: str) -> None:
    """Have the process that forks load these, too, unless a process of our own runs already or the shared one has them."""
    if _shared and {*modules} <= {*_SHARED_ALSO}:
        return
    _CONTEXT.set_forkserver_preload([*modules, *_PRELOADED])
    _shared.clear()


_shared: dict[str, Any] = {}
"""How to reach the process that forks for all workers of pytest."""


def start_shared() -> dict[str, Any]:
    """Start the process that forks, and return what `use_shared` of another process needs. Ours has to live as long."""
    if sys.platform != "linux":
        return {}
    with pytest.MonkeyPatch.context() as patch, _silent():
        patch.delenv(RUN)  # each of them has its own
        _CONTEXT.set_forkserver_preload([*_SHARED_ALSO, *_PRELOADED])
        _start()
    running = forkserver._forkserver
    return {name: value for name, value in vars(running).items() if name in _REACHED_BY} | {"starter": os.getpid()}


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Processes started here write nowhere: pytest captures the output of its workers only."""
    kept = {number: os.dup(number) for number in (1, 2)}
    with Path(os.devnull).open("w") as nowhere:
        for number in kept:
            os.dup2(nowhere.fileno(), number)
    try:
        yield
    finally:
        for number, former in kept.items():
            os.dup2(former, number)
            os.close(former)


_REACHED_BY = ("_forkserver_address", "_forkserver_alive_fd", "_forkserver_authkey")
"""The last exists since Python 3.14."""


def use_shared(reached: dict[str, Any]) -> None:
    """Fork from the process that another one has started, instead of a process of our own."""
    _shared.update(reached)


def _connect_to_shared() -> None:
    """As `forkserver.ensure_running` leaves it, but that nothing is started."""
    reached = dict(_shared)
    alive = f"/proc/{reached.pop('starter')}/fd/{reached['_forkserver_alive_fd']}"
    running = forkserver._forkserver
    vars(running).update(
        reached,
        _forkserver_alive_fd=os.open(alive, os.O_WRONLY),  # the process that forks lives as long as one of us
        ensure_running=resource_tracker.ensure_running,
    )


def _start() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # so that it finds what it loads
        forkserver.ensure_running()


@functools.cache
def _ready() -> None:
    """Start the process that forks, once, and wait until it does: no time limit of a test includes its loading."""
    if _shared:
        _connect_to_shared()
    else:
        _start()
    first = _CONTEXT.Process(target=os.getpid)
    first.start()
    first.join()


def _started(
    streams: Callable[..., None],
    settings: tuple[object, ...],
    arguments: tuple[str, ...],
    cwd: Path | None,
    env: Mapping[str, str] | None,
    more: tuple[str, ...] = ("",),
) -> multiprocessing.context.ForkServerProcess:
    environment = dict(os.environ if env is None else env)
    _ready()
    process = _CONTEXT.Process(
        target=forked_child.run, args=(streams, settings, arguments, str(cwd or Path.cwd()), environment, *more)
    )
    process.start()
    return process
