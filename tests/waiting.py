"""Waiting, with a deadline, for what other processes, threads and loops do. Tests wait here and nowhere else.

A wait ends with the event; only a test that fails waits for its deadline, so all of them bear a busy machine. What must
*not* happen is never waited for: a test names the event after which it could not happen any more, and waits for that.
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
"""Seconds. Nothing that works needs them; a machine that is busy with other tests may need many."""
_STEP = 0.005
_SHARE, _LONGEST = 4, 0.1
"""A look that is long, as one at all processes is, is followed by a pause this many times as long: others compute meanwhile."""

T = TypeVar("T")


def until(look: Callable[[], T], seconds: float = PATIENCE, what: object = "") -> T:
    """The first true value of `look`, which is called again and again; blocks the thread. Fails the test without one."""
    began = time.monotonic()
    end = began + seconds
    while not (found := look()):
        now = time.monotonic()
        assert now < end, f"not in {seconds:g} seconds: {what or _source(look)}"
        time.sleep(min(max(_STEP, _SHARE * (now - began)), _LONGEST))
        began = time.monotonic()
    return found


async def eventually(look: Callable[[], T], seconds: float = PATIENCE, what: object = "") -> T:
    """As `until`, while the loop continues."""
    began = time.monotonic()
    end = began + seconds
    while not (found := look()):
        now = time.monotonic()
        assert now < end, f"not in {seconds:g} seconds: {what or _source(look)}"
        await asyncio.sleep(min(max(_STEP, _SHARE * (now - began)), _LONGEST))
        began = time.monotonic()
    return found


async def appears(path: Path, seconds: float = PATIENCE) -> None:
    """Wait until a command has made this file."""
    await eventually(path.exists, seconds, f"{path.name} is there")


def _source(look: Callable[[], object]) -> str:
    code = getattr(look, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(look)


# ---------------------------------------------------------------- processes


RUN = "TESTS_RUN"
"""An environment variable: which run of the tests, or which worker of it, started a process."""


def command_line(pid: int) -> str:
    """The words of a live process with one space between them; empty when it is gone."""
    return _read(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")


def processes(sign: str) -> list[int]:
    """Live processes whose command line holds this text, but for those that another run of the tests has started."""
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
    """Wait until no process with this sign is left; fails the test, and ends them, when one stays."""
    try:
        return until(lambda: not processes(sign), seconds, f"no process {sign!r} is left")
    finally:
        for pid in processes(sign):
            with suppress(OSError):
                os.kill(pid, 9)
