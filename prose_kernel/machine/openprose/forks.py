"""Branches as tasks: started in source order, joined by a strategy, every one awaited (openprose.md 3.7)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from prose_kernel.errors import RunError
from prose_kernel.machine.openprose.control_flow import ControlFlow
from prose_kernel.machine.openprose.failures import forget_trace
from prose_kernel.machine.openprose.joins import CANCELLED, Join, Outcome
from prose_kernel.machine.openprose.runs import RECENT, ExecutionContext, RaceGate
from prose_kernel.runtime.events import BranchFinished
from prose_kernel.runtime.trampoline import drive
from prose_kernel.runtime.values import Value

LIVE = 256
"""Iterations that are alive at once; the others have not begun yet. Statement branches begin all."""

Begin = Callable[[int], tuple[ExecutionContext, Coroutine[Any, Any, Value]]]


@dataclass(frozen=True, slots=True)
class Race:
    """A construct that does not wait for all its branches: its place, with a star for the branch, and its text."""

    at: str
    text: str


class Fork:
    """One `parallel` construct while it runs.

    `begin` makes the context and the coroutine of a branch, `label` its name for the events. After `run`, `outcomes`
    holds one outcome for each branch; `left` is the signal of a branch that left the construct (`return`, `break`).
    With `live` only so many branches are alive at once, and their contexts are forgotten when they end.

    A `race` that is recorded ends as it did then: all branches begin, but only one at a time may ask the outside for
    anything, in the recorded order of their ends, until the join is decided.
    """

    def __init__(
        self,
        s: ExecutionContext,
        number: int,
        join: Join,
        begin: Begin,
        label: Callable[[int], str | None],
        live: int | None,
        race: Race | None = None,
    ) -> None:
        self.s = s
        self.number = number
        self.join = join
        self.outcomes = [CANCELLED] * join.total
        self.left: ControlFlow | None = None
        self.contexts: dict[int, ExecutionContext] = {}
        self._begin = begin
        self._label = label
        self._forgets = live is not None
        self._live = join.total if live is None else live
        self._race = race
        self._queue = deque(range(join.total))
        self._ended_in_order: dict[int, None] = {}
        self._awaited: deque[int] = deque()
        self._holds: dict[int, RaceGate] = {}
        self._at_hold: set[int] = set()
        self._tasks: dict[int, asyncio.Task[Value]] = {}
        self._fresh: list[int] = []
        self._notes: dict[int, tuple[str, ...]] = {}
        self._crash: BaseException | None = None
        self._wake: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Run the branches until the join is decided; cancel what is left over and wait for it.

        When the construct itself is cancelled its branches are cancelled first, and awaited.
        """
        self._expect_order()
        try:
            await self._run()
        finally:
            self._continue()
        races = self.s.host.ports.races
        if self._race is not None and races is not None and self.left is None:
            await races.ended(self._race.at, self._race.text, tuple(self._ended_in_order))

    async def _run(self) -> None:
        try:
            while not self._over():
                self._start_more()
                if not self._tasks:
                    break
                await self._some_end()
                self._settle()
        except asyncio.CancelledError:
            await self._end_all(siblings=self.s.cancellation.stopped)
            self._report_cancelled()
            raise
        await self._end_all(siblings=True)
        self._report_cancelled()
        if self._crash is not None:
            raise self._crash

    def _over(self) -> bool:
        return self.join.decided or self.left is not None or self._crash is not None

    # ------------------------------------------------------------ starting

    def _start_more(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue and len(self._tasks) < self._live:
            index = self._queue.popleft()
            task = loop.create_task(self._branch(index))
            self._tasks[index] = task
            task.add_done_callback(lambda _, index=index: self._ended(index))  # type: ignore[misc]

    async def _branch(self, index: int) -> Value:
        turns = self.s.host.scheduler
        await turns.regain()
        context, coroutine = self._begin(index)
        self.contexts[index] = context
        if index in self._holds:
            context.race_gate = self._holds[index]
        try:
            return await drive(coroutine)
        finally:
            turns.release(context)

    # ------------------------------------------------------------ a recorded race

    def _expect_order(self) -> None:
        races = self.s.host.ports.races
        if self._race is None or races is None:
            return
        total, recorded = self.join.total, races.recorded(self._race.at, self._race.text)
        if not recorded or len(set(recorded)) != len(recorded) or not set(recorded) <= set(range(total)):
            return
        self._awaited = deque(recorded)
        self._holds = {index: RaceGate(self.s.race_gate, partial(self._arrived, index)) for index in range(total)}
        if total > self._live:  # those that are waited for must be among the living
            self._queue = deque([*recorded, *(index for index in range(total) if index not in set(recorded))])

    def _arrived(self, index: int) -> None:
        self._at_hold.add(index)
        self._let_next_go()

    def _let_next_go(self) -> None:
        """When all that live stand before their first question, the next one of the recorded order may ask it; when the
        order is at its end, all may."""
        if not self._holds or self._over():
            return
        while self._awaited and self._awaited[0] in self._ended_in_order:
            self._awaited.popleft()
        if self._awaited and all(index in self._at_hold or task.done() for index, task in self._tasks.items()):
            self._holds[self._awaited[0]].let_go()
        elif not self._awaited:
            for hold in self._holds.values():
                hold.let_go()
            self._holds = {}

    # ------------------------------------------------------------ ending

    def _ended(self, index: int) -> None:
        self._fresh.append(index)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _some_end(self) -> None:
        turns = self.s.host.scheduler
        turns.release(self.s)
        if not self._fresh:
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None
        await turns.attend()

    def _settle(self) -> None:
        """Tell the join of the branches that have ended, in source order; those after its decision have lost."""
        fresh, self._fresh = sorted(self._fresh), []
        for index in fresh:
            outcome = self._outcome(self._tasks.pop(index))
            if outcome is None:
                continue
            if outcome is CANCELLED and not self._over():
                self._crash = asyncio.CancelledError()  # whoever cancelled a single branch meant the run
                continue
            if self._over() and (outcome.status == "failed" or self.join.modifiers.strategy != "all"):
                outcome = CANCELLED
            elif not self._over():
                self.join.settle(index, outcome)
                self._ended_in_order[index] = None
            self.outcomes[index] = outcome
            if outcome is not CANCELLED:
                self._report(index)
            self._take_leave(index)
        self._let_next_go()

    def _outcome(self, task: asyncio.Task[Value]) -> Outcome | None:
        if task.cancelled():
            return CANCELLED
        error = task.exception()
        if error is None:
            return Outcome("done", task.result())
        if isinstance(error, RunError):
            forget_trace(error)
            return Outcome("failed", error=error)
        if isinstance(error, ControlFlow):
            if error.how == "continue":
                return Outcome("done")
            self.left = self.left or error
        else:
            self._crash = self._crash or error
        return None

    async def _end_all(self, *, siblings: bool) -> None:
        """Cancel every branch that is alive and wait until all have ended, however often we are cancelled."""
        cancelled: asyncio.CancelledError | None = None
        self._cancel(siblings)
        self.s.host.scheduler.release(self.s)
        while any(not task.done() for task in self._tasks.values()):
            try:
                await asyncio.wait(list(self._tasks.values()))
            except asyncio.CancelledError as error:
                cancelled = error
                self._cancel(siblings)
        try:
            await self.s.host.scheduler.regain()
        except asyncio.CancelledError as error:
            cancelled = error
        for task in self._tasks.values():
            problem = None if task.cancelled() else task.exception()
            if problem is not None and not isinstance(problem, (RunError, ControlFlow)):
                self._crash = self._crash or problem
        if cancelled is not None:
            self._tasks.clear()
            raise cancelled

    def _cancel(self, siblings: bool) -> None:
        for index, task in self._tasks.items():
            if siblings and index in self.contexts:
                self.contexts[index].cancellation.stopped = True
            if not task.done():
                task.cancel()

    # ------------------------------------------------------------ telling

    def _report(self, index: int) -> None:
        s, outcome = self.s, self.outcomes[index]
        if not s.host.listeners or index not in self.contexts:
            return
        place = self.contexts[index].place(self.contexts[index].statement.span)
        s.emit(
            BranchFinished(place, self.number, index, self._label(index), outcome.status, outcome.value, outcome.error)
        )

    def _report_cancelled(self) -> None:
        for index in sorted(self._tasks):
            self._report(index)
        self._tasks.clear()

    # ------------------------------------------------------------ going on

    def _take_leave(self, index: int) -> None:
        """An iteration has ended: keep of it only what the join needs."""
        if not self._forgets or index not in self.contexts:
            return
        self._remember(index, self.contexts.pop(index))
        if len(self._notes) > 2 * RECENT:
            self._notes = {index: self._notes[index] for index in sorted(self._notes)[-RECENT:]}

    def _remember(self, index: int, context: ExecutionContext) -> None:
        self.s.numbers.ended(context.numbers)
        if context.recent.own:
            self._notes[index] = context.recent.own

    def _continue(self) -> None:
        """The context around the construct goes on behind the numbers and steps of all branches, in source order."""
        for index, context in self.contexts.items():
            self._remember(index, context)
        self.s.numbers.joined()
        for index in sorted(self._notes):
            for step in self._notes[index]:
                self.s.recent.note(step)
