"""The machine that runs OpenProse (openprose.md 3).

It walks a checked tree, asks the outside world through its ports and tells its listeners what happens. A file is one
call of `run`; a notebook calls `run` once for each cell, in the same root frame.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prose_kernel.errors import RunError, StateError, UsageError
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.contract import persistence
from prose_kernel.language.openprose.names import Contract, Known, KnownAgent, Variable
from prose_kernel.language.source import Location, Source, Span
from prose_kernel.machine.openprose import (  # noqa: F401 - each registers the code of its constructs
    blocks,
    branches,
    calls,
    control,
    execs,
    expressions,
    gates,
    loops,
    pipes,
    sessions,
)
from prose_kernel.machine.openprose.frames import Kind, Slot, Spawned
from prose_kernel.machine.openprose.lifecycle import run_text
from prose_kernel.machine.openprose.programs import ImportedProgram, LoadedProgram, LoadProgram
from prose_kernel.machine.openprose.runs import AgentEntry, Before, BlockEntry, ExecutionContext, Host, Run
from prose_kernel.runtime.events import CellStarted, Listener, Place, RunEnded, RunStarted
from prose_kernel.runtime.ports import Key, Ports
from prose_kernel.runtime.trampoline import drive
from prose_kernel.runtime.values import Value

if TYPE_CHECKING:
    from prose_kernel.machine.openprose.preview import Preview

__all__ = ["BindingInfo", "LoadProgram", "LoadedProgram", "Machine"]


@dataclass(frozen=True, slots=True)
class BindingInfo:
    """A variable of the root frame: kind, value, where it is kept, and the statement that made it.

    `spawned` tells that the value came straight from a spawn.
    """

    kind: Kind
    value: Value
    key: Key
    source: str
    location: Location
    spawned: Spawned | None = None


class Machine:
    """One run.

    `cwd` is the directory of the first command; `program_file` the name shown in the trace. `concurrency` limits how
    many commands and sessions are under way at once (None: no limit); it never changes results. `load` resolves
    imports. `before` is awaited before every statement. `supplied` holds input values given beforehand.

    Everything is called in one event loop, one `run` at a time.
    """

    def __init__(
        self,
        ports: Ports,
        *,
        listeners: Sequence[Listener] = (),
        cwd: str,
        program_file: str = "",
        concurrency: int | None = None,
        load: LoadProgram | None = None,
        before: Before | None = None,
        supplied: Mapping[str, str] | None = None,
    ) -> None:
        self.cwd = cwd
        self._supplied = dict(supplied or {})
        self._host = Host(ports, listeners, concurrency=concurrency, load=load, before=before, supplied=self._supplied)
        self._program_file = program_file
        self._run = Run(self._host, ports.store, program_file)
        self._started = False
        self._ended = False
        self._busy = False

    # ------------------------------------------------------------ running

    async def run(
        self, program: tree.Program, source: Source, *, inputs: Mapping[str, Value] | None = None, cell: bool = False
    ) -> Value:
        """Run a file, or one cell, in the root frame (3.1).

        A file gives its outputs as an object, or without any the value of its last statement; a cell gives the value
        of its last statement. `for` and `repeat` as the last statement give null. Raises `RunError` with place and
        call stack, and `CancelledError` when interrupted, after `finally` bodies have run; what was bound stays.
        `UsageError` when a program is running already.
        """
        if self._busy:
            raise UsageError("a program is running here already; wait until it has ended")
        self._busy = True
        run = self._run
        run.supplied = dict(inputs or {})
        context = ExecutionContext(run, run.root, source, self.cwd, f"c{run.cell + 1}")
        try:
            self._announce(source, run.cell + 1)
            value = await self._drive(context, program)
            await self._keep(context, program)
        finally:
            self._busy = False
        return value if cell or not run.root.outputs else dict(self.outputs())

    async def _drive(self, context: ExecutionContext, program: tree.Program) -> Value:
        """Run the text; what it has left is kept also when it fails."""
        try:
            return await drive(run_text(context, program))
        except BaseException:
            with contextlib.suppress(StateError):
                await self._keep(context, program)
            raise
        finally:
            self.cwd = context.cwd
            self._host.scheduler.release(context)

    def _announce(self, source: Source, index: int) -> None:
        place = Place(source, Span(0, 0), self._run.ordinal)
        for listener in self._host.listeners:
            if not self._started:
                listener(RunStarted(place, self._program_file))
        self._started = True
        for listener in self._host.listeners:
            listener(CellStarted(place, index))

    async def _keep(self, context: ExecutionContext, program: tree.Program) -> None:
        """Everything is on disk afterwards, the trace too. Raises `StateError`."""
        try:
            await context.run.flush()
            await context.run.store.flush()
        except StateError as error:
            if error.location is None and program.items:
                error.location = context.location(program.items[-1].span)
            raise
        context.tell_lost()

    async def end(self, error: RunError | None = None) -> None:
        """The run is over, with the error that ended it, if any. A second call, or one before any run, does nothing."""
        if not self._started or self._ended:
            return
        self._ended = True
        place = Place(Source("", self._program_file), Span(0, 0), self._run.ordinal)
        for listener in self._host.listeners:
            listener(RunEnded(place, error))
        await self._run.store.flush()

    async def preview(self, program: tree.Program, source: Source) -> tuple[Preview, ...]:
        """What each session of a checked text would be asked, without running anything or changing any state."""
        from prose_kernel.machine.openprose.preview import preview

        return await preview(self._run, program, source, self.cwd)

    def supply(self, name: str, value: str) -> None:
        """Give the value of an input before the program asks for it."""
        self._supplied[name] = value

    def reset(self) -> None:
        """Forget every name, agent, block and import. The run and its numbers go on."""
        former, run = self._run, self._run
        run = Run(self._host, former.store, former.name)
        run.continue_from(former)
        self._run = run

    # ------------------------------------------------------------ looking

    def known(self) -> Known:
        """What the next cell may refer to."""
        run = self._run
        return Known(
            variables=_Variables(run.root.table),
            soft_exports=frozenset(run.root.exports),
            agents={name: KnownAgent(persistence(entry.node)) for name, entry in run.agents.items()},
            blocks={name: tuple(p.id for p in entry.node.parameters) for name, entry in run.blocks.items()},
            programs=self._contracts(),
            skills=frozenset(run.skills),
            gates=frozenset(run.gate_names),
            bodies={name: entry.node for name, entry in run.blocks.items()},
        )

    def _contracts(self) -> dict[str, Contract | None]:
        return {name: entry.contract for name, entry in self._run.programs.items()}

    def bindings(self) -> dict[str, BindingInfo]:
        """The variables of the root frame, in the order in which they were first bound."""
        return {name: _info(slot) for name, slot in self._run.root.table.items()}

    def outputs(self) -> dict[str, Value]:
        """The program's outputs with their values by now."""
        return {name: slot.value for name, slot in self._run.root.outputs.items()}

    @property
    def agents(self) -> Mapping[str, AgentEntry]:
        return self._run.agents

    @property
    def blocks(self) -> Mapping[str, BlockEntry]:
        return self._run.blocks

    @property
    def programs(self) -> Mapping[str, ImportedProgram]:
        return self._run.programs

    @property
    def ports(self) -> Ports:
        """The doors to the outside; they may be set between two texts."""
        return self._host.ports

    @ports.setter
    def ports(self, ports: Ports) -> None:
        self._host.ports = ports

    @property
    def before(self) -> Before | None:
        """The hook before every statement; it may be set while a program runs."""
        return self._host.before

    @before.setter
    def before(self, hook: Before | None) -> None:
        self._host.before = hook


def _info(slot: Slot) -> BindingInfo:
    location = slot.source.location(slot.span.start)
    return BindingInfo(slot.kind, slot.value, slot.key, slot.source.slice(slot.span), location, slot.spawned)


class _Variables(Mapping[str, Variable]):
    """The root table as the checker sees it, without a copy."""

    def __init__(self, table: Mapping[str, Slot]) -> None:
        self._table = table

    def __getitem__(self, name: str) -> Variable:
        slot = self._table[name]
        return Variable(slot.kind, slot.spawned == "exec")

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)
