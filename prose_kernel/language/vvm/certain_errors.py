"""Finds expressions that raise whenever they are evaluated: V211 and V711 (docs/reference/vvm.md 10).

Literals and declared parameters must be enough to decide, so each check looks only at a node and its direct parts.
Messages are the same as at run time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.names import LIBRARY, OPTIONAL_COUNTS, argument_mismatch
from prose_kernel.language.vvm.tree import Expression

_TYPES: Final[dict[type, str]] = {
    tree.Unit: "unit",
    tree.Boolean: "a boolean",
    tree.Not: "a boolean",
    tree.Logical: "a boolean",
    tree.Compare: "a boolean",
    tree.Predicate: "a boolean",
    tree.Number: "a number",
    tree.String: "a string",
    tree.List: "a list",
    tree.Object: "an object",
    tree.AgentName: "an agent",
    tree.InlineAgent: "an agent",
}
"""The type of an expression's value, with its article, for expressions whose form determines it."""

_ADDABLE: Final = frozenset({"a number", "a string", "a list"})
ADD_HINT: Final = '`+` joins two texts: write both as texts (`"4"`); in the task of an agent, `{a}{b}` joins any values'
"""The hint for `+` between a string and another value."""


class CertainError(NamedTuple):
    """The part of a node that raises, with the message and the hint."""

    node: tree.Node
    message: str
    hint: str | None = None


def condition(node: Expression) -> CertainError | None:
    """Return the error of a condition that isn't a boolean (R203)."""
    found = _TYPES.get(type(node), "a boolean")
    return None if found == "a boolean" else CertainError(node, f"condition is not a boolean: {found}")


def items(node: Expression) -> CertainError | None:
    """Return the error of a value that `for` cannot iterate over (R204)."""
    found = _TYPES.get(type(node), "a list")
    return None if found == "a list" else CertainError(node, f"for needs a list, not {found}")


def operation(node: tree.Sum | tree.Compare) -> CertainError | None:
    """Return the error of operands that an operator cannot take (R205)."""
    operator = node.operator
    if operator in ("==", "!="):
        return None
    left, right = _TYPES.get(type(node.left)), _TYPES.get(type(node.right))
    allowed = _ADDABLE if operator == "+" else frozenset({"a number"})
    wrong = [found for found in (left, right) if found is not None and found not in allowed]
    if left is None or right is None:
        return CertainError(node, f"unsupported operand type for {operator}: {wrong[0]}") if wrong else None
    if wrong or left != right:
        hint = ADD_HINT if operator == "+" and "a string" in (left, right) else None
        return CertainError(node, f"unsupported operand types for {operator}: {left} and {right}", hint)
    return None


def call(node: tree.Call, wanted: tuple[str, ...] | None) -> CertainError | None:
    """Return the error of a call of a value that isn't a function (R207), or with wrong arguments (R208).

    `wanted` are the parameters of the called function; None if it is not certain which one that is.
    """
    callee = node.callee
    if not isinstance(callee, tree.Name):
        found = _TYPES.get(type(callee))
        return CertainError(node, f"not callable: {found}") if found is not None else None
    if wanted is None or callee.id == "perm":
        return None  # arguments of `perm` are checked as the permissions of an agent (V209)
    optional = OPTIONAL_COUNTS.get(callee.id, 0) if wanted is LIBRARY.get(callee.id) else 0
    keywords = dict.fromkeys(keyword.name for keyword in node.keywords)  # a repeated one is V205
    problem = argument_mismatch(wanted, len(node.arguments), keywords, optional)
    if problem is None:
        return None
    return CertainError(node, f"bad arguments to {callee.id}: {problem}", f"{callee.id}({', '.join(wanted)})")
