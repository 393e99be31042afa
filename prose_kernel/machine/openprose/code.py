"""The compiler of OpenProse, with which its constructs register."""

from __future__ import annotations

from collections.abc import Sequence

from prose_kernel.language.openprose import tree
from prose_kernel.runtime import compiled_code


def _value_index(nodes: Sequence[tree.Node]) -> int:
    """Return the index of the statement that determines a body's value. A bare `return` keeps the value before it."""
    last = len(nodes) - 1
    end = nodes[last] if last > 0 else None
    return last - 1 if isinstance(end, tree.Return) and end.value is None else last


COMPILER = compiled_code.Compiler(_value_index)
expression = COMPILER.expression
statement = COMPILER.statement
compile_expression = COMPILER.compile_expression
compile_statement = COMPILER.compile_statement


class Body(compiled_code.Body):
    compiler = COMPILER
