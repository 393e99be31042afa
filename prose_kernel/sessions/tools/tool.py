"""What a tool is: a name, a JSON schema, and a function that checks before it acts.

A provider gets a `Workbench` for each attempt: the tools that the session's permissions could ever allow, and one call
that runs them. A refused or failed call is an ordinary answer to the model; the session goes on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from prose_kernel.permissions.safe_files import ToolFailed, ToolRefused
from prose_kernel.runtime.ports import FileRead, FileWrite, ToolUse

__all__ = ["Tool", "ToolFailed", "ToolRefused", "ToolSpec", "Workbench"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told about a tool. `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, object]


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def call(self, arguments: Mapping[str, object]) -> str:
        """Run it. Raises `ToolRefused`, `ToolFailed`; cancelling the call ends what it started."""
        ...


class Workbench(Protocol):
    """The tools of one attempt at a session."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]: ...

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        """Run a tool and say what came of it, as text for the model; only cancellation leaves it as an exception.

        Each call is added to `trace` and told to the session's progress.
        """
        ...

    @property
    def trace(self) -> tuple[ToolUse, ...]: ...

    @property
    def reads(self) -> tuple[FileRead, ...]:
        """The workspace files that the tools read, with the digest of what was in them."""
        ...

    @property
    def writes(self) -> tuple[FileWrite, ...]:
        """The files that the tools wrote, one entry a file: its text before the first write and after the last."""
        ...


# ---------------------------------------------------------------- work in a thread

T = TypeVar("T")


class Stopped(ToolFailed):
    """The call was cancelled while its thread was at work; nobody sees this."""


class Stop:
    """Asked now and then by long work: whether it should go on."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raises `Stopped` when the call was cancelled."""
        if self._event.is_set():
            raise Stopped("stopped")


async def in_thread(work: Callable[[Stop], T]) -> T:
    """The result of `work`, run in a thread. When cancelled, the thread is told and awaited first."""
    stop = Stop()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await _ended(running)
        raise


async def _ended(running: asyncio.Future[T]) -> None:
    """Wait for the thread however often we are cancelled: it may be writing."""
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError:
            continue
    if not running.cancelled():
        running.exception()  # seen
