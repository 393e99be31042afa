"""The execution context of a program in any language: one for each line of control, the root or a branch. All programs
of a machine share a host (`host.py`); each has a `Run` (`program_run.py`).

An execution context holds the control state: turns, races, cancellation, the deterministic path, numbers. Names, scopes
and caught errors belong to the language, whose context class extends this one.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, Literal, Protocol, Self, TypeVar, cast

from msgspec import Struct
from msgspec import field as struct_field

from prose_kernel.errors import BudgetSpent, RunError, StoreFailed, UsageError
from prose_kernel.language.durations_and_budgets import parse_budget
from prose_kernel.language.nodes import statement_kind
from prose_kernel.language.source import Location, Source, Span
from prose_kernel.language.structs import replace
from prose_kernel.runtime import budgets
from prose_kernel.runtime.budgets import Budget
from prose_kernel.runtime.events import BranchStep, Event, Failed, Place, Warned
from prose_kernel.runtime.host import Host
from prose_kernel.runtime.numbering import ForkAllocation, NumberSequence
from prose_kernel.runtime.ports import (
    CommandRequest,
    GateRequest,
    LoadedProgram,
    LoadRequest,
    Question,
    SessionRequest,
    Wait,
)
from prose_kernel.runtime.program_run import Recent, Run
from prose_kernel.runtime.requests import Request
from prose_kernel.runtime.scheduler import Scheduler, Suspension
from prose_kernel.runtime.statement_hook import StackFrame
from prose_kernel.runtime.values import Value

T = TypeVar("T")
E = TypeVar("E", bound=RunError)

PathStep = Literal[
    "exec", "session", "judge", "input", "gate", "load", "program", "file", "store", "run", "tool", "variable", "memory"
]
"""The kind of the last step of a path: a request, or a look-up outside that doesn't wait."""

_HEAD: Final = 200
"""The most characters of a statement's first line in an error."""


class Node(Protocol):
    """A node of some language's tree."""

    @property
    def span(self) -> Span: ...


class CancellationState(Struct):
    """Whether a branch is cancelled.

    `stopped` means that its siblings have cancelled it: it may finish, but starts nothing new. `closed_by` is the error
    that ends the run; each further request to the outside raises it again. `replaced` has the paths of failed requests
    whose errors were still to be handled when the branch was cancelled.
    """

    stopped: bool = False
    closed_by: RunError | None = None
    replaced: tuple[str, ...] = ()


class RaceGate(Struct, eq=False):
    """Blocks the requests of a branch until its turn in a recorded race.

    `arrived` is called when the branch reaches its first request.
    """

    outer: RaceGate | None
    turns: Scheduler
    arrived: Callable[[], None]
    _is_open: bool = False
    _waiting: list[asyncio.Task[Any]] = struct_field(default_factory=list)

    def release(self) -> None:
        self._is_open = True
        for task in self._waiting:
            self.turns.wake(task)

    @property
    def over(self) -> bool:
        return self._is_open and (self.outer is None or self.outer.over)

    async def wait(self) -> None:
        if self.outer is not None:
            await self.outer.wait()
        self.arrived()
        if self._is_open:
            return
        task = asyncio.current_task()
        assert task is not None
        self._waiting.append(task)
        try:
            await self.turns.park()
        finally:
            self._waiting.remove(task)


@dataclass(eq=False, repr=False)
class ControlFlow(Exception):
    """Leaves a body of a program early. It isn't an error, and no handler of the program catches it.

    `valued` is set for a `return` with a value and an anonymous `output` of OpenProse. `fields` means that the value is
    an object literal, whose keys become the outputs of a program; without `outputs` a cell produces none.
    """

    how: Literal["return", "break", "continue"]
    value: Value = None
    valued: bool = field(default=False, kw_only=True)
    fields: bool = field(default=False, kw_only=True)
    outputs: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        self._settled = self.valued

    def passed(self, value: Value) -> None:
        """Set the value of the statements before a bare `return` in the body that it leaves. The innermost body
        counts."""
        if not self._settled:
            self.value, self._settled = value, True


_SHOWN_CALLS: Final = 10
"""The number of calls shown at each end of a long stack."""
_F = TypeVar("_F")


def shortened_stack(frames: Sequence[_F], line: Callable[[_F], str]) -> tuple[str, ...]:
    """Return one line for each frame; a long recursion is shortened in the middle."""
    more = len(frames) - 2 * _SHOWN_CALLS
    if more <= 0:
        return tuple(map(line, frames))
    return (*map(line, frames[:_SHOWN_CALLS]), f"... {more} more ...", *map(line, frames[-_SHOWN_CALLS:]))


@dataclass(slots=True, eq=False, repr=False)
class ExecutionContext:
    """One line of control: the root of a run, or one branch.

    `path` is its deterministic position (`c2/3/b1/i0`: second cell, third statement, second branch, first iteration).
    Each request to the outside gets its own path below it from `at`: the same in every run of the program, and unique.

    `called_by` is the line of control that waits for this one after a call of a program or of another language.
    `crossings` counts the calls from one language into another that led here. `guarded` counts the handlers of errors
    around the running statement.
    """

    language: ClassVar[str]
    paused_program: ClassVar[str]
    """The language's module that inspects a paused program; loaded on demand."""

    run: Run
    source: Source
    cwd: str
    path: str
    host: Host = field(init=False)
    numbers: NumberSequence = field(init=False)
    recent: Recent = field(init=False)
    statement: Any = None
    branches: tuple[BranchStep, ...] = ()
    budgets: tuple[Budget, ...] = ()
    """The budgets of the calls that led here, in addition to the run's budget."""
    cancellation: CancellationState = field(default_factory=CancellationState)
    race_gate: RaceGate | None = None
    counts: dict[str, int] = field(default_factory=dict)
    crossings: int = 0
    called_by: ExecutionContext | None = None
    guarded: int = 0
    answered: tuple[str, Any] | None = None
    """The key of the last answered request, and the statement that asked it."""

    def __post_init__(self) -> None:
        self.host, self.numbers, self.recent = self.run.host, self.run.numbers, self.run.recent

    def branch(self, step: BranchStep, iteration: int | None, repeat: int, split: ForkAllocation) -> Self:
        """Return a context for one branch or iteration."""
        sign = "b" if iteration is None else "i"
        again = f"~{repeat}" if repeat else ""
        child = self._inner(iteration, f"{self.path}/{sign}{step.index}{again}")
        child.numbers = NumberSequence(self.numbers, split, step.index)
        child.recent = Recent(self.recent)
        child.statement = self.statement
        child.branches = (*self.branches, step)
        child.budgets = self.budgets
        child.cancellation = replace(self.cancellation)
        child.race_gate = self.race_gate
        child.crossings = self.crossings
        child.called_by, child.guarded = self.called_by, self.guarded
        return child

    def continue_from(self, caller: ExecutionContext) -> Self:
        """Continue the line of control of a context of another language, which waits meanwhile: with its branch, path,
        numbers and cancellation. Returns itself. Raises `UsageError` if the caller belongs to a debugger evaluation."""
        if caller.host is not self.host:
            raise UsageError("no function of another language is called while the debugger evaluates")
        self.numbers, self.recent, self.statement = caller.numbers, caller.recent, caller.statement
        self.path, self.counts, self.cwd = caller.path, caller.counts, caller.cwd
        self.crossings = caller.crossings + 1
        return self.called_from(caller)

    def called_from(self, caller: ExecutionContext) -> Self:
        """Record that `caller` waits for the end of this line of control. Returns itself."""
        self.branches, self.cancellation, self.race_gate = caller.branches, caller.cancellation, caller.race_gate
        self.called_by, self.guarded, self.budgets = caller, caller.guarded, caller.budgets
        return self

    def _inner(self, iteration: int | None, path: str) -> Self:
        """Return a context with the names that a branch sees; implemented by each language."""
        raise NotImplementedError

    # ------------------------------------------------------------ paths

    def count(self, what: str) -> int:
        """Return the next number for the counter `what` of this context, from 0."""
        number = self.counts.get(what, 0)
        self.counts[what] = number + 1
        return number

    def at(self, what: PathStep) -> str:
        """Return the path of the next request or look-up of this kind: `c2/3/b1/s0`."""
        return f"{self.path}/{_PATH_LETTERS[what]}{self.count(what)}"

    # ------------------------------------------------------------ events

    def place(self, node: Node) -> Place:
        return self._place(node, 0, None, None)

    def _place(self, node: Node, depth: int, execution_id: int | None, block: str | None) -> Place:
        run, span, kind = self.run, node.span, statement_kind(node)
        ordinal, program = run.progress.ordinal, run.program
        return Place(self.source, span, ordinal, depth, execution_id, block, self.branches, program, kind, self.path)

    def emit(self, event: Event) -> None:
        for listener in self.host.heard[type(event)]:
            listener(event)

    def warn(self, code: str, message: str, node: Node) -> None:
        self.emit(Warned(self.place(node), code, message))

    def location(self, span: Span) -> Location:
        return self.source.location(span.start)

    # ------------------------------------------------------------ errors

    def announce(self, error: RunError, node: Node) -> bool:
        """Set the statement and the stack of a new error, and notify the listeners. Does nothing the second time.
        Returns whether the error is new."""
        if "statement" in error.details or isinstance(error, StoreFailed):
            return False
        located(self, error, node)
        if not error.answer and self.answered is not None and self.answered[1] is node:
            error.answer = self.answered[0]
        line = self.source.line_column(node.span.start)[0]
        error.details.update({"statement": head(self.source, node), "line": line, **self.error_details()})
        error.call_stack = (*self.stack_lines(), *self.run.stack(f" at line {line} of {self.source.name}"))
        if self.host.listeners:
            self.emit(Failed(self.place(node), error))
        return True

    async def announce_with_hook(self, error: RunError, node: Node) -> None:
        """Announce an error in a statement that can wait, and let a hook pause the program there."""
        hook = self.host.hook
        if self.announce(error, node) and hook is not None and (held := hook.failed(self, node, error)) is not None:
            await held

    def error_details(self) -> Mapping[str, object]:
        """Return the facts about an error's place, in addition to its statement."""
        return {}

    def stack_lines(self) -> tuple[str, ...]:
        """Return one line for each call that led here, innermost first."""
        return ()

    def catches(self, error: RunError) -> bool:
        """Return whether a handler here may catch an error. A spent budget of the program or its run may be caught so
        often that the program can clean up, but not for ever."""
        if error.unanswered:
            return False
        if not isinstance(error, BudgetSpent) or error.of_one_session:
            return True
        key, caught, given = error.budget, self.host.caught_budgets, self.host.budget
        from_outside = given is not None and key == given.key != budgets.RUN  # the budget of an evaluation of many runs
        if from_outside or caught[key] >= budgets.MOST_CAUGHT:
            return False
        caught[key] += 1
        return True

    @contextmanager
    def cleaning_up(self, error: BaseException) -> Iterator[None]:
        """Enclose the code that runs before an error is raised again. An error or a cancellation that replaces it keeps
        the paths of its failed requests."""
        failures = error.failures if isinstance(error, RunError) else ()
        try:
            yield
        except RunError as other:
            if other is not error:
                other.replaced += failures
            raise
        except asyncio.CancelledError:
            self.cancellation.replaced += failures
            raise

    @contextmanager
    def within(self, *more: Budget) -> Iterator[None]:
        """Count the requests inside the block for these budgets, too."""
        outer, self.budgets = self.budgets, (*self.budgets, *more)
        try:
            with ExitStack() as times:
                for budget in more:
                    times.enter_context(budget.open())
                yield
        finally:
            self.budgets = outer

    # ------------------------------------------------------------ paused programs

    def frames(self, node: Node) -> tuple[StackFrame, ...]:
        """Return the calls that led here with the names that each sees, innermost first; `node` is the statement
        here."""
        return cast("tuple[StackFrame, ...]", self._paused_program.frames(self, node))

    @property
    def level(self) -> int:
        """The number of active calls, including those of callers in other lines of control."""
        return cast("int", self._paused_program.level(self))

    async def evaluate(self, frame: StackFrame, text: str) -> Value:
        """Return the value of an expression, with the names of one of these frames. It may call the program's
        definitions, but not ask the outside, and its bindings are dropped. Raises `CompileError`, `RunError` and
        `UsageError`."""
        return cast("Value", await self._paused_program.evaluate(self, frame, text))

    @property
    def _paused_program(self) -> Any:
        return importlib.import_module(self.paused_program)

    # ------------------------------------------------------------ storing

    async def flush(self) -> None:
        """Store everything bound so far, so that other processes can see it. Raises `StateError`."""
        progress = self.run.progress
        if progress.unsaved or progress.dirty:
            await self.keep(self.run.flush)
        self.warn_lost()

    async def keep(self, flush: Callable[[], Awaitable[None]]) -> None:
        """Call `flush`. A failure is recorded, so that a resumed program fails here again or continues from here.
        Raises `StateError`."""
        journal, at = self.host.journal, self.at("store")
        if journal is not None:
            journal.raise_recorded_failure(at)
        try:
            await flush()
        except StoreFailed as error:
            if journal is not None:
                journal.record_store_failure(at, error)
            raise

    def warn_lost(self) -> None:
        """Warn, once in a run, that the store no longer writes to the disk (E219)."""
        lost = self.run.store.lost
        if lost is not None and not self.host.lost_warned:
            self.host.lost_warned = True
            self.warn("E219", lost, self.statement)

    # ------------------------------------------------------------ waiting

    async def admitted(self) -> None:
        """Wait until this branch may ask the outside. Call it before creating the awaitable for `outside`."""
        if self.race_gate is not None and not self.race_gate.over:
            await self.race_gate.wait()

    def require_open(self) -> None:
        """Raise the error that is ending the run, if there is one, before another request is made."""
        if self.cancellation.closed_by is not None:
            raise self.cancellation.closed_by

    async def outside(self, waiting: Awaitable[T]) -> T:
        """Wait for something outside of the program; other branches get the turn meanwhile."""
        turns = self.host.scheduler
        wait = Suspension(waiting, turns.end_turn)
        try:
            return cast("T", await wait)
        finally:
            if wait.happened:
                await turns.regain()

    async def ask(
        self,
        request: Request,
        kind: type[T],
        ask: Callable[[], Awaitable[T]],
        *,
        also: Sequence[str] = (),
        kept: Callable[[T], T] | None = None,
        whole: Callable[[T], T] | None = None,
    ) -> T:
        """Return the answer of the outside to a request: the only way out of a program.

        `kind` is the type of the answer. `Journal.answer` describes the other parameters and the records.
        """
        if not isinstance(request, Wait):
            self.require_open()
        if self.race_gate is not None:
            await self.admitted()
        host = self.host
        active = self.budgets if host.budget is None else (host.budget, *self.budgets)
        if active and isinstance(request, CommandRequest):
            ask = partial(_inside, budgets.timed(), ask)
        if host.permits is not None and isinstance(request, (CommandRequest, SessionRequest)):
            ask = partial(_inside, host.permits, ask)
        with self._counted(active, request) if active else nullcontext():
            if host.journal is None:
                self.answered = request.at, self.statement
                return await self.outside(ask())
            return await host.journal.answer(self, request, kind, ask, also=also, kept=kept, whole=whole)

    @contextmanager
    def _counted(self, active: tuple[Budget, ...], request: Request) -> Iterator[None]:
        """Count the request inside the block for these budgets. Afterwards, emit the budgets' warnings."""
        try:
            with ExitStack() as times, budgets.counting(active, self._statement_name):
                for budget in active:
                    times.enter_context(budget.awaiting(person=isinstance(request, (Question, GateRequest))))
                yield
        finally:
            for budget in active if self.statement is not None else ():
                for code, notice in budget.notices():
                    self.warn(code, notice, self.statement)

    def _statement_name(self) -> str:
        statement = self.statement
        if statement is None:
            return "its imports"
        line = self.source.line_column(statement.span.start)[0]
        return f"line {line}, `{head(self.source, statement)}`"

    def note(self, key: str, kind: type[T], look: Callable[[], T]) -> T:
        """Return the result of a lookup outside that doesn't wait; a resumed run gets the recorded result."""
        journal = self.host.journal
        return look() if journal is None else journal.note(key, kind, look)

    async def breathe(self) -> None:
        """Let the event loop run after a long computation. Call it when `scheduler.due()`."""
        turns, journal = self.host.scheduler, self.host.journal
        if journal is not None and journal.interrupts_here():
            await journal.wait_for_interrupt()
        elif turns.takes_too_long() if journal is None else journal.must_yield_turn():
            await self.ask(Wait("turn", f"{self.path}/y{self.count('turn')}"), type(None), partial(asyncio.sleep, 0))
        else:
            await turns.breathe()


async def _inside(limits: AbstractAsyncContextManager[object], ask: Callable[[], Awaitable[T]]) -> T:
    async with limits:
        return await ask()


_PATH_LETTERS: Final = {
    "exec": "x",
    "session": "s",
    "judge": "j",
    "input": "q",
    "gate": "g",
    "load": "l",
    "program": "u",
    "file": "f",
    "store": "k",
    "run": "r",
    "tool": "t",
    "variable": "v",
    "memory": "a",
}


async def load(s: ExecutionContext, request: LoadRequest) -> LoadedProgram:
    """Return an imported program; in a resumed run with its recorded texts. Raises the errors of `LoadProgram`."""
    find = s.host.load
    assert find is not None
    found: list[LoadedProgram] = []

    async def ask() -> dict[str, str]:
        found.append(await find(request))
        return dict(found[0].texts)

    texts = await s.ask(request, dict, ask)
    return found[0] if found else await find(replace(request, texts=texts))


# ---------------------------------------------------------------- errors


def located(s: ExecutionContext, error: E, node: Node) -> E:
    """Return the error, with its location set to the start of `node` unless it has one."""
    if error.location is None:
        error.location = s.location(node.span)
    return error


def budget_of(s: ExecutionContext, key: str, title: str, limits: str) -> Budget:
    """Return a budget that a program declares. `key` is unique in the program."""
    return Budget("/".join((key, *s.run.program)), title, parse_budget(limits), s.host.ports.clock)


def agent_budget(s: ExecutionContext, name: str, limits: str) -> Budget:
    """Return the budget that all sessions of an agent share. A cell can redefine the agent with other limits."""
    fresh, shared = budget_of(s, f"agent {name}", f"agent '{name}'", limits), s.host.agent_budgets
    found = shared.setdefault(fresh.key, fresh)
    if found.limits != fresh.limits:
        found.replace_limits(fresh.limits)
        del s.host.caught_budgets[found.key]
    return found


def head(source: Source, node: Node) -> str:
    """Return the first line of a statement's text."""
    start = node.span.start
    end = source.text.find("\n", start, start + _HEAD)
    return source.text[start : end if end >= 0 else start + _HEAD].strip()


def forget_trace(error: BaseException) -> None:
    """Drop the traceback and causes of an error, so that a kept error keeps nothing else alive."""
    error.__traceback__ = None
    error.__context__ = None
    error.__cause__ = None
