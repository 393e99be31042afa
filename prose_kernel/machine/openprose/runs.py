"""What a running program owns: the host that all programs of a machine share, one run for each program, one context for
each line of control in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from prose_kernel.errors import StateError
from prose_kernel.language.openprose import tree
from prose_kernel.language.source import Location, Source, Span
from prose_kernel.machine.openprose.frames import Frame, Layer, Slot, Temp, Temps, find
from prose_kernel.machine.openprose.numbering import ANONYMOUS, EXECUTION, ForkAllocation, NumberSequence
from prose_kernel.machine.openprose.tree_walk import declared_names
from prose_kernel.runtime.events import BranchStep, Event, Listener, Place, Warned
from prose_kernel.runtime.ports import Binding, Key, Ports, Store
from prose_kernel.runtime.scheduler import Scheduler
from prose_kernel.runtime.values import ErrorValue, Reference, Value

if TYPE_CHECKING:
    from prose_kernel.machine.openprose.code import Body
    from prose_kernel.machine.openprose.programs import ImportedProgram, LoadProgram

T = TypeVar("T")
Before = Callable[[Place], Awaitable[None]]

RECENT = 10
"""How many finished steps a judge is told."""

FINISHED = 50
"""How many finished steps a session is told."""

_UNSAVED = 1000
"""Changed variables that may wait before they are handed to the store."""


class Host:
    """Shared by a root program and all that it imports: the ports, the listeners, the scheduler, the spawn numbers."""

    def __init__(
        self,
        ports: Ports,
        listeners: Sequence[Listener],
        *,
        concurrency: int | None = None,
        load: LoadProgram | None = None,
        before: Before | None = None,
        supplied: Mapping[str, str] | None = None,
    ) -> None:
        self.ports = ports
        self.listeners = tuple(listeners)
        self.concurrency = concurrency
        self.permits = asyncio.Semaphore(concurrency) if concurrency is not None else None
        self.load = load
        self.before = before
        self.supplied: Mapping[str, str] = supplied if supplied is not None else {}
        self.scheduler = Scheduler()
        self.told_lost = False
        self._spawns = 0

    def next_spawn(self) -> int:
        self._spawns += 1
        return self._spawns


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """A registered agent and the text it was defined in."""

    node: tree.Agent
    source: Source


@dataclass(slots=True)
class BlockEntry:
    """A registered block, the text it was defined in, its compiled body (with and without a wanted value)."""

    node: tree.Block
    source: Source
    bodies: dict[bool, Body] = field(default_factory=dict)


class Run:
    """One program's run: its registries, its counters, its store. An imported program's call has a run of its own."""

    def __init__(self, host: Host, store: Store, name: str, program: tuple[str, ...] = ()) -> None:
        self.host = host
        self.store = store
        self.name = name
        self.program = program
        self.alias: str | None = None
        self.call_stack: tuple[str, ...] = ()
        self.root = Layer(Frame())
        self.agents: dict[str, AgentEntry] = {}
        self.blocks: dict[str, BlockEntry] = {}
        self.programs: dict[str, ImportedProgram] = {}
        self.skills: dict[str, None] = {}
        self.gates: dict[str, int] = {}
        self.gate_names: dict[str, None] = {}
        self.started_agents: set[str] = set()
        self.supplied: Mapping[str, Value] = {}
        self.recent = Recent()
        self.finished: deque[str] = deque(maxlen=FINISHED)
        self.cell = 0
        self.ordinal = 0
        self.in_cell = 0
        self.numbers = NumberSequence()
        self._text: tree.Program | None = None
        self._declared: frozenset[str] | None = None
        self._warned: dict[int, tree.Node] = {}
        self._unsaved: dict[Slot, None] = {}
        self._dirty = False
        self._held: WeakValueDictionary[Key, HeldText] = WeakValueDictionary()

    def begin(self, program: tree.Program) -> None:
        """A file or a cell begins to run."""
        self.cell += 1
        self.in_cell = 0
        self._text, self._declared = program, None
        self._warned = {}

    def continue_from(self, former: Run) -> None:
        """Go on with another run's numbers: none is ever given twice."""
        self.cell, self.ordinal = former.cell, former.ordinal
        self.numbers = former.numbers
        self.gates = former.gates
        self.started_agents = former.started_agents
        self._held = former._held
        self._unsaved, self._dirty = former._unsaved, former._dirty

    @property
    def declared(self) -> frozenset[str]:
        """Every name that the running text binds anywhere."""
        if self._declared is None:
            self._declared = declared_names(self._text) if self._text is not None else frozenset()
        return self._declared

    # ------------------------------------------------------------ keeping

    def changed(self, slot: Slot) -> None:
        """The variable has a new value; the store learns it before anybody outside could look."""
        unsaved = self._unsaved
        unsaved[slot] = None
        if len(unsaved) > _UNSAVED:
            self.hand_over()

    def put(self, binding: Binding) -> None:
        self.hold_former(binding.key)
        self.store.put(binding)
        self._dirty = True

    def hand_over(self) -> None:
        """Give every changed variable to the store."""
        unsaved, self._unsaved = self._unsaved, {}
        for slot in unsaved:
            if isinstance(slot.value, Reference) and slot.value.key == slot.key and self.is_current(slot.value):
                continue  # the session's own binding
            self.put(slot.binding())

    async def flush(self) -> None:
        """Everything bound so far can be seen from outside afterwards. Raises `StateError`."""
        if self._unsaved:
            self.hand_over()
        if self._dirty:
            self._dirty = False
            try:
                await self.store.flush()
            except StateError:
                self._dirty = True
                raise

    # ------------------------------------------------------------ session values

    def refer(self, key: Key, summary: str, text: str | None) -> Reference:
        """The value of a session whose binding is at `key`. `text` is its answer, None when it wrote the binding."""
        held = HeldText(self.store, key, text)
        self._held[key] = held
        return Reference(key, held.read, self.store.location(key), summary)

    def secure_former(self, key: Key) -> None:
        """A session may write `key`: what it holds now is read, if a value still refers to it."""
        held = self._held.get(key)
        if held is not None:
            held.read()

    def hold_former(self, key: Key) -> None:
        """`key` is written again: a reference to what it held keeps its text."""
        held = self._held.pop(key, None)
        if held is not None:
            held.detach()

    def is_current(self, reference: Reference) -> bool:
        """Whether the binding of a reference still holds what the reference means."""
        read = getattr(reference.read, "__self__", None)
        return not (isinstance(read, HeldText) and read.detached)

    # ------------------------------------------------------------ warnings

    def warns_once(self, node: tree.Node) -> bool:
        """Whether this node has not been warned about yet in this run."""
        if id(node) in self._warned:
            return False
        self._warned[id(node)] = node
        return True


class HeldText:
    """The text behind a reference: read from the store when somebody wants it, kept once the binding is overwritten."""

    __slots__ = ("__weakref__", "_key", "_store", "_text", "detached")

    def __init__(self, store: Store, key: Key, text: str | None) -> None:
        self._store = store
        self._key = key
        self._text = text
        self.detached = False

    def read(self) -> str:
        if self._text is None:
            self._text = self._store.read(self._key)
        return self._text

    def detach(self) -> None:
        self.read()
        self.detached = True


class Recent:
    """The last finished steps as one line of control has seen them; a judge is told (3.4)."""

    __slots__ = ("_own", "_steps")

    def __init__(self, before: Recent | None = None) -> None:
        self._steps: deque[str] = deque(before._steps if before is not None else (), maxlen=RECENT)
        self._own = 0

    def note(self, step: str) -> None:
        self._steps.append(step)
        self._own += 1

    @property
    def steps(self) -> tuple[str, ...]:
        return tuple(self._steps)

    @property
    def own(self) -> tuple[str, ...]:
        """Those among them that were noted here."""
        return self.steps[-self._own :] if self._own else ()


@dataclass(slots=True)
class CancellationState:
    """Whether a branch has been cancelled by its siblings: it may finish, but starts nothing new (3.7)."""

    stopped: bool = False


class RaceGate:
    """A branch may not ask the outside for anything before it is let go: its turn in a recorded race has not come.

    `arrived` is called when the branch stands before its first question.
    """

    __slots__ = ("_arrived", "_event", "_outer")

    def __init__(self, outer: RaceGate | None, arrived: Callable[[], None]) -> None:
        self._outer = outer
        self._arrived = arrived
        self._event = asyncio.Event()

    def let_go(self) -> None:
        self._event.set()

    @property
    def over(self) -> bool:
        return self._event.is_set() and (self._outer is None or self._outer.over)

    async def wait(self) -> None:
        if self._outer is not None:
            await self._outer.wait()
        self._arrived()
        await self._event.wait()


class ExecutionContext:
    """One line of control: the root of a run, or one branch. What a branch has for itself is here."""

    __slots__ = (
        "branches",
        "cancellation",
        "catching",
        "counts",
        "cwd",
        "frame",
        "host",
        "layer",
        "numbers",
        "path",
        "race_gate",
        "recent",
        "run",
        "source",
        "statement",
        "temps",
    )

    def __init__(self, run: Run, layer: Layer, source: Source, cwd: str, path: str) -> None:
        self.run = run
        self.host = run.host
        self.numbers = run.numbers
        self.recent = run.recent
        self.layer = layer
        self.frame = layer.frame
        self.temps: Temps = {}
        self.source = source
        self.statement: tree.Node = tree.Constant(None)
        self.cwd = cwd
        self.branches: tuple[BranchStep, ...] = ()
        self.cancellation = CancellationState()
        self.race_gate: RaceGate | None = None
        self.catching: ErrorValue | None = None
        self.path = path
        self.counts: dict[str, int] = {}

    def branch(self, step: BranchStep, iteration: int | None, repeat: int, split: ForkAllocation) -> ExecutionContext:
        """A context for one branch or iteration, over a layer of its own (3.7)."""
        iterations = self.layer.iterations if iteration is None else (*self.layer.iterations, iteration)
        layer = Layer(self.frame, self.layer, iterations)
        sign = "b" if iteration is None else "i"
        again = f"~{repeat}" if repeat else ""
        context = ExecutionContext(self.run, layer, self.source, self.cwd, f"{self.path}/{sign}{step.index}{again}")
        context.numbers = NumberSequence(self.numbers, split, step.index)
        context.recent = Recent(self.recent)
        context.temps = self.temps
        context.statement = self.statement
        context.branches = (*self.branches, step)
        context.catching = self.catching
        context.cancellation.stopped = self.cancellation.stopped
        context.race_gate = self.race_gate
        return context

    # ------------------------------------------------------------ names

    def find(self, name: str) -> Temp | Slot | None:
        return find(name, self.temps, self.layer)

    def key(self, name: str) -> Key:
        """Where a variable declared here is kept."""
        return Key(name, self.frame.execution_id, self.layer.iterations)

    def count(self, what: str) -> int:
        """The next number of its kind in this context, from 0."""
        number = self.counts.get(what, 0)
        self.counts[what] = number + 1
        return number

    def next_execution(self) -> int:
        """The id of a block invocation that begins here (3.6)."""
        return self.numbers.next(EXECUTION)

    def next_anonymous(self) -> Key:
        """Where a value without a name is kept (7.4)."""
        number = self.numbers.next(ANONYMOUS)
        return Key(f"anon_{number:03}", self.frame.execution_id, self.layer.iterations)

    # ------------------------------------------------------------ events

    def place(self, span: Span) -> Place:
        frame = self.frame
        return Place(
            self.source,
            span,
            self.run.ordinal,
            frame.depth,
            frame.execution_id,
            frame.block,
            self.branches,
            self.run.program,
        )

    def emit(self, event: Event) -> None:
        for listener in self.host.listeners:
            listener(event)

    def warn(self, code: str, message: str, span: Span) -> None:
        if self.host.listeners:
            self.emit(Warned(self.place(span), code, message))

    def location(self, span: Span) -> Location:
        return self.source.location(span.start)

    # ------------------------------------------------------------ keeping

    async def flush(self) -> None:
        """Everything bound so far can be seen from outside afterwards. Raises `StateError`."""
        await self.run.flush()
        self.tell_lost()

    def tell_lost(self) -> None:
        """Warn, once in a run, when the store has given up the disk (E219)."""
        lost = self.run.store.lost
        if lost is not None and not self.host.told_lost:
            self.host.told_lost = True
            self.warn("E219", lost, self.statement.span)

    # ------------------------------------------------------------ waiting

    async def admitted(self) -> None:
        """Wait until this branch may ask the outside: call before making what `outside` waits for."""
        if self.race_gate is not None and not self.race_gate.over:
            turns = self.host.scheduler
            turns.release(self)
            try:
                await self.race_gate.wait()
            finally:
                await turns.regain()

    async def outside(self, waiting: Awaitable[T]) -> T:
        """Wait for something outside of the program; the turn goes to other branches meanwhile."""
        turns = self.host.scheduler
        turns.release(self)
        try:
            return await waiting
        finally:
            await turns.regain()

    async def breathe(self) -> None:
        """Let the front end be served, when this context has computed for a while. Call where `turns.due()`."""
        await self.host.scheduler.breathe(self)
