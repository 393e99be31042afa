"""The state of a running OpenProse program in addition to control: its registries, frames and names, and the error that
is being caught."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Self

from msgspec import Struct, field

from prose_kernel.errors import RecursionLimitExceeded, RunError, ValueTypeError
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.keywords import NOT_STRICT
from prose_kernel.language.source import Source
from prose_kernel.language.text import clipped
from prose_kernel.machine.openprose.frames import Frame, Layer, Slot, Temp, Temps, find_home
from prose_kernel.machine.openprose.program_text import ANONYMOUS, declared_names, statement_text, whole_lines
from prose_kernel.runtime.compiled_code import require_shallow
from prose_kernel.runtime.events import BranchStep, Place
from prose_kernel.runtime.execution_context import ExecutionContext, Node, located, shortened_stack
from prose_kernel.runtime.host import Host
from prose_kernel.runtime.json_data import measure
from prose_kernel.runtime.ports import Binding, Key, Store
from prose_kernel.runtime.program_run import Run
from prose_kernel.runtime.shared_names import Agent, Function
from prose_kernel.runtime.value_text import readable_preview
from prose_kernel.runtime.values import ErrorValue, ExecText, Reference, Value, require_writable

if TYPE_CHECKING:
    from prose_kernel.machine.openprose.code import Body
    from prose_kernel.machine.openprose.programs import ImportedProgram


class AgentEntry(Struct, frozen=True):
    """A registered agent, and the text that defines it."""

    node: tree.Agent
    source: Source


class BlockEntry(Struct):
    """A registered block, the text that defines it, and its compiled body, with and without a used value."""

    node: tree.Block
    source: Source
    bodies: dict[bool, Body] = field(default_factory=dict)


class ProgramRun(Run):
    """One program's run with its registries. A call of an imported program has its own run. `elsewhere` is true if the
    program was fetched; `module` has the aliases of the calls that led here."""

    def __init__(self, host: Host, store: Store, name: str, program: tuple[str, ...] = ()) -> None:
        super().__init__(host, store, name, program)
        self.root = Layer(Frame())
        self.elsewhere = False
        self.module: tuple[str, ...] = ()
        self.agents: dict[str, AgentEntry] = {}
        self.blocks: dict[str, BlockEntry] = {}
        self.functions: dict[str, Function] = {}  # of other languages, like `other_agents`
        self.other_agents: dict[str, Agent] = {}
        self.programs: dict[str, ImportedProgram] = {}
        self.skills: dict[str, None] = {}
        self.gates: dict[str, int] = {}
        self.gate_names: dict[str, None] = {}
        self.started_agents: set[str] = set()
        self.supplied: Mapping[str, Value] = {}
        self.uses: dict[str, str] = {}
        """The aliases of a script's `use` lines, with their paths."""
        self.prior: Value = None
        """The prior truth of a responsibility, for its script."""
        self.model: str | None = None
        """The model of sessions that name none; `timeout` is their timeout in seconds."""
        self.timeout: float | None = None
        self._text: tree.Program | None = None
        self._declared: frozenset[str] | None = None

    def begin(self, program: tree.Program) -> None:
        super().begin(program)
        self.read(program)

    def read(self, program: tree.Program) -> None:
        """Set the text that runs from now on."""
        self._text, self._declared = program, None

    @property
    def is_script(self) -> bool:
        return self._text is not None and self._text.script

    @property
    def is_strict(self) -> bool:
        return self._text is not None and self._text.strict

    def properties(self, owner: str, written: tree.Properties) -> dict[str, object]:
        """Return the properties of an `exec` or `session` by name, without those unknown to the program's profile."""
        unknown = NOT_STRICT[owner] if self.is_strict else ()
        return {item.name.id: item.value for item in written if item.name.id not in unknown}

    def define(self, item: tree.Agent | tree.Block, source: Source) -> None:
        """Register an agent or a block. It replaces an agent or function of that name in another language."""
        name = item.name.id
        if isinstance(item, tree.Agent):
            self.agents[name] = AgentEntry(item, source)
            self.other_agents.pop(name, None)
        else:
            self.blocks[name] = BlockEntry(item, source)
            self.functions.pop(name, None)

    @property
    def declared(self) -> frozenset[str]:
        """Every name that is bound anywhere in the running text."""
        if self._declared is None:
            self._declared = declared_names(self._text) if self._text is not None else frozenset()
        return self._declared


class ProgramContext(ExecutionContext):
    """One line of control in an OpenProse program: the root, or one branch, with the names that it sees."""

    __slots__ = ("_here", "_places", "catching", "frame", "layer", "single", "temps")

    run: ProgramRun
    language = "openprose"
    paused_program = "prose_kernel.machine.openprose.paused_program"

    def __init__(self, run: ProgramRun, layer: Layer, source: Source, cwd: str, path: str) -> None:
        super().__init__(run, source, cwd, path)
        self.layer = layer
        self.frame = layer.frame
        self.temps: Temps = {}
        self.catching: ErrorValue | None = None
        self.single: tuple[Value, str] | None = None
        """The value of the call that has just returned, and the name of its target's only output."""
        self.statement = tree.Constant(None)
        self._here: tuple[Source, int, Frame, tuple[BranchStep, ...], str] | None = None
        self._places: dict[int, tuple[Node, Place]] = {}  # of this line of control, by the id of the node

    def _inner(self, iteration: int | None, path: str) -> Self:
        """Return a context over a new layer (docs/reference/openprose.md 3.7)."""
        iterations = self.layer.iterations if iteration is None else (*self.layer.iterations, iteration)
        inner = type(self)(self.run, Layer(self.frame, self.layer, iterations), self.source, self.cwd, path)
        inner.temps = self.temps
        inner.catching = self.catching
        return inner

    # ------------------------------------------------------------ names

    def find(self, name: str) -> Temp | Slot | None:
        """Return the variable that a name refers to here, or None."""
        found = find_home(name, self.temps, self.layer)
        return found[0] if found is not None else None

    def key(self, name: str) -> Key:
        """Return the key under which a variable declared here is stored."""
        return Key(name, self.frame.execution_id, self.layer.iterations)

    def next_anonymous(self) -> Key:
        """Return the key under which the next value without a name is stored (7.4)."""
        number = self.numbers.next(ANONYMOUS)
        return Key(f"anon_{number:03}", self.frame.execution_id, self.layer.iterations)

    def keep_anonymous(self, value: Value, node: tree.Node) -> Key:
        """Store a value as `anon_NNN`."""
        key = self.next_anonymous()
        self.run.put(Binding(key, "let", value, statement_text(self.source, node.span)))
        return key

    def store_element(self, value: Value, node: tree.Node) -> Value:
        """Return an array element made by a loop, a pipeline or a branch. A command's result is stored with its
        metadata.

        Values with a binding keep it: sessions' replies, values of names. Others are stored with the array.
        """
        if not isinstance(value, ExecText) or value.location:
            return value
        key = self.next_anonymous()
        kept = value.at(self.run.store.location(key))
        self.run.result_bound(kept)
        self.run.put(Binding(key, "let", kept, whole_lines(self.source, node.span)))
        return kept

    def with_stored_members(self, value: Value, node: tree.Node) -> Value:
        """Return an array or object whose members can be stored as references. A reply or a command's result whose name
        has got another value since then gets its own binding.

        Raises E209 for a value that is too large or nested too deeply (amendment A32). A member that occurs in several
        places is visited only once: sixty assignments `a = [a, a]` cost sixty steps.
        """
        size = measure(value)
        if size.plain and size.levels == 1:
            return value
        self.bounded(value, node)
        if self.run.store.by_value or size.plain:
            return value
        return self._placed(value, node, {})

    def _placed(self, value: Value, node: tree.Node, placed: dict[int, Value]) -> Value:
        """Return the value with members that can be stored, after processing nested arrays and objects."""
        for item in _members(value):
            if type(item) in _CONTAINERS and id(item) not in placed:
                placed[id(item)] = self._placed(item, node, placed)
        if isinstance(value, list):
            found = [self._member(member, node, placed) for member in value]
            return found if any(a is not b for a, b in zip(found, value, strict=True)) else value
        if type(value) is dict:
            fields = {name: self._member(member, node, placed) for name, member in value.items()}
            return fields if any(fields[name] is not value[name] for name in value) else value
        return value

    def _member(self, value: Value, node: tree.Node, placed: Mapping[int, Value]) -> Value:
        if isinstance(value, ExecText):
            return value if self.run.holds_result(value) else self.store_element(value.at(""), node)
        if isinstance(value, Reference) and not self.run.is_current(value):
            text = value.read()
            return self.run.refer(self.keep_anonymous(text, node), value.summary, text, value.schema)
        return placed.get(id(value), value)

    def bounded(self, value: Value, node: tree.Node) -> None:
        """Raise E209 for an array or object that is too large or nested too deeply (amendment A32)."""
        require_shallow(self, node, value)
        try:
            require_writable(value)
        except ValueTypeError as error:
            raise located(self, error, node) from None

    # ------------------------------------------------------------ events and errors

    def place(self, node: Node) -> Place:
        """Return the place of `node`. Places are cached, because loops need the same ones in every pass."""
        here = (self.source, self.run.progress.ordinal, self.frame, self.branches, self.path)
        if here != self._here or len(self._places) > _PLACES:  # some nodes are created again in every pass
            self._here, self._places = here, {}
        known = self._places.get(id(node))
        if known is None:
            frame = self.frame
            place = self._place(node, frame.depth, frame.execution_id, frame.block)
            known = self._places[id(node)] = node, place
        return known[1]

    def wrong_value(self, message: str, hint: str) -> RunError:
        """Return the error for a value that the program may not build."""
        return ValueTypeError(message, hint=hint)

    def error_details(self) -> Mapping[str, object]:
        return {} if self.frame.execution_id is None else {"execution_id": self.frame.execution_id}

    def stack_lines(self) -> tuple[str, ...]:
        return shortened_stack([frame for frame in self.frame.stack() if frame.caller is not None], _stack_line)


_PLACES: Final = 1000
"""The most places cached for a line of control."""

_ARGUMENTS: Final = 80
"""The most characters of a frame's arguments that an error shows."""


def _stack_line(frame: Frame) -> str:
    """Return the line of a frame in the call stack, with its shortened arguments."""
    given = clipped(", ".join(map(readable_preview, frame.arguments)), _ARGUMENTS, tidy=True)
    where = f", called at line {frame.caller.location.line} of {frame.caller.location.source}" if frame.caller else ""
    return f"in block {frame.block}{f'({given})' if given else ''} #{frame.execution_id}{where}"


_CONTAINERS: Final = (list, dict)


def _members(value: Value) -> Iterable[Value]:
    return value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()


# ---------------------------------------------------------------- errors as values (docs/reference/openprose.md 3.12)

_FIELDS: Final = (
    "statement", "line", "execution_id", "branch", "program", "command", "exit_code", "stderr", "stdout",
    "timed_out", "gate", "status", "resolved_by", "comment",
)  # fmt: skip


def error_value(error: RunError) -> ErrorValue:
    """Return the value that `catch` binds: the fields of 3.12 in the order of its table, then other fields."""
    fields: dict[str, object] = {"type": error.type, "code": error.code, "message": one_line(error.message)}
    for name in _FIELDS:
        if name in error.details:
            fields[name] = error.details[name]
    for name, value in error.details.items():
        fields.setdefault(name, value)
    return ErrorValue(fields, error)


def one_line(text: str) -> str:
    return " ".join(text.split()) if "\n" in text else text


def recursion_error(name: str, limit: int, kind: str = "block") -> RecursionLimitExceeded:
    return RecursionLimitExceeded(f"RecursionLimitExceeded: {kind} '{name}' exceeded max_depth {limit}")
