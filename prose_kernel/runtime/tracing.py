"""Reports requests to models and calls of tools to a watcher of the run (docs/how-to/watching.md).

The rooms that ask models and call tools report the beginning and end of each operation. The watcher is in a context
variable of the running task, like the open request: ports don't pass it as an argument, and an unwatched operation
costs one look at a variable.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol

from prose_kernel.runtime.ports import Usage

Outcome = Literal["ok", "error", "cancelled"]


class Operation(Protocol):
    """An operation that has begun. `traceparent` identifies it to other processes, in the format of W3C trace
    context."""

    @property
    def traceparent(self) -> str: ...

    def asked(self, *, outcome: Outcome, error: str = "", model: str = "", usage: Usage | None = None) -> None:
        """Report the end of a request to a model; `model` is the one that answered."""

    def called(self, *, outcome: str, arguments: str = "", answer: str = "") -> None:
        """Report the end of a call of a tool: `ok`, `refused`, `failed`, or `cancelled`."""


class Watch(Protocol):
    """A watcher of operations. `at` is the path of the session or judgement that an operation belongs to."""

    def request(self, at: str, provider: str, model: str) -> Operation | None: ...

    def tool(self, at: str, name: str) -> Operation | None: ...


_watch: ContextVar[Watch | None] = ContextVar("prose_kernel_watch", default=None)
_at: ContextVar[str] = ContextVar("prose_kernel_watched_at", default="")
_tool: ContextVar[Operation | None] = ContextVar("prose_kernel_watched_tool", default=None)


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Report the operations inside the block, in this task and those it starts, to `watch`."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def belongs_to(at: str) -> None:
    """Assign all later operations of this task, and those it starts, to the request with this path."""
    _at.set(at)


def request(provider: str, model: str) -> Operation | None:
    """Report the beginning of a request to a model."""
    watch = _watch.get()
    return watch.request(_at.get(), provider, model) if watch is not None else None


@contextmanager
def tool(name: str) -> Iterator[Operation | None]:
    """Report the beginning of a call of a tool, which is made inside the block."""
    watch = _watch.get()
    found = watch.tool(_at.get(), name) if watch is not None else None
    token = _tool.set(found)
    try:
        yield found
    except BaseException:
        if found is not None:
            found.called(outcome="cancelled")
        raise
    finally:
        _tool.reset(token)


def traceparent() -> str:
    """Return the `traceparent` of the running call of a tool; "" if nothing is watched."""
    called = _tool.get()
    return called.traceparent if called is not None else ""
