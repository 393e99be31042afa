"""What the text of a program tells before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from prose_kernel.language.openprose import tree

_NO_VARIABLES = (tree.Argument, tree.Property, tree.Member, tree.Agent, tree.Gate, tree.Index)


def walk(root: tree.Node) -> Iterator[tree.Node]:
    """A node and everything inside it, in no particular order, however deep."""
    stack: list[object] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(node)
        elif isinstance(node, tree.Node):
            yield node
            stack.extend(getattr(node, name) for name in node.__dataclass_fields__ if name != "span")


def declared_names(program: tree.Program) -> frozenset[str]:
    """Every name that something in the program binds, temporary names included."""
    return frozenset(name for node in walk(program) for name in _bound(node))


def _bound(node: tree.Node) -> Iterator[str]:
    if isinstance(node, tree.PipeOperation):
        yield "item"
    if isinstance(node, _NO_VARIABLES):
        return
    for field_name in ("name", "names", "variable", "item", "index", "parameters"):
        value = getattr(node, field_name, None)
        for name in value if isinstance(value, tuple) else (value,):
            if isinstance(name, tree.Name):
                yield name.id
