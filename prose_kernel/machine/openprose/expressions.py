"""Plain expressions: names, literals, operators, members (openprose.md 3.11, 3.15)."""

from __future__ import annotations

from prose_kernel.errors import RunError, ValueTypeError
from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose import judging
from prose_kernel.machine.openprose.code import expression
from prose_kernel.machine.openprose.judging import Asking
from prose_kernel.machine.openprose.operators import OPERATORS
from prose_kernel.machine.openprose.program_context import ProgramContext
from prose_kernel.runtime.compiled_code import Code, ConstantCode, ListCode, ObjectCode, OperatorCode, all_now, value_of
from prose_kernel.runtime.execution_context import located
from prose_kernel.runtime.values import Value


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
