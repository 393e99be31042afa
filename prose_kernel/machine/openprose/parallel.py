"""`parallel`, `parallel for` (openprose.md 3.7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import cached_property
from typing import Any

from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose.bindings import Destination, SpawnCode, bind, produce
from prose_kernel.machine.openprose.code import Body, compile_expression, expression
from prose_kernel.machine.openprose.frames import Spawned
from prose_kernel.machine.openprose.loops import CountedLoopCode, ForCode, RepeatCode
from prose_kernel.machine.openprose.program_context import ProgramContext, error_value
from prose_kernel.machine.openprose.program_text import Needs, needs_of, statement_text
from prose_kernel.runtime.compiled_code import Code, Step
from prose_kernel.runtime.events import BranchStep, LoopPass, ParallelJoined, ParallelStarted
from prose_kernel.runtime.execution_context import ControlFlow
from prose_kernel.runtime.numbering import PARALLEL, ForkAllocation
from prose_kernel.runtime.parallel_branches import Fork, Join, Outcome, iterate, race_of
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import ExecText, Value

ALL = tree.Modifiers()


def branch_label(branch: tree.Branch, index: int) -> str:
    return branch.name.id if branch.name is not None else f"_{index + 1}"


def _value_of(join: Join, outcome: Outcome) -> Value:
    """Return the value for a branch's name, or for its element of the array."""
    if outcome.status == "done":
        return outcome.value
    if outcome.status == "failed" and outcome.error is not None and join.policy.on_fail == "continue":
        return error_value(outcome.error)
    return None


def _winning_value(join: Join, outcomes: list[Outcome]) -> Value:
    """Return the value of a construct that was decided by `first` or `any`."""
    won = [outcomes[index].value for index in join.winners]
    if join.policy.strategy == "any" and join.policy.count is not None:
        return list(won)
    return won[0] if won else None


def _raise(fork: Fork[ProgramContext], label: Callable[[int], str]) -> None:
    """Raise the error with which the construct fails, if it does, and add the branch in which it was raised."""
    raised = fork.join.raised
    if raised is not None:
        index = next(i for i, o in enumerate(fork.outcomes) if o.error is raised)
        raised.details.setdefault("branch", label(index))
        raise raised


@expression(tree.Parallel)
class ParallelCode(Code):
    def prepare(self, node: tree.Parallel) -> None:
        self.codes: list[Code | None] = []
        self.bodies: list[Body] = []
        for branch in node.branches:
            statement: Any = branch.statement
            named = branch.name is not None and isinstance(statement, tree.ExpressionStatement)
            self.codes.append(compile_expression(statement.value) if named else None)
            self.bodies.append(Body((branch.statement,), self.used))

    async def _run(self, s: ProgramContext) -> Value:
        node: tree.Parallel = self.node
        number, repeat = s.numbers.next(PARALLEL), s.count("parallel")
        modifiers = node.modifiers if s.host.preview is None else ALL
        join = Join(modifiers, len(node.branches))
        split = ForkAllocation(len(node.branches), self._needs)
        steps = [BranchStep(number, i, branch_label(b, i)) for i, b in enumerate(node.branches)]
        names = tuple(b.name.id if b.name is not None else None for b in node.branches)
        s.emit(ParallelStarted(s.place(node), number, names, len(names), False, modifiers.strategy))

        def begin(index: int) -> tuple[ProgramContext, Coroutine[Any, Any, Value]]:
            context = s.branch(steps[index], None, repeat, split)
            context.statement = node.branches[index].statement
            return context, self._branch(context, index)

        race = race_of(s, modifiers, "b*", repeat, statement_text(s.source, node.span))
        fork = Fork(s, number, join, begin, names.__getitem__, None, race)
        await fork.run()
        self._publish(s, fork)
        s.emit(ParallelJoined(s.place(node), number))
        return self._result(s, fork)

    @cached_property
    def _needs(self) -> list[Needs]:
        return [needs_of(branch) for branch in self.node.branches]

    async def _branch(self, s: ProgramContext, index: int) -> Value:
        code, body = self.codes[index], self.bodies[index]
        if code is None:
            return await until_return(s, call(body.run(s)))
        branch = self.node.branches[index]
        name = branch.name.id
        named = Body((branch,), True)
        named.use([_NamedBranch(branch, code, Destination(name, s.key(name), "let"))])
        return await until_return(s, call(named.run(s)))

    def _publish(self, s: ProgramContext, fork: Fork[ProgramContext]) -> None:
        """Publish the names bound in the branches, then the branches' own names, in source order."""
        for index in range(len(self.bodies)):
            context = fork.contexts.get(index)
            if context is not None and fork.outcomes[index].status != "cancelled":
                context.layer.publish()
                if context.layer.parent is s.run.root:
                    for name, slot in context.layer.table.items():
                        s.run.publish(name, slot.value)
        for index, branch in enumerate(self.node.branches):
            if branch.name is None:
                continue
            outcome = fork.outcomes[index]
            code = self.codes[index]
            spawned: Spawned | None = None
            if outcome.status == "done" and isinstance(code, SpawnCode):
                spawned = code.spawned
            value = None if fork.join.raised is not None and outcome.status != "done" else _value_of(fork.join, outcome)
            context = fork.contexts.get(index)
            branches = context.branches if context is not None else s.branches
            s.single = context.single if context is not None else None
            outer, s.branches = s.branches, branches
            try:
                bind(s, s.layer, branch.name.id, "let", value, branch, spawned)
            finally:
                s.branches = outer

    def _result(self, s: ProgramContext, fork: Fork[ProgramContext]) -> Value:
        if fork.left is not None:
            raise fork.left
        branches = self.node.branches
        _raise(fork, lambda index: branch_label(branches[index], index))
        if fork.join.policy.strategy != "all":
            return _winning_value(fork.join, fork.outcomes)
        found = zip(branches, fork.outcomes, strict=True)
        values = [self._element(s, branch, _value_of(fork.join, outcome)) for branch, outcome in found]
        if not any(branch.name is not None for branch in branches):
            return list(values)
        return {branch_label(b, i): v for i, (b, v) in enumerate(zip(branches, values, strict=True))}

    def _element(self, s: ProgramContext, branch: tree.Branch, value: Value) -> Value:
        """Return a branch's element of the block's value: the value of its name, or an unnamed value."""
        if not isinstance(value, ExecText) or not self.used:
            return value
        slot = s.layer.table.get(branch.name.id) if branch.name is not None else None
        return slot.value if slot is not None else s.store_element(value, branch)


class _NamedBranch(Step):
    """`name = rhs` in a branch. A spawn stores its binding under that name."""

    def __init__(self, node: tree.Node, code: Code, destination: Destination) -> None:
        super().__init__(node, True)
        self.code = code
        self.destination = destination

    async def _run(self, s: ProgramContext) -> Value:
        value, _ = await produce(s, self.code, self.destination)
        return value


# ---------------------------------------------------------------- iterations


async def until_return(s: ProgramContext, work: Awaitable[Value]) -> Value:
    """Await a branch or an iteration. In ProseScript `return` ends it (prose-md.md 3.7)."""
    try:
        return await work
    except ControlFlow as leave:
        if leave.how != "return" or not s.run.is_script:
            raise
        return leave.value


async def each(
    s: ProgramContext,
    node: tree.Node,
    items: Sequence[Value],
    modifiers: tree.Modifiers,
    one: Callable[[ProgramContext, int, Value], Coroutine[Any, Any, Value]],
) -> Value:
    """Run one branch for each item (`parallel for`, `pmap`). Returns the values in input order."""

    def begin(context: ProgramContext, index: int) -> Coroutine[Any, Any, Value]:
        return one(context, index, items[index])

    modifiers = modifiers if s.host.preview is None else ALL
    fork = await iterate(s, node, items, modifiers, begin, statement_text(s.source, node.span))
    if fork.left is not None and fork.left.how == "return":
        raise fork.left
    _raise(fork, lambda index: f"i{index}")
    if modifiers.strategy != "all":
        return _winning_value(fork.join, fork.outcomes)
    return [_value_of(fork.join, outcome) for outcome in fork.outcomes]


class _ParallelLoopCode(CountedLoopCode):
    """A loop with all passes at the same time: `parallel for`, and `parallel repeat` (prose-md.md 3.10)."""

    async def _run(self, s: ProgramContext) -> Value:
        node, items = self.node, await self.items(s)

        async def one(branch: ProgramContext, index: int, _: Value) -> Value:
            branch.temps = dict(branch.temps)
            self.begin(branch, branch.temps, items, index)
            if branch.host.heard[LoopPass]:
                branch.emit(LoopPass(branch.place(node), index, len(items)))
            result = await until_return(branch, call(self.body.run(branch)))
            return branch.store_element(result, node) if self.used else result

        return await each(s, node, items, getattr(node, "modifiers", ALL), one)


class ParallelForCode(_ParallelLoopCode, ForCode):
    pass


class ParallelRepeatCode(_ParallelLoopCode, RepeatCode):
    pass


@expression(tree.For, lambda node: (node.collection,))
def for_code(node: tree.For, parts: Sequence[Code] = (), used: bool = True) -> Code:
    return ForCode(node, parts, used) if node.modifiers is None else ParallelForCode(node, parts, used)


@expression(tree.Repeat, lambda node: (node.count,))
def repeat_code(node: tree.Repeat, parts: Sequence[Code] = (), used: bool = True) -> Code:
    return ParallelRepeatCode(node, parts, used) if node.concurrent else RepeatCode(node, parts, used)
