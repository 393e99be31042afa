"""The cooperative scheduler's one rule: control changes only while a branch waits (openprose.md 3.7).

A branch that computes for long still lets the event loop serve the front end; it must then not let its siblings run.
It keeps its turn meanwhile, and siblings whose wait has ended queue for theirs, in the order in which they arrive.

An example: in `parallel:` one branch waits for a command, the other one computes `n = n + 1` a million times. After
five milliseconds the computing branch breathes: an interrupt or a message of the front end is served. The command may
have ended by then; its branch queues, and goes on when the other one waits or has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque

SLICE = 0.005
"""Seconds of uninterrupted computing before the event loop gets its chance."""

PATIENCE = 1.0
"""Seconds of computing that a join lets a branch do, before it goes on without its turn."""


class Scheduler:
    def __init__(self) -> None:
        self._holder: object | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._due = 0.0

    def due(self) -> bool:
        """Whether the running branch has computed for a slice of time."""
        return time.monotonic() >= self._due

    async def breathe(self, context: object) -> None:
        """Let the event loop run, and no other branch."""
        self._holder = context
        await asyncio.sleep(0)
        self._due = time.monotonic() + SLICE

    def release(self, context: object) -> None:
        """The branch is about to wait, or has ended: whoever queues may go on."""
        if self._holder is context:
            self._holder = None
            while self._waiting:
                turn = self._waiting.popleft()
                if not turn.done():
                    turn.set_result(None)

    def hand_on(self, context: object, to: object) -> None:
        """An imported program begins or ends: if the one context kept the turn, the other one keeps it now."""
        if self._holder is context:
            self._holder = to

    async def regain(self) -> None:
        """After a wait: go on as soon as no other branch keeps its turn. A cancellation is delivered afterwards."""
        cancelled: asyncio.CancelledError | None = None
        while self._holder is not None:
            try:
                await self._turn()
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def attend(self) -> None:
        """`regain` for a join, which may have to end the very branch that keeps the turn.

        A cancellation is delivered at once, and a branch that computes without end is not waited for.
        """
        begun = time.thread_time()
        while self._holder is not None and time.thread_time() - begun < PATIENCE:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    while self._holder is not None:
                        await self._turn()

    def _turn(self) -> asyncio.Future[None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        return turn
