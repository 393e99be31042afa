"""The life of a machine, whatever language it runs: texts are run one after the other in one run, until it ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from prose_kernel.errors import RunError, StateError, UsageError
from prose_kernel.language.nodes import Node
from prose_kernel.language.source import Location, Source, Span
from prose_kernel.runtime.events import CellStarted, Place, RunEnded, RunStarted
from prose_kernel.runtime.execution_context import ExecutionContext
from prose_kernel.runtime.host import Host
from prose_kernel.runtime.ports import CommandRequest, GateRequest, Key, SessionRequest
from prose_kernel.runtime.program_run import Run
from prose_kernel.runtime.trampoline import drive
from prose_kernel.runtime.values import Value


@dataclass(frozen=True, slots=True)
class BindingInfo:
    """A name of the root and its value: kind, where it is kept, and the statement that made it, at `span` of `source`.

    `spawned`: the value came directly from a spawn. `adopted`: another language has bound the name.
    """

    kind: Literal["input", "output", "let", "const"]
    value: Value
    key: Key
    source: Source
    span: Span
    spawned: Literal["exec", "session", "resume"] | None = None
    adopted: bool = False

    @property
    def statement(self) -> str:
        """The text of the statement."""
        return self.source.slice(self.span)

    @property
    def location(self) -> Location:
        return self.source.location(self.span.start)


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition that isn't a value: its kind, its text, and facts of a few words each.

    Of an agent `facts` are `model`, `persist` and `prompt` as far as it has them, and `memory` when it keeps one; of a
    block or function `parameters` and `statements`. The text of an imported program is how it is called and what it
    gives.
    """

    kind: Literal["agent", "block", "function", "program"]
    name: str
    text: str
    facts: Mapping[str, str]


PreviewKind = Literal["session", "command", "gate"]


@dataclass(frozen=True, slots=True)
class Preview:
    """One session, command or gate that a text would reach: its place, its first request, and the parts of it that are
    not known before the text runs.

    `problem` is the error that it would raise instead, `note` the reason why its request is unknown; then the request
    is None. A session has `request`, a command `command`, a gate `gate`.
    """

    source: Source
    span: Span
    bound_to: str | None
    request: SessionRequest | None = None
    unknown: tuple[str, ...] = ()
    problem: RunError | None = None
    note: str = ""
    kind: PreviewKind = "session"
    command: CommandRequest | None = None
    gate: GateRequest | None = None


@dataclass(slots=True)
class _Shared:
    """The shared state of the machines of one run."""

    host: Host
    cwd: str
    program_file: str
    at: str = ""
    started: bool = False
    ended: bool = False
    busy: bool = False


class Machine:
    """One run, or the part of one language in a run of several (`sharing`).

    `cwd` is the directory of the first command, `program_file` the name shown in the trace. `at` is a prefix of all
    paths, for runs that share a recording.

    `host` is what everything in this run shares: its ports may be set between two texts, its hook at any time.

    Everything is called in one event loop, one `run` at a time. A language brings its kind of `Run`, the context of a
    text, what running one means, and what can be looked at from outside.
    """

    new_run: ClassVar[type[Run]]

    def __init__(self, host: Host, *, cwd: str, program_file: str = "", at: str = "") -> None:
        self._shared = _Shared(host, cwd, program_file, at)
        self._begin_run(None)

    @classmethod
    def sharing(cls, other: Machine) -> Self:
        """A machine in the same run as one of another language: the same ports, numbers, names and directory."""
        machine = cls.__new__(cls)
        machine._shared = other._shared
        machine._begin_run(other._run)
        return machine

    def _begin_run(self, former: Run | None) -> None:
        host = self.host = self._shared.host
        self._run: Any = self.new_run(host, host.ports.store, self._shared.program_file)
        if former is not None:
            self._run.continue_from(former)
        self._run.member = self
        host.names.join(self)

    # ------------------------------------------------------------ what a language brings

    def _context(self, source: Source, path: str) -> ExecutionContext:
        """Return the context in which a text begins to run."""
        raise NotImplementedError

    async def _execute(self, s: Any, program: Any) -> Value:
        """Run a text in its context."""
        raise NotImplementedError

    def _valued(self, program: Any) -> str:
        """The kind of the statement that gives a text its value, "" without one."""
        raise NotImplementedError

    def _result(self, value: Value) -> Value:
        """The value of a file, whose last statement had this value."""
        return value

    def known(self) -> Any:
        """Return the names that the next cell may refer to, for the language's compiler."""
        raise NotImplementedError

    def bindings(self) -> dict[str, BindingInfo]:
        """The names of the root with their values, in the order in which they were first bound."""
        raise NotImplementedError

    def outputs(self) -> dict[str, Value]:
        """The program's outputs with their values by now."""
        raise NotImplementedError

    def definitions(self) -> Iterable[Definition]:
        """The agents, the callables and the imported programs that the next cell may use."""
        raise NotImplementedError

    async def preview(self, program: Any, source: Source) -> tuple[Preview, ...]:
        """Return the request of each session, command and gate of a checked text, without running anything or changing
        any state."""
        raise NotImplementedError

    def adopt(self, name: str, value: Value) -> None:
        """Another language of the run has bound the name at its root: here it means the same from now on."""
        raise NotImplementedError

    def shared(self) -> Mapping[str, Value]:
        """Return the names of the root with their values, including functions and agents."""
        raise NotImplementedError

    def fixed(self, name: str) -> str | None:
        """Return why another language must not rebind the name, as in `a const of cell 2`; None if it may."""
        return None

    # ------------------------------------------------------------ running

    @property
    def cwd(self) -> str:
        """The directory of the next command."""
        return self._shared.cwd

    @cwd.setter
    def cwd(self, directory: str) -> None:
        self._shared.cwd = directory

    async def run(
        self, program: Any, source: Source, *, inputs: Mapping[str, Value] | None = None, cell: bool = False
    ) -> Value:
        """Run a file, or one cell, in the root.

        A file gives its outputs, a cell the value of its last statement. Raises `RunError` with place and call stack,
        and `CancelledError` when interrupted; what was bound stays. `UsageError` when a program is running already.
        """
        if self._shared.busy:
            raise UsageError("a program is running here already; wait until it has ended")
        self._shared.busy = True
        index = self._run.cell + 1
        self._run.supplied, self._run.is_file = dict(inputs or {}), not cell
        context = self._context(source, f"{self._shared.at}c{index}")
        try:
            self._announce(source, index, program)
            value = await self._drive(context, program)
            await self._keep(context)
        finally:
            self._shared.busy = False
        return value if cell else self._result(value)

    async def _drive(self, context: ExecutionContext, program: Any) -> Value:
        """Run the text; what it has left is kept also when it fails."""
        turns, budget = self.host.scheduler, self.host.budget
        turns.text_begins()
        try:
            with budget.open() if budget is not None else contextlib.nullcontext():
                value = await drive(self._execute(context, program))
                turns.completed = True
                return value
        except BaseException:
            with contextlib.suppress(StateError):
                await self._keep(context)
            raise
        finally:
            self.cwd = context.cwd
            turns.text_ends()

    def _announce(self, source: Source, index: int, program: Any) -> None:
        place = Place(source, Span(0, 0), self._run.ordinal)
        self.host.loops.clear()
        if not self._shared.started:
            self.host.heard(RunStarted(place, self._shared.program_file))
        self._shared.started = True
        self.host.heard(CellStarted(place, index, self._valued(program)))

    async def _keep(self, context: ExecutionContext) -> None:
        """Everything is on disk afterwards, the trace too. Raises `StateError`."""
        await context.keep(context.run.flush)
        await context.keep(context.run.store.flush)
        context.warn_lost()

    async def evaluate(self, text: str) -> Value:
        """Evaluate an expression with the names of the root, between two texts. It may call definitions of the run, but
        makes no requests, and its bindings are dropped. Raises `CompileError`, `RunError`, `UsageError`."""
        context = self._context(Source.of("", "expression"), "")
        return await context.evaluate(context.frames(Node())[-1], text)

    async def end(self, error: RunError | None = None) -> None:
        """The run is over, with the error that ended it, if any. A second call, or one before any run, does nothing."""
        if not self._shared.started or self._shared.ended:
            return
        self._shared.ended = True
        place = Place(Source("", self._shared.program_file), Span(0, 0), self._run.ordinal)
        outputs = len(self.outputs())
        self.host.heard(RunEnded(place, error, outputs))
        await self._run.store.flush()
