"""The cooperative scheduler's two rules (openprose.md 3.7).

Control changes only while a branch waits. And what branches have waited for reaches the program one at a time, in the
order in which it came, each when all branches stand still: so a run is a function of its texts and of the sequence of
answers that it got, which is what a journal writes down (`runtime/journal.py`).

An example: `parallel:` has two branches. Both commands end within the same millisecond. The branch whose command ended
first goes on, alone, until it waits or ends, and so does whatever its end sets going (the construct around it, the next
statement); only then the other branch learns that its command has ended.

A branch that computes for long still lets the event loop serve the front end; it must then not let its siblings run.
It keeps its turn meanwhile: one branch computes `n = n + 1` a million times, after five milliseconds it breathes, and
an interrupt or a message of the front end is served.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final

SLICE = 0.005
"""Seconds of uninterrupted computing before the event loop gets its chance."""

PATIENCE = 1.0
"""Seconds that a branch may compute while others wait for their turn, before it has to queue like them."""

_EVERY: Final = 8
"""The clock is looked at for every so many statements or passes."""


class Scheduler:
    """`running` counts the tasks of the program that go on without anything from outside; `looks` how often the program
    has asked whether it is time to breathe, which tells exactly where a computing program stands.

    `idle` is called when all tasks wait and no answer has come in: the next answer of a journal may be given.
    """

    def __init__(self) -> None:
        self.looks = 0
        self.stop_at = 0
        self.idle: Callable[[], None] | None = None
        self._computing: object | None = None
        self._since = 0.0
        self._running = 0
        self._parked: set[asyncio.Task[Any]] = set()
        self._arrived: deque[asyncio.Future[None]] = deque()
        self._holder: object | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._due = 0.0

    # ------------------------------------------------------------ computing for long

    def due(self) -> bool:
        """Whether the running branch has computed for a slice of time."""
        looks = self.looks = self.looks + 1
        return looks == self.stop_at or (looks % _EVERY == 0 and time.monotonic() >= self._due)

    async def breathe(self, context: object) -> None:
        """Let the event loop run, and no other branch."""
        if self._computing is not context:
            self._computing, self._since = context, time.thread_time()
        self._holder = context
        await asyncio.sleep(0)
        self._due = time.monotonic() + SLICE

    def takes_too_long(self, context: object) -> bool:
        """Whether this branch, which is about to breathe, has to let those go first that wait for their turn."""
        if self._computing is not context or not (self._waiting or self._arrived):
            return False
        return time.thread_time() - self._since >= PATIENCE

    def keep_turn(self, context: object) -> None:
        """The branch is about to wait for something that is none of the program's business: no other one runs."""
        self._holder = context

    def release(self, context: object) -> None:
        """The branch gives up its turn: whoever queues for it may go on."""
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

    async def turn(self) -> None:
        """Go on as soon as no other branch keeps its turn. A cancellation is delivered afterwards."""
        cancelled: asyncio.CancelledError | None = None
        while self._holder is not None:
            try:
                await self._turn()
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def attend(self) -> None:
        """`turn` for a join, which may have to end the very branch that keeps the turn: a cancellation is delivered at
        once."""
        while self._holder is not None:
            await self._turn()

    def _turn(self) -> asyncio.Future[None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        return turn

    # ------------------------------------------------------------ who runs

    @property
    def is_running(self) -> bool:
        """Whether a task of the program goes on without anything from outside."""
        return self._running > 0

    def begins(self) -> None:
        """A task of the program will run."""
        self._running += 1

    def ends(self) -> None:
        """A task of the program has ended, or waits for the outside."""
        self._running -= 1
        self._deliver()

    def leave(self, context: object) -> None:
        """The branch waits for the outside from now on."""
        self._computing = None
        self.release(context)
        self.ends()

    async def regain(self) -> None:
        """After a wait for the outside: go on when it is this one's turn. A cancellation is delivered afterwards."""
        if self._running <= 0 and not self._arrived:
            self._running += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrived.append(turn)
        cancelled: asyncio.CancelledError | None = None
        while not turn.done():
            try:
                await asyncio.shield(turn)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def _deliver(self) -> None:
        if self._running > 0:
            return
        if self._arrived:
            self._running += 1
            self._arrived.popleft().set_result(None)
        elif self.idle is not None:
            self.idle()

    # ------------------------------------------------------------ waiting for other branches

    async def park(self, woken: asyncio.Future[None]) -> None:
        """Wait for something that another branch does; who sets the future calls `wakes` before. A cancellation is
        delivered at once."""
        task = asyncio.current_task()
        assert task is not None
        self._parked.add(task)
        self.ends()
        try:
            await woken
        finally:
            self.wakes(task)

    def wakes(self, task: asyncio.Task[Any] | None) -> None:
        """A parked task will go on, because of what a branch does now. Does nothing for one that runs."""
        if task in self._parked:
            self._parked.remove(task)
            self._running += 1


class Suspension:
    """Awaits something and calls `leaves` if that has to wait; `happened` tells whether it had to."""

    __slots__ = ("_leaves", "_waiting", "happened")

    def __init__(self, waiting: Any, leaves: Callable[[], None]) -> None:
        self._waiting = waiting
        self._leaves = leaves
        self.happened = False

    def __await__(self) -> Generator[Any, Any, Any]:
        waiting = self._waiting.__await__()
        try:
            yielded = next(waiting)
            self.happened = True
            self._leaves()
            while True:
                try:
                    sent = yield yielded
                except BaseException as error:
                    yielded = waiting.throw(error)
                else:
                    yielded = waiting.send(sent) if sent is not None else next(waiting)
        except StopIteration as stop:
            return stop.value
