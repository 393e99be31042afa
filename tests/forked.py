"""`prose` and kernels in processes forked from one that has loaded all modules, at an eighth of the cost of a new interpreter.

They are for tests of the output and the effects of commands and cells. Tests of signals, and of the start and the end of a
process, start a real one.
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
"""The exit code that `multiprocessing` reports if it could not read the end of a process."""
_PRELOADED = ("loaded", "forked_child")
_CONTEXT.set_forkserver_preload([*_PRELOADED])
_SHARED_ALSO = ("remote.loaded_dask",) if importlib.util.find_spec("distributed") is not None else ()
"""Modules loaded by the process that all workers of pytest share. They make forks no slower; a separate process would be."""


def prose(
    *arguments: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
    broken: Mapping[int, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `prose ARGUMENTS` without a terminal and without input, until it ends. `broken` has faults of streams by number
    (see `forked_child.to_files`)."""
    return _ended(arguments, cwd, env, timeout, broken)


def printed(*arguments: str, cwd: Path) -> bytes:
    """Run `prose ARGUMENTS`, which must succeed, and return its standard output as the bytes from a pipe."""
    with Command(*arguments, cwd=cwd) as command, ThreadPoolExecutor(2) as threads:
        out, err = (threads.submit(stream.buffer.read) for stream in (command.stdout, command.stderr))
        shown, errors = out.result(60), err.result(60)
        command._process.join(60)
        assert command.returncode == 0, errors
        return shown


def python(
    code: str, *arguments: str, cwd: Path, env: Mapping[str, str], package: Path
) -> subprocess.CompletedProcess[str]:
    """Run `python -c CODE ARGUMENTS` with the prose_kernel in the directory `package`. Unless that is this one, none of its
    modules are loaded before; its dependencies are."""
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
        out, err, status_file = Path(place, "out"), Path(place, "err"), Path(place, "status")
        process = _started(
            forked_child.to_files, (str(out), str(err), broken), arguments, cwd, env, (str(status_file), package)
        )
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(arguments, timeout, out.read_text(), err.read_text())
        status = process.exitcode
        if status == _UNKNOWN:  # read it from the file of the command
            until(status_file.exists)
            status = int(status_file.read_text())
        return subprocess.CompletedProcess(arguments, status, out.read_text(), err.read_text())


@contextlib.contextmanager
def running(*arguments: str, cwd: Path | None = None) -> Iterator[Running]:
    """Run `prose ARGUMENTS` without a terminal, and kill it at the end."""
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

    def wait_for_error_text(self, text: str) -> None:
        """Wait until standard error has the text."""
        until(lambda: self.process.exitcode is not None or (self.err.exists() and text in self.err.read_text()))
        assert text in self.err.read_text()


class Command:
    """`prose ARGUMENTS` without input, with its output in pipes. It is used like a `subprocess.Popen`, and killed at the end.
    With `package` it is `python -c ARGUMENTS`; see `python`."""

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
        """Wait until the command has ended, and return the rest of its output and errors."""
        with ThreadPoolExecutor(2) as threads:
            read = [threads.submit(stream.read) for stream in (self.stdout, self.stderr)]
            self._process.join(timeout)
            if self._process.exitcode is None:
                self._process.kill()
                raise subprocess.TimeoutExpired(self.args, timeout)
            out, err = (one.result(timeout) for one in read)
        return out, err


class Terminal(fdspawn):
    """`prose ARGUMENTS` on a separate terminal, for dialogues with pexpect. With `package` it is `python -c ARGUMENTS`; see
    `python`."""

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
        with ready:
            with tell:
                self.process = _started(forked_child.to_terminal, settings, arguments, cwd, env, more)
            ready.recv()  # raises an error if the process has ended: nobody else has the other end now
        os.close(slave)  # so that reads end with the command
        super().__init__(master, encoding="utf-8", timeout=30)

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self.child_fd, (rows, columns))

    def end(self, wait: float = 30) -> int | None:
        """Return the exit status. Kill the command and return None if it has not ended after `wait` seconds."""
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
"""A command that lets this process run `prose` with its arguments, directory, environment and streams."""


@contextlib.contextmanager
def in_shells(place: Path) -> Iterator[None]:
    """Make `prose` in commands of programs a fork, too, not a new interpreter: a script in `place` is first in PATH."""
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
    """Return a directory for JUPYTER_PATH with kernels, which another program, such as a Jupyter server, starts as forks.

    `kernels` has their specifications by name. The process that the other program starts lives as long as the kernel; when
    it is killed, the kernel ends."""
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
            for process in started:  # left by the other program
                process.kill()


def _answer_all(asked: socket.socket, start: _StartsInStreams) -> None:
    while True:
        try:
            one, _ = asked.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(one, start), daemon=True).start()


def _answer(asked: socket.socket, start: _StartsInStreams) -> None:
    """Run one command for another process. It is killed when the process that asked for it is killed."""
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
    """A kernel with the interface of `subprocess.Popen` that `jupyter_client` needs."""

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
    """Let the process that forks load these modules, too. This has no effect if it has started, or if the shared one has them."""
    if _shared and {*modules} <= {*_SHARED_ALSO}:
        return
    _CONTEXT.set_forkserver_preload([*modules, *_PRELOADED])
    _shared.clear()


_shared: dict[str, Any] = {}
"""The connection to the process that forks for all workers of pytest."""


def start_shared() -> dict[str, Any]:
    """Start the process that forks, and return the argument for `use_shared` in other processes. This process must outlive
    them."""
    if sys.platform != "linux":
        return {}
    with pytest.MonkeyPatch.context() as patch, _silent():
        patch.delenv(RUN)  # each process has its own
        _CONTEXT.set_forkserver_preload([*_SHARED_ALSO, *_PRELOADED])
        _start()
    running = forkserver._forkserver
    return {name: value for name, value in vars(running).items() if name in _REACHED_BY} | {"starter": os.getpid()}


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Discard the output of processes started here, because pytest captures only the output of its workers."""
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
"""The last name exists since Python 3.14."""


def use_shared(reached: dict[str, Any]) -> None:
    """Fork from a process that another process has started."""
    _shared.update(reached)


def _connect_to_shared() -> None:
    """Set the state of `forkserver.ensure_running` without starting a process."""
    reached = dict(_shared)
    alive = f"/proc/{reached.pop('starter')}/fd/{reached['_forkserver_alive_fd']}"
    running = forkserver._forkserver
    vars(running).update(
        reached,
        _forkserver_alive_fd=os.open(alive, os.O_WRONLY),  # keeps the process that forks alive
        ensure_running=resource_tracker.ensure_running,
    )


def _start() -> None:
    with pytest.MonkeyPatch.context() as patch:
        # so that it finds its modules, and the same package as this process
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        forkserver.ensure_running()


@functools.cache
def _ready() -> None:
    """Start the process that forks, once, and wait for its first fork, so that no time limit of a test includes its start."""
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
