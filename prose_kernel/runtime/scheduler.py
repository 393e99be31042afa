"""The cooperative scheduler's two rules (docs/reference/openprose.md 3.7).

Control changes only while a branch waits: one branch has the turn, the other ready branches queue for it. Answers reach
the program one at a time, in the order of their arrival, each when all branches wait. So a run is a function of its
texts and of the sequence of answers that it got, which is what a journal writes down (`runtime/journal.py`). Nothing
else decides who runs: the queue is filled by what the program does, never by when the event loop comes to a task.

An example: `parallel:` has two branches. Both commands end within the same millisecond. Only the branch whose command
ended first continues, until it waits or ends, followed by the code that its end starts (the construct around it, the
next statement); only then the other branch learns that its command has ended.

A branch that computes for long still lets the event loop serve the front end; it keeps its turn meanwhile. One branch
computes `n = n + 1` a million times, after five milliseconds it breathes, and an interrupt or a message of the front
end is served.
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


class Turn:
    """A place in the queue of those that want to run. It stays there when who waits for it is cancelled."""

    __slots__ = ("_cancels", "_future", "given", "task")

    def __init__(self) -> None:
        self.given = False
        self.task = asyncio.current_task()
        self._cancels = _cancels(self.task)
        self._future: asyncio.Future[None] | None = None  # a turn that is given before it is waited for needs none

    def give(self) -> None:
        self.given = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, cancelled: Callable[[], None] | None = None) -> None:
        """Wait until it is given. A cancellation is delivered afterwards; `cancelled` is called immediately."""
        delayed: asyncio.CancelledError | None = None
        if self.given and _cancels(asyncio.current_task()) != self._cancels:
            await asyncio.sleep(0)  # cancelled by what its own waiting has set going
        while not self.given:
            self._future = asyncio.get_running_loop().create_future()
            try:
                await self._future
            except asyncio.CancelledError as error:
                delayed = error
                if cancelled is not None and not self.given:
                    cancelled()
        if delayed is not None:
            raise delayed


def _cancels(task: asyncio.Task[Any] | None) -> int:
    return task.cancelling() if task is not None else 0


class Scheduler:
    """Gives the turn to one branch at a time. `looks` counts how often the program has checked whether to yield to the
    event loop, which identifies the exact position of a computing program.

    `idle` is called when all branches wait and no answer has come in: the next answer of a journal may be given.
    `interrupted` is called, once, as soon as all branches wait: before any answer that has come in reaches the program.
    """

    def __init__(self) -> None:
        self.looks = 0
        self.stop_at = 0
        self.idle: Callable[[], None] | None = None
        self.interrupted: Callable[[], None] | None = None
        self.active = False
        """Whether a text runs."""
        self.completed = False
        """Whether the text has run to its end, and not failed or been interrupted before."""
        self.is_running = False
        """Whether a branch has the turn."""
        self.cancelling: Callable[[asyncio.Task[Any]], None] | None = None
        """Called with each task that a branch cancels, before the task is cancelled."""
        self._first: deque[Turn] = deque()
        self._ready: deque[Turn] = deque()
        self._arrived: deque[Turn] = deque()
        self._parked: dict[asyncio.Task[Any], Turn] = {}
        self._urgent = False
        self._since: float | None = None
        self._due = 0.0

    # ------------------------------------------------------------ texts

    def text_begins(self) -> None:
        """A file or a cell begins to run: its root has the turn."""
        self.active = self.is_running = True

    def text_ends(self) -> None:
        """It has run to its end. An interrupt that comes now, comes too late."""
        self.active, self.interrupted, self._urgent = False, None, False
        self.ends()

    # ------------------------------------------------------------ computing for long

    def due(self) -> bool:
        """Whether the running branch has computed for a slice of time."""
        looks = self.looks = self.looks + 1
        return looks == self.stop_at or (looks % _EVERY == 0 and time.monotonic() >= self._due)

    async def breathe(self) -> None:
        """Let the event loop run, and no other branch: but who was cancelled from outside goes first."""
        if self._since is None:
            self._since = time.thread_time()
        await asyncio.sleep(0)
        if self._urgent and (self._first or self._ready):
            turn = self.begins()
            self.ends()
            await turn.wait()
        self._due = time.monotonic() + SLICE

    def takes_too_long(self) -> bool:
        """Whether the branch that is about to breathe has to let those go first that wait for their turn."""
        if self._since is None or not (self._ready or self._arrived):
            return False
        return time.thread_time() - self._since >= PATIENCE

    # ------------------------------------------------------------ the turn

    def begins(self) -> Turn:
        """A branch will run, when it gets this turn."""
        turn = Turn()
        self.resume(turn)
        return turn

    def resume(self, turn: Turn) -> None:
        """Give `turn` to its waiting task after all tasks that are ready now."""
        self._ready.append(turn)
        self._pass_on()

    def ends(self) -> None:
        """The branch that has the turn has ended, or waits."""
        self.is_running, self._since = False, None
        self._pass_on()

    def keeps_turn(self) -> bool:
        """End the turn and begin it again, if no branch waits for it; returns whether that is so."""
        if self.interrupted is not None or self._first or self._ready or self._arrived:
            return False
        self._since = None
        return True

    async def regain(self) -> None:
        """Continue after a wait for the outside, in this task's turn. A cancellation is delivered afterwards."""
        turn = Turn()
        self._arrived.append(turn)
        self._pass_on()
        if not turn.given:
            await turn.wait()

    def _pass_on(self) -> None:
        if self.is_running:
            return
        if self.interrupted is not None and not (self._first or self._ready):
            interrupted, self.interrupted = self.interrupted, None
            interrupted()
            self._pass_on()
            return
        queue = self._first or self._ready or self._arrived
        if queue:
            self.is_running = True
            queue.popleft().give()
        elif self.idle is not None:
            self.idle()

    # ------------------------------------------------------------ waiting for other branches

    async def park(self) -> None:
        """Wait for something that another branch does, which calls `wakes`. A cancellation wakes as well, before all
        others if it comes from outside of the program."""
        task = asyncio.current_task()
        assert task is not None
        turn = self._parked[task] = Turn()
        self.ends()
        await turn.wait(lambda: self._cancelled(task))

    def _cancelled(self, task: asyncio.Task[Any]) -> None:
        if task in self._parked:
            self._urgent, self.stop_at = True, self.looks + 1
            self._wake_first(task)

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task of the program, because of what a branch does now. If it is parked, it and all that it cancels
        go before others: what will be cancelled asks nothing any more."""
        if self.cancelling is not None:
            self.cancelling(task)
        self._wake_first(task)
        task.cancel()

    def _wake_first(self, task: asyncio.Task[Any]) -> None:
        turn = self._parked.pop(task, None)
        if turn is not None:
            self._first.append(turn)
            self._pass_on()

    def wakes(self, task: asyncio.Task[Any] | None) -> None:
        """A parked task will continue because of an action of a branch. Does nothing for a running task."""
        turn = self._parked.pop(task, None) if task is not None else None
        if turn is not None:
            self.resume(turn)


class Suspension:
    """Awaits something and calls `leaves` if that has to wait; `happened` is whether it had to."""

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
