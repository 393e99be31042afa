"""A real Dask cluster for tests, whose workers come and go within milliseconds: `python cluster.py [CA CERT KEY]`.

This process imports Dask once and forks: first a scheduler, then a worker for each line that it reads, which is an
object: `nthreads`, `resources`, `lifetime`, and what is odd about it (`version`: of prose_kernel; `directory`: "missing"
or "other"; `variable`: a name that it sets; `grace`: seconds between TERM and KILL; `package`: "missing"). It prints the
scheduler's address and pid, then the pid of each worker. The end of its input ends everything.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROOF = ".prose-remote-"


class Cluster:
    """The process, from outside."""

    def __init__(self, *keys: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *map(str, keys)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("LEAK")},
        )
        self.address, pid = self._read().split()
        self.scheduler = int(pid)

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the cluster has ended"
        return line

    def worker(self, nthreads: int = 16, **odd: Any) -> int:
        """Start a worker; its pid."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"nthreads": nthreads, **odd}) + "\n")
        self._process.stdin.flush()
        return int(self._read())

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


@contextmanager
def cluster(*keys: Path) -> Iterator[Cluster]:
    running = Cluster(*keys)
    try:
        yield running
    finally:
        running.close()


# ---------------------------------------------------------------- the process


def _fork() -> tuple[int, int]:
    """As `os.fork`; the child's second value is where it writes, the parent's where it reads."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # with this process
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        return 0, write
    os.close(write)
    return pid, read


def _told(read: int) -> str:
    with os.fdopen(read) as pipe:
        return pipe.readline().strip()


async def _schedule(security: Any, write: int) -> None:
    from distributed import Scheduler

    protocol = "tls://" if security is not None else "tcp://"
    async with Scheduler(
        protocol=protocol, host="127.0.0.1", port=0, dashboard_address=None, security=security
    ) as made:
        os.write(write, f"{made.address}\n".encode())
        os.close(write)
        await made.finished()


async def _work(address: str, security: Any, options: dict[str, Any], write: int) -> None:
    from distributed import Worker

    async with Worker(address, **options, memory_limit=0, security=security, dashboard_address=None) as made:
        os.write(write, b"ready\n")
        os.close(write)
        await made.finished()


class _Missing:
    """Finds no prose_kernel, as on a machine where it is not installed."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] == "prose_kernel":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _make_odd(odd: dict[str, str]) -> None:
    if "version" in odd:
        import prose_kernel._version
        from prose_kernel.remote import runner

        prose_kernel._version.__version__ = runner.__version__ = odd["version"]
    if "grace" in odd:
        from prose_kernel.remote import runner

        engine = runner.Engine
        runner.Engine = lambda grace, mark: engine(grace=float(odd["grace"]), mark=mark)  # type: ignore[misc,assignment]
    if odd.get("package") == "missing":
        for name in [name for name in sys.modules if name.partition(".")[0] == "prose_kernel"]:
            del sys.modules[name]
        sys.meta_path.insert(0, _Missing())
    if "variable" in odd:
        os.environ[odd["variable"]] = "of the worker"
    if "directory" in odd:
        real = pathlib.Path.read_text

        def read(path: pathlib.Path, *words: Any, **options: Any) -> str:
            if path.name.startswith(PROOF):
                if odd["directory"] == "missing":
                    raise FileNotFoundError(2, "No such file or directory")
                return "what another machine has there"
            return real(path, *words, **options)

        pathlib.Path.read_text = read  # type: ignore[method-assign]


def main(*keys: str) -> None:
    from distributed import Scheduler, Worker
    from distributed.security import Security

    from prose_kernel.remote import runner

    _ = Scheduler, Worker, runner
    logging.disable(logging.CRITICAL)
    security = None
    if keys:
        ca, cert, key = keys
        roles = {
            f"tls_{role}_{what}": path
            for role in ("scheduler", "worker")
            for what, path in (("cert", cert), ("key", key))
        }
        security = Security(require_encryption=True, tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, **roles)
    pid, pipe = _fork()
    if pid == 0:
        asyncio.run(_schedule(security, pipe))
        os._exit(0)
    children = [pid]
    address = _told(pipe)
    print(address, pid, flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        odd = json.loads(line)
        pid, pipe = _fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            options = {name: odd.pop(name) for name in ("nthreads", "resources", "lifetime") if name in odd}
            _make_odd(odd)
            asyncio.run(_work(address, security, options, pipe))
            os._exit(0)
        children.append(pid)
        _told(pipe)
        print(pid, flush=True)
    for child in children:
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    main(*sys.argv[1:])
