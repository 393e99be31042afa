"""Calls functions that Python code supplies to a run."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

Given = TypeVar("Given")
Answer = TypeVar("Answer")
T = TypeVar("T")
_AT_ONCE: Final = 32
_STOPPING: Final = (SystemExit, KeyboardInterrupt, StopIteration)
_places: Final = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()


class FunctionStopped(Exception):
    """A function has raised an exception that must not propagate, such as `SystemExit`. It is the `__cause__`."""


async def call(function: Callable[[Given], Answer | Awaitable[Answer]], argument: Given) -> Answer:
    """Return the result of a function or coroutine function. A plain function runs in a thread, with at most 31 others.

    The thread keeps the event loop free. It cannot be stopped: after a cancellation its result is dropped.

    Raises `FunctionStopped` instead of exceptions that would end the loop, or that a future cannot hold.
    """
    of_class = getattr(type(function), "__call__", None)  # noqa: B004 - for an object with `async __call__`
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(of_class):
        answer = function(argument)
    else:
        work = partial(contextvars.copy_context().run, _contained, function, argument)
        async with _places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE)):
            answer = await in_daemon_thread(work, "prose function")
    try:
        return await answer if inspect.isawaitable(answer) else answer
    except _STOPPING as error:
        raise FunctionStopped from error


def _contained(function: Callable[[Given], Answer], argument: Given) -> Answer:
    try:
        return function(argument)
    except (*_STOPPING, GeneratorExit) as error:
        raise FunctionStopped from error


def failure(what: str, error: BaseException) -> str:
    """Return one line for people that describes the error of such a function."""
    if isinstance(error, FunctionStopped) and error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    return f"{what} raised {type(error).__name__}" + (f": {text}" if text else "")


async def in_daemon_thread(work: Callable[[], T], name: str) -> T:
    """Return the result of `work`, which runs in its own thread. If the caller is cancelled, the thread continues.
    Unlike a thread of `asyncio.to_thread`, it delays neither other work nor the end of the process."""
    return await asyncio.wrap_future(start_thread(work, name))


def start_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Run `work` in a daemon thread. Its result may be an exception of any kind, also `SystemExit`."""
    result = Future[T]()
    result.set_running_or_notify_cancel()  # from now on, a cancellation only ends the wait for the result

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as problem:
            result.set_exception(problem)

    threading.Thread(target=run, daemon=True, name=name).start()
    return result
