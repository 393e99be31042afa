"""Runs branches as tasks: they start in source order, are joined by a policy, and are all awaited.

A `Fork` runs the branches of one construct, a `Join` decides when the construct ends. Both work for any language, which
provides a coroutine for each branch and computes the value of the construct.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeVar, cast

from msgspec import Struct
from msgspec import field as struct_field

from prose_kernel.errors import RunError
from prose_kernel.runtime.events import BranchFinished, BranchStep, ParallelJoined, ParallelStarted
from prose_kernel.runtime.execution_context import ControlFlow, ExecutionContext, Node, RaceGate, forget_trace
from prose_kernel.runtime.numbering import PARALLEL, ForkAllocation
from prose_kernel.runtime.program_run import RECENT
from prose_kernel.runtime.scheduler import Turn
from prose_kernel.runtime.trampoline import drive
from prose_kernel.runtime.values import Value

LIVE = 256
"""The most active iterations; the others begin when one ends. Branches written as statements all begin immediately."""

X = TypeVar("X", bound=ExecutionContext)

# ---------------------------------------------------------------- joining


class JoinPolicy(Protocol):
    """When a construct ends (after all branches, the first, or any `count`), and the effect of a failure."""

    @property
    def strategy(self) -> Literal["all", "first", "any"]: ...

    @property
    def count(self) -> int | None: ...

    @property
    def on_fail(self) -> Literal["fail-fast", "continue", "ignore"]: ...


class Outcome(Struct, frozen=True):
    """The result of a branch. A branch that never began, or lost a race, is `cancelled`."""

    status: Literal["done", "failed", "cancelled"]
    value: Value = None
    error: RunError | None = None


CANCELLED = Outcome("cancelled")


class Join(Struct):
    """Collects the outcomes of branches, and decides when the remaining ones are no longer needed.

    `winners` are the branches that count for `first` and `any`, in the order in which they finished; `raised` is the
    error with which the construct fails.
    """

    policy: JoinPolicy
    total: int
    winners: list[int] = struct_field(default_factory=list)
    raised: RunError | None = None
    decided: bool = False
    _settled: int = 0

    @property
    def _needed(self) -> int:
        return (self.policy.count or 1) if self.policy.strategy == "any" else 1

    def settle(self, index: int, outcome: Outcome) -> None:
        """Count a finished branch, and set `decided` if the others have to be cancelled."""
        self._settled += 1
        fail_fast, error = self.policy.on_fail == "fail-fast", outcome.error
        if error is not None and (error.ends_siblings or (fail_fast and self._cannot_succeed())):
            self.raised, self.decided = error, True
        elif self.policy.strategy != "all" and (error is None or self.policy.on_fail == "ignore"):
            self.winners.append(index)
            self.decided = len(self.winners) >= self._needed

    def _cannot_succeed(self) -> bool:
        """Return whether this failure ends the construct: too few branches of an `any` are left, or it needs all."""
        return self.policy.strategy != "any" or len(self.winners) + self.total - self._settled < self._needed


# ---------------------------------------------------------------- forking


class Race(Struct, frozen=True):
    """A construct that does not wait for all its branches: its path, with a star for the branch, and its text."""

    at: str
    text: str


@dataclass(eq=False, repr=False)
class Fork(Generic[X]):
    """One `parallel` construct while it runs.

    `begin` makes the context and the coroutine of a branch, `label` its name for the events. After `run`, `outcomes`
    has one outcome for each branch; `left` is the signal of a branch that left the construct (`return`, `break`). With
    `live` at most that many branches are active at the same time, and their contexts are dropped when they end.

    A recorded `race` ends as recorded: all branches begin, but only one at a time may make requests, in the recorded
    order of their ends, until the join is decided.
    """

    s: X
    number: int
    join: Join
    begin: Callable[[int], tuple[X, Coroutine[Any, Any, Value]]]
    label: Callable[[int], str | None]
    live: int | None
    race: Race | None = None
    left: ControlFlow | None = None
    contexts: dict[int, X] = field(default_factory=dict)
    _ended_in_order: dict[int, None] = field(default_factory=dict)
    _awaited: deque[int] = field(default_factory=deque)
    _gates: dict[int, RaceGate] = field(default_factory=dict)
    _at_gate: set[int] = field(default_factory=set)
    _tasks: dict[int, asyncio.Task[Value]] = field(default_factory=dict)
    _just_ended: list[int] = field(default_factory=list)
    _notes: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _crash: BaseException | None = None
    _dropped: tuple[str, ...] = ()  # the paths of failed requests whose errors came after the join's decision
    _living: int = 0
    _unwanted: bool = False  # branches that have not begun are skipped
    _task: asyncio.Task[Any] | None = None

    def __post_init__(self) -> None:
        self.outcomes = [CANCELLED] * self.join.total
        self._queue = deque(range(self.join.total))

    async def run(self) -> None:
        """Run the branches until the join is decided, then cancel the remaining ones and wait for them.

        If the construct itself is cancelled, its branches are cancelled first, and awaited.
        """
        self._expect_order()
        try:
            await self._run()
        finally:
            self._continue()
        races, journal = self.s.host.ports.races, self.s.host.journal
        is_recorded = journal is not None and journal.has_more  # the end of the race is recorded
        if self.race is not None and races is not None and self.left is None and not is_recorded:
            await races.ended(self.race.at, self.race.text, tuple(self._ended_in_order))

    async def _run(self) -> None:
        try:
            while not self._over():
                self._start_more()
                if not self._tasks:
                    break
                if not self._just_ended:
                    await self._next_end()
                self._settle()
            await self._end_all(siblings=True)
        except asyncio.CancelledError:
            await self._end_all(siblings=self.s.cancellation.stopped)
            raised = self.join.raised.failures if self.join.raised is not None else ()
            self.s.cancellation.replaced += raised + self._unhandled()
            raise
        if self._crash is not None:
            raise self._crash
        if self.join.raised is not None:
            self.join.raised.replaced += self._unhandled()

    def _unhandled(self) -> tuple[str, ...]:
        """Return the paths of failed requests whose errors no branch has handled, except the error that is raised."""
        return sum((one.cancellation.replaced for one in self.contexts.values()), self._dropped)

    def _over(self) -> bool:
        return self.join.decided or self.left is not None or self._crash is not None

    # ------------------------------------------------------------ starting

    def _start_more(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue and (self.live is None or len(self._tasks) < self.live):
            index = self._queue.popleft()
            turn = self.s.host.scheduler.new_turn()
            self._living += 1
            self._tasks[index] = loop.create_task(self._branch(index, turn))

    async def _branch(self, index: int, turn: Turn) -> Value:
        try:
            await turn.wait()
            if self._unwanted:
                raise asyncio.CancelledError
            context, coroutine = self.begin(index)
            self.contexts[index] = context
            if index in self._gates:
                context.race_gate = self._gates[index]
            return await drive(coroutine)
        finally:
            self._ended(index)

    # ------------------------------------------------------------ a recorded race

    def _expect_order(self) -> None:
        recorded, total = self._recorded_order(), self.join.total
        if not recorded or len(set(recorded)) != len(recorded) or not set(recorded) <= set(range(total)):
            return
        self._awaited = deque(recorded)
        outer, turns = self.s.race_gate, self.s.host.scheduler
        self._gates = {index: RaceGate(outer, turns, partial(self._arrived, index)) for index in range(total)}
        if self.live is not None and total > self.live:  # start the recorded branches first: the race waits for them
            self._queue = deque([*recorded, *(index for index in range(total) if index not in set(recorded))])

    def _recorded_order(self) -> tuple[int, ...] | None:
        """Return the order in which the branches ended in the recording of this race; None if there is none. A resumed
        run gets it from its journal, because the current provider may have other recordings, or none."""
        races, race, journal = self.s.host.ports.races, self.race, self.s.host.journal
        if race is None:
            return None
        key, kind = f"{race.at}/order", cast("type[tuple[int, ...] | None]", tuple[int, ...] | None)
        known = journal is not None and journal.noted(key) is not None
        if not known and (races is None or (journal is not None and journal.has_more)):
            return None

        def look() -> tuple[int, ...] | None:
            return races.recorded(race.at, race.text) if races is not None else None

        recorded = self.s.note(key, kind, look)
        if known and recorded is not None:
            look()  # count the recording as used
        return recorded

    def _arrived(self, index: int) -> None:
        self._at_gate.add(index)
        self._release_next()

    def _release_next(self) -> None:
        """When all active branches wait before their first request, release the next one of the recorded order. At the
        end of the order, release all."""
        if not self._gates or self._over():
            return
        while self._awaited and self._awaited[0] in self._ended_in_order:
            self._awaited.popleft()
        if self._awaited and all(index in self._at_gate or task.done() for index, task in self._tasks.items()):
            self._gates[self._awaited[0]].release()
        elif not self._awaited:
            for hold in self._gates.values():
                hold.release()
            self._gates = {}

    # ------------------------------------------------------------ ending

    def _ended(self, index: int) -> None:
        """Wake the joining context, which continues when the branch's task has ended. The last action of a branch."""
        self._just_ended.append(index)
        self._living -= 1
        turns = self.s.host.scheduler
        turns.wake(self._task)
        turns.end_turn()

    async def _next_end(self) -> None:
        self._task = asyncio.current_task()
        await self.s.host.scheduler.park()

    def _settle(self) -> None:
        """Report the ended branches to the join, in source order. Branches after its decision have lost."""
        fresh, self._just_ended = sorted(self._just_ended), []
        for index in fresh:
            outcome = self._outcome(self._tasks.pop(index))
            if outcome is None:
                continue
            if outcome is CANCELLED and not self._over():
                self._crash = asyncio.CancelledError()  # cancelling a single branch from outside cancels the run
                continue
            if self._over() and (outcome.status == "failed" or self.join.policy.strategy != "all"):
                self._dropped += outcome.error.failures if outcome.error is not None else ()
                outcome = CANCELLED
            elif not self._over():
                self.join.settle(index, outcome)
                self._ended_in_order[index] = None
            self.outcomes[index] = outcome
            if outcome is not CANCELLED:
                self._report(index)
            self._drop_context(index)
        self._release_next()

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
        """Cancel all active branches and wait until they have ended, even if this is cancelled again meanwhile."""
        cancelled: asyncio.CancelledError | None = None
        self._cancel(siblings)
        while self._living:
            try:
                await self._next_end()
            except asyncio.CancelledError as error:
                cancelled = error
                self._cancel(siblings)
        for task in self._tasks.values():
            problem = None if task.cancelled() else task.exception()
            if isinstance(problem, RunError):
                self._dropped += problem.failures
            elif problem is not None and not isinstance(problem, ControlFlow):
                self._crash = self._crash or problem
        tasks, self._tasks = self._tasks, {}
        if cancelled is not None:
            raise cancelled
        for index in sorted(tasks):
            self._report(index)

    def _cancel(self, siblings: bool) -> None:
        self._unwanted = True  # branches that have not begun end as soon as they get their turn
        for index, task in self._tasks.items():
            if siblings and index in self.contexts:
                self.contexts[index].cancellation.stopped = True
            if index in self.contexts and not task.done():
                self.s.host.scheduler.cancel(task)

    def _report(self, index: int) -> None:
        s, outcome = self.s, self.outcomes[index]
        if not s.host.listeners or index not in self.contexts:
            return
        place = self.contexts[index].place(self.contexts[index].statement)
        command = s.host.failed_commands.pop(place.branches, None)
        label, value = self.label(index), outcome.value
        s.emit(BranchFinished(place, self.number, index, label, outcome.status, value, outcome.error, command))

    # ------------------------------------------------------------ continuing

    def _drop_context(self, index: int) -> None:
        """Drop the context of an ended iteration, and keep what the join needs."""
        if self.live is None or index not in self.contexts:
            return
        self._keep_results(index, self.contexts.pop(index))
        if len(self._notes) > 2 * RECENT:
            self._notes = {index: self._notes[index] for index in sorted(self._notes)[-RECENT:]}

    def _keep_results(self, index: int, context: X) -> None:
        self.s.numbers.ended(context.numbers)
        if context.recent.own:
            self._notes[index] = context.recent.own

    def _continue(self) -> None:
        """Let the outer context continue after the numbers and steps of all branches, in source order."""
        for index, context in self.contexts.items():
            self._keep_results(index, context)
        self.s.numbers.joined()
        for index in sorted(self._notes):
            for step in self._notes[index]:
                self.s.recent.note(step)


def race_of(s: ExecutionContext, policy: JoinPolicy, branch: str, repeat: int, text: str) -> Race | None:
    """Return the identity of a construct for recorded races; None if it waits for all branches."""
    if policy.strategy == "all":
        return None
    again = f"~{repeat}" if repeat else ""
    return Race(f"{s.path}/{branch}{again}", text)


async def iterate(
    s: X,
    node: Node,
    items: Sequence[Value],
    policy: JoinPolicy,
    one: Callable[[X, int], Coroutine[Any, Any, Value]],
    text: str,
) -> Fork[X]:
    """Run one branch for each item, and return the finished fork. The branches do not change the outer directory."""
    number, repeat, total = s.numbers.next(PARALLEL), s.count("parallel"), len(items)
    join, split = Join(policy, total), ForkAllocation(total)
    s.emit(ParallelStarted(s.place(node), number, (), total, True, policy.strategy, items))

    def begin(index: int) -> tuple[X, Coroutine[Any, Any, Value]]:
        context = s.branch(BranchStep(number, index, f"i{index}"), index, repeat, split)
        return context, one(context, index)

    race = race_of(s, policy, "i*", repeat, text)
    fork = Fork(s, number, join, begin, lambda _: None, max(LIVE, s.host.concurrency or 0), race)
    await fork.run()
    s.emit(ParallelJoined(s.place(node), number))
    return fork
