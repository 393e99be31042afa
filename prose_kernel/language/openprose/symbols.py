"""Indexes the names of an OpenProse program for editors: their definitions, uses, and the targets of imports.

Names are resolved as specified in docs/reference/openprose.md 3.5. A block reads the variables of its caller, so a name
that a block doesn't bind may refer to variables of several frames. A rename must change all of them, so they are merged
into one symbol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Final, NamedTuple

from msgspec import Struct
from msgspec import field as struct_field

from prose_kernel.language.nodes import Node, visitors
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.call_targets import CallTarget, interface_of
from prose_kernel.language.openprose.program_interface import block_exports, local_name, uses_of
from prose_kernel.language.openprose.tree import Name, Program
from prose_kernel.language.source import Source, Span
from prose_kernel.language.symbols import ImportTarget, Indexer, Occurrence, Symbol, SymbolIndex, SymbolKind

_WORD_PROPERTIES: Final = frozenset((
    "model", "persist", "backoff", "on-fail", "format", "skills", "retry", "timeout", "allow", "max-output",
    "pipefail",
))  # fmt: skip
"""Properties whose values are words, not names of variables (1.6)."""


@dataclass(eq=False)
class _Frame:
    """The scope of the program, of a block, or of the texts of an agent, which are interpolated where a session starts.

    - `variables`: the variables declared here
    - `unresolved`: the occurrences of other names, which are resolved after the walk
    - `exported`: the names of the blocks whose exports are readable here
    - `sites`: the places that call the block, or use the agent
    """

    block: tree.Block | None = None
    variables: dict[str, Symbol] = field(default_factory=dict)
    unresolved: list[_UnresolvedName] = field(default_factory=list)
    exported: set[str] = field(default_factory=set)
    sites: list[_Scope] = field(default_factory=list)

    @cached_property
    def exports(self) -> frozenset[str]:
        """The names that a bare `do` of the block may make readable (3.6)."""
        return frozenset(block_exports(self.block)) if self.block is not None else frozenset()


class _UnresolvedName(NamedTuple):
    occurrence: Occurrence
    name: str
    writes: bool
    extent: Span


class _Scope(Struct, frozen=True):
    """A place in the program: its frame, the temporary names visible there, and the span of its statement."""

    frame: _Frame
    temporary: dict[str, Symbol] = struct_field(default_factory=dict)
    statement: Span | None = None

    def within(self, names: Iterable[Symbol]) -> _Scope:
        return _Scope(self.frame, {**self.temporary, **{one.name: one for one in names}}, self.statement)


def index(program: Program, source: Source, inputs: Mapping[str, Symbol] | None = None) -> SymbolIndex:
    """Return the index of the parts of a program that could be parsed; `inputs` are the names that its contract
    declares. Never raises, and takes linear time."""
    return _Indexer(source, inputs or {}).of(program)


def shared_name(target: CallTarget, kind: str, name: str) -> str:
    """Return the name under which other files refer to an input or output (`kind`) of a target. Those of a file's own
    node are named like those of a program, those of an inline node include its name."""
    return f"{kind} {target.inline}.{name}" if target.inline else f"{kind} {name}"


class _Indexer(Indexer):
    def __init__(self, source: Source, inputs: Mapping[str, Symbol]) -> None:
        super().__init__(source)
        self._root = _Frame(variables=dict(inputs))
        self._targets = interface_of(source).targets
        self._uses: Mapping[str, str] = {}
        self._script = False  # in a script, a variable may name a model
        self._frames: dict[str, _Frame] = {}  # the frames of blocks
        self._texts: dict[str, _Frame] = {}  # the frames of agents
        self._agents: dict[str, Symbol] = {}
        self._blocks: dict[str, Symbol] = {}
        self._programs: dict[str, Symbol] = {}
        self._gates: dict[str, Symbol] = {}
        self._values: list[tuple[Occurrence, str | None]] = []  # for each binding, the program whose result it is
        self._members: list[tuple[Occurrence, str, Span]] = []
        self._uses_of_frames: list[tuple[Name, _Scope, dict[str, Symbol], dict[str, _Frame]]] = []
        """The uses of agents and blocks, with the registry and the frames of their kind."""
        self._calls: list[tree.ProgramCall] = []

    def of(self, program: Program) -> SymbolIndex:
        self._script, self._uses = program.script, uses_of(program)
        for item in program.items:
            if isinstance(item, tree.Use):
                self._use(item)
        self.walk(program.items, _Scope(self._root))
        self.run()
        self._resolve()
        return self.index()

    # ------------------------------------------------------------ after the walk

    def _resolve(self) -> None:
        for name, scope, registry, frames in self._uses_of_frames:
            if name.id in registry:
                self.use(registry[name.id], name.span)
                frames[name.id].sites.append(scope)
        everywhere = (self._root, *self._frames.values(), *self._texts.values())
        for frame in everywhere:
            self._declare_assigned(frame)
        for frame in everywhere:
            self._join_exports(frame)
            for one in frame.unresolved:
                one.occurrence.symbol = self._variable(frame, one.name)
        for call in self._calls:
            self._call(call)
        self._resolve_members()
        self.occurrences = [one for one in self.occurrences if one.symbol is not None or one.target is not None]

    def _resolve_members(self) -> None:
        """Resolve members of variables that only hold results of one program to the outputs of that program."""
        results: dict[Symbol, set[str | None]] = {}
        for occurrence, path in self._values:
            if occurrence.symbol is not None:
                results.setdefault(self.merged(occurrence.symbol), set()).add(path)
        for occurrence, key, span in self._members:
            paths = results.get(self.merged(occurrence.symbol), set()) if occurrence.symbol is not None else set()
            path = next(iter(paths)) if len(paths) == 1 else None
            if path is not None:
                self.use(None, span, target=ImportTarget(path, f"output {key}"))

    def _declare_assigned(self, frame: _Frame) -> None:
        """Declare a name in the frame that assigns it if no frame declares it."""
        for occurrence, name, writes, extent in frame.unresolved:
            if writes and self._variable(frame, name) is None:
                span = Span(occurrence.start, occurrence.end)
                frame.variables[name] = Symbol(name, "variable", span, extent)
                occurrence.defines = True

    def _variable(self, frame: _Frame, name: str) -> Symbol | None:
        """Return the variable that a name in a frame refers to, None if it is unknown; all variables that it may refer
        to are merged into one symbol."""
        found: dict[Symbol, None] = dict.fromkeys(self._own_variables(frame, name))
        agenda, seen = [] if found else [frame], {frame}
        while agenda:
            for site in agenda.pop().sites:
                own = [site.temporary[name]] if name in site.temporary else self._own_variables(site.frame, name)
                found.update(dict.fromkeys(own))
                if not own and site.frame not in seen:
                    seen.add(site.frame)
                    agenda.append(site.frame)
        symbols = list(found) or self._own_variables(self._root, name)
        return self.merge(symbols) if symbols else None

    def _own_variables(self, frame: _Frame, name: str) -> list[Symbol]:
        """Return the variables for a name in a frame, without those of callers: its own, or exports of calls (3.6)."""
        if name in frame.variables:
            return [frame.variables[name]]
        blocks = [self._frames[block] for block in sorted(frame.exported) if block in self._frames]
        return [one.variables[name] for one in blocks if name in one.exports and name in one.variables]

    def _join_exports(self, frame: _Frame) -> None:
        """Merge exported names with the frame's own variables; a read may refer to either, depending on its place."""
        for block in frame.exported & self._frames.keys():
            other = self._frames[block]
            for name in sorted(other.exports & other.variables.keys() & frame.variables.keys()):
                self.merge([frame.variables[name], other.variables[name]])

    def _call(self, call: tree.ProgramCall) -> None:
        program = self._programs.get(call.program.id)
        if program is None:
            return
        self.use(program, call.program.span)
        for argument in call.arguments:
            if argument.name.id and program.target is not None:
                self.use(
                    None, argument.name.span, target=ImportTarget(program.target.path, f"input {argument.name.id}")
                )

    # ------------------------------------------------------------ variables

    def _read(self, name: str, span: Span, scope: _Scope, *, before: str = "", writes: bool = False) -> Occurrence:
        symbol = scope.temporary.get(name) or scope.frame.variables.get(name)
        occurrence = self.use(symbol, span, before=before)
        if symbol is None:
            scope.frame.unresolved.append(_UnresolvedName(occurrence, name, writes, scope.statement or span))
        return occurrence

    def _bind(self, name: Name, scope: _Scope, kind: SymbolKind, extent: Span, shared: str = "") -> Occurrence | None:
        """Add a declaration. A declaration of a temporary name, which is an error, counts as a use of that name."""
        if not name.id:
            return None
        if name.id in scope.temporary:
            return self.use(scope.temporary[name.id], name.span)
        symbol = scope.frame.variables.setdefault(name.id, Symbol(name.id, kind, name.span, extent))
        if shared and scope.frame is self._root:
            symbol.shared.add(f"{shared} {name.id}")
        return self.bind(symbol, kind, name.span, extent)

    def _bound_to(self, occurrence: Occurrence, value: Node) -> None:
        """Record whether a variable is bound to the result of a program."""
        target = self._target(value)
        self._values.append((occurrence, target.path if target else None))

    def _target(self, value: Node) -> ImportTarget | None:
        program = self._programs.get(value.program.id) if isinstance(value, tree.ProgramCall) else None
        return program.target if program is not None else None

    def _temporaries(self, names: Iterable[Name | None], extent: Span) -> list[Symbol]:
        return [self.define(name.id, "parameter", name.span, extent) for name in names if name is not None and name.id]

    # ------------------------------------------------------------ statements

    def _use(self, node: tree.Use) -> None:
        path, name = node.path.raw, local_name(node)
        if path.strip():
            self.links.append((node.path.span, path))
        if not name:
            return
        if node.alias is not None:
            symbol = self.define(name, "program", node.alias.span, node.span)
        else:
            symbol = Symbol(name, "program", node.path.span, node.span)
            self.use(symbol, node.path.span, defines=True, before=" as ").path = True
        symbol.target = ImportTarget(path)
        self._programs.setdefault(name, symbol)

    def visit_let(self, node: tree.Let, scope: _Scope) -> None:
        kind: SymbolKind = "constant" if node.kind == "const" else "variable"
        target = self._target(node.value)
        for name in node.names:
            occurrence = self._bind(name, scope, kind, node.span)
            if occurrence is None:
                continue
            if not node.destructured:
                self._bound_to(occurrence, node.value)
            elif target is not None:
                occurrence.target = ImportTarget(target.path, f"output {name.id}")
        self._value(node.value, scope, node.span)

    def visit_assign(self, node: tree.Assign | tree.Append, scope: _Scope) -> None:
        inside = _Scope(scope.frame, scope.temporary, node.span)
        occurrence = self._read(node.name.id, node.name.span, inside, writes=True)
        if isinstance(node, tree.Assign):
            self._bound_to(occurrence, node.value)
        self.walk(node.value, inside)

    visit_append = visit_assign

    def visit_call(self, node: tree.Call, scope: _Scope) -> None:
        """Add the target of a call: a symbol of this text for an alias of `use`, else a node of a file."""
        name, is_path = node.named
        program = None if is_path else self._programs.get(name)
        if program is not None:
            self.use(program, node.target.span)
        if is_path and name.strip():
            self.links.append((node.target.span, name))
        target = self._targets.find(name, self._uses, path=is_path) if self._targets is not None and name else None
        if isinstance(target, CallTarget) and (place := target.place) is not None:
            address, called = place
            if program is None:
                self.use(None, node.target.span, target=ImportTarget(address, f"node {called}" if called else ""))
            declared = {one.name for one in target.inputs}
            for entry in node.inputs:
                if entry.name.id in declared:
                    shared = shared_name(target, "input", entry.name.id)
                    self.use(None, entry.name.span, target=ImportTarget(address, shared))
        for part in (*node.arguments, *(entry.value for entry in node.inputs)):
            self.walk(part, scope)

    def visit_stage(self, node: tree.Stage, scope: _Scope) -> None:
        self.walk(node.arguments, scope)

    def visit_output(self, node: tree.Output, scope: _Scope) -> None:
        if node.name is not None:
            occurrence = self._bind(node.name, scope, "variable", node.span, "output")
            same = isinstance(node.value, Name) and node.value.id == node.name.id
            if occurrence is not None and not same:
                self._bound_to(occurrence, node.value)
        self._value(node.value, scope, node.span)

    def visit_input(self, node: tree.Input, scope: _Scope) -> None:
        occurrence = self._bind(node.name, scope, "variable", node.span)
        if occurrence is not None and occurrence.symbol is not None:
            occurrence.symbol.shared.add(f"input {node.name.id}")
        self.walk(node.prompt, scope)

    def _value(self, value: Node, scope: _Scope, extent: Span) -> None:
        self.walk(value, _Scope(scope.frame, scope.temporary, extent))

    def visit_branch(self, node: tree.Branch, scope: _Scope) -> None:
        if node.name is not None:
            self._bind(node.name, scope, "variable", node.span)
        self.walk(node.statement, scope)

    def visit_expression_statement(self, node: tree.ExpressionStatement, scope: _Scope) -> None:
        if isinstance(node.value, tree.BlockCall):
            scope.frame.exported.add(node.value.block.id)
        self.walk(node.value, scope)

    def visit_agent(self, node: tree.Agent, scope: _Scope) -> None:
        frame = _Frame()
        if self._register(self._agents, "agent", node.name, node.span):
            self._texts[node.name.id] = frame
        self.walk(node.properties, _Scope(frame))

    def visit_gate(self, node: tree.Gate, scope: _Scope) -> None:
        self._register(self._gates, "gate", node.name, node.span)
        self.walk(node.properties, scope)

    def visit_block(self, node: tree.Block, scope: _Scope) -> None:
        frame = _Frame(node)
        if self._register(self._blocks, "block", node.name, node.span):
            self._frames[node.name.id] = frame
        self.walk(node.body, _Scope(frame).within(self._temporaries(node.parameters, node.span)))

    def _register(self, registry: dict[str, Symbol], kind: SymbolKind, name: Name, extent: Span) -> bool:
        """Add a definition to its registry. Return False for a duplicate, or if it has no name."""
        if not name.id:
            return False
        if name.id in registry:
            self.use(registry[name.id], name.span, defines=True)
            return False
        registry[name.id] = self.define(name.id, kind, name.span, extent)
        return True

    # ------------------------------------------------------------ bodies

    def visit_for(self, node: tree.For | tree.Repeat | tree.Loop | tree.Catch, scope: _Scope) -> None:
        head, names = _NAMED_BODIES[type(node)]
        self.walk(getattr(node, head, None), scope)
        temporaries = self._temporaries([getattr(node, name) for name in names], node.span)
        self.walk(node.body, scope.within(temporaries))

    visit_repeat = visit_loop = visit_catch = visit_for

    def visit_pipe_operation(self, node: tree.PipeOperation, scope: _Scope) -> None:
        names = self._temporaries(node.names, node.span)
        if not node.names:
            names = [Symbol("item", "parameter", Span(node.span.start, node.span.start), node.span, implicit=True)]
        self.walk(node.body, scope.within(names))

    # ------------------------------------------------------------ spawns and expressions

    def visit_session(self, node: tree.Session | tree.Resume, scope: _Scope) -> None:
        if node.agent is not None:
            self._uses_of_frames.append((node.agent, scope, self._agents, self._texts))
        self.walk((getattr(node, "title", None), node.properties), scope)

    visit_resume = visit_session

    def visit_block_call(self, node: tree.BlockCall, scope: _Scope) -> None:
        self._uses_of_frames.append((node.block, scope, self._blocks, self._frames))
        self.walk(node.arguments, scope)

    def visit_program_call(self, node: tree.ProgramCall, scope: _Scope) -> None:
        self._calls.append(node)
        self.walk(tuple(argument.value for argument in node.arguments), scope)

    def visit_property(self, node: tree.Property, scope: _Scope) -> None:
        value = node.value
        if node.name.id == "output":  # names of types
            return
        if node.name.id == "context":
            self._contexts(value, scope)
            return
        is_path = isinstance(value, tree.Member | tree.Index)
        is_name = isinstance(value, Name) and self._script and node.name.id == "model"
        if node.name.id not in _WORD_PROPERTIES or is_path or is_name:
            self.walk(value, scope)

    def _contexts(self, value: Node, scope: _Scope) -> None:
        """Add the parts of a context; a name may be that of a variable or of an agent."""
        parts: tuple[Node, ...] = (value,)
        if isinstance(value, tree.Array):
            parts = value.elements
        elif isinstance(value, tree.ContextBlock):
            parts = tuple(entry.value for entry in value.entries)
        elif isinstance(value, tree.Object):
            for entry in value.entries:
                self.visit_entry(entry, scope)
            return
        for part in parts:
            if isinstance(part, Name):
                self._read(part.id, part.span, scope)
                self._uses_of_frames.append((part, scope, self._agents, self._texts))
            else:
                self.walk(part, scope)

    def visit_name(self, node: Name, scope: _Scope) -> None:
        if node.id:
            self._read(node.id, node.span, scope)

    def visit_entry(self, node: tree.Entry, scope: _Scope) -> None:
        if node.shorthand and isinstance(node.value, Name):
            self._read(node.value.id, node.value.span, scope, before=f"{node.key}: ")
        else:
            self.walk(node.value, scope)

    def visit_member(self, node: tree.Member, scope: _Scope) -> None:
        value = node.value
        if isinstance(value, Name):
            self._members.append((self._read(value.id, value.span, scope), node.name.id, node.name.span))
            return
        target = self._target(value)
        if target is not None:
            self.use(None, node.name.span, target=ImportTarget(target.path, f"output {node.name.id}"))
        self.walk(value, scope)

    def visit_interpolation(self, node: tree.Interpolation, scope: _Scope) -> None:
        start = node.span.start + 1
        end = start + len(node.name)
        occurrence = self._read(node.name, Span(start, end), scope)
        if node.steps and isinstance(node.steps[0], str):
            self._members.append((occurrence, node.steps[0], Span(end + 1, end + 1 + len(node.steps[0]))))
        for step in node.steps:
            if isinstance(step, Name):
                self._read(step.id, step.span, scope)

    def visit_permissions(self, node: tree.Permissions, scope: _Scope) -> None:
        self.walk(tuple(entry.value for entry in node.entries if not isinstance(entry.value, Name)), scope)

    def visit_option(self, node: tree.Option, scope: _Scope) -> None:
        self.walk(node.body, scope)

    def visit_use(self, node: Node, scope: _Scope) -> None:
        """Do nothing: a skill has no symbol, and `of` has added the imports before the walk."""

    visit_skill_import = visit_use

    visits: ClassVar = visitors(tree, vars())


_NAMED_BODIES: Final[dict[type[Node], tuple[str, tuple[str, ...]]]] = {
    tree.For: ("collection", ("item", "index")),
    tree.Repeat: ("count", ("variable",)),
    tree.Loop: ("condition", ("variable",)),
    tree.Catch: ("", ("name",)),
}
"""For each kind of node, the field that is evaluated outside the body, and the fields with names visible only in it."""
