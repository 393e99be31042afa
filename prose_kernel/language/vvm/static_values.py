"""Evaluates expressions whose value is known before a run: literals, lists and objects of them, `perm(...)` of them.

No function here recurses, because literals may be nested to any depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.configurations import UNKNOWN, permissions
from prose_kernel.language.vvm.tree import Expression, Keyword

_LITERALS = (tree.String, tree.Number, tree.Boolean)


def static_value(expression: Expression, *, perm: bool = True) -> Any:
    """Return the plain value of an expression, `UNKNOWN` for computed parts. `perm` means the library function."""
    done: list[Any] = []
    agenda: list[Any] = [expression]
    while agenda:
        node = agenda.pop()
        if isinstance(node, tuple):  # a container, and how many of the values done are its parts
            container, count = node
            parts = [done.pop() for _ in range(count)][::-1]
            done.append(_container_of(container, parts))
            continue
        inside = parts_of(node) if perm or not isinstance(node, tree.Call) else None
        if inside is not None:
            agenda += [(node, len(inside)), *reversed(inside)]
        elif isinstance(node, _LITERALS):
            done.append(node.value)
        else:
            done.append(None if isinstance(node, tree.Unit) else UNKNOWN)
    return done[0]


def _container_of(node: Any, parts: list[Any]) -> Any:
    """Return the value of a container from the values of its parts."""
    if isinstance(node, tree.List):
        return parts
    if isinstance(node, tree.Object):
        return {pair.key: part for pair, part in zip(node.pairs, parts, strict=True)}
    return permissions({keyword.name: part for keyword, part in zip(node.keywords, parts, strict=True)})


def parts_of(node: Expression) -> list[Expression] | None:
    """Return the parts of a static container; None for anything else."""
    if isinstance(node, tree.List):
        return list(node.elements)
    if isinstance(node, tree.Object):
        return [pair.value for pair in node.pairs]
    if is_perm(node):
        return [keyword.value for keyword in node.keywords]
    return None


def is_perm(node: Expression) -> TypeGuard[tree.Call]:
    """Return whether this is `perm(...)` with only keywords."""
    return (
        isinstance(node, tree.Call)
        and isinstance(node.callee, tree.Name)
        and node.callee.id == "perm"
        and not node.arguments
    )


def computed_parts(expression: Expression) -> Iterator[Expression]:
    """Yield the parts of an expression that are not static (V041), in source order."""
    agenda = [expression]
    while agenda:
        node = agenda.pop()
        parts = parts_of(node)
        if parts is not None:
            agenda.extend(reversed(parts))
        elif not isinstance(node, (*_LITERALS, tree.Unit)):
            yield node


def node_at(keyword: Keyword, path: tuple[str | int, ...]) -> tree.Node:
    """Return the node at the path of a fault in `name=value` (without the name), or the last node on that path."""
    node: Expression = keyword.value
    for part in path:
        found = _child(node, part)
        if found is None:
            return node
        node = found
    return node


def _child(node: Expression, part: str | int) -> Expression | None:
    if isinstance(part, int):
        return node.elements[part] if isinstance(node, tree.List) and part < len(node.elements) else None
    if isinstance(node, tree.Object):
        return next((pair.value for pair in reversed(node.pairs) if pair.key == part), None)
    if isinstance(node, tree.Call):
        return next((keyword.value for keyword in reversed(node.keywords) if keyword.name == part), None)
    return None
