"""Compiled trees: one object for each construct, with a fast path for constructs that never wait.

`now` computes a value without waiting. It is None if the construct may ask the outside or run a nested body; then `run`
has to be awaited. So `n = n + i` in a loop is a call of a closure, and only constructs that can wait cost a coroutine.
Bodies are compiled when they first run. Constructs register themselves with their language's `Compiler`. This module
does not know them, nor the language-specific parts of a context (hence `Any`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

from prose_kernel.errors import RunError
from prose_kernel.runtime.execution_context import ControlFlow, Node, located
from prose_kernel.runtime.json_data import LEVELS, levels
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value

Now = Callable[[Any], Value]

FLAT_DEPTH: Final = 40
"""How deeply expressions may nest to be computed without waiting, on Python's own stack."""


class Construct:
    """A compiled statement or expression. Each kind overrides `prepare`, which takes the needed values from the node
    once, and sets `now` if the construct never waits; otherwise it overrides `_run`."""

    def __init__(self, node: Node, used: bool) -> None:
        self.node: Any = node
        self.used = used
        self.now: Now | None = None  # not on the class, where CPython would look for it at each access
        self.prepare(node)

    def prepare(self, node: Any) -> None:
        """Take the values that running needs from the node."""

    def run(self, s: Any) -> Coroutine[Any, Any, Value]:
        return self._run(s)

    async def _run(self, s: Any) -> Value:
        assert self.now is not None
        return self.now(s)


class Code(Construct):
    """A compiled expression.

    `logical` means that the value is always a boolean; `judged` that it contains a marker.
    """

    def __init__(self, node: Node, parts: Sequence[Code] = (), used: bool = True) -> None:
        self.parts = parts
        self.depth: int = 1 + max((p.depth for p in parts), default=0)
        self.logical = False
        self.judged: bool = any(p.judged for p in parts)
        super().__init__(node, used)

    def as_statement(self, s: Any) -> Coroutine[Any, Any, Value]:
        """Run the expression as a statement whose value is not bound."""
        return self._run(s)


async def value_of(code: Code, s: Any) -> Value:
    """Return the value of an expression, waiting only if necessary."""
    return code.now(s) if code.now is not None else await awaited(code, s)


def awaited(code: Code, s: Any) -> Awaitable[Value]:
    """Return an awaitable for the value of an expression that cannot be computed immediately.

    Shallow expressions are awaited directly: the trampoline is only needed for unlimited nesting, and every body
    already uses it where it waits for a statement. This halves the cost of a call.
    """
    return code.run(s) if code.depth < FLAT_DEPTH else call(code.run(s))


def all_now(parts: Sequence[Code]) -> list[Now] | None:
    """Return the `now` of all parts; None if one has none or they nest too deeply."""
    ways = [p.now for p in parts if p.now is not None and p.depth < FLAT_DEPTH]
    return ways if len(ways) == len(parts) else None


class Step(Construct):
    """A compiled statement. `valued` is that of its node, true if the node has none."""

    binds: ClassVar[bool] = False

    def __init__(self, node: Node, used: bool) -> None:
        self.valued: bool = getattr(node, "valued", True)
        super().__init__(node, used)


# ---------------------------------------------------------------- constructs of every language


class ConstantCode(Code):
    """The `value` of a node that needs no computing."""

    def prepare(self, node: Any) -> None:
        value = node.value
        self.logical = isinstance(value, bool)
        self.now = lambda s: value


def _bounded(s: Any, node: Node, value: Any) -> Value:
    """Return a new list or object. Raises the error of `require_shallow` if it nests too deeply (amendment A32)."""
    for item in value if type(value) is list else value.values():
        if isinstance(item, (list, dict)):
            return require_shallow(s, node, value)
    return value  # type: ignore[no-any-return]


def require_shallow(s: Any, node: Node, value: Value) -> Value:
    """Return the value. Raises the language's error for wrong values if it has more than 500 levels (amendment A32)."""
    if levels(value) > LEVELS:
        message = f"the value would nest more than {LEVELS} levels deep"
        raise located(s, s.wrong_value(message, "keep the parts in a list instead of in each other"), node)
    return value


class ListCode(Code):
    """A list of all parts."""

    def prepare(self, node: Node) -> None:
        ways = all_now(self.parts)
        if ways is not None:
            self.now = lambda s: _bounded(s, node, [way(s) for way in ways])

    async def _run(self, s: Any) -> Value:
        return _bounded(s, self.node, [await value_of(part, s) for part in self.parts])


class ObjectCode(Code):
    """An object of all parts. A repeated key has its last value, at the position of the first."""

    def prepare(self, node: Node) -> None:
        self._keys = self.keys_of(node)
        ways = all_now(self.parts)
        if ways is not None:
            pairs = list(zip(self._keys, ways, strict=True))
            self.now = lambda s: _bounded(s, node, {key: way(s) for key, way in pairs})

    @staticmethod
    def keys_of(node: Any) -> tuple[str, ...]:
        """Return the key of each part; implemented by each language."""
        raise NotImplementedError

    async def _run(self, s: Any) -> Value:
        fields = {key: await value_of(part, s) for key, part in zip(self._keys, self.parts, strict=True)}
        return _bounded(s, self.node, fields)


class OperatorCode(Code):
    """An operator over two parts. A language subclasses it with its `operators`."""

    operators: ClassVar[Mapping[str, Callable[[Value, Value], Value]]]

    def prepare(self, node: Any) -> None:
        self.logical = node.operator not in ("+", "-")
        self._operate = operate = self.operators[node.operator]
        failed = self.failed
        ways = all_now(self.parts)
        if ways is None:
            return
        left, right = ways

        def now(s: Any) -> Value:
            a, b = left(s), right(s)
            try:
                return operate(a, b)
            except RunError as error:
                return failed(s, located(s, error, node), a, b)

        self.now = now

    async def _run(self, s: Any) -> Value:
        one, two = self.parts
        left = one.now(s) if one.now is not None else await awaited(one, s)
        right = two.now(s) if two.now is not None else await awaited(two, s)
        try:
            return self._operate(left, right)
        except RunError as error:
            return self.failed(s, located(s, error, self.node), left, right)

    @staticmethod
    def failed(s: Any, error: RunError, left: Value, right: Value) -> Value:
        """Raise the error of an operation, or return a value in its place."""
        raise error from None


C = TypeVar("C", bound=Callable[..., Code])
S = TypeVar("S", bound=Callable[..., Step])


class Compiler:
    """Compiles the trees of one language.

    `kept` returns the index of the statement whose value is the value of its body. The default is the last statement.
    """

    def __init__(self, kept: Callable[[Sequence[Any]], int] = lambda nodes: len(nodes) - 1) -> None:
        self.kept = kept
        self._expressions: dict[type, Callable[[Any, Sequence[Code], bool], Code]] = {}
        self._operands: dict[type, Callable[[Any], Sequence[Any]]] = {}
        self._statements: dict[type, Callable[[Any, bool], Step]] = {}

    def expression(self, node: type, operands: Callable[[Any], Sequence[Any]] = lambda _: ()) -> Callable[[C], C]:
        """Register the code for a kind of expression; `operands` returns the expressions computed as its parts."""

        def register(code: C) -> C:
            self._expressions[node] = code
            self._operands[node] = operands
            return code

        return register

    def statement(self, node: type) -> Callable[[S], S]:
        """Register the step for a kind of statement."""

        def register(step: S) -> S:
            self._statements[node] = step
            return step

        return register

    def compile_expression(self, root: Node, used: bool = True) -> Code:
        """Compile an expression and its operands, however deep, without recursion."""
        done: dict[int, Code] = {}
        stack: list[tuple[Any, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            operands = self._operands[type(node)](node)
            if operands and not ready:
                stack.append((node, True))
                stack.extend((operand, False) for operand in operands)
            else:
                parts = [done[id(operand)] for operand in operands]
                done[id(node)] = self._expressions[type(node)](node, parts, used or node is not root)
        return done[id(root)]

    def compile_statement(self, node: Node, used: bool) -> Step:
        return self._statements[type(node)](node, used)


# ---------------------------------------------------------------- bodies


class Body:
    """Compile the statements of a body. `used` means that the value of the last one is used."""

    compiler: ClassVar[Compiler]

    def __init__(self, nodes: Sequence[Any], used: bool) -> None:
        self.nodes = nodes
        self.used = used
        self._steps: list[Step] | None = None
        self._flat: list[Now] | None = None

    def use(self, steps: list[Step]) -> None:
        """Use steps that have been compiled already."""
        self._steps = steps

    @property
    def steps(self) -> list[Step]:
        if self._steps is None:
            kept = self.compiler.kept(self.nodes)
            compiled = self.compiler.compile_statement
            self._steps = [compiled(node, self.used and at == kept) for at, node in enumerate(self.nodes)]
            ways = [step.now for step in self._steps if step.now is not None and step.valued]
            self._flat = ways if len(ways) == len(self._steps) else None
        return self._steps

    def flat(self, s: Any) -> list[Now] | None:
        """Return the `now` of all statements if none of them can wait and no hook is set, else None."""
        if self._steps is None:
            _ = self.steps
        return self._flat if s.host.hook is None else None

    def stepped(self, s: Any) -> Coroutine[Any, Any, Value]:
        """Run a body for which `flat` returned None. It yields to the event loop at the same places as without a hook,
        so that a hook does not change where an interrupt stops the program."""
        return self.run(s, self._flat is None)

    async def run(self, s: Any, breathes: bool = True) -> Value:
        """Run the statements in order. Returns the value of the last executed statement that has one."""
        value: Value = None
        ran = False
        host = s.host
        turns = host.scheduler
        for step in self.steps:
            try:
                if host.hook is not None and (held := host.hook.before(s, step.node)) is not None:
                    await held
                if breathes and turns.due():
                    await s.breathe()
                if step.now is not None:
                    result = step.now(s)
                else:
                    s.statement = step.node
                    result = await call(step.run(s))
            except RunError as error:
                if host.preview is None:
                    await s.announce_with_hook(error, step.node)
                    raise
                result = host.preview.failed(s, step.node)
            except ControlFlow as leave:
                if host.preview is None:
                    if ran:
                        leave.passed(value)
                    raise
                result = None
            if step.valued:
                value, ran = result, True
        return value


def run_flat(ways: Sequence[Now], body: Body, s: Any) -> Value:
    value: Value = None
    at = 0
    try:
        for at, way in enumerate(ways):  # noqa: B007 - `at` is used after the loop
            value = way(s)
    except RunError as error:
        s.announce(error, body.nodes[at])
        raise
    return value
