"""Values without a name that are worth a binding of their own (openprose.md 7.4)."""

from __future__ import annotations

from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose.runs import ExecutionContext
from prose_kernel.machine.openprose.statements import statement_text
from prose_kernel.runtime.ports import Binding, Key
from prose_kernel.runtime.values import ExecText, Value


def keep_anonymous(s: ExecutionContext, value: Value, node: tree.Node) -> Key:
    """Store a value as `anon_NNN`."""
    key = s.next_anonymous()
    s.run.put(Binding(key, "let", value, statement_text(s.source, node.span)))
    return key


def kept_element(s: ExecutionContext, value: Value, node: tree.Node) -> Value:
    """An array element made by a loop or a pipeline: a command's result is kept with its metadata.

    Sessions have left a binding already, other values stand in the array's own binding.
    """
    if isinstance(value, ExecText):
        keep_anonymous(s, value, node)
    return value
