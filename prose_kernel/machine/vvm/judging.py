"""Requests to the judge (docs/reference/vvm.md 4.6 to 4.9): one criterion, about one value. Also the statements that it
decides: `match`, `choose`, `constrain`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from prose_kernel.errors import JudgeError, ProseError, RunError, Undecided, VvmRaise
from prose_kernel.language.structs import replace
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.configurations import BOUNDS, fault_of
from prose_kernel.machine.vvm.code import Body, Left, Step, compile_expression, expression, statement
from prose_kernel.machine.vvm.context import Context, reader
from prose_kernel.machine.vvm.expressions import member
from prose_kernel.machine.vvm.values import input_text, inserted, is_error, is_ref, raised, ref_preview
from prose_kernel.runtime.compiled_code import Code, Now, value_of
from prose_kernel.runtime.events import ArmChosen, Constrained, JudgeAsked, Judged, OptionChosen
from prose_kernel.runtime.execution_context import located
from prose_kernel.runtime.ports import JudgeRequest, Pick, Verdict
from prose_kernel.runtime.preview import unknown
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import LONGEST_TEXT, Value


class Rendered(Struct, frozen=True):
    """A template with its values: the whole `text`, the text as `written` with its placeholders, and the text
    `inserted` for each of them. Without placeholders `written` is empty."""

    text: str
    written: str = ""
    inserted: tuple[tuple[str, str], ...] = ()


class TemplateCode:
    """A template, compiled in its scope. `render` inserts the values (1.6, 3.7)."""

    __slots__ = ("_heads", "node")

    def __init__(self, node: tree.Template) -> None:
        self.node = node
        self._heads: list[Now | None] = [
            reader(part.path[0], part) if isinstance(part, tree.Placeholder) and part.path else None
            for part in node.parts
        ]

    def render(self, s: Context, given: Value) -> Rendered:
        """Return the text; `given` is the primary input. Raises R201, R202, R209 to R211."""
        text: list[str] = []
        written: list[str] = []
        found: dict[str, str] = {}
        for part, head in zip(self.node.parts, self._heads, strict=True):
            if isinstance(part, str):
                text.append(part)
                written.append(part)
                continue
            value = given if head is None else head(s)
            for name in part.path[1:]:
                value = member(s, part, value, name)
            shown = f"{{{'.'.join(part.path)}}}"
            try:
                found[shown] = inserted(value, given)
            except VvmRaise as error:
                raise located(s, error, part) from None
            text.append(found[shown])
            written.append(shown)
        if sum(map(len, text)) > LONGEST_TEXT:
            hint = f"its text would have more than {LONGEST_TEXT:,} characters"
            raise raised(s, self.node, "R211", "cannot render the template", hint=hint)
        whole = "".join(text)
        return Rendered(whole, "".join(written), tuple(found.items())) if found else Rendered(whole)


# ---------------------------------------------------------------- requests


def _request(s: Context, node: tree.Node, criterion: Rendered, value: Value) -> JudgeRequest:
    """Return the question to the judge. Raises R211."""
    try:
        subject = input_text(value)
        if type(value) is dict and is_ref(value):
            subject = ref_preview(value)
    except VvmRaise as error:
        raise located(s, error, node) from None
    at = s.at("judge")
    s.emit(JudgeAsked(s.place(node), criterion.text, at))
    return JudgeRequest(
        criterion.text,
        at,
        s.run.name,
        {"it": value},
        written=criterion.written,
        inserted=criterion.inserted,
        subject=subject,
    )


def _judge_error(s: Context, node: tree.Node, error: Undecided) -> RunError:
    """Return the error for a failed judge, which can be caught, or for a missing one, which ends the run (A23)."""
    if error.failed:
        return raised(s, node, "R217", f"judgement failed: {error}", hint=error.hint)
    return located(s, JudgeError(str(error), hint=error.hint, no_answer=True), node)


def _emit_judged(s: Context, node: tree.Node, request: JudgeRequest, answer: Value, judged: Verdict | Pick) -> None:
    fields = (answer, judged.by, judged.reason, judged.details, request.at, request.subject)
    s.emit(Judged(s.place(node), request.text, *fields))


async def decide(
    s: Context, node: tree.Node, criterion: Rendered, value: Value, after: Sequence[Rendered] = (), sure: bool = True
) -> bool:
    """Return whether a value meets a criterion; uncertain counts as no. `after` are the next criteria about the same
    value; they follow in any case (`sure`), or only if this one is not met."""
    request = _request(s, node, criterion, value)
    if after:
        following = (
            replace(request, text=one.text, written=one.written, inserted=one.inserted, conditional=not sure)
            for one in after
        )
        request = replace(request, further=tuple(following))
    await s.flush()
    try:
        verdict = await s.ask(request, Verdict, lambda: s.host.ports.judge.decide(request))
    except Undecided as error:
        raise _judge_error(s, node, error) from None
    _emit_judged(s, node, request, verdict.answer, verdict)
    return verdict.answer is True


async def pick(s: Context, node: tree.Node, criterion: Rendered, value: Value, labels: tuple[str, ...]) -> str:
    """Return the label that the judge picks for a value, or the first label after an unknown answer (S5)."""
    request = _request(s, node, criterion, value)
    await s.flush()
    try:
        picked = await s.ask(request, Pick, lambda: s.host.ports.judge.choose(request, labels), also=labels)
    except Undecided as error:
        raise _judge_error(s, node, error) from None
    label = picked.label if picked.label in labels else labels[0]
    _emit_judged(s, node, request, label, picked)
    return label


def rendered_ahead(s: Context, value: Value, templates: Sequence[TemplateCode | None]) -> list[Rendered]:
    """Render the next criteria, up to the first pattern of another kind, or the first with unavailable values."""
    found: list[Rendered] = []
    for template in templates:
        if template is None:
            break
        try:
            found.append(template.render(s, value))
        except (ProseError, VvmRaise):
            break  # reported when the criterion itself is judged
    return found


@expression(tree.Predicate, lambda node: () if node.argument is None else (node.argument,))
class PredicateCode(Code):
    def prepare(self, node: tree.Predicate) -> None:
        self.logical = self.judged = True
        self.template = TemplateCode(node.template)

    async def _run(self, s: Context) -> Value:
        value = await value_of(self.parts[0], s) if self.parts else s.it
        return await decide(s, self.node, self.template.render(s, value), value)


async def scrutinee(s: Context, code: Code) -> Value:
    """Return the value that a statement is about."""
    if s.host.preview is not None:
        looked: Value = await s.host.preview.value(s, code, "value")
        return looked
    return await value_of(code, s)


# ---------------------------------------------------------------- statements


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
            if (fault := fault_of(BOUNDS, bound.name, bounds[bound.name])) is not None:  # unknown bounds are ignored
                raise raised(s, bound, "R212", f"bad option: {fault}", hint=fault.accepted)
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
        hints = {name: bounds[name] for name in BOUNDS if name in bounds}
        violated = tuple(str(text) for text in violations)
        s.emit(Constrained(s.place(node), node.target.id, len(texts), violated, hints))
        if violations:
            data: Value = {"value": value, "violations": violations, "requirements": texts}
            message = "Constraints not satisfied"
            error: Value = {"kind": "constraint_violation", "message": message, "data": data}
            s.bind(node.target.id, {"error": error}, node)
