"""Plain expressions: names, literals, operators, members (docs/reference/vvm.md 3.5, 3.6)."""

from __future__ import annotations

from typing import Any

from prose_kernel.errors import RunError, VvmRaise
from prose_kernel.language.vvm import tree
from prose_kernel.machine.vvm.code import expression
from prose_kernel.machine.vvm.context import Context, reader
from prose_kernel.machine.vvm.values import OPERATORS, a_type_of, is_error, json_view, raised, why_no_view
from prose_kernel.runtime.compiled_code import Code, ConstantCode, ListCode, ObjectCode, OperatorCode, all_now, value_of
from prose_kernel.runtime.shared_names import Agent
from prose_kernel.runtime.values import Value


@expression(tree.Name)
class NameCode(Code):
    def prepare(self, node: tree.Name) -> None:
        self.now = reader(node.id, node)


@expression(tree.Unit)
class UnitCode(Code):
    def prepare(self, node: tree.Unit) -> None:
        self.now = lambda s: None


@expression(tree.It)
class ItCode(Code):
    def prepare(self, node: tree.It) -> None:
        self.now = lambda s: s.it


for _literal in (tree.Boolean, tree.Number, tree.String):
    expression(_literal)(ConstantCode)


expression(tree.List, lambda node: node.elements)(ListCode)


@expression(tree.Object, lambda node: [pair.value for pair in node.pairs])
class PairsCode(ObjectCode):
    @staticmethod
    def keys_of(node: tree.Object) -> tuple[str, ...]:
        return tuple(pair.key for pair in node.pairs)


# ---------------------------------------------------------------- members


@expression(tree.Member, lambda node: (node.value,))
class MemberCode(Code):
    def prepare(self, node: tree.Member) -> None:
        ways, name = all_now(self.parts), node.name
        if ways is not None:
            way = ways[0]
            self.now = lambda s: member(s, node, way(s), name)

    async def _run(self, s: Context) -> Value:
        return member(s, self.node, await value_of(self.parts[0], s), self.node.name)


@expression(tree.Index, lambda node: (node.value, node.index))
class IndexCode(Code):
    def prepare(self, node: tree.Index) -> None:
        ways = all_now(self.parts)
        if ways is not None:
            way, at = ways
            self.now = lambda s: index(s, node, way(s), at(s))

    async def _run(self, s: Context) -> Value:
        value = await value_of(self.parts[0], s)
        return index(s, self.node, value, await value_of(self.parts[1], s))


def member(s: Context, node: tree.Node, value: Value, name: str) -> Value:
    """Return `value.name`. Raises R209, R210."""
    if type(value) is dict and name in value:
        return value[name]
    found = _with_members(s, node, value)
    if type(found) is not dict:
        if _is_unknown(s, value):
            return raise_or_unknown(s, VvmRaise(""), value)
        hint = "a list has items: `[0]`; to add one: `items + [item]`" if type(found) is list else None
        if isinstance(found, Agent):
            hint = "call the agent: ``@name `the task`(input)``"
        raise raised(s, node, "R210", f"no members: {a_type_of(found)} has no field '{name}'", hint=hint)
    if name not in found:
        within = is_error(found) and name in found["error"]
        hint = f"the fields of an error are below `error`: `.error.{name}`" if within else _fields_hint(found)
        raise raised(s, node, "R209", f"no such member: {name}", hint=hint)
    inner: Value = found[name]
    return inner


def index(s: Context, node: tree.Node, value: Value, at: Value) -> Value:
    """Return `value[at]`. Raises R209, R210."""
    if type(at) is str:
        return member(s, node, value, at)
    found = _with_members(s, node, value)
    if _is_unknown(s, value) or _is_unknown(s, at):
        return raise_or_unknown(s, VvmRaise(""), value, at)
    if type(found) is list and type(at) is int:
        if 0 <= at < len(found):
            inner: Value = found[at]
            return inner
        raise raised(s, node, "R209", f"no such member: index {at} of a list with {_items(len(found))}")
    if type(found) not in (list, dict):
        raise raised(s, node, "R210", f"no members: {a_type_of(found)} cannot be indexed")
    wanted = "a whole number from 0" if type(found) is list else "a string"
    raise raised(s, node, "R209", f"no such member: an index of {a_type_of(found)} is {wanted}, not {a_type_of(at)}")


def _with_members(s: Context, node: tree.Node, value: Value) -> Any:
    """Return the value whose members are read: for a string the JSON in it (V2)."""
    if type(value) is not str:
        return value
    found = json_view(value)
    if found is None and _is_unknown(s, value):
        return value
    if found is None:
        hint = "members can be read of a text that is a JSON object or list; there are no methods"
        raise raised(s, node, "R210", f"no members: the string {why_no_view(value)}", hint=hint)
    return found


def _is_unknown(s: Context, value: Value) -> bool:
    return s.host.preview is not None and type(value) is str and s.host.preview.unknown_result(value) is not None


def raise_or_unknown(s: Context, error: RunError, *values: Value) -> Value:
    """Raise the error. In a preview with an unknown value, return a placeholder instead."""
    placeholder: Value = s.host.preview.unknown_result(*values) if s.host.preview is not None else None
    if placeholder is None:
        raise error.with_traceback(None) from None
    return placeholder


def _fields_hint(value: dict[str, Value]) -> str:
    names = list(value)
    return f"it has: {', '.join(names[:10])}{' …' if len(names) > 10 else ''}" if names else "the object is empty"


def _items(number: int) -> str:
    return "1 item" if number == 1 else f"{number} items"


# ---------------------------------------------------------------- operators


class BinaryCode(OperatorCode):
    operators = OPERATORS

    @staticmethod
    def failed(s: Context, error: RunError, left: Value, right: Value) -> Value:
        return raise_or_unknown(s, error, left, right)


for _binary in (tree.Compare, tree.Sum):
    expression(_binary, lambda node: (node.left, node.right))(BinaryCode)


def boolean(s: Context, node: tree.Node, value: Value) -> bool:
    """Return the value of a condition. Raises R203 at its expression if it isn't a boolean."""
    if value is True or value is False:
        return value
    raise raised(s, node, "R203", f"condition is not a boolean: {a_type_of(value)}")


@expression(tree.Not, lambda node: (node.value,))
class NotCode(Code):
    def prepare(self, node: tree.Not) -> None:
        self.logical = True
        ways = all_now(self.parts)
        if ways is not None:
            way = ways[0]
            self.now = lambda s: not boolean(s, node.value, way(s))

    async def _run(self, s: Context) -> Value:
        return not boolean(s, self.node.value, await value_of(self.parts[0], s))


@expression(tree.Logical, lambda node: (node.left, node.right))
class LogicalCode(Code):
    """`and`, `or`: a right operand that is not needed is neither evaluated nor checked."""

    def prepare(self, node: tree.Logical) -> None:
        self.logical = True
        self._decisive = decisive = node.operator == "or"
        other = not decisive
        ways = all_now(self.parts)
        if ways is None:
            return
        left, right = ways

        def now(s: Context) -> Value:
            value = left(s)
            if value is decisive:
                return value
            if value is not other:
                boolean(s, node.left, value)  # which raises
            value = right(s)
            return value if value is True or value is False else boolean(s, node.right, value)

        self.now = now

    async def _run(self, s: Context) -> Value:
        for part in self.parts:
            if boolean(s, part.node, await value_of(part, s)) is self._decisive:
                return self._decisive
        return not self._decisive
