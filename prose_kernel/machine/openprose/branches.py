"""`parallel`, `parallel for` (openprose.md 3.7)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose.anonymous_bindings import kept_element
from prose_kernel.machine.openprose.bindings import Destination, SpawnCode, bind, produce
from prose_kernel.machine.openprose.code import Body, Code, Step, compile_expression, expression
from prose_kernel.machine.openprose.forks import LIVE, Fork, Race
from prose_kernel.machine.openprose.frames import Spawned, Temp
from prose_kernel.machine.openprose.joins import Join
from prose_kernel.machine.openprose.loops import collection
from prose_kernel.machine.openprose.numbering import PARALLEL, ForkAllocation, Needs, needs_of
from prose_kernel.machine.openprose.runs import ExecutionContext
from prose_kernel.machine.openprose.statements import statement_text
from prose_kernel.runtime.events import BranchStep, LoopPass, ParallelJoined, ParallelStarted
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value

ALL = tree.Modifiers()


def race_of(s: ExecutionContext, node: tree.Node, modifiers: tree.Modifiers, branch: str, repeat: int) -> Race | None:
    """What a construct is known by to those who record races; None where all branches are waited for."""
    if modifiers.strategy == "all" or s.host.ports.races is None:
        return None
    again = f"~{repeat}" if repeat else ""
    return Race(f"{s.path}/{branch}{again}", statement_text(s.source, node.span))


def branch_label(branch: tree.Branch, index: int) -> str:
    return branch.name.id if branch.name is not None else f"_{index + 1}"


@expression(tree.Parallel)
class ParallelCode(Code):
    __slots__ = ("bodies", "codes", "needs")

    def __init__(self, node: tree.Parallel, parts: Sequence[Code] = (), used: bool = True) -> None:
        super().__init__(node, parts, used)
        self.needs: list[Needs] | None = None
        self.codes: list[Code | None] = []
        self.bodies: list[Body] = []
        for branch in node.branches:
            statement: Any = branch.statement
            named = branch.name is not None and isinstance(statement, tree.ExpressionStatement)
            self.codes.append(compile_expression(statement.value) if named else None)
            self.bodies.append(Body((branch.statement,), used))

    async def _run(self, s: ExecutionContext) -> Value:
        node: tree.Parallel = self.node
        number, repeat = s.numbers.next(PARALLEL), s.count("parallel")
        join = Join(node.modifiers, len(node.branches))
        split = ForkAllocation(len(node.branches), self._needs())
        steps = [BranchStep(number, i, branch_label(b, i)) for i, b in enumerate(node.branches)]
        names = tuple(b.name.id if b.name is not None else None for b in node.branches)
        if s.host.listeners:
            strategy = node.modifiers.strategy
            s.emit(ParallelStarted(s.place(node.span), number, names, len(names), False, strategy))

        def begin(index: int) -> tuple[ExecutionContext, Coroutine[Any, Any, Value]]:
            context = s.branch(steps[index], None, repeat, split)
            context.statement = node.branches[index].statement
            return context, self._branch(context, index)

        fork = Fork(s, number, join, begin, names.__getitem__, None, race_of(s, node, node.modifiers, "b*", repeat))
        directory = s.cwd
        await fork.run()
        s.cwd = directory
        self._publish(s, fork)
        if s.host.listeners:
            s.emit(ParallelJoined(s.place(node.span), number))
        return self._result(fork)

    def _needs(self) -> list[Needs]:
        if self.needs is None:
            self.needs = [needs_of(branch) for branch in self.node.branches]
        return self.needs

    async def _branch(self, s: ExecutionContext, index: int) -> Value:
        code, body = self.codes[index], self.bodies[index]
        if code is None:
            return await call(body.run(s))
        branch = self.node.branches[index]
        name = branch.name.id
        named = Body((branch,), True)
        named.use([_NamedBranch(branch, code, Destination(name, s.key(name), "let"))])
        return await call(named.run(s))

    def _publish(self, s: ExecutionContext, fork: Fork) -> None:
        """At the join: what the branches have bound, then their names, in source order."""
        for index in range(len(self.bodies)):
            context = fork.contexts.get(index)
            if context is not None and fork.outcomes[index].status != "cancelled":
                context.layer.publish()
        for index, branch in enumerate(self.node.branches):
            if branch.name is None:
                continue
            outcome = fork.outcomes[index]
            code = self.codes[index]
            spawned: Spawned | None = None
            if outcome.status == "done" and isinstance(code, SpawnCode):
                spawned = code.spawned
            value = None if fork.join.raised is not None and outcome.status != "done" else fork.join.member(outcome)
            context = fork.contexts.get(index)
            branches = context.branches if context is not None else s.branches
            outer, s.branches = s.branches, branches
            try:
                bind(s, s.layer, branch.name.id, "let", value, branch, spawned)
            finally:
                s.branches = outer

    def _result(self, fork: Fork) -> Value:
        join = fork.join
        if fork.left is not None:
            raise fork.left
        branches = self.node.branches
        if join.raised is not None:
            index = next(i for i, o in enumerate(fork.outcomes) if o.error is join.raised)
            join.raised.details.setdefault("branch", branch_label(branches[index], index))
            raise join.raised
        if join.modifiers.strategy != "all":
            return join.value(fork.outcomes)
        values = [join.member(outcome) for outcome in fork.outcomes]
        if not any(branch.name is not None for branch in branches):
            return list(values)
        return {branch_label(b, i): v for i, (b, v) in enumerate(zip(branches, values, strict=True))}


class _NamedBranch(Step):
    """`name = rhs` in a branch: a spawn's binding goes where the name will be."""

    __slots__ = ("code", "destination")

    def __init__(self, node: tree.Node, code: Code, destination: Destination) -> None:
        super().__init__(node, True)
        self.code = code
        self.destination = destination

    async def _run(self, s: ExecutionContext) -> Value:
        value, _ = await produce(s, self.code, self.destination)
        return value


# ---------------------------------------------------------------- iterations


async def iterate(
    s: ExecutionContext,
    node: tree.Node,
    items: Sequence[Value],
    modifiers: tree.Modifiers,
    one: Callable[[ExecutionContext, int, Value], Coroutine[Any, Any, Value]],
) -> Value:
    """One branch for each item, the value in input order (`parallel for`, `pmap`)."""
    number, repeat = s.numbers.next(PARALLEL), s.count("parallel")
    join, split = Join(modifiers, len(items)), ForkAllocation(len(items))
    if s.host.listeners:
        s.emit(ParallelStarted(s.place(node.span), number, (), len(items), True, modifiers.strategy))

    def begin(index: int) -> tuple[ExecutionContext, Coroutine[Any, Any, Value]]:
        context = s.branch(BranchStep(number, index, f"i{index}"), index, repeat, split)
        return context, one(context, index, items[index])

    permits = s.host.concurrency or 0
    race = race_of(s, node, modifiers, "i*", repeat)
    fork = Fork(s, number, join, begin, lambda _: None, max(LIVE, permits), race)
    directory = s.cwd
    await fork.run()
    s.cwd = directory
    if s.host.listeners:
        s.emit(ParallelJoined(s.place(node.span), number))
    if fork.left is not None and fork.left.how == "return":
        raise fork.left
    if join.raised is not None:
        index = next(i for i, o in enumerate(fork.outcomes) if o.error is join.raised)
        join.raised.details.setdefault("branch", f"i{index}")
        raise join.raised
    if modifiers.strategy != "all":
        return join.value(fork.outcomes)
    return [join.member(outcome) for outcome in fork.outcomes]


class ParallelForCode(Code):
    """The other half of `for`: `loops.for_code` chooses."""

    __slots__ = ("body",)

    def __init__(self, node: tree.For, parts: Sequence[Code] = (), used: bool = True) -> None:
        super().__init__(node, parts, used)
        self.body = Body(node.body, used)

    async def _run(self, s: ExecutionContext) -> Value:
        items = await collection(self.parts[0], s)
        total = len(items)

        async def one(branch: ExecutionContext, index: int, value: Value) -> Value:
            return await self._iteration(branch, index, total, value)

        return await iterate(s, self.node, items, self.node.modifiers or ALL, one)

    async def _iteration(self, s: ExecutionContext, index: int, total: int, value: Value) -> Value:
        node: tree.For = self.node
        temps = {**s.temps, node.item.id: Temp(value, "loop variable")}
        if node.index is not None:
            temps[node.index.id] = Temp(index, "loop variable")
        s.temps = temps
        if s.host.listeners:
            s.emit(LoopPass(s.place(node.span), index, total))
        result = await call(self.body.run(s))
        return kept_element(s, result, node) if self.used else result
