"""Calls functions that Python code supplies to a run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final, TypeVar

Given = TypeVar("Given")
Answer = TypeVar("Answer")
_STOPPING: Final = (SystemExit, KeyboardInterrupt, StopIteration)
_THREADS: Final = ThreadPoolExecutor(32, "prose function")
"""Other than the event loop's threads, which a run needs for files: a function may block its thread forever."""


class FunctionStopped(Exception):
    """A function has raised an exception that must not propagate, such as `SystemExit`. It is the `__cause__`."""


async def call(function: Callable[[Given], Answer | Awaitable[Answer]], argument: Given) -> Answer:
    """Return the result of a function or coroutine function. A plain function runs in a thread.

    The thread keeps the event loop free. It cannot be stopped: after a cancellation its result is dropped.

    Raises `FunctionStopped` instead of exceptions that would end the loop, or that a future cannot hold.
    """
    of_class = getattr(type(function), "__call__", None)  # noqa: B004 - for an object with `async __call__`
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(of_class):
        answer = function(argument)
    else:
        loop, context = asyncio.get_running_loop(), copy_context()
        answer = await loop.run_in_executor(_THREADS, lambda: context.run(_contained, function, argument))
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
