"""Pipelines and arrows (openprose.md 3.14)."""

from __future__ import annotations

from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose import judging
from prose_kernel.machine.openprose.bindings import Destination, SpawnCode
from prose_kernel.machine.openprose.code import Body, compile_expression, expression
from prose_kernel.machine.openprose.frames import Temp, Temps
from prose_kernel.machine.openprose.loops import collection, items_of
from prose_kernel.machine.openprose.parallel import ALL, each, until_return
from prose_kernel.machine.openprose.program_context import ProgramContext
from prose_kernel.runtime.compiled_code import Code
from prose_kernel.runtime.execution_context import ControlFlow
from prose_kernel.runtime.preview import unknown
from prose_kernel.runtime.running_loops import Items, progressed
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value


@expression(tree.Arrow)
class ArrowCode(SpawnCode):
    def prepare(self, node: tree.Arrow) -> None:
        last = node.spawns[-1]
        self.spawns: list[SpawnCode] = []
        for spawn in node.spawns:
            code = compile_expression(spawn, self.used and spawn is last)
            assert isinstance(code, SpawnCode)
            self.spawns.append(code)
        self.spawned = self.spawns[-1].spawned

    async def spawn(self, s: ProgramContext, destination: Destination | None) -> Value:
        value: Value = None
        for at, code in enumerate(self.spawns, 1):
            value = await code.spawn(s, destination if at == len(self.spawns) else None)
        return value


@expression(tree.Pipe, lambda node: (node.source,))
class PipeCode(Code):
    def prepare(self, node: tree.Pipe) -> None:
        self.bodies = [Body(operation.body, True) for operation in node.operations]

    async def _run(self, s: ProgramContext) -> Value:
        names = self.node.operations[0].names
        value: Value = await collection(self.parts[0], s, names[0].id if names else "item")
        preview = s.host.preview
        for operation, body in zip(self.node.operations, self.bodies, strict=True):
            items = await items_of(s, operation, value)
            if preview is not None and operation.kind == "reduce":
                items = [unknown(name.id) for name in operation.names]
            value = await call(_OPERATIONS[operation.kind](s, operation, body, items))
        return value


async def _once(s: ProgramContext, body: Body, temps: Temps) -> Value:
    """Run the body for one item, with the operation's temporary names. Returns the value of its last statement."""
    outer = s.temps
    s.temps = temps
    try:
        value = await call(body.run(s))
    except ControlFlow as leave:
        if leave.how != "continue":
            raise
        value = None
    finally:
        s.temps = outer
    return value


async def _each(s: ProgramContext, operation: tree.PipeOperation, body: Body, items: list[Value]) -> Value:
    """Run `map` or `filter`. Returns the values of the body, or the items for which it is true."""
    found: list[Value] = []
    with Items(s, operation, len(items)) as passes:
        for index, item in enumerate(items):
            passes.begins(operation.kind, index)
            value = await _once(s, body, {**s.temps, "item": Temp(item, "pipeline variable")})
            if operation.kind == "map":
                found.append(s.store_element(value, operation))
            elif await judging.is_true(s, value, operation):
                found.append(item)
    return list(found)


async def _reduce(s: ProgramContext, operation: tree.PipeOperation, body: Body, items: list[Value]) -> Value:
    if not items:
        return None
    first, second = (name.id for name in operation.names)
    result = items[0]
    with Items(s, operation, len(items)) as passes:
        for index, item in enumerate(items[1:], 1):
            passes.begins(operation.kind, index)
            pair = {first: Temp(result, "pipeline variable"), second: Temp(item, "pipeline variable")}
            result = await _once(s, body, {**s.temps, **pair})
    return result


async def _pmap(s: ProgramContext, operation: tree.PipeOperation, body: Body, items: list[Value]) -> Value:
    async def one(branch: ProgramContext, index: int, item: Value) -> Value:
        progressed(branch, operation, operation.kind, index, len(items))
        branch.temps = {**branch.temps, "item": Temp(item, "pipeline variable")}
        value = await until_return(branch, _once(branch, body, branch.temps))
        return branch.store_element(value, operation)

    return await each(s, operation, items, ALL, one)


_OPERATIONS = {"map": _each, "filter": _each, "reduce": _reduce, "pmap": _pmap}
