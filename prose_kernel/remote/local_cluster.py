"""Starts a Dask cluster on this machine, to try out `prose run --remote local`.

The cluster is a separate process (`python -m prose_kernel.remote.local_cluster`) with its own session, so that signals
of the terminal do not reach its workers. It ends when the pipe from its owner is closed, even if the owner was killed.
It has its own certificate, because every client of a scheduler can run programs.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import logging
import multiprocessing
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping

from prose_kernel.errors import UsageError
from prose_kernel.processes import orphans

WORKERS = 2
_START = 45.0
_END = 8.0
_KEYS = ("tls_ca_file", "tls_client_cert", "tls_client_key")

INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "LANGUAGE", "LC_*", "TZ", "LD_LIBRARY_PATH"),
    *("PYTHON*", "VIRTUAL_ENV", "CONDA_*", "DASK_*", "XDG_*", "COVERAGE_*"),
)
"""The variables of our environment that the workers get: about as many as on another machine."""


def places() -> int:
    """Return how many commands a worker runs simultaneously."""
    return max(8, 2 * (os.cpu_count() or 1))


class LocalCluster:
    """Owns the process of the cluster. One of its workers has the `resources` of this machine."""

    def __init__(self, resources: Mapping[str, float]) -> None:
        self._resources = dict(resources)
        self._process: subprocess.Popen[str] | None = None
        self._started = self._closed = False

    def start(self) -> tuple[str, Mapping[str, str]]:
        """Start the cluster; return the scheduler's address and the keys for it. Blocks. Raises `UsageError`."""
        env = {n: v for n, v in os.environ.items() if any(fnmatch.fnmatchcase(n, pattern) for pattern in INHERITED)}
        orphans.adopt()  # processes that leave the workers stay below the run
        self._process = process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(WORKERS), str(places()), json.dumps(self._resources)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**env, "PROSE_JOB": f"{secrets.token_hex(16)}:cluster"},
            text=True,
            start_new_session=True,
        )
        orphans.exclude(process.pid)
        if self._closed:  # it came before the process was known here
            self.close()
        assert process.stdout is not None and process.stderr is not None
        timer = threading.Timer(_START, _kill, (process,))
        timer.daemon = True
        timer.start()
        words: list[str] = []
        reader = threading.Thread(target=_read, args=(process.stderr, words), daemon=True)
        reader.start()
        try:
            try:
                line = process.stdout.readline()  # raises `ValueError` if `close` comes first
            finally:
                timer.cancel()
            hello = json.loads(line)
            self._started = True
            return hello["address"], hello["keys"]
        except (ValueError, KeyError):
            self.close()
            reader.join(1.0)
            last = words[-1].strip() if words else "no reason was given"
            if "No module named" in last:
                last = "Dask is not installed"
            hint = "pip install 'prose_kernel[dask]'"
            raise UsageError(f"remote: no cluster could be started here: {last}", hint=hint) from None

    def close(self) -> None:
        """End the cluster; block until it has ended, for a bounded time."""
        self._closed = True
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        if not self._started:  # it does not read its standard input yet
            _kill(process)
        try:
            process.wait(_END)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.wait()
        if process.stderr is not None:
            process.stderr.close()


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill the process and its workers, unless it has ended: another process may have got its PID."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _read(stream: object, words: list[str]) -> None:
    """Read the output of the process, so that it never blocks; keep the last lines."""
    with contextlib.suppress(ValueError, OSError):
        for line in stream:  # type: ignore[attr-defined]
            if line.strip():
                words.append(line)
                del words[:-20]


def main(workers: int, places: int, resources: Mapping[str, float]) -> None:
    """Run the cluster: print its address and keys, wait for the end of standard input, end the cluster."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    import dask
    from distributed import LocalCluster as Cluster
    from distributed.security import Security

    # the servers of the dashboards cannot be switched off, but they get no pages
    dask.config.set({f"distributed.{role}.http.routes": [] for role in ("scheduler", "worker")})
    if sys.platform == "linux":  # on other systems, system libraries may not survive a fork
        _fork_workers()
    security = Security.temporary()
    cluster = Cluster(
        n_workers=1 if resources else workers,
        threads_per_worker=places,
        processes=True,
        host="127.0.0.1",
        protocol="tls://",
        security=security,
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address="127.0.0.1:0",
        memory_limit=0,
        silence_logs=logging.CRITICAL,
        **({"resources": dict(resources)} if resources else {}),
    )
    if resources:  # only one worker has the resources, because they exist once
        others = cluster.new_spec
        cluster.new_spec = {**others, "options": {**others["options"], "resources": {}}}
        cluster.scale(workers)
        cluster.wait_for_workers(workers)
    keys = {name: getattr(security, name) for name in _KEYS}
    print(json.dumps({"address": cluster.scheduler_address, "keys": keys}), flush=True)
    sys.stdin.read()
    ending = threading.Timer(_END / 2, _end)
    ending.daemon = True
    ending.start()
    with contextlib.suppress(Exception):
        cluster.close(timeout=_END / 4)
    _end()


def _fork_workers() -> None:
    """Make Dask fork workers from a process that has loaded their modules. Dask's own choice includes numpy, pandas."""
    import dask
    from distributed import utils

    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    utils._forkserver_preload_set = True
    loaded = ["distributed", "prose_kernel.remote.worker_actor"]
    multiprocessing.get_context("forkserver").set_forkserver_preload(loaded)


def _end() -> None:
    """Kill this process and its workers, because a stopped worker does not react to its end. Commands have their own
    groups; the watchdog of a worker ends them."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
