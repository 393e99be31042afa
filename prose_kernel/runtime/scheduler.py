"""The cooperative scheduler, with two rules (docs/reference/openprose.md 3.7).

Control changes only while a branch waits: one branch has the turn, the other ready branches queue for it. Answers reach
the program one at a time, in the order of their arrival, each when all branches are waiting. So a run is a function of
its texts and of the sequence of its answers, which a journal records (`runtime/journal.py`). Nothing else affects the
order: the queue is filled by actions of the program, never by the order in which the event loop runs tasks.

An example: `parallel:` has two branches. Both commands end within the same millisecond. Only the branch whose command
ended first continues, until it waits or ends, followed by the code that runs after its end (the construct around it,
the next statement). Only then the other branch gets the result of its command.

A branch that computes for a long time still lets the event loop serve the front end, and keeps its turn. For example, a
branch that computes `n = n + 1` a million times yields after five milliseconds, so that an interrupt or a message of
the front end is processed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final

SLICE = 0.005
"""Seconds of uninterrupted computing before the event loop may run."""

PATIENCE = 1.0
"""Seconds that a branch may compute while others wait for their turn, before it has to queue, too."""

_EVERY: Final = 8
"""The number of statements or passes between two looks at the clock."""


class Turn:
    """A place in the queue for the turn. It remains there if the waiting task is cancelled."""

    __slots__ = ("_cancels", "_future", "given", "task")

    def __init__(self) -> None:
        self.given = False
        self.task = asyncio.current_task()
        self._cancels = _cancels(self.task)
        self._future: asyncio.Future[None] | None = None  # not needed if the turn is given before `wait`

    def give(self) -> None:
        self.given = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, cancelled: Callable[[], None] | None = None) -> None:
        """Wait for the turn. A cancellation is delivered afterwards; `cancelled` is called immediately."""
        delayed: asyncio.CancelledError | None = None
        if self.given and _cancels(asyncio.current_task()) != self._cancels:
            await asyncio.sleep(0)  # the task was cancelled as a consequence of its own waiting
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

    `idle` is called when all branches wait and no answer has arrived: a journal may deliver its next answer.
    `interrupted` is called once, as soon as all branches wait and before any arrived answer reaches the program.
    """

    def __init__(self) -> None:
        self.looks = 0
        self.stop_at = 0
        self.idle: Callable[[], None] | None = None
        self.interrupted: Callable[[], None] | None = None
        self.active = False
        """Whether a text is running."""
        self.completed = False
        """Whether the text has run to its end without an error or an interrupt."""
        self.is_running = False
        """Whether a branch has the turn."""
        self.urgent = False
        """Whether the computing branch must let cancelled tasks go first when it yields to the event loop."""
        self.cancelling: Callable[[asyncio.Task[Any]], None] | None = None
        """Called with each task that a branch cancels, before the task is cancelled."""
        self._first: deque[Turn] = deque()
        self._ready: deque[Turn] = deque()
        self._arrived: deque[Turn] = deque()
        self._parked: dict[asyncio.Task[Any], Turn] = {}
        self._since: float | None = None
        self._due = 0.0

    # ------------------------------------------------------------ texts

    def text_begins(self) -> None:
        """Give the turn to the root of a file or a cell, which begins to run."""
        self.active = self.is_running = True

    def text_ends(self) -> None:
        """End the text. Later interrupts have no effect on it."""
        self.active, self.interrupted, self.urgent = False, None, False
        self.end_turn()

    # ------------------------------------------------------------ long computations

    def due(self) -> bool:
        """Return whether the running branch has computed for a slice of time."""
        looks = self.looks = self.looks + 1
        return looks == self.stop_at or (looks % _EVERY == 0 and time.monotonic() >= self._due)

    async def breathe(self) -> None:
        """Let the event loop run, but no other branch except those that were cancelled from outside."""
        if self._since is None:
            self._since = time.thread_time()
        await asyncio.sleep(0)
        if self.urgent and (self._first or self._ready):
            self.urgent = False
            turn = self.new_turn()
            self.end_turn()
            await turn.wait()
        self._due = time.monotonic() + SLICE

    def takes_too_long(self) -> bool:
        """Return whether the branch that is about to yield has computed so long that waiting branches go first."""
        if self._since is None or not (self._ready or self._arrived):
            return False
        return time.thread_time() - self._since >= PATIENCE

    # ------------------------------------------------------------ the turn

    def new_turn(self) -> Turn:
        """Queue a new branch, and return the turn that it has to wait for."""
        turn = Turn()
        self.resume(turn)
        return turn

    def resume(self, turn: Turn) -> None:
        """Queue `turn` after all tasks that are ready now."""
        self._ready.append(turn)
        self._pass_on()

    def end_turn(self) -> None:
        """Pass the turn on, because its branch has ended or waits."""
        self.is_running, self._since = False, None
        self._pass_on()

    def keeps_turn(self) -> bool:
        """Return whether no other branch wants the turn; then the branch ends its turn and begins a new one."""
        if self.interrupted is not None or self._first or self._ready or self._arrived:
            return False
        self._since = None
        return True

    async def regain(self) -> None:
        """Continue after a wait for the outside, when this task gets the turn. A cancellation is delivered
        afterwards."""
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
        """Wait until another branch calls `wake` for this task. A cancellation also wakes it, before all others if it
        comes from outside of the program."""
        task = asyncio.current_task()
        assert task is not None
        turn = self._parked[task] = Turn()
        self.end_turn()
        await turn.wait(lambda: self._cancelled(task))

    def _cancelled(self, task: asyncio.Task[Any]) -> None:
        if task in self._parked:
            self.urgent, self.stop_at = True, self.looks + 1
            self._wake_first(task)

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task because of an action of a branch. If it is parked, it and the tasks that it cancels go before
        others, so that they make no more requests."""
        if self.cancelling is not None:
            self.cancelling(task)
        self._wake_first(task)
        task.cancel()

    def _wake_first(self, task: asyncio.Task[Any]) -> None:
        turn = self._parked.pop(task, None)
        if turn is not None:
            self._first.append(turn)
            self._pass_on()

    def wake(self, task: asyncio.Task[Any] | None) -> None:
        """Let a parked task continue after an action of a branch. Does nothing for a running task."""
        turn = self._parked.pop(task, None) if task is not None else None
        if turn is not None:
            self.resume(turn)


class Suspension:
    """Awaits an awaitable. Calls `leaves` if that has to wait; `happened` is whether it had to."""

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
