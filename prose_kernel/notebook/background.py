"""Work of a notebook between its cells, such as cards that follow their tasks. `Background` owns and ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Final

_GRACE: Final = 0.5
"""Seconds that work may take to show its last state when the notebook closes."""


class Background:
    """Runs coroutines until they end, at the latest until `close`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[object, object, None], context: Context) -> None:
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give the work a moment to show its last state, then cancel it."""
        if not (tasks := tuple(self._tasks)):
            return
        await asyncio.wait(tasks, timeout=_GRACE)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
