"""Looking for nodes of one kind anywhere in a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TypeVar

from prose_kernel.language.openprose.tree import Gate, Node, Program

Kind = TypeVar("Kind", bound=Node)


def nodes(program: Program, kind: type[Kind]) -> Iterator[Kind]:
    """All nodes of a kind, in source order, without recursion."""
    stack: list[object] = [program]
    while stack:
        item = stack.pop()
        if isinstance(item, tuple):
            stack.extend(reversed(item))
        elif isinstance(item, Node):
            if isinstance(item, kind):
                yield item
            stack.extend(getattr(item, f.name) for f in reversed(fields(item)) if f.name != "span")


def gate_names(program: Program) -> frozenset[str]:
    """The names of all gates of a program, imports left aside."""
    return frozenset(gate.name.id for gate in nodes(program, Gate))
