"""Plain expressions: names, literals, texts, operators, members (openprose.md 1.6, 3.11, 3.15)."""

from __future__ import annotations

from collections.abc import Callable

from prose_kernel.errors import ExecError, RunError, ValueTypeError
from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose import judging
from prose_kernel.machine.openprose.code import expression
from prose_kernel.machine.openprose.frames import Slot, Temp
from prose_kernel.machine.openprose.judging import Asking
from prose_kernel.machine.openprose.operators import OPERATORS
from prose_kernel.machine.openprose.program_context import ProgramContext
from prose_kernel.runtime.command_data import require_whole
from prose_kernel.runtime.compiled_code import Code, ConstantCode, ListCode, ObjectCode, OperatorCode, all_now, value_of
from prose_kernel.runtime.execution_context import located
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.value_text import cut_note
from prose_kernel.runtime.values import LONGEST_TEXT, Value, inserted_text, require_short


def undefined(s: ProgramContext, node: tree.Name) -> RunError:
    """Return the error E208, with a hint for a name that has another meaning."""
    name = node.id
    hint = None
    if name in s.run.gate_names:
        hint = "a gate binds nothing"
    elif name in s.run.agents or name in s.run.other_agents:
        hint = f"'{name}' is an agent: `session: {name}`"
    elif name in s.run.blocks:
        hint = f"'{name}' is a block: `do {name}(...)`"
    elif name in s.run.functions:
        hint = f"'{name}' is a function: `do {name}(...)`"
    return located(s, ValueTypeError(f"'{name}' is not defined here", code="E208", hint=hint), node)


@expression(tree.Name)
class NameCode(Code):
    def prepare(self, node: tree.Name) -> None:
        name = node.id

        def now(s: ProgramContext) -> Value:
            temp = s.temps.get(name)
            if temp is not None:
                return temp.value
            slot = s.layer.table.get(name)
            if slot is not None:
                return slot.value
            found = s.find(name)
            if found is None:
                raise undefined(s, node)
            return found.value

        self.now = now


for _constant in (tree.Number, tree.Constant):
    expression(_constant)(ConstantCode)


@expression(tree.Duration)
class DurationCode(Code):
    def prepare(self, node: tree.Duration) -> None:
        text = node.text
        self.now = lambda s: text


@expression(tree.Discretion, lambda node: (node.text,))
class DiscretionCode(Code):
    """A marker as a value: the judge's answer, where uncertain is false."""

    def prepare(self, node: tree.Discretion) -> None:
        self.judged = True

    async def _run(self, s: ProgramContext) -> Value:
        return await judging.holds(self, s, Asking())


# ---------------------------------------------------------------- texts

Missing = Callable[[ProgramContext, tree.Interpolation], str]


def keep_braces(s: ProgramContext, part: tree.Interpolation) -> str:
    """Return an unresolvable name outside of commands unchanged, with its braces (W108).

    The checker has reported names that are declared nowhere; only the others are reported here.
    """
    if part.name in s.run.declared and s.run.warns_once(part):
        s.warn("W108", f"'{part.name}' is not defined here; {part.raw} stays as it is", part)
    return part.raw


def keep_data_braces(s: ProgramContext, part: tree.Interpolation) -> str:
    """Like `keep_braces`, in a text that becomes a value: inserted values must be complete (E220)."""
    return keep_braces(s, part)


def keep_braces_silently(s: ProgramContext, part: tree.Interpolation) -> str:
    """Like `keep_braces` without a warning, for an agent's prompt."""
    return part.raw


def refuse_undefined(s: ProgramContext, part: tree.Interpolation) -> str:
    """Raise E053 for an unresolvable name in a command."""
    if part.after_dollar:
        hint = f"write `${part.name}`, or `$\\{{{part.raw[1:-1]}\\}}` to keep the braces for the shell"
    else:
        hint = f"define `{part.name}` first, or write `\\{{{part.raw[1:-1]}\\}}` to pass the braces on"
    error = ExecError(f"variable '{part.name}' is not defined", code="E053", hint=hint)
    raise located(s, error, part)


_NEED_WHOLE = (refuse_undefined, keep_data_braces)
"""The uses that refuse cut output: the text would not show that it is cut, so a comparison or command would use it
unnoticed."""


async def render(s: ProgramContext, text: tree.Text, missing: Missing = keep_braces) -> str:
    """Return the text with its interpolations inserted once, from left to right."""
    literal = text.literal
    if literal is not None:
        return literal
    pieces = []
    for part in text.parts:
        if isinstance(part, str):
            pieces.append(part)
        elif not part.steps:
            pieces.append(_plain(s, part, missing))
        else:
            pieces.append(await call(_path(s, part, missing)))
    return _joined(s, text, pieces)


def _joined(s: ProgramContext, text: tree.Text, pieces: list[str]) -> str:
    """Return the pieces as one text. Raises E209 before building it if it is too long (A32)."""
    length = sum(map(len, pieces))
    if length > LONGEST_TEXT:
        try:
            require_short(length)
        except ValueTypeError as error:
            raise located(s, error, text) from None
    return "".join(pieces)


def _plain(s: ProgramContext, part: tree.Interpolation, missing: Missing) -> str:
    found = s.find(part.name)
    return missing(s, part) if found is None else _inserted(s, part, found.value, missing)


def _inserted(s: ProgramContext, part: tree.Interpolation, value: Value, missing: Missing) -> str:
    """Return the value as text. Raises E220 for cut output in a command or value; a session gets a note instead."""
    if missing in _NEED_WHOLE:
        try:
            require_whole(value)
        except ValueTypeError as error:
            raise located(s, error, part) from None
    return inserted_text(value)


def cut_notes(s: ProgramContext, text: tree.Text) -> str:
    """Return a paragraph for each inserted value that is cut output of a command; "" if there is none."""
    notes = []
    for part in dict.fromkeys(text.interpolations):
        found = s.find(part.name)
        note = cut_note(found.value) if found is not None and not part.steps else None
        if note:
            notes.append(f"\n\n[`{part.name}` is {note}]")
    return "".join(notes)


async def _path(s: ProgramContext, part: tree.Interpolation, missing: Missing) -> str:
    found = s.find(part.name)
    if found is None:
        return missing(s, part)
    value: Value = found.value
    try:
        for step in part.steps:
            if isinstance(step, str):
                value = await judging.member(s, part, value, step)
            else:
                value = await judging.index(s, part, value, _position(s, step))
    except ValueTypeError as error:
        raise located(s, error, part) from None
    return _inserted(s, part, value, missing)


def _position(s: ProgramContext, step: int | tree.Name) -> Value:
    if isinstance(step, int):
        return step
    found: Temp | Slot | None = s.find(step.id)
    if found is None:
        raise ValueTypeError(f"'{step.id}' is not defined", code="E208")
    return found.value


@expression(tree.Text)
class TextCode(Code):
    """A text as an expression, or in a marker."""

    def prepare(self, node: tree.Text) -> None:
        literal = node.literal
        if literal is not None:
            self.now = lambda s: literal
        elif all(isinstance(p, str) or not p.steps for p in node.parts):
            pieces = node.parts

            def now(s: ProgramContext) -> Value:
                return _joined(s, node, [p if isinstance(p, str) else _plain(s, p, keep_data_braces) for p in pieces])

            self.now = now

    async def _run(self, s: ProgramContext) -> Value:
        return await render(s, self.node, keep_data_braces)


# ---------------------------------------------------------------- arrays and objects


expression(tree.Array, lambda node: node.elements)(ListCode)


@expression(tree.Object, lambda node: [entry.value for entry in node.entries])
class EntriesCode(ObjectCode):
    @staticmethod
    def keys_of(node: tree.Object) -> tuple[str, ...]:
        return tuple(entry.key for entry in node.entries)


@expression(tree.Member, lambda node: (node.value,))
class MemberCode(Code):
    async def _run(self, s: ProgramContext) -> Value:
        value = await value_of(self.parts[0], s)
        try:
            return await judging.member(s, self.node, value, self.node.name.id)
        except RunError as error:
            raise located(s, error, self.node.name) from None


@expression(tree.Index, lambda node: (node.value, node.index))
class IndexCode(Code):
    async def _run(self, s: ProgramContext) -> Value:
        value = await value_of(self.parts[0], s)
        at = await value_of(self.parts[1], s)
        try:
            return await judging.index(s, self.node, value, at)
        except RunError as error:
            raise located(s, error, self.node.index) from None


# ---------------------------------------------------------------- operators


@expression(tree.Binary, lambda node: (node.left, node.right))
class BinaryCode(OperatorCode):
    operators = OPERATORS


@expression(tree.Not, lambda node: (node.operand,))
class NotCode(Code):
    def prepare(self, node: tree.Not) -> None:
        ways = all_now(self.parts)
        if ways is not None and self.parts[0].logical:
            way = ways[0]
            self.logical = True
            self.now = lambda s: not way(s)

    async def _run(self, s: ProgramContext) -> Value:
        return await judging.holds(self, s, Asking())


@expression(tree.Logical, lambda node: node.operands)
class LogicalCode(Code):
    def prepare(self, node: tree.Logical) -> None:
        ways = all_now(self.parts)
        if ways is None or not all(p.logical for p in self.parts):
            return
        self.logical = True
        if node.operator == "or":
            self.now = lambda s: any(way(s) for way in ways)
        else:
            self.now = lambda s: all(way(s) for way in ways)

    async def _run(self, s: ProgramContext) -> Value:
        return await judging.holds(self, s, Asking())
