"""Builds the flow of a VVM program (`language.flow`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from prose_kernel.language.flow import FlowBuilder, FlowStep, Kind, shortened
from prose_kernel.language.nodes import walk
from prose_kernel.language.source import Source, Span
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.names import LIBRARY

_PURE: Final = frozenset({"len", "range", "perm", "pack"})
"""Library functions that start no session and call no function."""


def flow(program: tree.Program, source: Source) -> tuple[FlowStep, ...]:
    return _Flow(source).body(program.items, 0)


class _Flow(FlowBuilder[tree.Statement]):
    kind = tree.Statement

    def statement(self, node: tree.Statement, depth: int) -> list[FlowStep]:
        match node:
            case tree.ExpressionStatement(value=value):
                return self.expression(value, (), node)
            case tree.Assign(target=target, value=value):
                return self.expression(value, (target.id,), node)
            case tree.Return(value=value) if value is not None:
                text = "return" if _is_step(value) else self.text(node)  # the returned value is the step before
                return [*self.inner_steps(value), FlowStep("leave", text, node.span, _reads(value))]
            case tree.Return() | tree.Raise() | tree.Break() | tree.Continue():
                return [FlowStep("leave", self.text(node), node.span)]
            case tree.Pass():
                return []
            case tree.Export() | tree.ExportPack():
                return [FlowStep("output", self.text(node), node.span, _reads(node))]
            case tree.AgentDeclaration() | tree.SkillImport() | tree.ModuleImport() | tree.Def():
                return [self._definition(node, depth)]
            case _:
                head = _head(node)
                before = [] if isinstance(head, tree.Predicate) else self.inner_steps(head)  # a criterion is the step
                return [*before, self._compound(node, depth)]

    def _definition(self, node: Any, depth: int) -> FlowStep:
        match node:
            case tree.AgentDeclaration(name=name, keywords=keywords):
                model = next((k.value for k in keywords if k.name == "model"), None)
                text = f"{name.id}, {model.value}" if isinstance(model, tree.String) else name.id
                return FlowStep("agent", text, node.span, _reads(keywords), uses=(name.id,))
            case tree.SkillImport(name=skill):
                return FlowStep("import", shortened(skill.value), node.span, uses=(skill.value,))
            case tree.ModuleImport(path=path):
                text = f"{node.name.id} from {path.value}"
                return FlowStep("import", shortened(text), node.span, uses=(node.local.id,))
            case _:
                return self.definition_step(node, depth)

    def _compound(self, node: Any, depth: int) -> FlowStep:
        head = _head(node)
        reads = _reads(head)
        decided = isinstance(node, tree.If | tree.While) and not isinstance(head, tuple)
        span = head.span if decided else node.span
        match node:
            case tree.If():
                return self.if_step(FlowStep("if", "", span, reads), node, depth)
            case tree.Match(value=value, cases=cases):
                bodies = [(self.text(case.pattern), case.body) for case in cases]
                return self.with_ways(FlowStep("if", f"match {self.text(value)}", span, reads), node, bodies, depth)
            case tree.Choose(criterion=criterion, target=target, options=options):
                bodies = [(shortened(option.label.value), option.body) for option in options]
                text = f"choose by ?{self.text(criterion)}"
                return self.with_ways(FlowStep("if", text, span, reads, (target.id,), always=True), node, bodies, depth)
            case tree.While(condition=condition, body=body):
                step = FlowStep("loop", f"while {self.text(condition)}", span, reads)
                return self.with_ways(step, node, [("", body)], depth)
            case tree.For(target=target, items=items, body=body):
                text = f"for {target.id} in {self.text(items)}"
                return self.with_ways(
                    FlowStep("loop", text, span, reads, scoped=(target.id,)), node, [("", body)], depth
                )
            case tree.Try(handler=handler):
                error = handler.target if handler is not None else None
                return self.try_step(node, "except", handler, error, (), depth)
            case tree.WithInput(value=value, body=body):
                step = FlowStep("body", f"with input {self.text(value)}", span, reads)
                return self.with_ways(step, node, [("", body)], depth)
            case tree.Constrain(target=target):
                return FlowStep("judgement", f"constrain {target.id}", node.span, (target.id,), (target.id,))
            case _:
                return FlowStep("value", self.text(node), node.span, reads)

    def expression(self, node: Any, binds: tuple[str, ...], whole: tree.Node) -> list[FlowStep]:
        """Return the steps of an expression in the statement `whole`, which assigns its value to the names `binds`."""
        if _is_step(node):
            return [*self.inner_steps(tuple(_parts(node))), self._step(node, binds)]
        return [*self.inner_steps(node), FlowStep("value", self.text(whole), whole.span, _reads(node), binds)]

    def inner_steps(self, node: Any) -> list[FlowStep]:
        """Return the steps that run before an expression can be computed, inner ones first."""
        return [self._step(part, ()) for part in _steps_in(node)]

    def _step(self, node: Any, binds: tuple[str, ...]) -> FlowStep:
        reads = _reads(tuple(_parts(node)))
        match node:
            case tree.AgentCall(agent=agent, template=template):
                while isinstance(agent, tree.With):
                    agent = agent.agent
                uses = (agent.id,) if isinstance(agent, tree.AgentName) else ()
                return FlowStep("session", self.text(template).strip("`"), node.span, reads, binds, uses)
            case tree.Predicate():
                return FlowStep("judgement", self.text(node), node.span, reads, binds)
            case _:
                kind: Kind = "parallel" if node.callee.id == "pmap" else "call"
                return FlowStep(kind, self.text(node), node.span, reads, binds, (node.callee.id, *reads))


def _head(node: Any) -> Any:
    """Return the expression that a compound statement evaluates before one of its bodies runs."""
    if isinstance(node, tree.If):
        return node.arms[0].condition if len(node.arms) == 1 else tuple(arm.condition for arm in node.arms)
    return next((getattr(node, name) for name in ("value", "condition", "items") if hasattr(node, name)), None)


def _is_step(node: Any) -> bool:
    """Return whether an expression is a step: a call of a function or of an agent, or a judgement."""
    if isinstance(node, tree.Call):
        return isinstance(node.callee, tree.Name) and node.callee.id not in _PURE
    return isinstance(node, tree.AgentCall | tree.Predicate)


def _parts(node: Any) -> Iterator[Any]:
    if isinstance(node, tuple):
        yield from node
    elif isinstance(node, tree.Call) and isinstance(node.callee, tree.Name):
        yield from (node.arguments, node.keywords)
    elif isinstance(node, tree.Node):
        yield from (getattr(node, name) for name in node.__struct_fields__ if name not in ("span", "agent"))


def _steps_in(root: Any) -> list[Any]:
    """Return the nodes in an expression that are steps, at any depth, in the order in which they run."""
    found, agenda = [], [root]
    while agenda:
        node = agenda.pop()
        if _is_step(node):
            found.append(node)
        agenda.extend(_parts(node))
    return sorted(found, key=lambda node: (node.span.end, -node.span.start))


def _reads(root: Any) -> tuple[str, ...]:
    """Return the names that an expression reads outside of its steps, in source order."""
    found, agenda = [], [root]
    while agenda:
        node = agenda.pop()
        if isinstance(node, tree.Name) and node.id not in LIBRARY:
            found.append((node.span, node.id))
        elif isinstance(node, tree.Placeholder) and node.path:
            found.append((node.span, node.path[0]))
        elif not _is_step(node):
            agenda.extend(_parts(node))
    return tuple(dict.fromkeys(name for _, name in sorted(found)))


_DECLARED: Final = (tree.SkillImport, tree.ModuleImport, tree.Export, tree.AgentDeclaration)


def stops(program: tree.Program) -> list[Span]:
    """Return the spans of the statements at which a program can be paused: all except hoisted declarations."""
    hoisted = {id(item) for item in program.items if isinstance(item, tree.Def)}
    return [
        node.span
        for node in walk(program)
        if isinstance(node, tree.Statement) and not isinstance(node, _DECLARED) and id(node) not in hoisted
    ]
