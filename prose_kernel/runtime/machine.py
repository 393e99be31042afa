"""The life cycle of a machine in any language: it runs texts one after the other in one run, until the run ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, Self

from msgspec import Struct

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

_SHORT_WAIT = 1.0
"""Seconds that an interrupted text waits until its bindings are stored."""


class BindingInfo(Struct, frozen=True):
    """A name of the root with its value: kind, key in the store, and the statement that bound it, at `span` of
    `source`.

    `spawned` means that the value came directly from a spawn, `adopted` that another language has bound the name.
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
        return self.source.slice(self.span)

    @property
    def location(self) -> Location:
        return self.source.location(self.span.start)


class Definition(Struct, frozen=True):
    """A definition that isn't a value: its kind, its text, and short facts about it.

    An agent has the facts `model`, `persist` and `prompt`, if set, and `memory` if it keeps one; a block or function
    has `parameters` and `statements`. The text of an imported program shows how to call it and what it returns.
    """

    kind: Literal["agent", "block", "function", "program"]
    name: str
    text: str
    facts: Mapping[str, str]


PreviewKind = Literal["session", "command", "gate"]


class Preview(Struct, frozen=True):
    """One session, command or gate that a text would reach: its place, its first request, and the unknown parts of it.

    The request is in `request` for a session, in `command` or `gate` for the others. It is None if `problem` is set,
    the error that would be raised instead, or `note`, the reason why the request cannot be known.
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


class _Shared(Struct):
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
    paths, for runs that share a recording. `host` has the objects shared in this run: its ports may be set between two
    texts, its hook at any time.

    All methods are called in one event loop, one `run` at a time. A language's subclass provides its kind of `Run`, the
    context of a text, how to run a text, and views of its names.
    """

    new_run: ClassVar[type[Run]]

    def __init__(self, host: Host, *, cwd: str, program_file: str = "", at: str = "") -> None:
        self._shared = _Shared(host, cwd, program_file, at)
        self._begin_run(None)

    @classmethod
    def sharing(cls, other: Machine) -> Self:
        """Return a machine in the same run as a machine of another language, with the same ports, numbers and names."""
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

    # ------------------------------------------------------------ provided by each language

    def _context(self, source: Source, path: str) -> ExecutionContext:
        """Return the context in which a text begins to run."""
        raise NotImplementedError

    async def _execute(self, s: Any, program: Any) -> Value:
        """Run a text in its context."""
        raise NotImplementedError

    def _valued(self, program: Any) -> str:
        """Return the kind of the statement that determines a text's value, "" without one."""
        raise NotImplementedError

    def _result(self, value: Value) -> Value:
        """Return the value of a file, from the value of its last statement."""
        return value

    def known(self) -> Any:
        """Return the names that the next cell may refer to, for the language's compiler."""
        raise NotImplementedError

    def bindings(self) -> dict[str, BindingInfo]:
        """Return the names of the root with their values, in the order in which they were first bound."""
        raise NotImplementedError

    def outputs(self) -> dict[str, Value]:
        """Return the program's outputs with their current values."""
        raise NotImplementedError

    def definitions(self) -> Iterable[Definition]:
        """Return the agents, the callables and the imported programs that the next cell may use."""
        raise NotImplementedError

    async def preview(self, program: Any, source: Source) -> tuple[Preview, ...]:
        """Return the request of each session, command and gate of a checked text, without running anything or changing
        any state."""
        raise NotImplementedError

    def adopt(self, name: str, value: Value) -> None:
        """Bind a name that another language of the run has bound at its root."""
        raise NotImplementedError

    def shared(self) -> Mapping[str, Value]:
        """Return the names of the root with their values, including functions and agents."""
        raise NotImplementedError

    def why_fixed(self, name: str) -> str | None:
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

        Returns the outputs of a file, or the value of a cell's last statement. Raises `RunError` with place and call
        stack, `CancelledError` if interrupted, and `UsageError` if a program is running already. Bindings are kept.
        """
        if self._shared.busy:
            raise UsageError("a program is running here already; wait until it has ended")
        self._shared.busy = True
        index = self._run.progress.cell + 1
        self._run.supplied, self._run.is_file = dict(inputs or {}), not cell
        context = self._context(source, f"{self._shared.at}c{index}")
        try:
            self._announce(source, index, program)
            try:
                value = await self._drive(context, program)
            except BaseException as error:
                await self._keep_after(error, context)
                raise
            await self._keep(context)
        finally:
            self._shared.busy = False
        return value if cell else self._result(value)

    async def _drive(self, context: ExecutionContext, program: Any) -> Value:
        turns, budget = self.host.scheduler, self.host.budget
        turns.text_begins()
        try:
            with budget.open() if budget is not None else contextlib.nullcontext():
                value = await drive(self._execute(context, program))
                turns.completed = True
                return value
        finally:
            self.cwd = context.cwd
            turns.text_ends()

    def _announce(self, source: Source, index: int, program: Any) -> None:
        place = Place(source, Span(0, 0), self._run.progress.ordinal)
        self.host.loops.clear()
        if not self._shared.started:
            self.host.heard(RunStarted(place, self._shared.program_file))
        self._shared.started = True
        self.host.heard(CellStarted(place, index, self._valued(program)))

    async def _keep(self, context: ExecutionContext) -> None:
        """Flush everything to the disk, including the trace. Raises `StateError`."""
        await context.keep(context.run.flush)
        await context.keep(context.run.store.flush)
        context.warn_lost()

    async def _keep_after(self, error: BaseException, context: ExecutionContext) -> None:
        """Store the bindings of a text that has ended with `error`. After an interrupt the wait for them is short, and
        another interrupt ends it: the store writes them meanwhile, or when it is flushed again."""
        journal, task = self.host.journal, asyncio.current_task()
        try:
            async with asyncio.timeout(_SHORT_WAIT if isinstance(error, asyncio.CancelledError) else None):
                await self._keep(context)
        except (StateError, TimeoutError):
            pass
        except asyncio.CancelledError:
            if task is None or (journal is not None and journal.abandoned):
                raise
            task.uncancel()

    async def evaluate(self, text: str) -> Value:
        """Evaluate an expression with the names of the root, between two texts. It may call definitions of the run, but
        makes no requests, and its bindings are dropped. Raises `CompileError`, `RunError`, `UsageError`."""
        context = self._context(Source.of("", "expression"), "")
        return await context.evaluate(context.frames(Node())[-1], text)

    async def end(self, error: RunError | None = None) -> None:
        """End the run, with the error that ended it, if any. A second call, or one before any text, does nothing."""
        if not self._shared.started or self._shared.ended:
            return
        self._shared.ended = True
        place = Place(Source("", self._shared.program_file), Span(0, 0), self._run.progress.ordinal)
        outputs = len(self.outputs())
        self.host.heard(RunEnded(place, error, outputs))
        await self._run.store.flush()
