"""Runs a text: imports, hoisting, statements, exports (docs/reference/vvm.md 9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from prose_kernel.errors import ImportProgramError, RunError
from prose_kernel.language.nodes import statement_kind
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.program_interface import CheckedModule, execution_order, exported_names
from prose_kernel.machine.vvm.code import Body, Left, Step, compile_expression, statement, within
from prose_kernel.machine.vvm.context import LIBRARY, Context, Module
from prose_kernel.machine.vvm.functions import apply, define
from prose_kernel.machine.vvm.values import raised
from prose_kernel.runtime.compiled_code import value_of
from prose_kernel.runtime.events import StatementDone
from prose_kernel.runtime.execution_context import load, located
from prose_kernel.runtime.ports import LoadRequest
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import LanguageValue, Value

HOISTED: Final[dict[type, Callable[[Context, Any], object]]] = {}
"""For each kind of declaration, the function that declares it before the first statement runs."""

_NEVER_RUN: Final = (tree.ModuleImport, tree.Export)


HOISTED[tree.Def] = lambda s, node: define(s, node, s.source)
HOISTED[tree.SkillImport] = lambda s, node: s.module.skills.update({node.name.value: node.source.value})


async def run_text(s: Context, program: tree.Program) -> Value:
    """Run a checked text in the root of its run: its imports, its declarations, then its statements.

    Returns the value of its last statement if that is an expression, else an object of its exports, if it has any.
    """
    s.run.begin(program)
    start = s.path
    await call(_imports(s, program))
    value: Value = None
    with within(None):
        _hoist(s, program)
    for node in _executable(program):
        s.path, s.counts = f"{start}/{s.run.next_statement()}", {}
        value = await call(_execute(s, node))
    s.path, s.counts = start, {}
    exported = _exports(s, program)
    if value is None and exported and valued_kind(program) in ("", "assign", "export"):
        return exported
    return value


def valued_kind(program: tree.Program) -> str:
    """Return the kind of the statement that determines a text's value, "" without one."""
    executable = list(_executable(program))
    if executable and isinstance(executable[-1], tree.ExpressionStatement | tree.Assign):
        return statement_kind(executable[-1])
    return "export" if any(isinstance(item, tree.Export | tree.ExportPack) for item in program.items) else ""


def _executable(program: tree.Program) -> Iterator[tree.Statement]:
    return (item for item in program.items if type(item) not in HOISTED and not isinstance(item, _NEVER_RUN))


def _hoist(s: Context, program: tree.Program) -> None:
    for item in program.items:
        declare = HOISTED.get(type(item))
        if declare is not None:
            try:
                declare(s, item)
                if isinstance(item, tree.AgentDeclaration):
                    s.module.declarations[item.name.id] = (s.source, item.span)
            except RunError as error:
                s.announce(error, item)
                raise


async def _execute(s: Context, node: tree.Statement) -> Value:
    """Run one top-level statement. Returns the value of an expression, else unit."""
    body = Body((node,))
    shown = None
    with within(None):
        if isinstance(node, tree.ExpressionStatement):
            shown = _ShownStep(node, True)
            body.use([shown])
    await call(body.run(s))
    if isinstance(node, tree.Assign):
        s.run.finished.append(node.target.id)
    elif s.host.listeners:
        s.emit(StatementDone(s.place(node), shown.value if shown is not None else None))
    return shown.value if shown is not None else None


class _ShownStep(Step):
    """An expression at the top level, whose value may be shown."""

    def prepare(self, node: tree.ExpressionStatement) -> None:
        self.code = compile_expression(node.value)
        self.value: Value = None

    def finish(self, s: Context, value: Value) -> Left:
        self.value = value


# ---------------------------------------------------------------- imports


async def _imports(s: Context, program: tree.Program) -> None:
    """Load the modules that a text imports, run those that have not run yet, and bind the imported names."""
    found: dict[str, CheckedModule] = {}
    for item in program.items:
        if isinstance(item, tree.ModuleImport):
            try:
                if item.path.value not in found:
                    found[item.path.value] = await call(_load(s, item))
                for module in execution_order([found[item.path.value]]):
                    if module not in s.run.modules:
                        await call(_execute_module(s, item, module))
                _import(s, item, found)
            except RunError as error:
                s.announce(error, item)
                raise


async def _load(s: Context, node: tree.ModuleImport) -> CheckedModule:
    path = node.path.value
    if s.host.load is None:
        error = ImportProgramError(f"module '{path}' cannot be loaded: there is nothing to load modules with")
        raise located(s, error, node.path)
    try:
        loaded = await load(s, LoadRequest(path, s.source, s.at("load")))
    except ImportProgramError as error:
        raise located(s, error, node.path) from None
    return cast("CheckedModule", loaded.program)


async def _execute_module(s: Context, by: tree.ModuleImport, imported: CheckedModule) -> None:
    """Run a module in its own scope. At its end it is registered as executed."""
    module = Module(s.run)
    inner = Context(s.run, module, imported.source, s.cwd, s.at("program")).called_from(s)
    outer, s.statement = s.statement, by
    start = inner.path
    try:
        for item in imported.program.items:
            if isinstance(item, tree.ModuleImport):
                _import(inner, item, imported.imports)
        with within(None):
            _hoist(inner, imported.program)
        for number, node in enumerate(_executable(imported.program), 1):
            inner.path, inner.counts = f"{start}/{number}", {}
            await call(Body((node,)).run(inner))
        _exports(inner, imported.program)
        await inner.flush()
    except RunError as error:
        line = s.location(by.span)
        reached = f"in module {imported.source.name}, reached by the import at line {line.line} of {line.source}"
        error.call_stack = (*error.call_stack, reached)
        raise
    finally:
        s.statement = outer
    s.run.modules[imported] = module


def _import(s: Context, node: tree.ModuleImport, found: Any) -> None:
    """Bind an imported name to its value at the end of its module (X3)."""
    path, name = node.path.value, node.name.id
    module = s.run.modules[found[path]]
    exports: dict[str, Any] = module.exported_agents if node.agent else module.exported
    if name not in exports:
        what = f"@{name}" if node.agent else name
        error = ImportProgramError(f"Export '{what}' not found in module '{path}'", code="V090")
        raise located(s, error, node.name)
    if node.agent:
        s.module.declare(node.local.id, exports[name])
    else:
        s.require_free(node.local.id, node)
        s.module.bind(node.local.id, exports[name], s.source, node)


# ---------------------------------------------------------------- exports


@statement(tree.ExportPack)
class ExportPackStep(Step):
    """`export pack(…)`, evaluated where it is written (X1)."""

    def prepare(self, node: tree.ExportPack) -> None:
        self.codes = [compile_expression(argument) for argument in node.arguments]
        self.codes += [compile_expression(keyword.value) for keyword in node.keywords]

    async def _run(self, s: Context) -> Left:
        values = [await value_of(code, s) for code in self.codes]
        keys = [keyword.name for keyword in self.node.keywords]
        count = len(self.node.arguments)
        keywords = dict(zip(keys, values[count:], strict=True))
        packed = await call(apply(s, self.node, LIBRARY["pack"], values[:count], keywords))
        assert isinstance(packed, dict)
        s.module.exported.update(packed)


def _exports(s: Context, program: tree.Program) -> dict[str, Value]:
    """Collect the exports of a finished text. Returns the data among them, in the order of the text (9.4)."""
    module, found = s.module, {}
    former = module.exported
    for item in program.items:
        if not isinstance(item, tree.Export | tree.ExportPack):
            continue
        if isinstance(item, tree.Export) and item.agent:
            module.exported_agents[item.name.id] = module.agents[item.name.id]
            continue
        for name in exported_names(item):
            if isinstance(item, tree.Export):
                try:
                    former[name.id] = module.find(name.id)
                except KeyError:
                    error = raised(s, item, "R219", f"export never assigned: {name.id}")
                    s.announce(error, item)
                    raise error from None
            found[name.id] = former[name.id]
    module.exported = {**{name: value for name, value in former.items() if name not in found}, **found}
    return without_functions(found)


def without_functions(values: dict[str, Value]) -> dict[str, Value]:
    """Return the values without functions and agents, which belong to a module but not to a result (X5)."""
    return {name: value for name, value in values.items() if not isinstance(value, LanguageValue)}
