"""Pipelines and arrows (openprose.md 3.14)."""

from __future__ import annotations

from collections.abc import Sequence

from prose_kernel.errors import RunError
from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose import judging
from prose_kernel.machine.openprose.anonymous_bindings import kept_element
from prose_kernel.machine.openprose.bindings import Destination, SpawnCode
from prose_kernel.machine.openprose.branches import ALL, iterate
from prose_kernel.machine.openprose.code import Body, Code, compile_expression, expression
from prose_kernel.machine.openprose.control_flow import ControlFlow
from prose_kernel.machine.openprose.failures import located
from prose_kernel.machine.openprose.frames import Spawned, Temp, Temps
from prose_kernel.machine.openprose.loops import collection
from prose_kernel.machine.openprose.runs import ExecutionContext
from prose_kernel.runtime.events import PipeProgressed
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value


@expression(tree.Arrow)
class ArrowCode(SpawnCode):
    __slots__ = ("spawns",)

    def __init__(self, node: tree.Arrow, parts: Sequence[Code] = (), used: bool = True) -> None:
        super().__init__(node, parts, used)
        last = len(node.spawns) - 1
        self.spawns = [compile_expression(spawn, used and at == last) for at, spawn in enumerate(node.spawns)]

    @property
    def spawned(self) -> Spawned:
        last = self.spawns[-1]
        assert isinstance(last, SpawnCode)
        return last.spawned

    async def spawn(self, s: ExecutionContext, destination: Destination | None) -> Value:
        value: Value = None
        for at, code in enumerate(self.spawns, 1):
            assert isinstance(code, SpawnCode)
            value = await code.spawn(s, destination if at == len(self.spawns) else None)
        return value


@expression(tree.Pipe, lambda node: (node.source,))
class PipeCode(Code):
    __slots__ = ("bodies",)

    def __init__(self, node: tree.Pipe, parts: Sequence[Code] = (), used: bool = True) -> None:
        super().__init__(node, parts, used)
        self.bodies = [Body(operation.body, True) for operation in node.operations]

    async def _run(self, s: ExecutionContext) -> Value:
        value: Value = await collection(self.parts[0], s)
        for operation, body in zip(self.node.operations, self.bodies, strict=True):
            items = value if isinstance(value, list) else await self._items(s, operation, value)
            value = await call(_OPERATIONS[operation.kind](s, operation, body, items))
        return value

    async def _items(self, s: ExecutionContext, operation: tree.PipeOperation, value: Value) -> list[Value]:
        try:
            return await judging.items(s, operation, value)
        except RunError as error:
            raise located(s, error, operation) from None


def _begins(s: ExecutionContext, operation: tree.PipeOperation, index: int, total: int) -> None:
    if s.host.listeners:
        s.emit(PipeProgressed(s.place(operation.span), operation.kind, index + 1, total))


async def _once(s: ExecutionContext, body: Body, temps: Temps) -> Value:
    """One item: the value of the body's last statement, with the operation's names before it."""
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


async def _map(s: ExecutionContext, operation: tree.PipeOperation, body: Body, items: list[Value]) -> Value:
    found: list[Value] = []
    for index, item in enumerate(items):
        _begins(s, operation, index, len(items))
        value = await _once(s, body, {**s.temps, "item": Temp(item, "pipeline variable")})
        found.append(kept_element(s, value, operation))
    return list(found)


async def _filter(s: ExecutionContext, operation: tree.PipeOperation, body: Body, items: list[Value]) -> Value:
    found: list[Value] = []
    for index, item in enumerate(items):
        _begins(s, operation, index, len(items))
        value = await _once(s, body, {**s.temps, "item": Temp(item, "pipeline variable")})
        if await judging.is_true(s, value, operation):
            found.append(item)
    return list(found)


async def _reduce(s: ExecutionContext, operation: tree.PipeOperation, body: Body, items: list[Value]) -> Value:
    if not items:
        return None
    first, second = (name.id for name in operation.names)
    result = items[0]
    for index, item in enumerate(items[1:], 1):
        _begins(s, operation, index, len(items))
        pair = {first: Temp(result, "pipeline variable"), second: Temp(item, "pipeline variable")}
        result = await _once(s, body, {**s.temps, **pair})
    return result


async def _pmap(s: ExecutionContext, operation: tree.PipeOperation, body: Body, items: list[Value]) -> Value:
    async def one(branch: ExecutionContext, index: int, item: Value) -> Value:
        _begins(branch, operation, index, len(items))
        value = await _once(branch, body, {**branch.temps, "item": Temp(item, "pipeline variable")})
        return kept_element(branch, value, operation)

    return await iterate(s, operation, items, ALL, one)


_OPERATIONS = {"map": _map, "filter": _filter, "reduce": _reduce, "pmap": _pmap}
