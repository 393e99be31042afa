"""Waiting in one event loop for an answer from another that always comes, however often the waiting is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def answered(answer: asyncio.Future[T], cancel: Callable[[], object]) -> T:
    """The result of `answer`, or what it raises.

    Each cancellation of the call calls `cancel`, which must bring the answer about; only then `CancelledError` is
    raised. So nothing is left behind a call that has returned.
    """
    cancelled: asyncio.CancelledError | None = None
    while not answer.done():
        try:
            await asyncio.wait((answer,))
        except asyncio.CancelledError as cancellation:
            cancelled = cancellation
            cancel()
    if cancelled is not None:
        if not answer.cancelled():
            answer.exception()  # seen
        raise cancelled
    return answer.result()
