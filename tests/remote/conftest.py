"""A cluster, and commands on it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forked
import pytest
from needs import needs_module
from remote.cluster import Cluster, Dask
from waiting import until

from prose_kernel.processes.process_table import carries_prefix, members
from prose_kernel.remote.commands import LinkOptions, RemoteCommands

GRACE = 0.4
"""Seconds between INT, TERM and KILL in the tests."""


@pytest.fixture(scope="session")
def dask() -> Iterator[Dask]:
    """The process that starts clusters."""
    needs_module("distributed")
    forked.load_also("remote.loaded_dask")  # otherwise each run with workers loads it: 0.9 seconds of processor time
    made = Dask()
    yield made
    made.close()


@pytest.fixture(scope="session")
def tcp(dask: Dask) -> Iterator[Cluster]:
    """A scheduler without TLS; each test or module starts the workers that it needs, and ends them."""
    with dask.cluster() as running:
        yield running


@pytest.fixture
def own(dask: Dask) -> Iterator[Cluster]:
    """A scheduler for only one test."""
    with dask.cluster() as running:
        yield running


Connect = Callable[..., RemoteCommands]
Workers = Callable[..., list[int]]


@pytest.fixture
def workers(tcp: Cluster) -> Iterator[Workers]:
    """A function that starts usual or different workers and returns their pids. They are killed at the end."""
    started: list[int] = []

    def start(count: int = 1, nthreads: int = 16, **odd: Any) -> list[int]:
        new = [tcp.worker(nthreads, **odd) for _ in range(count)]
        started.extend(new)
        return new

    yield start
    for pid in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def connect(tcp: Cluster, workers: Workers, tmp_path: Path) -> Iterator[Connect]:
    """A function that returns commands for the scheduler's workers, not connected yet. All are closed at the end."""
    opened: list[RemoteCommands] = []

    def make(url: str | None = None, **options: Any) -> RemoteCommands:
        link = LinkOptions(
            **{"grace": GRACE, **{key: options.pop(key) for key in ("lease", "direct", "grace") if key in options}}
        )
        opened.append(RemoteCommands(url or tcp.address, tmp_path.resolve(), link=link, **options))
        return opened[-1]

    yield make
    for commands in opened:
        commands.close()
        wait_until_nothing_is_left(commands.mark)


def marked(commands: RemoteCommands) -> list[int]:
    """The live processes that belong to the commands of one run, on all workers."""
    return [member.pid for member in members() if carries_prefix(member.pid, commands.mark)]


def wait_until_nothing_is_left(mark: str, seconds: float = 30.0) -> None:
    until(
        lambda: not [m.pid for m in members() if carries_prefix(m.pid, mark)], seconds, "no process of the run is left"
    )
