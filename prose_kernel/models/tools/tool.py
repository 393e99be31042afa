"""The interface of a tool: a name, a JSON schema, and a function that checks before it acts.

A provider gets `SessionTools` for each attempt. The model gets a refused or failed call as an error, and
the session continues.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from prose_kernel.access.safe_files import ToolFailed, ToolRefused

__all__ = ["Tool", "ToolAnswer", "ToolFailed", "ToolRefused", "ToolSpec"]

Outcome = Literal["ok", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """The description of a tool for a model. `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The answer to a call for the model, and its outcome."""

    text: str
    outcome: Outcome = "ok"


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def call(self, arguments: Mapping[str, object]) -> str:
        """Run the tool. Raises `ToolRefused`, `ToolFailed`; cancelling the call ends everything it started."""


# ---------------------------------------------------------------- work in a thread

T = TypeVar("T")


class Stopped(ToolFailed):
    """The call was cancelled while its thread was running; never shown."""


class Stop:
    """A cancellation flag that long work in a thread checks now and then."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raise `Stopped` if the call was cancelled."""
        if self._event.is_set():
            raise Stopped("stopped")


async def in_thread(work: Callable[[Stop], T]) -> T:
    """Return the result of `work`, run in a thread. On cancellation the thread is stopped and awaited first."""
    stop = Stop()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await _ended(running)
        raise


async def _ended(running: asyncio.Future[T]) -> None:
    """Wait for the thread, even if cancelled again: it may be writing."""
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError:
            continue
    if not running.cancelled():
        running.exception()  # retrieved, so that asyncio does not log it
