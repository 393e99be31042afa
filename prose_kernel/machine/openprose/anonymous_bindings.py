"""Values without a name that are worth a binding of their own (openprose.md 7.4)."""

from __future__ import annotations

from dataclasses import replace

from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose.runs import ExecutionContext
from prose_kernel.machine.openprose.statements import statement_text, whole_lines
from prose_kernel.runtime.ports import Binding, Key
from prose_kernel.runtime.values import ExecText, Reference, Value


def keep_anonymous(s: ExecutionContext, value: Value, node: tree.Node) -> Key:
    """Store a value as `anon_NNN`."""
    key = s.next_anonymous()
    s.run.put(Binding(key, "let", value, statement_text(s.source, node.span)))
    return key


def with_places(s: ExecutionContext, value: Value, node: tree.Node) -> Value:
    """An array or object whose members can be stored as references: a reply or a command's result whose name holds
    something else by now gets a binding of its own."""
    if s.run.store.by_value or not _is_composite(value):
        return value
    if isinstance(value, list):
        found = [_member(s, member, node) for member in value]
        return found if any(a is not b for a, b in zip(found, value, strict=True)) else value
    if isinstance(value, dict) and type(value) is dict:
        fields = {name: _member(s, member, node) for name, member in value.items()}
        return fields if any(fields[name] is not value[name] for name in value) else value
    return value


def _is_composite(value: Value) -> bool:
    members = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    return any(isinstance(member, (ExecText, Reference, list, dict)) for member in members)


def _member(s: ExecutionContext, value: Value, node: tree.Node) -> Value:
    if isinstance(value, ExecText):
        return value if s.run.is_at(value) else kept_element(s, replace(value, location=""), node)
    if isinstance(value, Reference) and not s.run.is_current(value):
        key, text = keep_anonymous(s, value.read(), node), value.read()
        return s.run.refer(key, value.summary, text)
    return with_places(s, value, node)


def kept_element(s: ExecutionContext, value: Value, node: tree.Node) -> Value:
    """An array element made by a loop, a pipeline or a branch: a command's result is kept with its metadata.

    What has a binding stays there: sessions' replies, the values of names. Others stand in the array's own binding.
    """
    if not isinstance(value, ExecText) or value.location:
        return value
    key = s.next_anonymous()
    kept = replace(value, location=s.run.store.location(key))
    s.run.placed(kept)
    s.run.put(Binding(key, "let", kept, whole_lines(s.source, node.span)))
    return kept
