"""The `context` of a session (openprose.md 4.3): locations and values of bindings, texts.

The provider decides whether a session gets the location or the value. In runs without files there are only values
(7.6).
"""

from __future__ import annotations

from typing import Final

from prose_kernel.errors import ValueTypeError
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.program_interface import persistence
from prose_kernel.language.structs import replace
from prose_kernel.machine.openprose.code import compile_expression
from prose_kernel.machine.openprose.expressions import render
from prose_kernel.machine.openprose.frames import Slot
from prose_kernel.machine.openprose.program_context import ProgramContext
from prose_kernel.runtime.compiled_code import value_of
from prose_kernel.runtime.execution_context import located
from prose_kernel.runtime.ports import ContextItem, Key
from prose_kernel.runtime.value_text import full_content, inline_text
from prose_kernel.runtime.values import Reference, Value

INLINE: Final = 2000
"""The most characters of a value without a binding that are passed inline; longer values are stored first."""

_NOT_REFERENCES = (tree.Number, tree.Constant, tree.Discretion, tree.Duration)


async def assemble(s: ProgramContext, value: object) -> tuple[ContextItem, ...]:
    """Return the lines of a session's context, in order. Raises E132, E134 for a value that isn't a reference."""
    if isinstance(value, tree.ContextBlock):
        return tuple([await _line(s, entry) for entry in value.entries])
    if isinstance(value, tree.Array):
        return tuple([await _item(s, _title(element, at), element) for at, element in enumerate(value.elements, 1)])
    if isinstance(value, tree.Object):
        return tuple([await _item(s, entry.key, entry.value) for entry in value.entries])
    assert isinstance(value, tree.Node)
    if isinstance(value, tree.Text):
        return (ContextItem("context", text=await render(s, value)),)
    return (await _item(s, _title(value, 0), value),)


async def _line(s: ProgramContext, entry: tree.Argument) -> ContextItem:
    """Return a line of the block form. A text after `file:` is the path of a file."""
    if entry.name.id == "file" and isinstance(entry.value, tree.Text):
        return ContextItem("file", text=await render(s, entry.value), file=True)
    return await _item(s, entry.name.id, entry.value)


async def value_given(s: ProgramContext, value: object) -> Value:
    """Return a session's context as one value, which an agent of another language gets as its input."""
    if isinstance(value, tree.ContextBlock):
        return {e.name.id: await value_of(compile_expression(e.value), s) for e in value.entries}
    assert isinstance(value, tree.Node)
    if isinstance(value, tree.Text):
        return await render(s, value)
    return await value_of(compile_expression(value), s)


def _title(node: tree.Node, at: int) -> str:
    """Return the name under which a value is listed: its own name, or the path as written."""
    if isinstance(node, tree.Name):
        return node.id
    parts: list[str] = []
    while isinstance(node, (tree.Member, tree.Index)):
        if isinstance(node, tree.Member):
            parts.append(f".{node.name.id}")
        else:
            index = node.index
            shown = index.value if isinstance(index, tree.Number) else index.id if isinstance(index, tree.Name) else ""
            parts.append(f"[{shown}]")
        node = node.value
    if isinstance(node, tree.Name):
        return node.id + "".join(reversed(parts))
    return f"context_{at}" if at else "context"


async def _item(s: ProgramContext, name: str, node: tree.Node) -> ContextItem:
    if isinstance(node, _NOT_REFERENCES):
        raise located(s, ValueTypeError("a context is made of names, paths and text", code="E134"), node)
    age = _age(s, node)
    if isinstance(node, tree.Name):
        return replace(_named(s, name, node), age=age)
    value = await value_of(compile_expression(node), s)
    return replace(item_of_value(s, name, value, node), age=age)


def _age(s: ProgramContext, node: tree.Node) -> tuple[int, ...]:
    """Return the age of a value: names of the program in the order of the statements that bound them, then names of a
    block, then loop variables and values computed here."""
    while isinstance(node, (tree.Member, tree.Index)):
        node = node.value
    found = s.find(node.id) if isinstance(node, tree.Name) else None
    if not isinstance(found, Slot):
        return (3,)
    shared = s.run.root.table.get(found.name) is found
    return (1 if shared else 2, found.cell, found.span.start)


def _named(s: ProgramContext, name: str, node: tree.Name) -> ContextItem:
    found = s.find(node.id)
    if found is None:
        return _agent(s, name, node)
    if found.value is None or found.key is None or isinstance(found.value, Reference):
        return item_of_value(s, name, found.value, node)
    return _stored(s, name, found.key, found.value, node)


def _stored(s: ProgramContext, name: str, key: Key, value: Value, node: tree.Node) -> ContextItem:
    """Return the context item of a value that has a binding."""
    if s.run.store.by_value:
        return _by_value(s, name, value, node)
    store = s.run.store
    return ContextItem(name, location=store.location(key), content=value, row=not store.in_files)


def _agent(s: ProgramContext, name: str, node: tree.Name) -> ContextItem:
    """Return the memory of a persistent agent that is named in a context (W133)."""
    entry = s.run.agents.get(node.id)
    persist = persistence(entry.node) if entry is not None else None
    if persist is None:
        hint = "declare it before this line, or check the spelling" if entry is None else "only persistent agents"
        raise located(s, ValueTypeError(f"'{node.id}' is not defined here", code="E132", hint=hint), node)
    directory = s.run.store.memory(node.id, persist)
    return ContextItem(name, location=f"{directory.rstrip('/')}/memory.md")


def item_of_value(s: ProgramContext, name: str, value: Value, node: tree.Node) -> ContextItem:
    """Return the context item of a value without a variable: a session's binding by its location, others as text."""
    if value is None:
        return ContextItem(name, missing=True)
    if s.run.store.by_value:
        return _by_value(s, name, value, node)
    if isinstance(value, Reference):
        if s.run.is_current(value):
            return ContextItem(name, location=value.location, content=value, row=not s.run.store.in_files)
        return _stored(s, name, s.keep_anonymous(value.read(), node), value, node)
    text = inline_text(value)
    if len(text) <= INLINE:
        return ContextItem(name, text=text, content=value)
    return _stored(s, name, s.keep_anonymous(value, node), value, node)


def _by_value(s: ProgramContext, name: str, value: Value, node: tree.Node) -> ContextItem:
    """Return a value itself. Long values are passed whole, with a warning, because no model condenses them (7.6)."""
    text = full_content(value)
    if len(text) > INLINE and s.run.warns_once(node):
        s.warn("W220", f"'{name}' is passed whole, though it is long ({len(text):,} characters)", node)
    return ContextItem(name, text=text, content=value)
