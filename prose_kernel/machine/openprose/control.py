"""if, choice, do, return, break, continue (openprose.md 3.9)."""

from __future__ import annotations

from collections.abc import Sequence

from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose import judging
from prose_kernel.machine.openprose.code import Body, compile_expression, expression, statement
from prose_kernel.machine.openprose.interpolation import render
from prose_kernel.machine.openprose.judging import Arms, Asking
from prose_kernel.machine.openprose.program_context import ProgramContext
from prose_kernel.runtime.compiled_code import Code, Step, value_of
from prose_kernel.runtime.events import ArmChosen, OptionChosen
from prose_kernel.runtime.execution_context import ControlFlow
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value


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
        if s.host.heard[OptionChosen]:
            s.emit(OptionChosen(s.place(self.node), label))
        return await call(self.bodies[label].run(s))


@statement(tree.Return)
class ReturnStep(Step):
    valued = False

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
    valued = False

    async def _run(self, s: ProgramContext) -> Value:
        raise ControlFlow("break" if isinstance(self.node, tree.Break) else "continue")
