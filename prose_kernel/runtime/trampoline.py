"""A trampoline that runs deeply nested programs on a flat Python stack.

The machine is ordinary `async def` code, but where the program nests (a body in a body, a block in a block) it writes
`await call(coroutine)`. The coroutine is then run by `drive` from an explicit stack, so neither Python's recursion
limit nor the cost of resuming a long chain of awaits depends on how deep the program is.

An example: `f` awaits `call(g())`. `call` yields the coroutine `g()` to `drive`, which puts it on its stack and runs
it. A value that `g` yields itself (a wait of the event loop) goes up to the task; when `g` returns, its value is sent
into `f`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import CoroutineType, coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")


@coroutine
def _call(inner: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    return (yield inner)


@coroutine
def _drive(first: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    stack: list[Any] = [first]
    value: Any = None
    error: BaseException | None = None
    try:
        while True:
            top = stack[-1]
            try:
                yielded = top.send(value) if error is None else top.throw(error)
                error = None
            except StopIteration as stop:
                stack.pop()
                value, error = stop.value, None
                if not stack:
                    return value
            except BaseException as raised:
                stack.pop()
                error = raised
                if not stack:
                    raise
            else:
                if type(yielded) is CoroutineType:
                    stack.append(yielded)
                    value = None
                    continue
                try:
                    value = yield yielded
                except BaseException as raised:
                    error = raised
    finally:
        error = None  # breaks the reference cycle with this frame
        while stack:
            stack.pop().close()


call = cast("Callable[[Coroutine[Any, Any, T]], Awaitable[T]]", _call)
"""Run a coroutine one level deeper. Use it only inside of `drive`."""

drive = cast("Callable[[Coroutine[Any, Any, T]], Awaitable[T]]", _drive)
"""Run a coroutine, and all coroutines that it runs with `call`, in the current task. Returns its value or raises."""
