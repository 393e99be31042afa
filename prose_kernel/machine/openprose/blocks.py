"""Block calls: frames, limits, results, soft exports (openprose.md 3.6)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from prose_kernel.errors import ValueTypeError
from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose.code import Body, expression
from prose_kernel.machine.openprose.frames import (
    DEFAULT_BLOCK_DEPTH,
    GLOBAL_DEPTH_LIMIT,
    Caller,
    Frame,
    Layer,
    Slot,
    Temp,
)
from prose_kernel.machine.openprose.program_context import BlockEntry, ProgramContext, recursion_error
from prose_kernel.machine.openprose.program_text import EXECUTION
from prose_kernel.runtime.compiled_code import Code, value_of
from prose_kernel.runtime.events import BlockEntered, BlockLeft
from prose_kernel.runtime.execution_context import ControlFlow, Node, budget_of, located
from prose_kernel.runtime.ports import Key
from prose_kernel.runtime.preview import unknown
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value


@expression(tree.BlockCall, lambda node: node.arguments)
class BlockCallCode(Code):
    async def _run(self, s: ProgramContext) -> Value:
        return await self._call(s, bare=False)

    async def as_statement(self, s: ProgramContext) -> Value:
        return await self._call(s, bare=True)

    async def _call(self, s: ProgramContext, *, bare: bool) -> Value:
        name, preview = self.node.block, s.host.preview
        entry = s.run.blocks.get(name.id)
        if entry is None:
            return await self._call_function(s)
        if preview is not None and any(frame.block == name.id for frame in s.frame.stack()):
            return unknown(name.id)
        arguments = [(await value_of(part, s), _origin(s, part.node)) for part in self.parts]
        value, exports = await call(invoke_block(s, self.node, entry, arguments, used=self.used))
        if bare and exports:
            s.layer.exports.update(exports)
        return value if preview is None else unknown(name.id)

    async def _call_function(self, s: ProgramContext) -> Value:
        """Call the function of another language that the name after `do` refers to. Raises E140."""
        name, preview = self.node.block, s.host.preview
        function = s.run.functions.get(name.id)
        if function is None:
            raise located(s, ValueTypeError(f"block '{name.id}' is not defined", code="E140"), name)
        arguments = [await value_of(part, s) for part in self.parts]
        if preview is not None:
            return unknown(name.id)
        return await call(function.invoke(s, self.node, arguments))


def _origin(s: ProgramContext, node: tree.Node) -> Key | None:
    """Return the binding that an argument refers to, if it is a plain variable."""
    found = s.find(node.id) if isinstance(node, tree.Name) else None
    return found.key if found is not None else None


async def invoke_block(
    s: ProgramContext, node: Node, entry: BlockEntry, arguments: Sequence[tuple[Value, Key | None]], *, used: bool
) -> tuple[Value, dict[str, Slot]]:
    """Run a new invocation. Returns its value, and the names that a bare `do` makes readable. Raises E206 if the stack
    is full.

    `node` is the call. Each argument comes with its binding, if it is a plain variable.
    """
    frame = _frame(s, node, entry, tuple(value for value, _ in arguments))
    temps: dict[str, Temp] = {}
    for at, parameter in enumerate(entry.node.parameters):
        value, key = arguments[at] if at < len(arguments) else (None, None)
        temps[parameter.id] = Temp(value, "parameter", key)
    if s.host.scheduler.due():
        await s.breathe()
    return await _invoke(s, entry, frame, Layer(frame), temps, used=used)


def _frame(s: ProgramContext, node: Node, entry: BlockEntry, arguments: tuple[Value, ...]) -> Frame:
    name = entry.node.name.id
    same = next((frame.same for frame in s.frame.stack() if frame.block == name), 0) + 1
    limit = entry.node.max_depth or DEFAULT_BLOCK_DEPTH
    if same > limit:
        raise located(s, recursion_error(name, limit), node)
    if s.frame.depth >= GLOBAL_DEPTH_LIMIT:
        raise located(s, recursion_error(name, GLOBAL_DEPTH_LIMIT), node)
    caller = Caller(s.temps, s.layer, s.source, node.span)
    return Frame(s.numbers.next(EXECUTION), name, arguments, caller, s.frame.depth + 1, same)


async def _invoke(
    s: ProgramContext, entry: BlockEntry, frame: Frame, layer: Layer, temps: dict[str, Temp], *, used: bool
) -> tuple[Value, dict[str, Slot]]:
    """Run the body in its frame. Returns its value, and the names that a bare `do` makes readable."""
    outer = s.frame, s.layer, s.temps, s.source, s.statement
    name, number = entry.node.name.id, frame.execution_id
    assert number is not None
    place = s.place(s.statement) if s.host.listeners else None
    if place is not None:
        s.emit(BlockEntered(place, name, number, frame.arguments))
    limits, body = entry.node.budget, _result(s, _body(entry, used), layer)
    budgets = (budget_of(s, f"block {name} {number}", f"block '{name}'", limits.raw),) if limits is not None else ()
    s.frame, s.layer, s.temps, s.source = frame, layer, temps, entry.source
    try:
        with s.within(*budgets) if budgets else nullcontext():
            result = await call(body)
    finally:
        s.frame, s.layer, s.temps, s.source, s.statement = outer
    if place is not None:
        s.emit(BlockLeft(place, name, number))
    return result


def _body(entry: BlockEntry, used: bool) -> Body:
    body = entry.bodies.get(used)
    if body is None:
        body = entry.bodies[used] = Body(entry.node.body, used)
    return body


async def _result(s: ProgramContext, body: Body, layer: Layer) -> tuple[Value, dict[str, Slot]]:
    value: Value = None
    left = False
    try:
        value = await call(body.run(s))
    except ControlFlow as leave:
        if leave.how != "return":
            raise
        if leave.valued:
            return leave.value, {}
        value, left = leave.value, True
    outputs = layer.outputs
    if outputs:
        values = {name: slot.value for name, slot in outputs.items()}
        return (next(iter(values.values())) if len(values) == 1 else values), outputs
    return value, {} if left else _branch_names(body, layer)


def _branch_names(body: Body, layer: Layer) -> dict[str, Slot]:
    """Return the branch names of a `parallel` at the end of a block without outputs."""
    last = body.nodes[-1] if body.nodes else None
    if not isinstance(last, tree.ExpressionStatement) or not isinstance(last.value, tree.Parallel):
        return {}
    names: Sequence[str] = [b.name.id for b in last.value.branches if b.name is not None]
    return {name: layer.table[name] for name in names if name in layer.table}
