"""One program's run: its counters, its last steps, and the values in its store."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakValueDictionary

from msgspec import Struct, field

from prose_kernel.errors import StateError
from prose_kernel.runtime.host import Host
from prose_kernel.runtime.numbering import NumberSequence
from prose_kernel.runtime.ports import Binding, Key, Store
from prose_kernel.runtime.values import ExecText, Reference, Value

if TYPE_CHECKING:
    from prose_kernel.runtime.machine import Machine

RECENT: Final = 10
"""The number of finished steps in a question to a judge."""

FINISHED: Final = 50
"""The number of finished steps in the message to a session."""

_UNSAVED: Final = 1000
"""The most changed variables that wait before they are passed to the store."""


class Variable(Protocol):
    """A variable of any language, as far as the store needs it."""

    @property
    def key(self) -> Key: ...

    @property
    def value(self) -> Value: ...

    def binding(self) -> Binding: ...


class Recent:
    """The last finished steps of one line of control, for questions to a judge.

    `result` is the value of the last session or command without a name, as long as nothing was bound after it.
    """

    __slots__ = ("_own", "_steps", "result")

    def __init__(self, before: Recent | None = None) -> None:
        self._steps: deque[str] = deque(before._steps if before is not None else (), maxlen=RECENT)
        self._own = 0
        self.result: Value = before.result if before is not None else None

    def note(self, step: str) -> None:
        self._steps.append(step)
        self._own += 1

    @property
    def steps(self) -> tuple[str, ...]:
        return tuple(self._steps)

    @property
    def own(self) -> tuple[str, ...]:
        """The steps that were noted here, without those of the outer line of control."""
        return self.steps[-self._own :] if self._own else ()


class Progress(Struct):
    """The progress of a run, and its unsaved values. Machines of several languages in one run share it.

    `cell` is the number of the last file or cell that was started, `ordinal` that of the last root statement, counted
    over all cells, and `in_cell` its number in the file or cell.
    """

    cell: int = 0
    ordinal: int = 0
    in_cell: int = 0
    unsaved: dict[Variable, None] = field(default_factory=dict)
    dirty: bool = False
    held: WeakValueDictionary[Key, HeldText] = field(default_factory=WeakValueDictionary)
    results: dict[str, ExecText] = field(default_factory=dict)
    """Results of commands, by the location of the binding that holds them now."""


class Run:
    """One program's run: its counters and the values in its store. A called program has its own run.

    `member` is the machine whose root this is; None for a called program.
    """

    member: Machine | None = None
    is_file = True
    """Whether the running text is a file, not a cell."""

    def __init__(self, host: Host, store: Store, name: str, program: tuple[str, ...] = ()) -> None:
        self.host = host
        self.store = store
        self.name = name
        self.program = program
        self.call_stack: tuple[str, ...] = ()
        self.entered = ("", "")
        """The name of a called program, and a phrase with the place of the call."""
        self.recent = Recent()
        self.finished: deque[str] = deque(maxlen=FINISHED)
        self.progress = Progress()
        self.numbers = NumberSequence()
        self._warned: dict[int, object] = {}

    def begin(self, program: Any) -> None:
        """Count a file or a cell that begins to run."""
        self.progress.cell += 1
        self.progress.in_cell = 0
        self._warned = {}

    def next_statement(self) -> int:
        """Count a root statement that begins. Returns its number in the file or cell."""
        self.progress.ordinal += 1
        self.progress.in_cell += 1
        return self.progress.in_cell

    def stack(self, place: str = "") -> tuple[str, ...]:
        """Return one line for each call that led to this run, innermost first. `place` is the place of an error, added
        to the first line: the location of an error in a called program is the call."""
        program, called = self.entered
        return (f"{program}{place}, {called}", *self.call_stack) if program else self.call_stack

    def continue_from(self, former: Run) -> None:
        """Continue after another run, possibly of another language, without using any number twice."""
        self.progress, self.numbers = former.progress, former.numbers
        self.call_stack, self.entered = former.call_stack, former.entered
        self.recent, self.finished = former.recent, former.finished

    def publish(self, name: str, value: Value) -> None:
        """Pass the new value of a root name to the other languages of the run."""
        if self.member is not None:
            self.host.names.publish(self.member, name, value)

    # ------------------------------------------------------------ storing

    def changed(self, variable: Variable) -> None:
        """Note that the variable has a new value. The store gets it before it can be read from outside."""
        unsaved = self.progress.unsaved
        unsaved[variable] = None
        if len(unsaved) > _UNSAVED:
            self.pass_to_store()

    def put(self, binding: Binding) -> None:
        self.detach_overwritten(binding.key)
        self.store.put(binding)
        self.progress.dirty = True

    def pass_to_store(self) -> None:
        unsaved, self.progress.unsaved = self.progress.unsaved, {}
        for variable in unsaved:
            value = variable.value
            if isinstance(value, Reference) and self._is_own(value, variable.key):
                continue  # the session has written the binding itself
            self.put(variable.binding())

    def _is_own(self, reference: Reference, key: Key) -> bool:
        """Return whether the session has written its answer to the binding `key` of this program."""
        here = reference.key == key and reference.location == self.store.location(key)
        return here and self.is_current(reference)

    async def flush(self) -> None:
        """Store everything bound so far, so that other processes can see it. Raises `StateError`."""
        if self.progress.unsaved:
            self.pass_to_store()
        if self.progress.dirty:
            self.progress.dirty = False
            try:
                await self.store.flush()
            except StateError:
                self.progress.dirty = True
                raise

    # ------------------------------------------------------------ session values

    def refer(self, key: Key, summary: str, text: str | None, schema: Mapping[str, Any] | None = None) -> Reference:
        """Return the value of a session whose binding is at `key`. `text` is its answer, or None if it wrote the
        binding; `schema` is the schema of a typed answer."""
        held = HeldText(self.store, key, text)
        self.progress.held[key] = held
        return Reference(key, held.read, self.store.location(key), summary, schema)

    def read_before_overwrite(self, key: Key) -> None:
        """Read the value at `key`, if something still refers to it, before a session may overwrite it."""
        held = self.progress.held.get(key)
        if held is not None:
            held.read()

    def detach_overwritten(self, key: Key) -> None:
        """Let a reference to the value at `key` keep its text, before the key is overwritten."""
        referred = self.progress.held
        if referred and (held := referred.pop(key, None)) is not None:
            held.detach()

    def is_current(self, reference: Reference) -> bool:
        """Return whether the binding of a reference still has the value that the reference means."""
        read = getattr(reference.read, "__self__", None)
        return not (isinstance(read, HeldText) and read.detached)

    def result_bound(self, value: ExecText) -> None:
        """Note that the binding of a command's result now holds it."""
        self.progress.results[value.location] = value

    def result_unbound(self, value: ExecText) -> None:
        """Note that a name that held a command's result gets another value."""
        self.progress.results.pop(value.location, None)

    def holds_result(self, value: ExecText) -> bool:
        """Return whether the binding of a command's result still holds it."""
        return bool(value.location) and self.progress.results.get(value.location) is value

    # ------------------------------------------------------------ warnings

    def warns_once(self, node: object) -> bool:
        """Return whether this node has not been warned about yet in this run."""
        if id(node) in self._warned:
            return False
        self._warned[id(node)] = node
        return True


@dataclass(slots=True, eq=False, weakref_slot=True)
class HeldText:
    """The text of a reference. It is read from the store on demand, and kept when the binding is overwritten."""

    store: Store
    key: Key
    text: str | None
    detached: bool = False

    def read(self) -> str:
        if self.text is None:
            self.text = self.store.read(self.key)
        return self.text

    def detach(self) -> None:
        self.read()
        self.detached = True
