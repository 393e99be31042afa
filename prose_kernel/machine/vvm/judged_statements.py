"""`match`, `choose`, `constrain`: statements that the judge decides (docs/reference/vvm.md 4.7 to 4.9)."""

from __future__ import annotations

from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.configurations import BOUNDS, bound_fault
from prose_kernel.machine.vvm.code import Body, Left, Step, compile_expression, statement
from prose_kernel.machine.vvm.context import Context, reader
from prose_kernel.machine.vvm.judging import TemplateCode, decide, pick, rendered_ahead, scrutinee
from prose_kernel.machine.vvm.values import is_error, raised
from prose_kernel.runtime.compiled_code import value_of
from prose_kernel.runtime.events import ArmChosen, Constrained, OptionChosen
from prose_kernel.runtime.preview import unknown
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value


@statement(tree.Match)
class MatchStep(Step):
    nests = True

    def prepare(self, node: tree.Match) -> None:
        self.value = compile_expression(node.value)
        self.cases = [(case.pattern, _template_of(case.pattern), Body(case.body)) for case in node.cases]

    async def _run(self, s: Context) -> Left:
        outer = s.it
        value = await scrutinee(s, self.value)
        s.it = value
        try:
            if s.host.preview is not None:
                return await call(self._previewed(s, value))
            return await self._run_first_match(s, value)
        finally:
            s.it = outer

    async def _previewed(self, s: Context, value: Value) -> Left:
        """Run the case that will run, if the value decides it; otherwise all possible ones."""
        preview = s.host.preview
        open_value = preview.unknown_result(value) is not None
        possible: list[Body] = []
        for pattern, template, body in self.cases:
            sure = isinstance(pattern, tree.AnyPattern) or (not open_value and template is None)
            if sure and not _matches(pattern, value):
                continue
            if isinstance(pattern, tree.ErrorPattern) and pattern.name is not None:
                name = pattern.name.id
                s.bind(name, value if sure else unknown(name), pattern)
            if sure and not possible:
                return await call(body.run(s))
            possible.append(body)
            if sure:
                break
        return await call(preview.run_either(s, possible))

    async def _run_first_match(self, s: Context, value: Value) -> Left:
        chosen, body = 0, None
        for number, (pattern, template, candidate) in enumerate(self.cases, 1):
            if template is not None:
                after = rendered_ahead(s, value, [later for _, later, _ in self.cases[number:]])
                found = await decide(s, pattern, template.render(s, value), value, after, sure=False)
            else:
                found = _matches(pattern, value)
            if found:
                chosen, body = number, candidate
                if isinstance(pattern, tree.ErrorPattern) and pattern.name is not None:
                    s.bind(pattern.name.id, value, pattern)
                break
        if s.host.heard[ArmChosen]:
            s.emit(ArmChosen(s.place(self.node), chosen))
        return await call(body.run(s)) if body is not None else None


def _template_of(pattern: tree.Pattern) -> TemplateCode | None:
    return TemplateCode(pattern.template) if isinstance(pattern, tree.CriterionPattern) else None


def _matches(pattern: tree.Pattern, value: Value) -> bool:
    if isinstance(pattern, tree.AnyPattern):
        return True
    if not isinstance(pattern, tree.ErrorPattern) or not is_error(value):
        return False
    assert isinstance(value, dict) and isinstance(value["error"], dict)
    return pattern.kind is None or value["error"].get("kind") == pattern.kind


@statement(tree.Choose)
class ChooseStep(Step):
    nests = True

    def prepare(self, node: tree.Choose) -> None:
        self.value = compile_expression(node.value)
        self.criterion = TemplateCode(node.criterion)
        self.bodies = {option.label.value: Body(option.body) for option in reversed(node.options)}

    async def _run(self, s: Context) -> Left:
        node: tree.Choose = self.node
        outer = s.it
        value = await scrutinee(s, self.value)
        s.it = value
        try:
            if s.host.preview is not None:
                s.bind(node.target.id, unknown(node.target.id), node)
                return await call(s.host.preview.run_either(s, [self.bodies[o.label.value] for o in node.options]))
            labels = tuple(dict.fromkeys(option.label.value for option in node.options))
            label = await pick(s, node.criterion, self.criterion.render(s, value), value, labels)
            if s.host.heard[OptionChosen]:
                s.emit(OptionChosen(s.place(node), label))
            s.bind(node.target.id, label, node)
            return await call(self.bodies[label].run(s))
        finally:
            s.it = outer


@statement(tree.Constrain)
class ConstrainStep(Step):
    """Judges every requirement. A value that violates one becomes an error value. Nothing is ever retried (S6)."""

    nests = True

    def prepare(self, node: tree.Constrain) -> None:
        self.value = reader(node.target.id, node.target)
        self.bounds = [(bound.name, compile_expression(bound.value)) for bound in node.bounds]
        self.requirements = [(require, TemplateCode(require.criterion)) for require in node.requirements]

    async def _run(self, s: Context) -> Left:
        node: tree.Constrain = self.node
        if s.host.preview is not None:
            s.bind(node.target.id, unknown(node.target.id), node)
            return
        value = self.value(s)
        bounds = {name: await value_of(code, s) for name, code in self.bounds}
        for bound in node.bounds:
            check_bound(s, bound, bound.name, bounds[bound.name])
        texts: list[Value] = []
        violations: list[Value] = []
        outer, s.it = s.it, value
        try:
            for number, (require, template) in enumerate(self.requirements, 1):
                criterion = template.render(s, value)
                texts.append(criterion.text)
                after = rendered_ahead(s, value, [later for _, later in self.requirements[number:]])
                if not await decide(s, require, criterion, value, after):
                    violations.append(criterion.text)
        finally:
            s.it = outer
        if s.host.listeners:
            hints = {name: bounds[name] for name in BOUNDS if name in bounds}
            violated = tuple(str(text) for text in violations)
            s.emit(Constrained(s.place(node), node.target.id, len(texts), violated, hints))
        if violations:
            data: Value = {"value": value, "violations": violations, "requirements": texts}
            message = "Constraints not satisfied"
            error: Value = {"kind": "constraint_violation", "message": message, "data": data}
            s.bind(node.target.id, {"error": error}, node)


def check_bound(s: Context, node: tree.Node, name: str, value: Value) -> None:
    """Check a computed bound of `constrain`. Raises R212; unknown bounds are ignored."""
    fault = bound_fault(name, value)
    if fault is not None:
        raise raised(s, node, "R212", f"bad option: {fault}", hint=fault.accepted)
