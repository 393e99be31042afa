"""Requests to the judge (docs/reference/vvm.md 4.6 to 4.9): one criterion, about one value."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from prose_kernel.errors import JudgeError, ProseError, RunError, Undecided, VvmRaise
from prose_kernel.language.vvm import tree
from prose_kernel.machine.vvm.code import expression
from prose_kernel.machine.vvm.context import Context, reader
from prose_kernel.machine.vvm.expressions import member
from prose_kernel.machine.vvm.rendering import Rendered, input_text, inserted, ref_preview
from prose_kernel.machine.vvm.values import is_ref, raised
from prose_kernel.runtime.compiled_code import Code, Now, value_of
from prose_kernel.runtime.events import JudgeAsked, Judged
from prose_kernel.runtime.execution_context import located
from prose_kernel.runtime.ports import JudgeRequest, Pick, Verdict
from prose_kernel.runtime.values import LONGEST_TEXT, Value


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
    if s.host.heard[JudgeAsked]:
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
    if s.host.listeners:
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
            structs.replace(request, text=one.text, written=one.written, inserted=one.inserted, conditional=not sure)
            for one in after
        )
        request = structs.replace(request, further=tuple(following))
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
