"""Derives the flow of an OpenProse program (see `language.flow`), and the places where a run can stop or end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from prose_kernel.language.flow import DEPTH, FlowBuilder, FlowStep, Way, shortened, statements
from prose_kernel.language.nodes import walk
from prose_kernel.language.openprose import tree
from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace

_NOT_VARIABLES: Final[Mapping[type, tuple[str, ...]]] = {
    tree.Property: ("name",),
    tree.Argument: ("name",),
    tree.Member: ("name",),
    tree.Session: ("label", "agent"),
    tree.Resume: ("agent",),
    tree.BlockCall: ("block",),
    tree.Call: ("target",),
    tree.Stage: ("name",),
    tree.ProgramCall: ("program",),
}
"""For each kind of node, the fields whose names aren't variables."""


def flow(program: tree.Program, source: Source) -> tuple[FlowStep, ...]:
    return _Flow(source).body(program.items, 0)


class _Flow(FlowBuilder[tree.Statement]):
    kind = tree.Statement

    def statement(self, node: tree.Statement, depth: int) -> list[FlowStep]:
        match node:
            case tree.ExpressionStatement(value=value):
                return self.expression(value, (), depth)
            case tree.Let(names=names, value=value):
                return self.expression(value, tuple(name.id for name in names), depth, node)
            case tree.Assign(name=name, value=value):
                return self.expression(value, (name.id,), depth, node)
            case tree.Append(name=name, value=value):
                steps = self.inner(value, depth)
                return [*steps, FlowStep("value", self.text(node), node.span, _reads((value, name)), (name.id,))]
            case tree.Output(name=name, value=value):
                return self._output(node, depth)
            case tree.Input(name=name):
                return [FlowStep("input", self.text(node), node.span, binds=(name.id,))]
            case tree.Gate(name=name):
                return [FlowStep("gate", f"gate {name.id}", node.span, _reads(node.properties))]
            case tree.Throw() | tree.Return() | tree.Break() | tree.Continue():
                left: Any = getattr(node, "value", None)
                return [*self.inner(left, depth), FlowStep("leave", self.text(node), node.span, _reads(left))]
            case tree.Assert(condition=condition):
                return [FlowStep("judgement", self.text(node), node.span, _reads(condition))]
            case _:
                return [self._definition(node, depth)]

    def _output(self, node: tree.Output, depth: int) -> list[FlowStep]:
        names = (node.name.id,) if node.name is not None else ()
        steps = self.expression(node.value, names, depth, node)
        last = steps[-1]
        if last.kind == "value":
            return [*steps[:-1], FlowStep("output", last.text, last.span, last.reads, names)]
        return [*steps, FlowStep("output", f"output {names[0]}" if names else "output", node.span, names)]

    def _definition(self, node: tree.Statement, depth: int) -> FlowStep:
        match node:
            case tree.Agent(name=name, properties=properties):
                model = tree.value_of(properties, "model")
                text = f"{name.id}, {model.id}" if isinstance(model, tree.Name) else name.id
                return FlowStep("agent", text, node.span, _reads(properties), uses=(name.id,))
            case tree.Use(path=path, alias=alias):
                known = alias.id if alias is not None else path.raw.rsplit("/", 1)[-1]
                return FlowStep("import", shortened(path.raw), node.span, uses=(known,))
            case tree.SkillImport(skill=skill):
                return FlowStep("import", shortened(skill.raw), node.span, uses=(skill.raw,))
            case tree.Block():
                return self.definition_step(node, depth, bare=True)
            case _:
                return FlowStep("value", self.text(node), node.span)

    def expression(
        self, node: Any, binds: tuple[str, ...], depth: int, whole: tree.Node | None = None
    ) -> list[FlowStep]:
        """Return the steps of an expression whose value is bound to the names `binds`; at least one for a statement."""
        if isinstance(node, tree.Arrow):
            *first, last = node.spawns
            return [*(self._spawn(one, ()) for one in first), self._spawn(last, binds)]
        if isinstance(node, tree.Pipe):
            return self._pipe(node, binds, depth)
        if isinstance(node, tree.Active):
            return [*self._before(node, depth), self._active(node, binds, depth)]
        shown = whole or node
        return [*self.inner(node, depth), FlowStep("value", self.text(shown), shown.span, _reads(node), binds)]

    def inner(self, node: Any, depth: int) -> list[FlowStep]:
        """Return the steps (sessions, commands, gates) that must run before an expression can be computed."""
        if depth >= DEPTH:
            return []
        return [step for part in _active_in(node) for step in self.expression(part, (), depth + 1)]

    def _before(self, node: Any, depth: int) -> list[FlowStep]:
        """Return the steps that run before a construct begins: those in its collection, count, arguments or inputs."""
        given = getattr(node, "collection", None) or getattr(node, "count", None) or getattr(node, "arguments", None)
        inputs = tuple(entry.value for entry in node.inputs) if isinstance(node, tree.Call) else ()
        return [*self.inner(given, depth), *self.inner(inputs, depth)]

    def _spawn(self, node: tree.Spawn, binds: tuple[str, ...]) -> FlowStep:
        if isinstance(node, tree.Exec):
            return FlowStep("command", shortened(node.command.raw), node.span, _reads(node), binds)
        agent = node.agent.id if node.agent is not None else ""
        title = node.title if isinstance(node, tree.Session) else None
        prompt = title if title is not None else tree.value_of(node.properties, "prompt")
        text = shortened(prompt.raw) if isinstance(prompt, tree.Text) else agent or "session"
        return FlowStep("session", text, node.span, _reads(node), binds, (agent,) if agent else ())

    def _active(self, node: Any, binds: tuple[str, ...], depth: int) -> FlowStep:
        match node:
            case tree.Session() | tree.Resume() | tree.Exec():
                return self._spawn(node, binds)
            case tree.BlockCall(block=called) | tree.ProgramCall(program=called):
                text = f"do {called.id}" if isinstance(node, tree.BlockCall) else called.id
                return FlowStep("call", text, node.span, _reads(node.arguments), binds, (called.id,))
            case tree.Call(named=(name, is_path)):
                uses = () if is_path else (name,)
                return FlowStep("call", f"call {shortened(name)}", node.span, _reads(node), binds, uses)
            case tree.Stage(name=name):
                return FlowStep("session", name.id, node.span, _reads(node.arguments), binds)
            case tree.Discretion():
                return FlowStep("judgement", self.text(node), node.span, _reads(node), binds)
            case tree.Parallel():
                return self._parallel(node, binds, depth)
            case tree.For() | tree.Repeat() | tree.Loop():
                return self._loop(node, binds, depth)
            case tree.If(arms=arms):
                reads = _reads(tuple(arm.condition for arm in arms))
                return self.if_step(FlowStep("if", "", arms[0].condition.span, reads, binds), node, depth)
            case tree.Choice(criteria=criteria, options=options):
                named = [(shortened(option.label.raw), option.body) for option in options]
                text = f"choice {self.text(criteria)}"
                step = FlowStep("if", text, criteria.span, _reads(criteria), binds, always=True)
                return self.with_ways(step, node, named, depth)
            case tree.Try(catch=catch):
                return self.try_step(node, "catch", catch, catch.name if catch is not None else None, binds, depth)
            case _:
                return self.with_ways(FlowStep("body", "do", node.span, binds=binds), node, [("", node.body)], depth)

    def _parallel(self, node: tree.Parallel, binds: tuple[str, ...], depth: int) -> FlowStep:
        names = tuple(branch.name.id for branch in node.branches if branch.name is not None)
        step = FlowStep("parallel", " ".join(["parallel", *_modifiers(node.modifiers)]), node.span, binds=binds)
        if depth >= DEPTH:
            omitted = statements(node, tree.Statement)
            return replace(step, reads=_reads(node), binds=binds + names, omitted=omitted)
        ways = tuple(
            Way(branch.name.id if branch.name is not None else "", tuple(self._branch(branch, depth + 1)))
            for branch in node.branches
        )
        return replace(step, ways=ways, always=True)

    def _branch(self, branch: tree.Branch, depth: int) -> list[FlowStep]:
        if branch.name is not None and isinstance(branch.statement, tree.ExpressionStatement):
            return self.expression(branch.statement.value, (branch.name.id,), depth, branch)
        return self.statement(branch.statement, depth)

    def _loop(self, node: tree.For | tree.Repeat | tree.Loop, binds: tuple[str, ...], depth: int) -> FlowStep:
        head: Any
        match node:
            case tree.For(collection=head, item=item, modifiers=modifiers):
                each = "for" if modifiers is None else " ".join(["parallel for", *_modifiers(modifiers)])
                text = f"{each} {item.id} in {self.text(head)}"
                text += f", at most {node.maximum} times" if node.maximum is not None else ""
            case tree.Repeat(count=head, concurrent=concurrent):
                text = f"{'parallel ' if concurrent else ''}repeat {self.text(head)}"
            case tree.Loop(mode=mode, condition=head, maximum=maximum):
                text = f"loop {mode} {self.text(head)}" if head is not None else "loop"
                text += f", at most {maximum} times" if maximum is not None else ""
        span = head.span if isinstance(node, tree.Loop) and head is not None else node.span
        names = (node.item, node.index) if isinstance(node, tree.For) else (node.variable,)
        own = tuple(name.id for name in names if name is not None)
        return self.with_ways(
            FlowStep("loop", text, span, _reads(head), binds, scoped=own), node, [("", node.body)], depth
        )

    def _pipe(self, node: tree.Pipe, binds: tuple[str, ...], depth: int) -> list[FlowStep]:
        steps, reads = self.inner(node.source, depth), _reads(node.source)
        for operation in node.operations:
            own = tuple(name.id for name in operation.names)
            text = f"{operation.kind} ({', '.join(own)})" if own else operation.kind
            bound = binds if operation is node.operations[-1] else ()
            step = FlowStep("loop", text, operation.span, reads, bound, scoped=("item", *own))
            steps.append(self.with_ways(step, operation, [("", operation.body)], depth))
            reads = ()
        return steps


def _modifiers(modifiers: tree.Modifiers) -> list[str]:
    labels: list[str] = [modifiers.strategy] if modifiers.strategy != "all" else []
    labels += [f"on-fail {modifiers.on_fail}"] if modifiers.on_fail != "fail-fast" else []
    return [f"({', '.join(labels)})"] if labels else []


def _parts(node: Any) -> Iterable[Any]:
    if isinstance(node, tuple):
        return node
    if isinstance(node, tree.Node):
        return [getattr(node, name) for name in _fields(type(node))]
    return ()


@cache
def _fields(kind: type[tree.Node]) -> tuple[str, ...]:
    """Return the names of the fields that may hold steps or variables."""
    return tuple(name for name in kind.__struct_fields__ if name != "span" and name not in _NOT_VARIABLES.get(kind, ()))


def _active_in(root: Any) -> list[Any]:
    """Return the outermost steps inside an expression at any depth, in source order."""
    found, agenda = [], [root]
    while agenda:
        node = agenda.pop()
        if isinstance(node, tree.Active):
            found.append(node)
        else:
            agenda.extend(_parts(node))
    return sorted(found, key=lambda node: node.span)


def _reads(root: Any) -> tuple[str, ...]:
    """Return the names that an expression may read, in source order, except those read by steps inside it."""
    found, agenda = [], list(_parts(root)) if isinstance(root, tree.Active) else [root]
    while agenda:
        node = agenda.pop()
        if isinstance(node, tree.Name):
            found.append((node.span, node.id))
        elif isinstance(node, tree.Interpolation):
            found.append((node.span, node.name))
        elif not isinstance(node, tree.Active) or isinstance(node, tree.Discretion):
            agenda.extend(_parts(node))
    return tuple(dict.fromkeys(name for _, name in sorted(found)))


_DECLARED: Final = (tree.Use, tree.SkillImport, tree.Agent, tree.Block)


def stops(program: tree.Program) -> list[Span]:
    """Return the spans of the statements and of the named branches of `parallel`, where a debugger can stop.
    Definitions aren't included, because they are declared before the first statement runs."""
    nodes = [node for script in program.scripts() for node in walk(script)]
    named = [node for node in nodes if isinstance(node, tree.Branch) and node.name is not None]
    inside = {id(branch.statement) for branch in named}
    places = [node for node in nodes if isinstance(node, tree.Statement) and not isinstance(node, _DECLARED)]
    return [node.span for node in (*named, *places) if id(node) not in inside]


def ends(program: tree.Program) -> Iterator[Span]:
    """Yield the spans of the statements at any depth that end the program successfully: `return`, and `output` without
    a name."""
    left_out = {id(node) for block in walk(program) if isinstance(block, tree.Block) for node in walk(block)}
    for node in walk(program):
        returns = isinstance(node, tree.Return) or (isinstance(node, tree.Output) and node.name is None)
        if returns and id(node) not in left_out:
            yield node.span
