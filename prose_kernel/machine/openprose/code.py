"""Compiled trees: one object for each construct, with a fast way where nothing can wait.

`now` computes a value without waiting; it is None where a spawn, a judge or a nested body may be needed, and `run` has
to be awaited. Bodies are compiled when they first run. Constructs register themselves with `expression` and
`statement`; nothing here knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, TypeVar

from prose_kernel.errors import RunError
from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose.control_flow import ControlFlow
from prose_kernel.machine.openprose.failures import announce
from prose_kernel.machine.openprose.runs import ExecutionContext
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value

Now = Callable[[ExecutionContext], Value]

FLAT = 40
"""How deeply expressions may nest and still be computed without waiting, on Python's own stack."""


class Code:
    """A compiled expression.

    `logical` tells that the value is always a boolean; `judged` that a marker stands in it.
    """

    __slots__ = ("depth", "judged", "logical", "node", "now", "parts", "used")

    node: Any
    now: Now | None
    depth: int
    logical: bool
    judged: bool

    def __init__(self, node: tree.Node, parts: Sequence[Code] = (), used: bool = True) -> None:
        self.node = node
        self.parts = parts
        self.used = used
        self.now = None
        self.depth = 1 + max((p.depth for p in parts), default=0)
        self.logical = False
        self.judged = any(p.judged for p in parts)

    def run(self, s: ExecutionContext) -> Coroutine[Any, Any, Value]:
        return self._run(s)

    async def _run(self, s: ExecutionContext) -> Value:
        assert self.now is not None
        return self.now(s)

    def as_statement(self, s: ExecutionContext) -> Coroutine[Any, Any, Value]:
        """The expression as a statement of its own, its value bound to nothing."""
        return self._run(s)


async def value_of(code: Code, s: ExecutionContext) -> Value:
    """The value of an expression, with or without waiting."""
    return code.now(s) if code.now is not None else await call(code.run(s))


def all_now(parts: Sequence[Code]) -> list[Now] | None:
    """The fast ways of all parts, None when one has none or they nest too deeply."""
    ways = [p.now for p in parts if p.now is not None and p.depth < FLAT]
    return ways if len(ways) == len(parts) else None


class Step:
    """A compiled statement. `valued` is false for statements that have no value (3.15)."""

    __slots__ = ("node", "now", "used")

    valued: ClassVar[bool] = True
    binds: ClassVar[bool] = False
    node: Any
    now: Now | None
    used: bool

    def __init__(self, node: tree.Node, used: bool) -> None:
        self.node = node
        self.used = used
        self.now = None

    def run(self, s: ExecutionContext) -> Coroutine[Any, Any, Value]:
        return self._run(s)

    async def _run(self, s: ExecutionContext) -> Value:
        assert self.now is not None
        return self.now(s)


# ---------------------------------------------------------------- registering and compiling

_EXPRESSIONS: dict[type, Callable[[Any, Sequence[Code], bool], Code]] = {}
_OPERANDS: dict[type, Callable[[Any], Sequence[tree.Node]]] = {}
_STATEMENTS: dict[type, Callable[[Any, bool], Step]] = {}
C = TypeVar("C", bound=Callable[..., Code])
S = TypeVar("S", bound=Callable[..., Step])


def expression(node: type, operands: Callable[[Any], Sequence[tree.Node]] = lambda _: ()) -> Callable[[C], C]:
    """Register the code of a kind of expression; `operands` are the expressions computed as parts of it."""

    def register(code: C) -> C:
        _EXPRESSIONS[node] = code
        _OPERANDS[node] = operands
        return code

    return register


def statement(node: type) -> Callable[[S], S]:
    """Register the step of a kind of statement."""

    def register(step: S) -> S:
        _STATEMENTS[node] = step
        return step

    return register


def compile_expression(root: tree.Node, used: bool = True) -> Code:
    """Compile an expression and its operands, however deep, without recursion."""
    done: dict[int, Code] = {}
    stack: list[tuple[tree.Node, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        operands = _OPERANDS[type(node)](node)
        if operands and not ready:
            stack.append((node, True))
            stack.extend((operand, False) for operand in operands)
        else:
            parts = [done[id(operand)] for operand in operands]
            done[id(node)] = _EXPRESSIONS[type(node)](node, parts, used or node is not root)
    return done[id(root)]


def compile_statement(node: tree.Node, used: bool) -> Step:
    return _STATEMENTS[type(node)](node, used)


# ---------------------------------------------------------------- bodies


class Body:
    """The statements of a body. `used` tells that somebody takes the value of the last one."""

    __slots__ = ("_flat", "_steps", "nodes", "used")

    def __init__(self, nodes: Sequence[tree.Node], used: bool) -> None:
        self.nodes = nodes
        self.used = used
        self._steps: list[Step] | None = None
        self._flat: list[Now] | None = None

    def use(self, steps: list[Step]) -> None:
        """Take steps that have been compiled already."""
        self._steps = steps

    @property
    def steps(self) -> list[Step]:
        if self._steps is None:
            last = len(self.nodes) - 1
            taken = {last}
            if last > 0 and isinstance(end := self.nodes[last], tree.Return) and end.value is None:
                taken = {last - 1}  # a bare `return` keeps the value of what ran before it
            self._steps = [compile_statement(n, self.used and at in taken) for at, n in enumerate(self.nodes)]
            ways = [step.now for step in self._steps if step.now is not None and step.valued]
            self._flat = ways if len(ways) == len(self._steps) else None
        return self._steps

    def flat(self, s: ExecutionContext) -> list[Now] | None:
        """The fast ways of all statements, when none of them can wait and nobody wants to be asked before each."""
        if s.host.before is not None:
            return None
        if self._steps is None:
            _ = self.steps
        return self._flat

    async def run(self, s: ExecutionContext) -> Value:
        """Execute in order; the value of the last executed statement that has one."""
        value: Value = None
        ran = False
        turns = s.host.scheduler
        for step in self.steps:
            try:
                if s.host.before is not None:
                    await s.outside(s.host.before(s.place(step.node.span)))
                if turns.due():
                    await s.breathe()
                if step.now is not None:
                    result = step.now(s)
                else:
                    s.statement = step.node
                    result = await call(step.run(s))
            except RunError as error:
                announce(s, error, step.node)
                raise
            except ControlFlow as leave:
                if ran:
                    leave.passed(value)
                raise
            if step.valued:
                value, ran = result, True
        return value


def run_flat(ways: Sequence[Now], body: Body, s: ExecutionContext) -> Value:
    """Execute a body without waiting."""
    value: Value = None
    at = 0
    try:
        for at, way in enumerate(ways):  # noqa: B007 - the failing statement is found by it
            value = way(s)
    except RunError as error:
        announce(s, error, body.nodes[at])
        raise
    return value
