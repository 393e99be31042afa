"""The compiler of VVM, with which its constructs register.

Running a body returns None at its end, else a `Leave`. So `break`, `continue` and `return` are plain results instead of
exceptions, and a statement that leaves a `finally` replaces the pending result by its own.

Names are resolved when a body is compiled (4.2): a `FunctionScope` has the names of the function around it. Bodies are
compiled when they first run, so each remembers its scope.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from prose_kernel.errors import RunError
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.scopes import bound_names
from prose_kernel.runtime import compiled_code
from prose_kernel.runtime.compiled_code import Code, Now
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value

COMPILER: Final = compiled_code.Compiler()
expression = COMPILER.expression
statement = COMPILER.statement
compile_expression = COMPILER.compile_expression

Left: TypeAlias = Any
"""The result of a statement: None, or the `Leave` that also ends the bodies around it."""


class Leave(Struct, eq=False):
    """A pending `break`, `continue` or `return`; `value` is the returned value."""

    how: str
    value: Value = None


BREAK: Final = Leave("break")
CONTINUE: Final = Leave("continue")


# ---------------------------------------------------------------- scopes


class FunctionScope(Struct, eq=False):
    """The local names of one function, and the scope of the function around it (None: the module)."""

    names: frozenset[str]
    outer: FunctionScope | None

    def hops(self, name: str) -> int | None:
        """Return how many functions outwards a name is local; 0 is this one. None if it belongs to the module."""
        scope: FunctionScope | None = self
        number = 0
        while scope is not None:
            if name in scope.names:
                return number
            scope, number = scope.outer, number + 1
        return None


class _Compiling(threading.local):
    """The scope that a thread is compiling; None for the module. Several threads can run programs at the same time."""

    scope: FunctionScope | None = None


_compiling: Final = _Compiling()


def current_scope() -> FunctionScope | None:
    return _compiling.scope


@contextlib.contextmanager
def within(scope: FunctionScope | None) -> Iterator[None]:
    """Compile the statements inside the block in this scope."""
    outer, _compiling.scope = _compiling.scope, scope
    try:
        yield
    finally:
        _compiling.scope = outer


def local_names(node: tree.Def) -> frozenset[str]:
    """Return the names that are local to a function (4.2): its parameters and the names bound in its body, without
    bodies of nested functions."""
    return frozenset([*(parameter.id for parameter in node.parameters), *bound_names(node.body)])


# ---------------------------------------------------------------- steps and bodies


class Step(compiled_code.Step):
    """A compiled statement, as part of a body. `nests` is true if it contains statements.

    A statement that processes the value of one expression has `code` for the expression, and `finish` for the rest.
    """

    nests = False

    def __init__(self, node: tree.Node, used: bool) -> None:
        self.code: Code | None = None
        super().__init__(node, used)

    def finish(self, s: Any, value: Value) -> Left:
        raise NotImplementedError


class Body(compiled_code.Body):
    """The statements of a body, compiled in its scope."""

    compiler = COMPILER

    def __init__(self, nodes: Sequence[tree.Node]) -> None:
        super().__init__(nodes, False)
        self.scope = current_scope()

    @property
    def steps(self) -> list[Any]:
        if self._steps is None:
            with within(self.scope):
                return super().steps
        return self._steps

    async def run(self, s: Any, breathes: bool = True) -> Left:
        """Run the statements in order until one leaves the body."""
        host = s.host
        turns = host.scheduler
        for step in self.steps:
            try:
                if host.hook is not None and (held := host.hook.before(s, step.node)) is not None:
                    await held
                if breathes and turns.due():
                    await s.breathe()
                if step.now is not None and (host.hook is None or not step.nests):
                    left: Left = step.now(s)
                else:
                    s.statement = step.node
                    code = step.code
                    left = await call(step.run(s)) if code is None else step.finish(s, await call(code.run(s)))
            except RunError as error:
                if host.preview is None:
                    await s.announce_with_hook(error, step.node)
                    raise
                left = host.preview.failed(s, step.node)
            if left is not None:
                return left
        return None


async def run_body(body: Body, s: Any) -> Left:
    """Run a body, without a separate coroutine if nothing in it can wait."""
    ways = body.flat(s)
    return await call(body.stepped(s)) if ways is None else run_flat(ways, body, s)


def run_flat(ways: Sequence[Now], body: Body, s: Any) -> Left:
    at = 0
    try:
        for at, way in enumerate(ways):  # noqa: B007 - `at` is used after the loop
            left: Left = way(s)
            if left is not None:
                return left
    except RunError as error:
        s.announce(error, body.nodes[at])
        raise
    return None


# ---------------------------------------------------------------- bodies that can be computed in one step

_DEEPEST: Final = 8
_FLAT_STATEMENTS: Final = (
    tree.Assign,
    tree.ExpressionStatement,
    tree.Pass,
    tree.Break,
    tree.Continue,
    tree.Return,
    tree.If,
)


def may_be_flat(bodies: Sequence[Sequence[tree.Node]], deep: int = 0) -> bool:
    """Return whether these bodies may be computable without waiting, so that they should be compiled now."""
    if deep > _DEEPEST:
        return False
    return all(
        isinstance(node, _FLAT_STATEMENTS) and (not isinstance(node, tree.If) or may_be_flat(_bodies(node), deep + 1))
        for body in bodies
        for node in body
    )


def _bodies(node: tree.If) -> list[Sequence[tree.Node]]:
    return [*(arm.body for arm in node.arms), node.otherwise or ()]


def flat_ways(body: Body) -> Callable[[Any], Left] | None:
    """Return a body as one function; None if a statement in it can wait."""
    ways = [step.now for step in body.steps if step.now is not None]
    if len(ways) < len(body.steps):
        return None
    return lambda s: run_flat(ways, body, s)
