"""if, choice, do, return, break, continue (openprose.md 3.9); try, catch, finally, throw, assert (3.12)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from prose_kernel.errors import RunError, ThrowError
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.call_targets import interface_of
from prose_kernel.machine.openprose import judging
from prose_kernel.machine.openprose.code import Body, compile_expression, expression, statement
from prose_kernel.machine.openprose.expressions import render
from prose_kernel.machine.openprose.frames import Temp
from prose_kernel.machine.openprose.judging import Arms, Asking
from prose_kernel.machine.openprose.program_context import ProgramContext, error_value
from prose_kernel.runtime.compiled_code import Code, Step, value_of
from prose_kernel.runtime.events import ArmChosen, Caught, FinallyEntered, OptionChosen, TryEntered
from prose_kernel.runtime.execution_context import ControlFlow, forget_trace
from prose_kernel.runtime.ports import Binding
from prose_kernel.runtime.preview import unknown
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import ErrorValue, Value, inserted_text


@statement(tree.ExpressionStatement)
class ExpressionStep(Step):
    def prepare(self, node: tree.ExpressionStatement) -> None:
        self.code = compile_expression(node.value, self.used)
        self.now = self.code.now

    async def _run(self, s: ProgramContext) -> Value:
        return await call(self.code.as_statement(s))


@expression(tree.Do)
class DoCode(Code):
    def prepare(self, node: tree.Do) -> None:
        self.body = Body(node.body, self.used)

    async def _run(self, s: ProgramContext) -> Value:
        return await call(self.body.run(s))


# ---------------------------------------------------------------- choosing


@expression(tree.If)
class IfCode(Code):
    def prepare(self, node: tree.If) -> None:
        self.arms = [(compile_expression(arm.condition), Body(arm.body, self.used)) for arm in node.arms]
        after = [*((arm.condition,) for arm in node.arms[1:]), node.otherwise or ()]
        self.ways: list[Arms] = [(("yes", arm.body), ("no", no)) for arm, no in zip(node.arms, after, strict=True)]
        conditions = [condition for condition, _ in self.arms]
        self.after = [
            conditions[number:] if isinstance(condition.node, tree.Discretion) else ()
            for number, condition in enumerate(conditions, 1)
        ]
        self.otherwise = Body(node.otherwise, self.used) if node.otherwise is not None else None

    async def _run(self, s: ProgramContext) -> Value:
        if s.host.preview is not None:
            return await call(s.host.preview.run_either(s, [body for _, body in self.arms] + [self.otherwise]))
        arm, body = 0, None
        for number, (condition, candidate) in enumerate(self.arms, 1):
            if await judging.holds(condition, s, Asking(arms=self.ways[number - 1], after=self.after[number - 1])):
                arm, body = number, candidate
                break
        else:
            if self.otherwise is not None:
                arm, body = len(self.arms) + 1, self.otherwise
        if s.host.heard[ArmChosen]:
            s.emit(ArmChosen(s.place(self.node), arm))
        return await call(body.run(s)) if body is not None else None


@expression(tree.Choice)
class ChoiceCode(Code):
    def prepare(self, node: tree.Choice) -> None:
        self.bodies: dict[str, Body] = {}
        ways: dict[str, Sequence[tree.Node]] = {}
        for option in node.options:
            self.bodies.setdefault(option.label.raw, Body(option.body, self.used))
            ways.setdefault(option.label.raw, option.body)
        self.ways: Arms = tuple(ways.items())

    async def _run(self, s: ProgramContext) -> Value:
        if s.host.preview is not None:
            return await call(s.host.preview.run_either(s, list(self.bodies.values())))
        criteria = self.node.criteria
        label = await judging.choose(s, criteria, await render(s, criteria.text), self.ways)
        s.emit(OptionChosen(s.place(self.node), label))
        return await call(self.bodies[label].run(s))


@statement(tree.Return)
class ReturnStep(Step):
    def prepare(self, node: tree.Return) -> None:
        self.code = compile_expression(node.value) if node.value is not None else None

    async def _run(self, s: ProgramContext) -> Value:
        is_script = s.run.is_script
        if self.code is None and not is_script:
            raise ControlFlow("return")
        value = await value_of(self.code, s) if self.code is not None else None
        fields = isinstance(self.node.value, tree.Object)
        raise ControlFlow("return", value, valued=True, fields=fields, outputs=not is_script)


@statement(tree.Break)
@statement(tree.Continue)
class LeaveStep(Step):
    async def _run(self, s: ProgramContext) -> Value:
        raise ControlFlow("break" if isinstance(self.node, tree.Break) else "continue")


# ---------------------------------------------------------------- errors


@expression(tree.Try)
class TryCode(Code):
    def prepare(self, node: tree.Try) -> None:
        self.body = Body(node.body, self.used)
        self.catch = Body(node.catch.body, self.used) if node.catch is not None else None
        self.final = Body(node.final, False) if node.final is not None else None

    async def _run(self, s: ProgramContext) -> Value:
        if s.host.preview is not None:
            return await call(self._previewed(s))
        if s.host.heard[TryEntered]:
            s.emit(TryEntered(s.place(self.node)))
        if self.final is None:
            return await call(self._guarded(s))
        try:
            value = await call(self._guarded(s))
        except GeneratorExit:
            raise
        except asyncio.CancelledError:
            # Neither an error nor a `return` in here may replace an interrupt.
            with contextlib.suppress(RunError, ControlFlow):
                await call(self._finally(s))
            raise
        except BaseException as error:
            with s.cleaning_up(error):
                await call(self._finally(s))
            raise
        await call(self._finally(s))
        return value

    async def _previewed(self, s: ProgramContext) -> Value:
        await call(self.body.run(s))
        if self.catch is not None:
            outer, name = s.temps, self.node.catch.name
            if name is not None:
                s.temps = {**outer, name.id: Temp(unknown(name.id), "catch variable")}
            await call(self.catch.run(s))
            s.temps = outer
        if self.final is not None:
            await call(self.final.run(s))
        return unknown("value")

    async def _guarded(self, s: ProgramContext) -> Value:
        outer = s.guarded
        s.guarded = outer + (self.catch is not None)
        try:
            return await call(self.body.run(s))
        except RunError as error:
            if self.catch is None or not s.catches(error):
                raise
            forget_trace(error)
            caught = error_value(error)
        finally:
            s.guarded = outer
        return await call(self._caught(s, caught, self.catch))

    async def _caught(self, s: ProgramContext, caught: ErrorValue, body: Body) -> Value:
        name = self.node.catch.name
        s.emit(Caught(s.place(self.node.catch), name.id if name else None, caught.error))
        temps, before = s.temps, s.catching
        if name is not None:
            s.temps = {**temps, name.id: self._temp(s, name, caught)}
        s.catching = caught
        try:
            return await call(body.run(s))
        finally:
            s.temps, s.catching = temps, before

    def _temp(self, s: ProgramContext, name: tree.Name, caught: ErrorValue) -> Temp:
        """Return the catch variable. It is stored like a binding (7.4), unless a variable already has that name."""
        if s.find(name.id) is not None:
            return Temp(caught, "catch variable")
        key = s.key(name.id)
        source = s.source.slice(self.node.catch.span).partition("\n")[0]
        s.run.put(Binding(key, "const", caught, source))
        return Temp(caught, "catch variable", key)

    async def _finally(self, s: ProgramContext) -> None:
        if s.host.heard[FinallyEntered]:
            s.emit(FinallyEntered(s.place(self.node)))
        assert self.final is not None
        await call(self.final.run(s))


@statement(tree.Throw)
class ThrowStep(Step):
    def prepare(self, node: tree.Throw) -> None:
        self.code = compile_expression(node.value) if node.value is not None else None

    async def _run(self, s: ProgramContext) -> Value:
        if self.code is None:
            if s.catching is None:
                raise ThrowError("")
            raise s.catching.error.with_traceback(None)
        text = self.node.value  # the message only shows values, so cut ones will do
        value: Value = await render(s, text) if isinstance(text, tree.Text) else await value_of(self.code, s)
        if isinstance(value, ErrorValue):
            raise value.error.with_traceback(None)
        raise _thrown(s, value) if s.run.is_script else ThrowError(inserted_text(value))


def _thrown(s: ProgramContext, value: Value) -> ThrowError:
    """Return the error that `throw` raises in ProseScript (prose-md.md 3.11), with the fields of an object, and with
    the `name` of a matching declared error."""
    fields = dict(value) if isinstance(value, dict) else {}
    reason = fields.get("message", fields.get("error"))
    message = inserted_text(value if reason is None else reason)
    kinds = (message, fields.get("error"))
    name = next((name for name in interface_of(s.source).errors if name in kinds), None)
    details = {key: part for key, part in fields.items() if key not in ("type", "code", "message")}
    return ThrowError(message, details={**details, "name": name})


@statement(tree.Assert)
class AssertStep(Step):
    def prepare(self, node: tree.Assert) -> None:
        self.condition = compile_expression(node.condition)

    async def _run(self, s: ProgramContext) -> Value:
        if not await judging.holds(self.condition, s, Asking()):
            message = self.node.message
            raise ThrowError(await render(s, message) if message is not None else "assertion failed")
        return None
