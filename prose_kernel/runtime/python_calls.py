"""Functions that Python code supplies, called from a run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

Given = TypeVar("Given")
Answer = TypeVar("Answer")


async def call(function: Callable[[Given], Answer | Awaitable[Answer]], argument: Given) -> Answer:
    """Return what a function or coroutine function returns; a plain function runs in a thread.

    The thread keeps the loop free. It cannot be ended from outside: after a cancellation its result is dropped.
    """
    of_class = getattr(type(function), "__call__", None)  # noqa: B004 - that of an object which is called like a function
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(of_class):
        answer = function(argument)
    else:
        answer = await asyncio.to_thread(function, argument)
    return await answer if inspect.isawaitable(answer) else answer


def failure(what: str, error: Exception) -> str:
    """One line for people: the error that such a function has raised."""
    text = " ".join(str(error).split())
    return f"{what} raised {type(error).__name__}" + (f": {text}" if text else "")
