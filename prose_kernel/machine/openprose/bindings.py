"""Statements that bind a name: let, const, assignment, output, input (openprose.md 3.5, 3.16, 6.3, 6.4)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from prose_kernel.errors import InputError, NoPerson, RunError, ValueTypeError
from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose import judging
from prose_kernel.machine.openprose.code import compile_expression, statement
from prose_kernel.machine.openprose.expressions import render
from prose_kernel.machine.openprose.frames import Kind, Layer, Slot, Spawned, Temp, find_home
from prose_kernel.machine.openprose.program_context import ProgramContext
from prose_kernel.runtime import json_data
from prose_kernel.runtime.compiled_code import Code, Step, value_of
from prose_kernel.runtime.events import Bound
from prose_kernel.runtime.execution_context import ControlFlow, located
from prose_kernel.runtime.ports import Key, Question
from prose_kernel.runtime.values import ExecText, Value


class Destination(Struct, frozen=True):
    """The name that a spawn's value will be bound to, and the key of its binding."""

    name: str
    key: Key
    kind: Kind


class SpawnCode(Code):
    """The code of session, resume, exec and arrow chains, which needs to know what its value will be bound to."""

    spawned: Spawned

    async def spawn(self, s: ProgramContext, destination: Destination | None) -> Value:
        raise NotImplementedError

    async def _run(self, s: ProgramContext) -> Value:
        value = await self.spawn(s, None)
        s.recent.result = value
        return value


# ---------------------------------------------------------------- binding

_FREE: Final = ("let", "output")


def bind(
    s: ProgramContext, layer: Layer, name: str, kind: Kind, value: Value, node: tree.Node, spawned: Spawned | None
) -> Slot:
    """Bind a value to a name in the table of a layer, and declare the name if it is new there."""
    if s.host.preview is not None:
        value = s.host.preview.bound(s, name, value, node)
    s.recent.result = None
    called, s.single = s.single, None
    single = called[1] if called is not None and called[0] is value else ""
    slot = layer.table.get(name)
    previous = slot is not None
    cell = s.run.progress.cell
    key = slot.key if slot is not None else Key(name, layer.frame.execution_id, layer.iterations)
    if slot is not None and isinstance(slot.value, ExecText):
        s.run.result_unbound(slot.value)
    if isinstance(value, ExecText) and not value.location:
        value = value.at(s.run.store.location(key))
        s.run.result_bound(value)
    elif isinstance(value, (list, dict)):
        value = s.with_stored_members(value, node)
    if slot is None:
        slot = Slot(name, kind, value, key, s.source, node.span, spawned, cell)
        layer.table[name] = slot
    else:
        if slot.kind != kind and not (slot.kind == "output" and kind == "let" and slot.cell == cell):
            slot.kind = kind
            if kind != "output":
                layer.outputs.pop(name, None)
        slot.value, slot.source, slot.span, slot.spawned = value, s.source, node.span, spawned
        slot.cell = cell
    slot.single = single
    s.run.changed(slot)
    if s.host.names.several and layer is s.run.root:
        s.run.publish(name, value)
    if s.host.heard[Bound]:
        looped = bool(s.host.loops)
        s.emit(Bound(s.place(node), name, slot.kind, value, slot.key, spawned, previous, looped))
    return slot


def require_mutable(s: ProgramContext, node: tree.Name) -> None:
    """Raise E137 if the name is temporary here."""
    temp = s.temps.get(node.id)
    if temp is not None:
        raise _immutable(s, node, temp)


def _immutable(s: ProgramContext, node: tree.Name, temp: Temp) -> RunError:
    return located(s, ValueTypeError(f"'{node.id}' is a {temp.word} and cannot be changed", code="E137"), node)


def home_of(s: ProgramContext, node: tree.Name) -> tuple[Layer, Kind]:
    """Return the layer that an assignment writes to, and the kind of the binding. Raises E130, E137."""
    slot = s.layer.table.get(node.id)
    if slot is not None and slot.kind in _FREE and node.id not in s.temps:
        return s.layer, slot.kind
    found = find_home(node.id, s.temps, s.layer)
    if found is None:
        return s.layer, "let"
    what, layer = found
    if isinstance(what, Temp):
        raise _immutable(s, node, what)
    if node.id not in layer.table:
        return layer, "let"  # a soft export: the assignment makes it a variable there
    if what.kind == "const":
        raise located(s, ValueTypeError(f"'{node.id}' is a const and cannot be reassigned", code="E130"), node)
    if what.kind == "input":
        raise located(s, ValueTypeError(f"'{node.id}' is an input and cannot be changed", code="E137"), node)
    return layer, what.kind


async def produce(s: ProgramContext, code: Code, destination: Destination) -> tuple[Value, Spawned | None]:
    """Return the value for a name, with its kind of spawn; a spawn gets the destination of its binding."""
    if isinstance(code, SpawnCode):
        return await code.spawn(s, destination), code.spawned
    return await value_of(code, s), None


@statement(tree.Let)
class LetStep(Step):
    binds = True

    def prepare(self, node: tree.Let) -> None:
        self.code = code = compile_expression(node.value)
        way = code.now
        if way is None or node.destructured:
            return
        name, kind = node.names[0], node.kind

        def now(s: ProgramContext) -> Value:
            require_mutable(s, name)
            value = way(s)
            bind(s, s.layer, name.id, kind, value, node, None)
            return value

        self.now = now

    async def _run(self, s: ProgramContext) -> Value:
        node = self.node
        for name in node.names:
            require_mutable(s, name)
        if node.destructured:
            return await self._destructure(s)
        name = node.names[0].id
        value, spawned = await produce(s, self.code, Destination(name, s.key(name), node.kind))
        bind(s, s.layer, name, node.kind, value, node, spawned)
        return value

    async def _destructure(self, s: ProgramContext) -> Value:
        value = await value_of(self.code, s)
        called, s.single = s.single, None
        found: list[Value] = []
        for name in self.node.names:
            if called is not None and called == (value, name.id) and not (type(value) is dict and name.id in value):
                found.append(value)  # the only output of a call, under its name (prose-md.md 3.6)
                continue
            try:
                found.append(await judging.member(s, name, value, name.id))
            except RunError as error:
                raise located(s, error, name) from None
        for name, part in zip(self.node.names, found, strict=True):
            bind(s, s.layer, name.id, self.node.kind, part, self.node, None)
        return value


@statement(tree.Assign)
class AssignStep(Step):
    binds = True

    def prepare(self, node: tree.Assign) -> None:
        self.code = code = compile_expression(node.value)
        way = code.now
        if way is None:
            return
        name = node.name

        def now(s: ProgramContext) -> Value:
            layer, kind = home_of(s, name)
            value = way(s)
            bind(s, layer, name.id, kind, value, node, None)
            return value

        self.now = now

    async def _run(self, s: ProgramContext) -> Value:
        name = self.node.name
        layer, kind = home_of(s, name)
        key = Key(name.id, layer.frame.execution_id, layer.iterations)
        value, spawned = await produce(s, self.code, Destination(name.id, key, kind))
        layer, kind = home_of(s, name)  # another branch may have declared it meanwhile
        bind(s, layer, name.id, kind, value, self.node, spawned)
        return value


@statement(tree.Append)
def append_step(node: tree.Append, used: bool) -> Step:
    """`append value to list` is `list = list + [value]` (prose-md.md 3.10)."""
    item = tree.Array.at(*node.value.span, (node.value,))
    return AssignStep(tree.Assign.at(*node.span, node.name, tree.Binary.at(*node.span, "+", node.name, item)), used)


@statement(tree.Output)
class OutputStep(Step):
    binds = True

    def prepare(self, node: tree.Output) -> None:
        self.code = compile_expression(node.value)
        way, name = self.code.now, node.name
        if way is None or name is None:
            return

        def now(s: ProgramContext) -> Value:
            require_mutable(s, name)
            value = way(s)
            self._bind(s, value, None)
            return value

        self.now = now

    def _bind(self, s: ProgramContext, value: Value, spawned: Spawned | None) -> None:
        name = self.node.name.id
        s.layer.outputs[name] = bind(s, s.layer, name, "output", value, self.node, spawned)

    async def _run(self, s: ProgramContext) -> Value:
        name = self.node.name
        if name is None:
            raise ControlFlow(
                "return", await value_of(self.code, s), valued=True, fields=isinstance(self.node.value, tree.Object)
            )
        require_mutable(s, name)
        value, spawned = await produce(s, self.code, Destination(name.id, s.key(name.id), "output"))
        self._bind(s, value, spawned)
        return value


@statement(tree.Input)
class InputStep(Step):
    binds = True

    async def _run(self, s: ProgramContext) -> Value:
        name = self.node.name
        require_mutable(s, name)
        value = supplied(s, name.id)
        if value is None:
            value = await self._ask(s)
        if isinstance(value, str) and json_data.is_deep_json(value):
            message = f"the value of input '{name.id}' is JSON that {json_data.DEEPER}"
            raise located(s, ValueTypeError(message), self.node)
        bind(s, s.layer, name.id, "input", value, self.node, None)
        return value

    async def _ask(self, s: ProgramContext) -> str:
        name, prompt = self.node.name.id, self.node.prompt
        text = await render(s, prompt.text if isinstance(prompt, tree.Discretion) else prompt)
        await s.flush()
        at = s.at("input")
        phrase = judging.request_about(s, text, at, node=prompt) if isinstance(prompt, tree.Discretion) else None
        question = Question(name, text, at, phrase)
        try:
            return await s.ask(question, str, lambda: _answer(s, question))
        except NoPerson as error:
            message = f"no value for input '{name}': {error}"
            hint = f"supply it: --input {name}=VALUE, or %input {name}=VALUE in a notebook"
            raise located(s, InputError(message, hint=hint, no_answer=True), self.node) from None
        except EOFError:
            raise located(s, InputError(f"no value for input '{name}': the input ended"), self.node) from None


def supplied(s: ProgramContext, name: str) -> Value:
    """Return the value that the caller or the front end supplied for an input, or None."""
    if name in s.run.supplied:
        return s.run.supplied[name]
    return None if s.run.program else s.host.supplied_to_text.get(name)


async def _answer(s: ProgramContext, question: Question) -> str:
    given = None if s.run.program else s.host.supplied.get(question.name)
    return await s.host.ports.user.ask(question) if given is None else given
