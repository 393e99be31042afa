"""Questions to the judge port (openprose.md 3.3, 3.4, 3.9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

from msgspec import Struct

from prose_kernel.errors import JudgeError, ProseError, Undecided, ValueTypeError
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.call_targets import interface_of
from prose_kernel.language.structs import replace
from prose_kernel.language.text import clipped
from prose_kernel.machine.openprose.frames import Slot, visible
from prose_kernel.machine.openprose.operators import truth
from prose_kernel.machine.openprose.program_context import ProgramContext
from prose_kernel.runtime import structured_text as readings
from prose_kernel.runtime.compiled_code import Code, require_shallow, value_of
from prose_kernel.runtime.events import JudgeAsked, Judged
from prose_kernel.runtime.execution_context import located
from prose_kernel.runtime.ports import LAST_RESULT, Finding, JudgeRequest, Pick, Verdict
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.value_text import NAME
from prose_kernel.runtime.values import Reference, Value, inserted_text

Arms = tuple[tuple[str, Sequence[tree.Node]], ...]
"""The arms of a condition: for each answer a word and the statements that follow."""

DRY_RUN = "dry-run"
_SHOWN_STATEMENTS = 3


class Asking(Struct):
    """The context of a condition.

    `loop`, `index` and `maximum` describe its loop. `no_progress` is set if the judge saw no progress, which ends the
    loop. `arms` are described if a dry run has no answer. `after` are the conditions asked next if this one fails.
    """

    loop: Literal["until", "while"] | None = None
    index: int | None = None
    maximum: int | None = None
    no_progress: bool = False
    arms: Arms = ()
    after: Sequence[Code] = ()

    @property
    def default(self) -> bool:
        """The meaning of uncertainty (3.4): an arm is not taken, a loop continues."""
        return self.loop == "while"


def _split_question(node: tree.Node, text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return a question with its placeholders, and the text inserted for each.

    The inserted texts are found in the rendered text, between the program's own words. The text of a bare value
    (`if reply:`) is inserted as a whole.
    """
    if not isinstance(node, tree.Discretion):
        return "The text says yes, or that something is the case.", (("the text", text),)
    words = node.text.parts
    if all(isinstance(part, str) for part in words):
        return "", ()
    inserted: list[tuple[str, str]] = []
    at, opened = 0, ""
    for number, part in enumerate(words):
        if not isinstance(part, str):
            if opened:  # two placeholders side by side
                inserted.append((opened, ""))
            opened = part.raw
        else:
            last = number == len(words) - 1
            found = len(text) - len(part) if last else text.find(part, at)
            if opened:
                inserted.append((opened, text[at:found]))
                opened = ""
            at = found + len(part)
    if opened:
        inserted.append((opened, text[at:]))
    return "".join(part if isinstance(part, str) else part.raw for part in words), tuple(inserted)


async def _request(
    s: ProgramContext, text: str, asking: Asking | None = None, node: tree.Node | None = None
) -> JudgeRequest:
    """Return a question to the judge. Stores all bindings first, and waits until this branch may ask."""
    await s.flush()
    await s.admitted()
    asking, at = asking or Asking(), s.at("judge")
    s.emit(JudgeAsked(s.place(node or s.statement), text, at))
    request = request_about(s, text, at, asking, node)
    return replace(request, further=tuple(_further(s, request, asking.after))) if asking.after else request


def request_about(
    s: ProgramContext, text: str, at: str, asking: Asking | None = None, node: tree.Node | None = None
) -> JudgeRequest:
    """Return a question that comes with the values visible here."""
    asking = asking or Asking()
    written, inserted = _split_question(node, text) if node is not None else ("", ())
    bindings = visible(s.temps, s.layer)
    if s.recent.result is not None and not any(name in bindings for name in NAME.findall(text)):
        bindings[LAST_RESULT] = s.recent.result
    return JudgeRequest(
        text, at, s.run.name, bindings, s.recent.steps, asking.loop, asking.index, asking.maximum, written, inserted
    )


def _further(s: ProgramContext, request: JudgeRequest, after: Sequence[Code]) -> Iterator[JudgeRequest]:
    """Yield the markers that are asked next, up to the first condition of another kind, or with a text that cannot be
    computed without waiting or fails."""
    for code in after:
        if not isinstance(code.node, tree.Discretion) or code.parts[0].now is None:
            return
        try:
            text = inserted_text(code.parts[0].now(s))
        except ProseError:
            return  # reported when the condition itself is evaluated
        written, inserted = _split_question(code.node, text)
        yield replace(request, text=text, written=written, inserted=inserted, conditional=True)


def _no_answer(s: ProgramContext, error: Undecided, node: tree.Node) -> JudgeError:
    return located(s, JudgeError(str(error), hint=error.hint, no_answer=True), node)


def _emit_judged(
    s: ProgramContext, node: tree.Node, request: JudgeRequest, answer: Value, judged: Verdict | Pick | Finding
) -> None:
    s.recent.note(f"**{request.text}**: {inserted_text(answer) if answer is not None else 'uncertain'}")
    s.emit(Judged(s.place(node), request.text, answer, judged.by, judged.reason, judged.details, request.at))


def _described_arms(s: ProgramContext, arms: Arms) -> str:
    """Describe the statements after each answer, for a dry run, which has no answers."""
    return "; ".join(f"{answer}: {_described_body(s, body)}" for answer, body in arms)


def _described_body(s: ProgramContext, body: Sequence[tree.Node]) -> str:
    lines = []
    for node in body[:_SHOWN_STATEMENTS]:
        text = s.source.slice(node.span).partition("\n")[0].strip()
        lines.append(f"line {s.source.line_column(node.span.start)[0]} `{clipped(text, 60)}`")
    more = len(body) - len(lines)
    return ", ".join(lines) + (f" and {more} more" if more else "") if lines else "nothing"


async def _verdict(s: ProgramContext, node: tree.Node, text: str, asking: Asking) -> bool | None:
    """Return the judge's answer, None if uncertain. Raises `Undecided` if no judge can answer."""
    request = await _request(s, text, asking, node)
    verdict = await s.ask(request, Verdict, lambda: s.host.ports.judge.decide(request))
    if verdict.no_progress:
        asking.no_progress = True
    if verdict.by == DRY_RUN and asking.arms:
        verdict = replace(verdict, reason=f"{verdict.reason}: {_described_arms(s, asking.arms)}")
    _emit_judged(s, node, request, verdict.answer, verdict)
    return verdict.answer


async def choose(s: ProgramContext, node: tree.Node, text: str, arms: Arms) -> str:
    """Return the chosen label. After an unknown label the judge is asked once more, then E211 is raised (3.4)."""
    labels = tuple(label for label, _ in arms)
    pick = Pick("", "")
    for _ in range(2):
        request = await _request(s, text, node=node)
        try:
            pick = await s.ask(request, Pick, partial(s.host.ports.judge.choose, request, labels), also=labels)
        except Undecided as error:
            raise _no_answer(s, error, node) from None
        if pick.label in labels:
            if pick.by == DRY_RUN:
                pick = replace(pick, reason=f"undecided: {_described_arms(s, arms)}")
            _emit_judged(s, node, request, pick.label, pick)
            return pick.label
    shown = ", ".join(f'"{label}"' for label in labels)
    raise located(s, JudgeError(f'the judge chose "{pick.label}", which is none of {shown}'), node)


# ---------------------------------------------------------------- reading text


async def member(s: ProgramContext, node: tree.Node, value: Value, name: str) -> Value:
    """Return `value.name` (3.11), asking the judge if the rules do not decide.

    In ProseScript an array has a `length`, and `x.n` is `x` if `n` is the only output of the call that returned `x`
    (prose-md.md 3.2, 3.6).
    """
    if s.run.is_script:
        if name == "length" and isinstance(value, list):
            return len(value)
        if isinstance(node, tree.Member | tree.Interpolation) and _is_single(s, node, value, name):
            return value
    try:
        return readings.member(value, name)
    except readings.JudgeNeeded as needed:
        return await _extract(s, node, needed.text, name)
    except ValueTypeError as error:
        if value is None and s.run.is_script and (prior := _root_name(node)) in interface_of(s.source).prior:
            error.hint = f"`{prior}` is null in a first render: --prior {prior}=VALUE gives the truth of an earlier one"
        raise


def _root_name(node: tree.Node) -> str | None:
    """Return the variable whose member is read; None for another value."""
    root = node.value if isinstance(node, tree.Member) else node
    return root.id if isinstance(root, tree.Name) else root.name if isinstance(root, tree.Interpolation) else None


def _is_single(s: ProgramContext, node: tree.Member | tree.Interpolation, value: Value, name: str) -> bool:
    if isinstance(value, dict) and name in value:
        return False
    variable = s.find(_root_name(node) or "")
    return isinstance(variable, Slot) and variable.single == name and variable.value is value


async def _extract(s: ProgramContext, node: tree.Node, text: str, name: str) -> Value:
    request = await _request(s, name)
    try:
        found = await s.ask(request, Finding, lambda: s.host.ports.judge.extract(request, text, name), also=(text,))
    except Undecided as error:
        if error.missed:
            raise _no_answer(s, error, node) from None
        raise ValueTypeError(f"the text has no field '{name}'", hint=error.hint) from None
    require_shallow(s, node, found.value)
    _emit_judged(s, node, request, found.value, found)
    return found.value


async def index(s: ProgramContext, node: tree.Node, value: Value, at: Value) -> Value:
    """Return `value[at]` (3.11), asking the judge if the rules do not decide."""
    try:
        return readings.index(value, at)
    except readings.JudgeNeeded:
        if isinstance(at, (str, Reference)):
            return await member(s, node, value, inserted_text(at))
        return readings.element(await items(s, node, value), at)


async def items(s: ProgramContext, node: tree.Node, value: Value) -> list[Value]:
    """Return the items of a value (3.11): by the rules, else by the judge, else its lines."""
    try:
        return readings.collection(value)
    except readings.JudgeNeeded as needed:
        text = needed.text
    request = await _request(s, "items")
    try:
        found = await s.ask(request, Finding, lambda: s.host.ports.judge.items(request, text), also=(text,))
    except Undecided as error:
        if error.missed:
            raise _no_answer(s, error, node) from None
        return readings.lines(text)
    parts: list[Value] = list(found.value) if isinstance(found.value, list) else [found.value]
    require_shallow(s, node, parts)
    _emit_judged(s, node, request, parts, found)
    return parts


# ---------------------------------------------------------------- conditions


async def is_true(s: ProgramContext, value: Value, node: tree.Node) -> bool:
    """Return the truth of a value (3.10). The judge decides free text, which is true if no judge can answer."""
    answer = truth(value)
    return answer if answer is not None else await _is_text_true(s, value, node, Asking()) is True


async def _is_text_true(s: ProgramContext, value: Value, node: tree.Node, asking: Asking) -> bool | None:
    """Return the judge's verdict on free text, None if uncertain. Without a judge it is true (3.10)."""
    try:
        return await _verdict(s, node, inserted_text(value), asking)
    except Undecided as error:
        if error.missed:
            raise _no_answer(s, error, node) from None
        return True


async def holds(code: Code, s: ProgramContext, asking: Asking) -> bool:
    """Return whether a condition holds. If uncertain, the construct that it belongs to decides."""
    if code.logical and code.now is not None:
        return code.now(s) is True
    answer = await call(condition(code, s, asking))
    return asking.default if answer is None else answer


async def condition(code: Code, s: ProgramContext, asking: Asking) -> bool | None:
    """Return a condition's value, None if uncertain. A marker is judged only if the other parts do not decide (3.9)."""
    node = code.node
    if isinstance(node, tree.Discretion):
        try:
            return await _verdict(s, node, inserted_text(await value_of(code.parts[0], s)), asking)
        except Undecided as error:
            raise _no_answer(s, error, node) from None
    if isinstance(node, tree.Not):
        answer = await call(condition(code.parts[0], s, asking))
        return None if answer is None else not answer
    if isinstance(node, tree.Logical):
        return await _logical(node.operator == "or", code.parts, s, asking)
    value = await value_of(code, s)
    answer = truth(value)
    return answer if answer is not None else await _is_text_true(s, value, node, asking)


async def _logical(decisive: bool, operands: Sequence[Code], s: ProgramContext, asking: Asking) -> bool | None:
    """Evaluate `and` or `or`: first operands without a marker, then judged ones as long as the result is open."""
    open_texts: dict[int, Value] = {}
    for at, operand in enumerate(operands):
        if operand.judged:
            continue
        if isinstance(operand.node, (tree.Not, tree.Logical)):
            answer = await call(condition(operand, s, asking))
        else:
            value = await value_of(operand, s)
            answer = truth(value)
            if answer is None:
                open_texts[at] = value
        if answer is decisive:
            return decisive
    uncertain = False
    for at, operand in enumerate(operands):
        if at in open_texts:
            answer = await _is_text_true(s, open_texts[at], operand.node, asking)
        elif operand.judged:
            answer = await call(condition(operand, s, asking))
        else:
            continue
        if answer is decisive:
            return decisive
        uncertain = uncertain or answer is None
    return None if uncertain else not decisive
