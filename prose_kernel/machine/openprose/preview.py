"""What the sessions of a text would be asked, told without running anything and without changing any state.

The text is walked in source order over a copy of the run. What an earlier statement of it would bind is not known yet,
and stands as a visible marker wherever it is used; both arms of a condition are walked; a loop over known items is
walked item by item, any other one once. No counter of the run is used up, nothing is kept, nobody is asked.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from prose_kernel.errors import RunError, Undecided
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.contract import is_executable
from prose_kernel.language.source import Source, Span
from prose_kernel.machine.openprose import numbering
from prose_kernel.machine.openprose.bindings import Destination, supplied
from prose_kernel.machine.openprose.branches import branch_label
from prose_kernel.machine.openprose.calls import strand_of_call
from prose_kernel.machine.openprose.code import compile_expression
from prose_kernel.machine.openprose.frames import Caller, Frame, Kind, Layer, Slot, Temp, find_home
from prose_kernel.machine.openprose.runs import AgentEntry, BlockEntry, ExecutionContext, Host, Run
from prose_kernel.machine.openprose.sessions import prepared
from prose_kernel.runtime import ports
from prose_kernel.runtime import structured_text as readings
from prose_kernel.runtime.events import BranchStep
from prose_kernel.runtime.ports import Binding, Finding, JudgeRequest, Key, Pick, SessionRequest, Store, Verdict
from prose_kernel.runtime.trampoline import call, drive
from prose_kernel.runtime.values import ErrorValue, ExecText, Reference, Value

MOST: Final = 200
"""Sessions that a preview tells of."""
PASSES: Final = 20
"""Items of a known collection that a loop is walked for."""
_STEPS: Final = 20_000
_HOISTED = (tree.Use, tree.SkillImport, tree.Agent, tree.Block)
_UNKNOWN = re.compile(r"⟦([^⟦⟧\n]{1,200}): not known yet⟧")


def unknown(name: str) -> str:
    """What stands for a value that nobody knows before the program runs."""
    return f"⟦{name}: not known yet⟧"


@dataclass(frozen=True, slots=True)
class Preview:
    """One session: where it stands, what it would be asked at first, and what of it is not known yet.

    `problem` is the error that it would raise instead, `note` why nothing can be told of what stands there; then the
    request is None.
    """

    source: Source
    span: Span
    bound_to: str | None
    request: SessionRequest | None
    unknown: tuple[str, ...] = ()
    problem: RunError | None = None
    note: str = ""


async def preview(run: Run, program: tree.Program, source: Source, cwd: str) -> tuple[Preview, ...]:
    """Every session of a checked text, in source order, against what the run knows now; at most `MOST`."""
    shadow = _shadow(run)
    shadow.begin(program)
    context = ExecutionContext(shadow, shadow.root, source, cwd, f"c{shadow.cell}")
    walk = _Walk()
    await drive(walk.text(context, program))
    return tuple(walk.found)


# ---------------------------------------------------------------- the copy of a run


class _Looking:
    """A store that only looks: it knows the places of another one, and keeps nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.chain = store.chain
        self.by_value = store.by_value
        self.lost: str | None = None

    def put(self, binding: Binding) -> None:
        return

    def read(self, key: Key) -> str:
        return self._store.read(key)

    def mark(self, key: Key) -> object:
        return None

    def location(self, key: Key) -> str:
        return self._store.location(key)

    def header(self, binding: Binding) -> str:
        return self._store.header(binding)

    def memory(self, agent: str, persist: str) -> str:
        return self._store.memory(agent, persist)

    def has_memory(self, agent: str, persist: str) -> bool:
        return self._store.has_memory(agent, persist)

    def nested(self, handle: str, slug: str, source: str, number: int = 1) -> Store:
        return _Nested(self, f"{handle}--{slug}" if number == 1 else f"{handle}--{slug}--{number}")

    async def flush(self) -> None:
        return


class _Nested(_Looking):
    """The store of an imported program's call as it would be: nothing is there yet."""

    def __init__(self, outer: Store, name: str) -> None:
        super().__init__(outer)
        self.chain = (*outer.chain, name)
        self._name = name

    def location(self, key: Key) -> str:
        before, directory, file = self._store.location(key).rpartition("bindings/")
        return f"{before}imports/{self._name}/{directory}{file}" if directory else file


class _Nobody:
    """A judge that is asked nothing: what it would read in a text is not known yet."""

    async def decide(self, request: JudgeRequest) -> Verdict:
        raise Undecided("a preview judges nothing")

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        raise Undecided("a preview judges nothing")

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        whole = _UNKNOWN.fullmatch(value)
        return Finding(unknown(f"{whole[1]}.{path}" if whole else path), "")

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        return Finding([value], "")


def _shadow(run: Run) -> Run:
    """A copy of a run, whose bindings, counters and registries may be changed, and which can do nothing."""
    real = run.host.ports
    doors = ports.Ports(
        commands=real.commands,
        sessions=real.sessions,
        judge=_Nobody(),
        user=real.user,
        gates=real.gates,
        store=_Looking(run.store),
        clock=real.clock,
    )
    host = Host(doors, (), supplied=run.host.supplied)
    shadow = Run(host, doors.store, run.name, run.program)
    table = {name: replace(slot) for name, slot in run.root.table.items()}
    shadow.root = Layer(Frame(), table=table, exports=dict(run.root.exports), outputs=dict(run.root.outputs))
    shadow.agents, shadow.blocks, shadow.programs = dict(run.agents), dict(run.blocks), dict(run.programs)
    shadow.supplied = run.supplied
    shadow.started_agents = set(run.started_agents)
    shadow.finished.extend(run.finished)
    shadow.cell, shadow.ordinal = run.cell, run.ordinal
    shadow.numbers = copy.deepcopy(run.numbers)
    return shadow


# ---------------------------------------------------------------- the walk


class _Walk:
    """One walk over a text. `found` grows in source order."""

    def __init__(self) -> None:
        self.found: list[Preview] = []
        self._steps = 0

    @property
    def _full(self) -> bool:
        self._steps += 1
        return len(self.found) >= MOST or self._steps > _STEPS

    async def text(self, s: ExecutionContext, program: tree.Program) -> None:
        start = s.path
        for item in program.items:
            if isinstance(item, tree.Agent):
                s.run.agents[item.name.id] = AgentEntry(item, s.source)
            elif isinstance(item, tree.Block):
                s.run.blocks[item.name.id] = BlockEntry(item, s.source)
        rest = [item for item in program.items if not isinstance(item, _HOISTED)]
        while rest and isinstance(rest[0], tree.Input):
            await call(self._statement(s, rest.pop(0)))
        for item in rest:
            if is_executable(item):
                s.run.ordinal += 1
                s.run.in_cell += 1
                s.path, s.counts = f"{start}/{s.run.in_cell}", {}
            await call(self._statement(s, item))
            s.run.finished.extend(_names(item))

    async def _body(self, s: ExecutionContext, body: Sequence[tree.Node]) -> None:
        for node in body:
            await call(self._statement(s, node))

    async def _statement(self, s: ExecutionContext, node: tree.Node) -> None:
        if self._full:
            return
        s.statement = node
        match node:
            case tree.Let(destructured=False) | tree.Assign() | tree.Output(name=tree.Name()):
                await call(self._named(s, node))
            case tree.Let():
                await call(self._value(s, node.value, None))
                for name in node.names:
                    _bind(s, s.layer, name.id, node.kind, unknown(name.id), node)
            case tree.Input():
                known = supplied(s, node.name.id)
                value = unknown(node.name.id) if known is None else known
                _bind(s, s.layer, node.name.id, "input", value, node)
            case tree.Gate():
                await call(self._gate(s, node))
            case _:
                await call(self._inside(s, node))

    async def _named(self, s: ExecutionContext, node: tree.Let | tree.Assign | tree.Output) -> None:
        name = node.names[0] if isinstance(node, tree.Let) else node.name
        assert name is not None
        layer: Layer = s.layer
        kind: Kind = node.kind if isinstance(node, tree.Let) else "output" if isinstance(node, tree.Output) else "let"
        if isinstance(node, tree.Assign) and (home := find_home(name.id, s.temps, s.layer)) is not None:
            layer = home[1]
        key = Key(name.id, layer.frame.execution_id, layer.iterations)
        await call(self._value(s, node.value, Destination(name.id, key, kind)))
        _bind(s, layer, name.id, kind, unknown(name.id), node)

    async def _gate(self, s: ExecutionContext, node: tree.Gate) -> None:
        for held in node.properties:
            if isinstance(held.value, tree.OnReject) and held.value.action == "session":
                await call(self._session(s, tree.Session(title=held.value.text, span=held.value.span), None))

    # ------------------------------------------------------------ values

    async def _value(self, s: ExecutionContext, node: tree.Node, destination: Destination | None) -> None:
        """Walk an expression: its sessions, in the order in which they would run."""
        if self._full:
            return
        match node:
            case tree.Session() | tree.Resume():
                await call(self._session(s, node, destination))
            case tree.Arrow():
                for at, spawn in enumerate(node.spawns, 1):
                    await call(self._value(s, spawn, destination if at == len(node.spawns) else None))
            case tree.BlockCall():
                await call(self._block(s, node))
            case tree.ProgramCall():
                await call(self._program(s, node))
            case tree.Parallel():
                await call(self._parallel(s, node))
            case tree.For():
                await call(self._for(s, node))
            case tree.Repeat():
                await call(self._repeat(s, node))
            case tree.Loop():
                await call(self._loop(s, node))
            case tree.If():
                await call(self._arms(s, [arm.body for arm in node.arms] + [node.otherwise or ()]))
            case tree.Choice():
                await call(self._arms(s, [option.body for option in node.options]))
            case tree.Try():
                await call(self._try(s, node))
            case tree.Pipe():
                await call(self._pipe(s, node))
            case tree.Do():
                await call(self._body(s, node.body))
            case _:
                await call(self._inside(s, node))

    async def _inside(self, s: ExecutionContext, node: tree.Node) -> None:
        """The parts of a statement or expression that needs no walk of its own."""
        for part in _parts(node):
            await call(self._value(s, part, None))

    async def _session(
        self, s: ExecutionContext, node: tree.Session | tree.Resume, destination: Destination | None
    ) -> None:
        name = destination.name if destination is not None else None
        try:
            request, _ = await call(prepared(s, node, destination))
        except RunError as problem:
            self.found.append(Preview(s.source, node.span, name, None, problem=problem))
            return
        if request.memory is not None:
            s.run.started_agents.add(request.memory.agent)
        self.found.append(Preview(s.source, node.span, name, request, tuple(dict.fromkeys(_open(request)))))

    async def _block(self, s: ExecutionContext, node: tree.BlockCall) -> None:
        for argument in node.arguments:
            await call(self._value(s, argument, None))
        entry = s.run.blocks.get(node.block.id)
        if entry is None or any(frame.block == node.block.id for frame in s.frame.stack()):
            return
        values = [_evaluated(s, argument) for argument in node.arguments]
        caller = Caller(s.temps, s.layer, s.location(node.span))
        frame = Frame(s.next_execution(), node.block.id, tuple(values), caller, s.frame.depth + 1, 1)
        temps = {
            parameter.id: Temp(values[at] if at < len(values) else None, "parameter", _origin(s, node, at))
            for at, parameter in enumerate(entry.node.parameters)
        }
        outer = s.frame, s.layer, s.temps, s.source, s.statement
        s.frame, s.layer, s.temps, s.source = frame, Layer(frame), temps, entry.source
        try:
            await call(self._body(s, entry.node.body))
        finally:
            s.frame, s.layer, s.temps, s.source, s.statement = outer

    async def _program(self, s: ExecutionContext, node: tree.ProgramCall) -> None:
        for argument in node.arguments:
            await call(self._value(s, argument.value, None))
        entry = s.run.programs.get(node.program.id)
        if entry is None:
            note = f"program '{node.program.id}' is loaded when the text runs; its sessions are not known before"
            self.found.append(Preview(s.source, node.span, None, None, note=note))
            return
        given = {argument.name.id: _evaluated(s, argument.value) for argument in node.arguments}
        inner = strand_of_call(s, node, entry, given)
        inner.run.programs.update(entry.imports)
        inner.run.begin(entry.loaded.program)
        await call(self.text(inner, entry.loaded.program))

    # ------------------------------------------------------------ control

    async def _arms(self, s: ExecutionContext, bodies: Sequence[Sequence[tree.Node]]) -> None:
        """Bodies of which one will run: each is counted as if it were the one."""
        before, most = dict(s.counts), dict(s.counts)
        for body in bodies:
            s.counts = dict(before)
            await call(self._body(s, body))
            most = {what: max(most.get(what, 0), s.counts.get(what, 0)) for what in {*most, *s.counts}}
        s.counts = most

    async def _try(self, s: ExecutionContext, node: tree.Try) -> None:
        await call(self._body(s, node.body))
        if node.catch is not None:
            name = node.catch.name
            temps = {name.id: _temp(name.id, "error")} if name is not None else {}
            await call(self._with(s, temps, node.catch.body))
        await call(self._body(s, node.final or ()))

    async def _with(self, s: ExecutionContext, temps: dict[str, Temp], body: Sequence[tree.Node]) -> None:
        outer, s.temps = s.temps, {**s.temps, **temps}
        try:
            await call(self._body(s, body))
        finally:
            s.temps = outer

    async def _for(self, s: ExecutionContext, node: tree.For) -> None:
        await call(self._value(s, node.collection, None))
        items = _items(s, node.collection)
        passes = [unknown(node.item.id)] if items is None else items[:PASSES]
        apart = self._apart(s, len(items or passes)) if node.modifiers is not None else None
        for at, item in enumerate(passes):
            number: Value = unknown(node.index.id) if node.index is not None and items is None else at
            temps = {node.item.id: Temp(item, "loop variable")}
            if node.index is not None:
                temps[node.index.id] = Temp(number, "loop variable")
            await call(self._pass(s, apart, temps, node.body))
        if apart is not None:
            s.numbers.joined()

    async def _pass(
        self,
        s: ExecutionContext,
        apart: Iterator[ExecutionContext] | None,
        temps: dict[str, Temp],
        body: Sequence[tree.Node],
    ) -> None:
        """One pass of a body: in the context itself, or in one of those that would run beside each other."""
        context = next(apart) if apart is not None else s
        await call(self._with(context, temps, body))
        if apart is not None:
            s.numbers.ended(context.numbers)

    def _apart(self, s: ExecutionContext, count: int) -> Iterator[ExecutionContext]:
        """A context for each iteration that would run beside its siblings."""
        number, again = s.numbers.next(numbering.PARALLEL), s.count("parallel")
        split = numbering.ForkAllocation(count)
        return (s.branch(BranchStep(number, at, f"i{at}"), at, again, split) for at in range(count))

    async def _repeat(self, s: ExecutionContext, node: tree.Repeat) -> None:
        count = _evaluated(s, node.count)
        known = isinstance(count, int) and not isinstance(count, bool) and count > 0
        for at in range(min(count, PASSES) if known and isinstance(count, int) else 1):
            value: Value = at if known else unknown(node.variable.id if node.variable is not None else "")
            temps = {node.variable.id: Temp(value, "loop variable")} if node.variable is not None else {}
            await call(self._with(s, temps, node.body))

    async def _loop(self, s: ExecutionContext, node: tree.Loop) -> None:
        temps = {node.variable.id: Temp(0, "loop variable")} if node.variable is not None else {}
        await call(self._with(s, temps, node.body))

    async def _pipe(self, s: ExecutionContext, node: tree.Pipe) -> None:
        await call(self._value(s, node.source, None))
        items = _items(s, node.source)
        for operation in node.operations:
            names = [name.id for name in operation.names] or ["item"]
            known = items is not None and operation.kind != "reduce"
            passes: list[Value] = list(items[:PASSES]) if known and items is not None else [unknown(names[0])]
            apart = self._apart(s, len(items) if items else 1) if operation.kind == "pmap" else None
            for item in passes:
                temps = {name: _temp(name, "pipeline variable") for name in names}
                temps[names[0]] = Temp(item, "pipeline variable")
                await call(self._pass(s, apart, temps, operation.body))
            if apart is not None:
                s.numbers.joined()
            items = None

    async def _parallel(self, s: ExecutionContext, node: tree.Parallel) -> None:
        number, again = s.numbers.next(numbering.PARALLEL), s.count("parallel")
        split = numbering.ForkAllocation(len(node.branches), [numbering.needs_of(branch) for branch in node.branches])
        for at, branch in enumerate(node.branches):
            context = s.branch(BranchStep(number, at, branch_label(branch, at)), None, again, split)
            context.statement = branch.statement
            statement = branch.statement
            if branch.name is not None and isinstance(statement, tree.ExpressionStatement):
                place = Destination(branch.name.id, context.key(branch.name.id), "let")
                await call(self._value(context, statement.value, place))
            else:
                await call(self._statement(context, statement))
            context.layer.publish()
            s.numbers.ended(context.numbers)
        s.numbers.joined()
        for branch in node.branches:
            if branch.name is not None:
                _bind(s, s.layer, branch.name.id, "let", unknown(branch.name.id), branch.statement)


# ---------------------------------------------------------------- names and values


def _bind(s: ExecutionContext, layer: Layer, name: str, kind: Kind, value: Value, node: tree.Node) -> None:
    key = Key(name, layer.frame.execution_id, layer.iterations)
    layer.table[name] = Slot(name, kind, value, key, s.source, node.span, None, s.run.cell)


def _temp(name: str, word: str) -> Temp:
    return Temp(unknown(name), word)


def _names(node: tree.Node) -> Iterator[str]:
    """The names that a top-level statement binds, as later sessions are told them."""
    for name in getattr(node, "names", None) or (getattr(node, "name", None),):
        if isinstance(name, tree.Name) and isinstance(node, tree.Let | tree.Assign | tree.Output | tree.Input):
            yield name.id


def _origin(s: ExecutionContext, node: tree.BlockCall, at: int) -> Key | None:
    argument = node.arguments[at] if at < len(node.arguments) else None
    found = s.find(argument.id) if isinstance(argument, tree.Name) else None
    return found.key if found is not None else None


def _evaluated(s: ExecutionContext, node: tree.Node) -> Value:
    """The value of an expression that nothing has to run for; else what stands for it."""
    code = compile_expression(node)
    if code.now is not None:
        try:
            return code.now(s)
        except RunError:
            pass
    return unknown(s.source.slice(node.span).strip()[:60].replace("\n", " ") or "value")


def _items(s: ExecutionContext, node: tree.Node) -> list[Value] | None:
    """The items of a collection, None where they are not known yet."""
    value = _evaluated(s, node)
    if isinstance(value, str) and _UNKNOWN.search(value):
        return None
    try:
        return readings.collection(value)
    except (RunError, readings.JudgeNeeded):
        return None


def _parts(node: tree.Node) -> Iterator[tree.Node]:
    """The direct parts of a node in source order."""
    for name in node.__dataclass_fields__:
        if name == "span":
            continue
        value = getattr(node, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, tree.Node):
                yield part


# ---------------------------------------------------------------- what is not known


def _open(request: SessionRequest) -> Iterator[str]:
    """The names that a request depends on and that nobody knows yet."""
    patterns = [p for rule in request.permissions.values() for p in (rule if isinstance(rule, tuple) else (rule,))]
    for text in (request.task, request.system or "", *patterns):
        yield from _UNKNOWN.findall(text)
    for item in request.context or ():
        yield from _UNKNOWN.findall(item.text or "")
        yield from _in_value(item.content)


def _in_value(value: Value) -> Iterator[str]:
    match value:
        case str():
            yield from _UNKNOWN.findall(value)
        case list():
            for part in value:
                yield from _in_value(part)
        case dict():
            for part in value.values():
                yield from _in_value(part)
        case ExecText() | Reference() | ErrorValue():
            return  # made by something that has run
        case _:
            return
