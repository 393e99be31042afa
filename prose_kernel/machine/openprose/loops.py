"""`repeat`, `for`, `loop` (openprose.md 3.8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from prose_kernel.errors import RunError, ValueTypeError
from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose import judging
from prose_kernel.machine.openprose.code import Body, compile_expression, expression
from prose_kernel.machine.openprose.expressions import render
from prose_kernel.machine.openprose.frames import Temp, Temps
from prose_kernel.machine.openprose.judging import Asking
from prose_kernel.machine.openprose.operators import as_number
from prose_kernel.machine.openprose.program_context import ProgramContext
from prose_kernel.runtime.compiled_code import Code, run_flat, value_of
from prose_kernel.runtime.execution_context import ControlFlow, located
from prose_kernel.runtime.preview import unknown
from prose_kernel.runtime.running_loops import Passes
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import ExecText, Value

_LOOP_EXITS = (RunError, ControlFlow, asyncio.CancelledError)


class _Passes(Passes):
    """The passes of one loop. `value` is the value of the last one."""

    value: Value = None

    async def run(self, body: Body) -> bool:
        """Run the body once, without a coroutine if nothing in it can wait. Returns False after `break`."""
        s = self.s
        ways = body.flat(s)
        try:
            self.value = await call(body.stepped(s)) if ways is None else run_flat(ways, body, s)
        except ControlFlow as leave:
            if leave.how == "return":
                raise
            self.value = None
            return leave.how == "continue"
        if s.host.scheduler.due():
            await s.breathe()
        return True


class CountedLoopCode(Code):
    """A loop over `items` that are known before its first pass. `begin` sets the temporary names of a pass."""

    def prepare(self, node: tree.For | tree.Repeat) -> None:
        self.body = Body(node.body, self.used)

    async def items(self, s: ProgramContext) -> Sequence[Value]:
        raise NotImplementedError

    def begin(self, s: ProgramContext, temps: Temps, items: Sequence[Value], index: int) -> None:
        raise NotImplementedError

    async def _run(self, s: ProgramContext) -> Value:
        """Run the passes. Returns an array of their values if it is used: a pass left by `continue` gives null, a pass
        left by `break` no element (3.8)."""
        items = await self.items(s)
        passes = _Passes(s, self.node, len(items))
        found: list[Value] = []
        index, reason = -1, "end"
        outer = s.temps
        s.temps = temps = dict(outer)
        try:
            for index in range(len(items)):
                self.begin(s, temps, items, index)
                passes.begins(index)
                if not await passes.run(self.body):
                    reason = "break"
                    break
                if self.used:
                    found.append(s.store_element(passes.value, self.node))
        except _LOOP_EXITS:
            passes.left("raised", index)
            raise
        finally:
            s.temps = outer
        passes.left(reason, index)
        return found if self.used else None


class ForCode(CountedLoopCode):
    async def items(self, s: ProgramContext) -> list[Value]:
        items = await collection(self.parts[0], s, self.node.item.id)
        return items if self.node.maximum is None else items[: self.node.maximum]

    def begin(self, s: ProgramContext, temps: Temps, items: Sequence[Value], index: int) -> None:
        item, number = self.node.item.id, self.node.index
        temps[item] = Temp(items[index], "loop variable")
        if number is not None:
            known = s.host.preview is None or items[index] != unknown(item)
            temps[number.id] = Temp(index if known else unknown(number.id), "loop variable")


async def collection(code: Code, s: ProgramContext, name: str) -> list[Value]:
    """Return the items of a loop's or pipeline's collection. `name` is their name in the body. Raises E210."""
    if s.host.preview is not None:
        return cast("list[Value]", await s.host.preview.items(s, code, name))
    return await items_of(s, code.node, await value_of(code, s))


async def items_of(s: ProgramContext, node: tree.Node, value: Value) -> list[Value]:
    """Return the items of a collection. Raises E210 at `node`."""
    if isinstance(value, list):
        return value
    try:
        return await judging.items(s, node, value)
    except RunError as error:
        raise located(s, error, node) from None


class RepeatCode(CountedLoopCode):
    async def items(self, s: ProgramContext) -> Sequence[Value]:
        """Return the values of the counter."""
        variable = self.node.variable
        if s.host.preview is not None:
            name = variable.id if variable is not None else ""
            return cast("Sequence[Value]", await s.host.preview.passes(s, self.parts[0], name))
        return range(self._count(s, await value_of(self.parts[0], s)))

    def begin(self, s: ProgramContext, temps: Temps, items: Sequence[Value], index: int) -> None:
        variable = self.node.variable
        if variable is not None:
            temps[variable.id] = Temp(items[index], "loop variable")

    def _count(self, s: ProgramContext, value: Value) -> int:
        try:
            number = as_number(value)
        except ValueTypeError as half:
            raise located(s, half, self.node.count) from None
        if isinstance(number, float) and number.is_integer() and not isinstance(value, ExecText):
            number = int(number)
        if not isinstance(number, int):
            error = ValueTypeError("the count of `repeat` must be a whole number", code="E161")
            raise located(s, error, self.node.count)
        if number < 1:
            error = ValueTypeError("the count of `repeat` must be positive", code="E160")
            raise located(s, error, self.node.count)
        return number


@expression(tree.Loop)
class LoopCode(Code):
    def prepare(self, node: tree.Loop) -> None:
        self.body = Body(node.body, self.used)
        self.condition = compile_expression(node.condition) if node.condition is not None else None

    async def _run(self, s: ProgramContext) -> Value:
        outer, maximum = s.temps, self.node.maximum
        if self.node.variable is not None:
            s.temps = dict(outer)
        passes = _Passes(s, self.node, maximum, fixed=False)  # it ends by itself
        try:
            return await self._run_passes(s, passes, maximum)
        except _LOOP_EXITS:
            passes.left("raised")
            raise
        finally:
            s.temps = outer

    async def _run_passes(self, s: ProgramContext, passes: _Passes, maximum: int | None) -> Value:
        node: tree.Loop = self.node
        index = 0
        while True:
            if node.variable is not None:
                s.temps[node.variable.id] = Temp(index, "loop variable")
            if s.host.preview is not None:
                await passes.run(self.body)
                return unknown("value")
            if maximum is None or index < maximum:
                passes.begins(index)
            reason = await self._exit(s, index) if self.condition is not None else None
            if reason is None and maximum is not None and index >= maximum:
                reason = "max"
            if reason is None and not await passes.run(self.body):
                reason = "break"
            if reason is not None:
                passes.left(reason, index)
                return passes.value
            index += 1

    async def _exit(self, s: ProgramContext, index: int) -> str | None:
        """Return why the condition ends the loop before this pass; None if it does not."""
        assert self.condition is not None
        node: tree.Loop = self.node
        asking = Asking(node.mode, index, node.maximum)
        if await judging.holds(self.condition, s, asking) is (node.mode == "until"):
            return await self._reason(s)
        return "no-progress" if asking.no_progress else None

    async def _reason(self, s: ProgramContext) -> str:
        condition = self.node.condition
        if isinstance(condition, tree.Discretion):
            return f"**{await render(s, condition.text)}**"
        return s.source.slice(condition.span).strip()
