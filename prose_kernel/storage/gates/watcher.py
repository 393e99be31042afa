"""Notify a waiting run of decisions from outside: by polling each second, or by the database (7.8)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from prose_kernel.runtime.ports import Clock
from prose_kernel.storage.gates.records import Listening

POLL_SECONDS: Final = 1.0


class Watcher:
    """Pauses between two looks at a record: a second, or until the database tells that something has changed.

    It listens from the first pause on until `rest`. `changes` counts what it was told, so that nothing is missed
    between a look and the pause after it.
    """

    def __init__(self, listen: Callable[[], Listening | None]) -> None:
        self.changes = 0
        self._listen = listen
        self._listening: Listening | None = None
        self._change = asyncio.Event()
        self._asked = False

    async def pause(self, clock: Clock, seen: int) -> None:
        if not self._asked:
            self._asked = True
            calling = asyncio.ensure_future(asyncio.to_thread(self._listen))
            try:
                self._listening = await asyncio.shield(calling)
            except asyncio.CancelledError:
                await asyncio.wait([calling])
                if (unused := calling.result()) is not None:
                    unused.close()
                raise
            if self._listening is not None:
                asyncio.get_running_loop().add_reader(self._listening.fileno(), self._drain)
                return  # what changed before counts too
        if self.changes != seen:
            return
        tasks = [asyncio.ensure_future(clock.sleep(POLL_SECONDS)), asyncio.ensure_future(self._change.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def _drain(self) -> None:
        if self._listening is not None and not self._listening.drain():
            self.rest()
        self.changes += 1
        self._change.set()
        self._change = asyncio.Event()

    def rest(self) -> None:
        self._asked = False
        if self._listening is not None:
            with contextlib.suppress(RuntimeError):  # the loop has gone
                asyncio.get_running_loop().remove_reader(self._listening.fileno())
            self._listening.close()
            self._listening = None
