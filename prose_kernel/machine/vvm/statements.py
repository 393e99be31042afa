"""Assignments, conditions, loops, `with input`, `try` (docs/reference/vvm.md 4.4, 4.5, 4.10, 4.11)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from prose_kernel.errors import RunError, Thrown
from prose_kernel.language.vvm import tree
from prose_kernel.machine.vvm.code import (
    BREAK,
    CONTINUE,
    Body,
    Leave,
    Left,
    Step,
    compile_expression,
    flat_ways,
    may_be_flat,
    run_body,
    run_flat,
    statement,
)
from prose_kernel.machine.vvm.context import Context
from prose_kernel.machine.vvm.expressions import boolean
from prose_kernel.machine.vvm.judging import scrutinee
from prose_kernel.machine.vvm.values import a_type_of, error_value, raised
from prose_kernel.runtime.compiled_code import Code, awaited, value_of
from prose_kernel.runtime.events import ArmChosen, Caught, FinallyEntered, TryEntered
from prose_kernel.runtime.execution_context import forget_trace, located
from prose_kernel.runtime.preview import unknown
from prose_kernel.runtime.running_loops import Passes
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value

_LOOP_EXITS: Final = (RunError, asyncio.CancelledError)

# ---------------------------------------------------------------- plain statements


@statement(tree.Assign)
class AssignStep(Step):
    def prepare(self, node: tree.Assign) -> None:
        self.code = compile_expression(node.value)
        way, name = self.code.now, node.target.id
        if way is not None:
            self.now = lambda s: s.bind(name, way(s), node)

    def finish(self, s: Context, value: Value) -> Left:
        s.bind(self.node.target.id, value, self.node)


@statement(tree.ExpressionStatement)
class ExpressionStep(Step):
    """An expression whose value is dropped. (At the top level, `program.py` keeps the value of a cell.)"""

    def prepare(self, node: tree.ExpressionStatement) -> None:
        self.code = compile_expression(node.value, self.used)
        way = self.code.now
        if way is not None:

            def now(s: Context) -> Left:
                way(s)

            self.now = now

    def finish(self, s: Context, value: Value) -> Left:
        return None


_LEFT: Final = {tree.Pass: None, tree.Break: BREAK, tree.Continue: CONTINUE}


@statement(tree.Pass)
@statement(tree.Break)
@statement(tree.Continue)
class LeaveStep(Step):
    def prepare(self, node: tree.Pass | tree.Break | tree.Continue) -> None:
        left: Left = _LEFT[type(node)]
        self.now = lambda s: left


# ---------------------------------------------------------------- if


async def holds(s: Context, code: Code) -> bool:
    """Return whether a condition holds. Raises R203."""
    value = code.now(s) if code.now is not None else await awaited(code, s)
    return boolean(s, code.node, value)


@statement(tree.If)
class IfStep(Step):
    nests = True

    def prepare(self, node: tree.If) -> None:
        self.arms = [(compile_expression(arm.condition), Body(arm.body)) for arm in node.arms]
        self.otherwise = Body(node.otherwise) if node.otherwise is not None else None
        if all(code.now is not None for code, _ in self.arms):
            bodies = [*(arm.body for arm in node.arms), node.otherwise or ()]
            self.now = self._without_waiting() if may_be_flat(bodies) else None

    def _without_waiting(self) -> Callable[[Context], Left] | None:
        """Return the whole statement as one function; None if something in it can wait."""
        node = self.node
        last = flat_ways(self.otherwise) if self.otherwise is not None else None
        if last is None and self.otherwise is not None:
            return None
        arms: list[tuple[Any, Any, Any]] = []
        for code, body in self.arms:
            way = flat_ways(body)
            if way is None:
                return None
            arms.append((code.now, way, code.node))
        other = len(arms) + 1 if last is not None else 0

        def now(s: Context) -> Left:
            for number, (condition, way, where) in enumerate(arms, 1):
                value = condition(s)
                if value is True:
                    if s.host.heard[ArmChosen]:
                        s.emit(ArmChosen(s.place(node), number))
                    return way(s)
                if value is not False:
                    boolean(s, where, value)  # which raises
            if s.host.heard[ArmChosen]:
                s.emit(ArmChosen(s.place(node), other))
            return last(s) if last is not None else None

        return now

    async def _run(self, s: Context) -> Left:
        if s.host.preview is not None:
            return await call(s.host.preview.arms(s, self.arms, self.otherwise))
        arm, body = 0, None
        for number, (condition, candidate) in enumerate(self.arms, 1):
            if await holds(s, condition):
                arm, body = number, candidate
                break
        else:
            if self.otherwise is not None:
                arm, body = len(self.arms) + 1, self.otherwise
        if s.host.heard[ArmChosen]:
            s.emit(ArmChosen(s.place(self.node), arm))
        if body is None:
            return None
        return await call(body.run(s, self.now is None))  # with a hook, also a statement that needs no waiting


# ---------------------------------------------------------------- loops


def _ended(passes: Passes, left: Leave) -> Left:
    """Report that a statement has left the loop, and return what the bodies around the loop must do."""
    passes.left("break" if left is BREAK else "raised")
    return None if left is BREAK else left


@statement(tree.While)
class WhileStep(Step):
    nests = True

    def prepare(self, node: tree.While) -> None:
        self.condition = compile_expression(node.condition)
        self.body = Body(node.body)

    async def _run(self, s: Context) -> Left:
        if s.host.preview is not None:
            if await s.host.preview.truth(s, self.condition) is False:
                return None
            return await call(s.host.preview.run_either(s, [self.body]))
        condition, body, turns = self.condition, self.body, s.host.scheduler
        passes = Passes(s, self.node, None)
        way = condition.now
        try:
            while True:
                value = way(s) if way is not None else await awaited(condition, s)
                if value is not True and not boolean(s, condition.node, value):
                    break
                passes.begins(passes.index + 1)
                ways = body.flat(s)
                left: Left = await call(body.stepped(s)) if ways is None else run_flat(ways, body, s)
                if left is not None and left is not CONTINUE:
                    return _ended(passes, left)
                if turns.due():
                    await s.breathe()
        except _LOOP_EXITS:
            passes.left("raised")
            raise
        passes.left(s.source.slice(self.node.condition.span))
        return None


@statement(tree.For)
class ForStep(Step):
    nests = True

    def prepare(self, node: tree.For) -> None:
        self.items = compile_expression(node.items)
        self.body = Body(node.body)

    async def _run(self, s: Context) -> Left:
        node, body, turns, name = self.node, self.body, s.host.scheduler, self.node.target.id
        if s.host.preview is not None:
            items = s.host.preview.items(await s.host.preview.value(s, self.items, name), name)
        else:
            items = await value_of(self.items, s)
        if type(items) is not list:
            raise raised(s, node.items, "R204", f"for needs a list, not {a_type_of(items)}")
        passes = Passes(s, node, len(items))
        try:
            for item in items:
                s.bind(name, item, node)
                passes.begins(passes.index + 1)
                ways = body.flat(s)
                left: Left = await call(body.stepped(s)) if ways is None else run_flat(ways, body, s)
                if left is not None and left is not CONTINUE:
                    return _ended(passes, left)
                if turns.due():
                    await s.breathe()
        except _LOOP_EXITS:
            passes.left("raised")
            raise
        passes.left("end")
        return None


@statement(tree.WithInput)
class WithInputStep(Step):
    nests = True

    def prepare(self, node: tree.WithInput) -> None:
        self.value = compile_expression(node.value)
        self.body = Body(node.body)

    async def _run(self, s: Context) -> Left:
        value = await scrutinee(s, self.value)
        outer, s.it = s.it, value
        try:
            return await run_body(self.body, s)
        finally:
            s.it = outer


# ---------------------------------------------------------------- errors


@statement(tree.Raise)
class RaiseStep(Step):
    def prepare(self, node: tree.Raise) -> None:

        def now(s: Context) -> Left:
            if node.message is None and s.handling is not None:
                raise s.handling.with_traceback(None)
            raise located(s, Thrown(node.message.value if node.message is not None else ""), node)

        self.now = now


@statement(tree.Try)
class TryStep(Step):
    """A statement that leaves `finally` replaces the pending one.

    An interrupt, and a question that no one can answer, end the run: they cannot be caught (A23), and the `finally`
    bodies that they pass run without making requests (A49).
    """

    nests = True

    def prepare(self, node: tree.Try) -> None:
        self.body = Body(node.body)
        self.handler = Body(node.handler.body) if node.handler is not None else None
        self.final = Body(node.final) if node.final is not None else None

    async def _run(self, s: Context) -> Left:
        if s.host.preview is not None:
            return await call(self._previewed(s))
        if s.host.heard[TryEntered]:
            s.emit(TryEntered(s.place(self.node)))
        if self.final is None:
            return await call(self._guarded(s))
        try:
            left = await call(self._guarded(s))
        except asyncio.CancelledError:
            await call(self._closed_finally(s, RunError("the run was interrupted", no_answer=True)))
            raise
        except RunError as error:
            if error.no_answer:
                await call(self._closed_finally(s, error))
                raise
            pending = error
        else:
            after = await self._finally(s)
            return left if after is None else after
        with s.cleaning_up(pending):
            after = await self._finally(s)
        if after is not None:
            return after
        forget_trace(pending)
        raise pending

    async def _guarded(self, s: Context) -> Left:
        outer = s.guarded
        s.guarded = outer + (self.handler is not None)
        try:
            return await call(self.body.run(s))
        except RunError as error:
            if self.handler is None or error.no_answer or not s.catches(error):
                raise
            forget_trace(error)
            caught = error
        finally:
            s.guarded = outer
        return await call(self._handled(s, caught, self.handler))

    async def _handled(self, s: Context, error: RunError, body: Body) -> Left:
        clause: tree.Handler = self.node.handler
        s.emit(Caught(s.place(clause), clause.target.id, error))
        outer, s.handling = s.handling, error
        try:
            s.bind(clause.target.id, error_value(error), clause)
            return await call(body.run(s))
        finally:
            s.handling = outer

    async def _finally(self, s: Context) -> Left:
        assert self.final is not None
        if s.host.heard[FinallyEntered]:
            s.emit(FinallyEntered(s.place(self.node)))
        return await call(self.final.run(s))

    async def _closed_finally(self, s: Context, ending: RunError) -> None:
        """Run `finally` while the run ends: the first request in it raises `ending`, and nothing propagates from it."""
        outer, s.cancellation.closed_by = s.cancellation.closed_by, ending
        try:
            with contextlib.suppress(RunError, asyncio.CancelledError):
                await call(self._finally(s))
        finally:
            s.cancellation.closed_by = outer

    async def _previewed(self, s: Context) -> Left:
        """Run all parts in sequence, for a preview; the handler may or may not run."""
        left = await call(self.body.run(s))
        if self.handler is not None:
            name: str = self.node.handler.target.id
            s.bind(name, unknown(name), self.node.handler)
            await call(s.host.preview.run_either(s, [self.handler]))
        after = await call(self.final.run(s)) if self.final is not None else None
        return left if after is None else after
