"""Real Dask clusters for tests; they and their workers start and end within milliseconds: `python cluster.py`.

This process imports Dask once and forks schedulers and workers. Each line of its input is an object:
`{"scheduler": [CA, CERT, KEY]}` (no keys: without TLS), `{"end": ADDRESS}`, or a worker: `of` (the address of its
scheduler), `nthreads`, `resources`, `lifetime`, and its differences from a usual worker (`version`: of prose_kernel;
`directory`: "missing" or "other"; `variable`: a name that it sets; `grace`: seconds between TERM and KILL; `package`:
"missing"). It prints the address and pid of a scheduler, the pid of a worker. At the end of its input, all of them end.
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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PROOF = ".prose-remote-"


class Dask:
    """The process, as tests use it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("LEAK")},
        )

    def ask(self, wanted: dict[str, Any]) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline().strip()
        assert line, "the process of the clusters has ended"
        return line

    @contextmanager
    def cluster(self, *keys: Path) -> Iterator[Cluster]:
        """A scheduler without workers, which ends with its workers."""
        address, pid = self.ask({"scheduler": [*map(str, keys)]}).split()
        try:
            yield Cluster(self, address, int(pid))
        finally:
            self.ask({"end": address})

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


class Cluster:
    """One scheduler, whose pid is `scheduler`, and its workers."""

    def __init__(self, dask: Dask, address: str, scheduler: int) -> None:
        self._dask = dask
        self.address = address
        self.scheduler = scheduler

    def worker(self, nthreads: int = 16, **odd: Any) -> int:
        """Start a worker and return its pid."""
        return int(self._dask.ask({"of": self.address, "nthreads": nthreads, **odd}))


# ---------------------------------------------------------------- the process


def _fork() -> tuple[int, int]:
    """Fork like `os.fork`. The second value is the end of a pipe: the child writes to it, the parent reads from it."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # when this process ends
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        return 0, write
    os.close(write)
    return pid, read


def _read_line(read: int) -> str:
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
    """A finder that hides prose_kernel, as if it were not installed."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] == "prose_kernel":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _apply_oddities(odd: dict[str, str]) -> None:
    if "version" in odd:
        import prose_kernel._version
        from prose_kernel.remote import worker_actor

        prose_kernel._version.__version__ = worker_actor.__version__ = odd["version"]
    if "grace" in odd:
        from prose_kernel.remote import worker_actor

        engine = worker_actor.Engine
        worker_actor.Engine = lambda grace, mark: engine(grace=float(odd["grace"]), mark=mark)  # type: ignore[misc,assignment]
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


def _security(keys: list[str]) -> Any:
    if not keys:
        return None
    from distributed.security import Security

    ca, cert, key = keys
    roles = {
        f"tls_{role}_{what}": path for role in ("scheduler", "worker") for what, path in (("cert", cert), ("key", key))
    }
    return Security(require_encryption=True, tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, **roles)


class _Clusters:
    """All schedulers with their workers, by address."""

    def __init__(self) -> None:
        self._securities: dict[str, Any] = {}
        self._pids: dict[str, list[int]] = {}

    def answer(self, wanted: dict[str, Any]) -> str:
        if "scheduler" in wanted:
            return self._schedule(_security(wanted["scheduler"]))
        if "end" in wanted:
            self.end(wanted["end"])
            return "ended"
        return self._work(wanted.pop("of"), wanted)

    def _schedule(self, security: Any) -> str:
        pid, pipe = _fork()
        if pid == 0:
            asyncio.run(_schedule(security, pipe))
            os._exit(0)
        address = _read_line(pipe)
        self._securities[address], self._pids[address] = security, [pid]
        return f"{address} {pid}"

    def _work(self, address: str, odd: dict[str, Any]) -> str:
        pid, pipe = _fork()
        if pid == 0:
            options = {name: odd.pop(name) for name in ("nthreads", "resources", "lifetime") if name in odd}
            _apply_oddities(odd)
            asyncio.run(_work(address, self._securities[address], options, pipe))
            os._exit(0)
        self._pids[address].append(pid)
        _read_line(pipe)
        return str(pid)

    def end(self, address: str) -> None:
        for pid in self._pids.pop(address):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        for address in [*self._pids]:
            self.end(address)


def main() -> None:
    from distributed import Scheduler, Worker

    from prose_kernel.remote import worker_actor

    _ = Scheduler, Worker, worker_actor
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    clusters = _Clusters()
    for line in sys.stdin:
        print(clusters.answer(json.loads(line)), flush=True)
    clusters.close()


if __name__ == "__main__":
    main()
