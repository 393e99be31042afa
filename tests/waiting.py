"""Waits with deadlines for events in other processes, threads and event loops. Tests wait only through this module.

A wait ends with the event, and only failed tests wait until the deadline, so deadlines are long enough for busy machines.
Tests do not wait for something that must *not* happen: they wait for an event after which it could not happen any more.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

PATIENCE = 30.0
"""Seconds. Usually waits are much shorter; a machine that is busy with other tests may need many."""
_STEP = 0.005
_SHARE, _LONGEST = 4, 0.1
"""After a slow check, such as one of all processes, the pause is this many times as long, so that others can compute."""

T = TypeVar("T")


def until(look: Callable[[], T], seconds: float = PATIENCE, what: object = "") -> T:
    """Call `look` repeatedly, and return its first true value. Blocks the thread; fails the test after `seconds`."""
    began = time.monotonic()
    end = began + seconds
    while not (found := look()):
        now = time.monotonic()
        assert now < end, f"not in {seconds:g} seconds: {what or _source(look)}"
        time.sleep(min(max(_STEP, _SHARE * (now - began)), _LONGEST))
        began = time.monotonic()
    return found


async def eventually(look: Callable[[], T], seconds: float = PATIENCE, what: object = "") -> T:
    """Wait like `until`, without blocking the event loop."""
    began = time.monotonic()
    end = began + seconds
    while not (found := look()):
        now = time.monotonic()
        assert now < end, f"not in {seconds:g} seconds: {what or _source(look)}"
        await asyncio.sleep(min(max(_STEP, _SHARE * (now - began)), _LONGEST))
        began = time.monotonic()
    return found


async def appears(path: Path, seconds: float = PATIENCE) -> None:
    """Wait until a command has created a file."""
    await eventually(path.exists, seconds, f"{path.name} is there")


def _source(look: Callable[[], object]) -> str:
    code = getattr(look, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(look)


# ---------------------------------------------------------------- processes


RUN = "TESTS_RUN"
"""An environment variable with the run of the tests, or the worker, that started a process."""


def command_line(pid: int) -> str:
    """Return the command line of a process, with spaces between its words; empty if the process has ended."""
    return _read(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")


def processes(sign: str) -> list[int]:
    """Return the live processes whose command line has a text, except those of another run of the tests."""
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in found if pid != os.getpid() and sign in command_line(pid) and not _of_others(pid)]


def _of_others(pid: int) -> bool:
    runs = [entry for entry in _read(pid, "environ").split(b"\0") if entry.startswith(f"{RUN}=".encode())]
    return runs not in ([], [f"{RUN}={os.environ[RUN]}".encode()])


def _read(pid: int, name: str) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


def gone(sign: str, seconds: float = PATIENCE) -> bool:
    """Wait until no process with a text in its command line is left. Kills the processes and fails the test if one stays."""
    try:
        return until(lambda: not processes(sign), seconds, f"no process {sign!r} is left")
    finally:
        for pid in processes(sign):
            with suppress(OSError):
                os.kill(pid, 9)
