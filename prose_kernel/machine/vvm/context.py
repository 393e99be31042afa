"""The state of a running VVM program in addition to control: its modules, the running function, `it`, and the error
that is being handled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from prose_kernel.errors import RunError, VvmRaise
from prose_kernel.language.source import Source, Span
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.program_interface import CheckedModule
from prose_kernel.machine.vvm.code import current_scope
from prose_kernel.machine.vvm.values import adopted, raised
from prose_kernel.runtime.compiled_code import Now
from prose_kernel.runtime.events import Bound, Place
from prose_kernel.runtime.execution_context import ExecutionContext, Node, shortened_stack
from prose_kernel.runtime.host import Host
from prose_kernel.runtime.numbering import Kind
from prose_kernel.runtime.ports import Key, Store
from prose_kernel.runtime.program_run import Run
from prose_kernel.runtime.shared_names import Agent
from prose_kernel.runtime.values import Value

if TYPE_CHECKING:
    from prose_kernel.machine.vvm.functions import UserFunction

DEPTH: Final = 100
"""The default limit of nested calls."""

LONGEST_INPUT: Final = 10_000_000
"""The default limit for the characters of an input. A longer input is refused, never cut."""

CALL: Final = Kind("call", lambda _: 0)
"""Numbers the calls of functions, for events."""

LIBRARY: Final[dict[str, Value]] = {}
"""The standard library (5), filled by `library.py`."""


@dataclass(slots=True, eq=False, repr=False)
class Module:
    """The scope of one file, or of a notebook's cells: its variables and functions, its agents, its skills.

    - `foreign`: values bound by another language, unconverted until they are first read here
    - `declarations`: the places where its own agents are declared
    - `written`: for each name, the statement that bound its value
    - `defined`: the functions of `def` statements
    - `publisher`: set for the root of a run, whose names other languages see
    """

    run: VvmRun
    table: dict[str, Value] = field(default_factory=dict)
    foreign: dict[str, Value] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)
    declarations: dict[str, tuple[Source, Span]] = field(default_factory=dict)
    skills: dict[str, str] = field(default_factory=dict)
    written: dict[str, tuple[Source, Node]] = field(default_factory=dict)
    defined: dict[str, UserFunction] = field(default_factory=dict)
    exported: dict[str, Value] = field(default_factory=dict)
    exported_agents: dict[str, Agent] = field(default_factory=dict)
    publisher: Callable[[str, Value], None] | None = None

    def bind(self, name: str, value: Value, source: Source, node: Node) -> None:
        """Bind a variable of the module, and publish it to the other languages of the run."""
        self.table[name] = value
        self.written[name] = (source, node)
        if self.foreign:
            self.foreign.pop(name, None)
        if self.publisher is not None and self.run.host.names.several:
            self.publisher(name, value)

    def adopt(self, name: str, value: Value) -> None:
        """Bind a name that another language has bound (13). A session's reply is read only when the name is."""
        if isinstance(value, Agent):
            self.agents[name] = value
            self.declarations.pop(name, None)
            return
        self.table.pop(name, None)
        self.written.pop(name, None)
        self.defined.pop(name, None)
        self.foreign[name] = value

    def find(self, name: str) -> Value:
        """Return the value of a variable of the module. Raises `KeyError`."""
        if name in self.foreign and name not in self.table:
            self.table[name] = adopted(self.foreign[name], refs=self.run.refs)
        return self.table[name]

    def declare(self, name: str, agent: Agent) -> None:
        """Declare an agent, and publish it to the other languages of the run."""
        self.agents[name] = agent
        if self.publisher is not None:
            self.publisher(name, agent)


class VvmRun(Run):
    """The run of a program with all its modules: `root` is the program's own, `modules` are the imported ones.

    `depth` limits nested calls, `longest_input` the characters of an agent's input.
    """

    def __init__(self, host: Host, store: Store, name: str, program: tuple[str, ...] = ()) -> None:
        super().__init__(host, store, name, program)
        self.depth = DEPTH
        self.longest_input = LONGEST_INPUT
        self.root = Module(self)
        self.root.publisher = self.publish
        self.hidden: set[str] = set()  # names of another language that are not valid here
        self.modules: dict[CheckedModule, Module] = {}
        self.supplied: Mapping[str, Value] = {}

    @property
    def refs(self) -> bool:
        """Whether answers of sessions are refs."""
        return self.host.ports.answers is not None


@dataclass(slots=True, eq=False, repr=False)
class Frame:
    """One running function: its local names, the frame that its closure refers to, and its caller's frame."""

    function: UserFunction
    table: dict[str, Value]
    outer: Frame | None
    caller: Frame | None
    called: tuple[Source, Node]


class Context(ExecutionContext):
    """One line of control in a VVM program.

    `table` is the scope for bindings: the names of `frame`, the running function, or of `module` at its top level.
    `handling` is the error whose `except` body lexically encloses the running statement.
    """

    __slots__ = ("depth", "frame", "handling", "it", "module", "table")

    run: VvmRun
    language = "vvm"
    paused_program = "prose_kernel.machine.vvm.paused_program"

    def __init__(self, run: VvmRun, module: Module, source: Source, cwd: str, path: str) -> None:
        super().__init__(run, source, cwd, path)
        self.module = module
        self.frame: Frame | None = None
        self.table = module.table
        self.it: Value = None
        self.depth = 0
        self.handling: RunError | None = None
        self.statement = tree.Pass()

    def _inner(self, iteration: int | None, path: str) -> Self:
        inner = type(self)(self.run, self.module, self.source, self.cwd, path)
        inner.frame, inner.table = self.frame, self.table
        inner.it, inner.depth, inner.handling = self.it, self.depth, self.handling
        return inner

    def wrong_value(self, message: str, hint: str) -> RunError:
        """Return the error for a value that the program may not build."""
        return VvmRaise(message, code="R205", hint=hint)

    # ------------------------------------------------------------ names

    def bind(self, name: str, value: Value, node: Node) -> None:
        """Bind a name in the running function or module; `node` is the binding statement."""
        host = self.host
        if host.preview is not None:
            value = host.preview.bound(self, name, value, node)
        listeners = host.listeners
        previous = bool(listeners) and name in self.table
        if self.frame is None:
            if host.names.several:
                self.require_free(name, node)
            self.module.bind(name, value, self.source, node)
        else:
            self.table[name] = value
        if listeners:
            place = self.place(node)
            # names of functions and imported modules are not names of the program, so they need another key
            key, looped = Key(name, place.depth or None), bool(host.loops)
            self.emit(Bound(place, name, "let", value, key, previous=previous, looped=looped))

    def require_free(self, name: str, node: Node) -> None:
        """Raise R221 for a name that another language has fixed: a const, an input (13)."""
        if self.module is not self.run.root or self.run.member is None:
            return
        why = self.host.names.why_fixed(self.run.member, name)
        if why is not None:
            raise raised(self, node, "R221", f"`{name}` is {why}; it cannot be bound again", hint="use another name")

    # ------------------------------------------------------------ events and errors

    def place(self, node: Node) -> Place:
        """Return the place of a node. Statements of an imported module count as one level deeper while it is loaded,
        because its names are not names of the program."""
        function = self.frame.function.name if self.frame is not None else None
        return self._place(node, self.depth or int(self.module is not self.run.root), None, function)

    def stack_lines(self) -> tuple[str, ...]:
        frames: list[Frame] = []
        frame = self.frame
        while frame is not None:
            frames.append(frame)
            frame = frame.caller
        return shortened_stack(frames, _stack_line)


def _stack_line(frame: Frame) -> str:
    source, node = frame.called
    line = source.line_column(node.span.start)[0]
    return f"in function {frame.function.name}, called at line {line} of {source.name}"


# ---------------------------------------------------------------- reading names


def reader(name: str, node: Node) -> Now:
    """Return a function that reads a variable in the scope that is being compiled (4.2). `node` is the place for the
    error about an unbound name."""
    scope = current_scope()
    hops = scope.hops(name) if scope is not None else None

    def here(s: Context) -> Value:
        try:
            return s.table[name]
        except KeyError:
            return find_elsewhere(s, name, node)

    def of_module(s: Context) -> Value:
        try:
            return s.module.table[name]
        except KeyError:
            return find_elsewhere(s, name, node)

    def local(s: Context) -> Value:
        try:
            return s.table[name]
        except KeyError:
            raise unbound_local(s, name, node) from None

    def captured(s: Context) -> Value:
        frame: Any = s.frame
        for _ in range(hops or 0):
            frame = frame.outer
        try:
            return frame.table[name]  # type: ignore[no-any-return]
        except KeyError:
            raise unbound_local(s, name, node) from None

    if scope is None:
        return here
    if hops is None:
        return of_module
    return captured if hops else local


def find_elsewhere(s: Context, name: str, node: Node) -> Value:
    """Return the meaning of a name without a variable: a standard function, else a declared agent (4.2)."""
    if name in s.module.foreign:
        return s.module.find(name)
    found = LIBRARY.get(name)
    if found is None:
        found = s.module.agents.get(name)
        if found is None:
            raise raised(s, node, "R201", f"unbound name: {name}")
    return found


def unbound_local(s: Context, name: str, node: Node) -> RunError:
    return raised(s, node, "R202", f"unbound local: {name}", hint="it is bound in this function, but not before this")
