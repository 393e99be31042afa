"""Functions: closures by reference, calls, the depth limit (docs/reference/vvm.md 4.12).

A call replaces the function-specific parts of the context (its names, module, source) and always restores them, so that
one line of control uses one context, however deep its calls are nested.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar, Final

from prose_kernel.errors import RunError, VvmRaise
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.names import argument_mismatch
from prose_kernel.machine.vvm.code import (
    Body,
    FunctionScope,
    Leave,
    Left,
    Step,
    compile_expression,
    current_scope,
    expression,
    local_names,
    run_flat,
    statement,
    within,
)
from prose_kernel.machine.vvm.context import CALL, Context, Frame, Module
from prose_kernel.machine.vvm.values import a_type_of, adopted, raised
from prose_kernel.runtime.compiled_code import Code, awaited
from prose_kernel.runtime.events import BlockEntered, BlockLeft
from prose_kernel.runtime.execution_context import ExecutionContext, Node, located
from prose_kernel.runtime.preview import unknown
from prose_kernel.runtime.shared_names import Function
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value

LANGUAGE: Final = "vvm"

# ---------------------------------------------------------------- functions of a program


class FunctionCode:
    """A compiled `def`, shared by all its closures."""

    __slots__ = ("body", "node", "parameters", "scope")

    def __init__(self, node: tree.Def) -> None:
        self.node = node
        self.parameters = tuple(parameter.id for parameter in node.parameters)
        self.scope = FunctionScope(local_names(node), current_scope())
        with within(self.scope):
            self.body = Body(node.body)


class UserFunction(Function):
    """A function of the program: its code, and the enclosing names with their values at the time of a call."""

    __slots__ = ("code", "module", "outer", "source")

    language: ClassVar[str] = LANGUAGE

    def __init__(self, code: FunctionCode, module: Module, outer: Frame | None, source: Source) -> None:
        super().__init__(code.node.name.id, code.parameters)
        self.code = code
        self.module = module
        self.outer = outer
        self.source = source

    async def invoke(self, caller: ExecutionContext, node: Node, arguments: Sequence[Value]) -> Value:
        return await from_outside(self.module, self, caller, node, arguments)


async def from_outside(
    module: Module, function: Value, caller: ExecutionContext, node: Node, arguments: Sequence[Value]
) -> Value:
    """Call a function from another language, in the caller's line of control."""
    if caller.host.preview is not None:
        return unknown(str(getattr(function, "name", "function")))
    run = module.run
    s = Context(run, module, caller.source, caller.cwd, caller.path).continue_from(caller)
    try:
        if s.crossings > run.depth:
            raise raised(s, node, "R218", f"recursion limit: {run.depth} calls between languages are nested")
        return await call(apply(s, node, function, [adopted(value, refs=run.refs) for value in arguments]))
    finally:
        caller.cwd = s.cwd


async def apply(
    s: Context, node: Node, function: Value, arguments: Sequence[Value], keywords: Mapping[str, Value] | None = None
) -> Value:
    """Call any function. `node` is the call. Raises R207, R208, R218, and the errors of the body."""
    if isinstance(function, UserFunction):
        code = function.code
        if keywords or len(arguments) != len(code.parameters):
            table = bound_arguments(s, node, function.name, code.parameters, arguments, keywords or {})
        else:
            table = dict(zip(code.parameters, arguments, strict=True))
        return await enter(s, node, function, table)
    if isinstance(function, LibraryFunction):
        return await function.run(s, node, arguments, keywords or {})
    if isinstance(function, Function):
        if s.host.preview is not None:
            return unknown(function.name)
        if keywords:
            message = f"bad arguments to {function.name}: a function of another language takes no keywords"
            raise raised(s, node, "R208", message)
        bound_arguments(s, node, function.name, function.parameters, arguments, {})  # checks their number
        return adopted(await call(function.invoke(s, node, arguments)), refs=s.run.refs)
    raise raised(s, node, "R207", f"not callable: {a_type_of(function)}")


async def enter(s: Context, node: Node, function: UserFunction, table: dict[str, Value]) -> Value:
    """Run a function's body with its parameters bound. Returns its result, or unit."""
    if s.depth >= s.run.depth:
        hint = f"{s.run.depth} calls are nested; `[vvm] depth` in prose.toml allows more"
        raise raised(s, node, "R218", f"recursion limit: {function.name} is called too deeply", hint=hint)
    preview = s.host.preview
    if preview is not None and not preview.enters(s, function):
        return unknown(function.name)
    turns = s.host.scheduler
    if turns.due():
        await s.breathe()
    announced = None
    if s.host.listeners:
        announced = s.place(node), s.numbers.next(CALL)
        s.emit(BlockEntered(announced[0], function.name, announced[1], tuple(table.values())))
    body = function.code.body
    outer = s.frame, s.table, s.module, s.source, s.statement, s.handling
    frame = Frame(function, table, function.outer, s.frame, (s.source, node))
    module = function.module if preview is None else preview.module_of(function.module)
    s.frame, s.table, s.module, s.source, s.handling = frame, table, module, function.source, None
    s.depth += 1
    try:
        ways = body.flat(s)
        left: Left = await body.stepped(s) if ways is None else run_flat(ways, body, s)
    except RunError as error:
        error.__traceback__ = None  # otherwise a deep recursion would leave an equally long traceback
        raise
    finally:
        s.frame, s.table, s.module, s.source, s.statement, s.handling = outer
        s.depth -= 1
        frame.caller = None  # a closure may keep the frame
    if announced is not None:
        s.emit(BlockLeft(announced[0], function.name, announced[1]))
    value = left.value if left is not None else None
    return value if preview is None else preview.result(frame, function.name, value)


def bound_arguments(
    s: Context,
    node: Node,
    name: str,
    parameters: Sequence[str],
    arguments: Sequence[Value],
    keywords: Mapping[str, Value],
    optional: int = 0,
) -> dict[str, Value]:
    """Return the parameters in order with their values; the last `optional` ones may be missing. Raises R208."""
    problem = argument_mismatch(parameters, len(arguments), keywords, optional)
    if problem is not None:
        hint = f"{name}({', '.join(parameters)})"
        raise raised(s, node, "R208", f"bad arguments to {name}: {problem}", hint=hint)
    table = {**dict(zip(parameters, arguments, strict=False)), **keywords}
    return {key: table[key] for key in parameters if key in table} if keywords else table


Bound = dict[str, Value]


class LibraryFunction(Function):
    """A function of the standard library. Its checked arguments are passed to `at_once`, which never waits, or `work`.

    `computes` is true if the result is computed from the arguments, instead of only built from them.
    """

    __slots__ = ("at_once", "optional", "work")

    computes: ClassVar[bool] = True

    language: ClassVar[str] = LANGUAGE

    def __init__(
        self,
        name: str,
        parameters: tuple[str, ...],
        *,
        optional: int = 0,
        at_once: Callable[[Context, Node, Bound], Value] | None = None,
        work: Callable[[Context, Node, Bound], Awaitable[Value]] | None = None,
    ) -> None:
        super().__init__(name, parameters)
        self.optional = optional
        self.at_once = at_once
        self.work = work

    def bind(self, s: Context, node: Node, arguments: Sequence[Value], keywords: Mapping[str, Value]) -> Bound:
        return bound_arguments(s, node, self.name, self.parameters, arguments, keywords, self.optional)

    async def run(self, s: Context, node: Node, arguments: Sequence[Value], keywords: Mapping[str, Value]) -> Value:
        given = self.bind(s, node, arguments, keywords)
        if self.at_once is not None:
            if s.host.preview is not None and self.computes:
                placeholder: Value = s.host.preview.unknown_result(*given.values())
                if placeholder is not None:
                    return placeholder
            return self.at_once(s, node, given)
        assert self.work is not None
        return await self.work(s, node, given)

    async def invoke(self, caller: ExecutionContext, node: Node, arguments: Sequence[Value]) -> Value:
        if not isinstance(caller, Context):
            message = f"{self.name} is a function of VVM's library; call it in VVM"
            raise located(caller, VvmRaise(message, code="R207"), node)
        return await self.run(caller, node, arguments, {})


# ---------------------------------------------------------------- code


@expression(tree.Call, lambda node: (node.callee, *node.arguments, *(keyword.value for keyword in node.keywords)))
class CallCode(Code):
    def prepare(self, node: tree.Call) -> None:
        self.keys = tuple(keyword.name for keyword in node.keywords)

    async def _run(self, s: Context) -> Value:
        values = [part.now(s) if part.now is not None else await awaited(part, s) for part in self.parts]
        function = values[0]
        if not self.keys:
            if isinstance(function, UserFunction) and len(function.code.parameters) == len(values) - 1:
                table = dict(zip(function.code.parameters, values[1:], strict=True))
                return await enter(s, self.node, function, table)
            return await apply(s, self.node, function, values[1:])
        end = len(values) - len(self.keys)
        keywords = dict(zip(self.keys, values[end:], strict=True))
        return await apply(s, self.node, function, values[1:end], keywords)


@statement(tree.Def)
class DefStep(Step):
    """A nested `def`, which binds a closure when it is reached. Functions of a module are hoisted (9.2)."""

    def prepare(self, node: tree.Def) -> None:
        code = FunctionCode(node)
        name = node.name.id
        self.now = lambda s: s.bind(name, UserFunction(code, s.module, s.frame, s.source), node)


@statement(tree.Return)
class ReturnStep(Step):
    def prepare(self, node: tree.Return) -> None:
        self.code = code = compile_expression(node.value) if node.value is not None else None
        if code is None:
            nothing = Leave("return")
            self.now = lambda s: nothing  # type: ignore[assignment]
        elif code.now is not None:
            way = code.now
            self.now = lambda s: Leave("return", way(s))  # type: ignore[assignment]

    def finish(self, s: Context, value: Value) -> Left:
        return Leave("return", value)


def define(s: Context, node: tree.Def, source: Source) -> UserFunction:
    """Hoist a `def` of the module."""
    function = UserFunction(FunctionCode(node), s.module, None, source)
    s.require_free(node.name.id, node)
    s.module.defined[node.name.id] = function
    s.module.bind(node.name.id, function, source, node)
    return function
