"""Inspects a paused program: its frames, the names that each sees, the value of an expression there."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import cast

from prose_kernel.errors import CompileError
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.parser import parse
from prose_kernel.machine.vvm.code import compile_expression, within
from prose_kernel.machine.vvm.context import Context, Frame, Module, VvmRun
from prose_kernel.runtime import paused_program, preview
from prose_kernel.runtime.compiled_code import Code, value_of
from prose_kernel.runtime.execution_context import Node
from prose_kernel.runtime.statement_hook import StackFrame, VisibleNames
from prose_kernel.runtime.values import Value


def frames(s: Context, node: Node) -> tuple[StackFrame, ...]:
    """Return the running functions, the module below them, then the callers in other lines of control."""
    found: list[StackFrame] = []
    frame, module, source, span = s.frame, s.module, s.source, node.span
    while frame is not None or not paused_program.is_crossing(s):
        name = frame.function.name if frame is not None else source.name
        if not found and s.branches:
            name += f" [{' › '.join(step.label for step in s.branches)}]"
        found.append(StackFrame(name, source, span, _scopes(frame, module), s, (frame, module)))
        if frame is None:
            break
        (source, called), frame = frame.called, frame.caller
        span = called.span
        module = frame.function.module if frame is not None else _module_of(s, source)
    above = s.called_by
    return (*found, *above.frames(above.statement)) if above is not None else tuple(found)


def level(s: Context) -> int:
    return paused_program.level(s, s.depth)


def _module_of(s: Context, source: Source) -> Module:
    """Return the module whose top level has this text: an imported module during its loading, else the program's."""
    known = next((module for text, module in s.run.modules.items() if text.source is source), None)
    return known or s.run.root


def _scopes(frame: Frame | None, module: Module) -> tuple[VisibleNames, ...]:
    of_module = VisibleNames("Globals", True, lambda: _readable(module))
    if frame is None:
        return (of_module,)
    closure = VisibleNames("Closure", False, lambda: _captured(frame))
    own = VisibleNames("Locals", False, lambda: dict(frame.table))
    return (own, closure, of_module) if frame.outer is not None else (own, of_module)


def _readable(module: Module) -> Mapping[str, Value]:
    for name in tuple(module.foreign):
        module.find(name)
    return {**module.table, **module.agents}


def _captured(frame: Frame) -> dict[str, Value]:
    found: dict[str, Value] = {}
    outer = frame.outer
    while outer is not None:
        found = {**outer.table, **found}
        outer = outer.outer
    return found


async def evaluate(s: Context, frame: StackFrame, text: str) -> Value:
    inner, module = cast("tuple[Frame | None, Module]", frame.inner)
    host = paused_program.evaluation_host(s.host)
    run = VvmRun(host, preview.ReadOnlyStore(s.run.store), s.run.name, s.run.program)
    run.depth, run.longest_input, run.modules = s.run.depth, s.run.longest_input, dict(s.run.modules)
    run.progress = copy.copy(s.run.progress)
    shadow = run.root
    for name in ("agents", "foreign", "skills", "defined", "declarations", "written"):
        setattr(shadow, name, dict(getattr(module, name)))
    local = {**_captured(inner), **inner.table} if inner is not None else {}
    shadow.table = {**module.table, **local}
    context = Context(run, shadow, s.source, s.cwd, "debugger")
    context.it, context.handling = s.it, s.handling
    return await paused_program.evaluated(host, value_of(_compiled(text), context))


def _compiled(text: str) -> Code:
    parsed = parse(Source.of(f"debugger_value = {text.strip()}\n", "expression"))
    errors = [d for d in parsed.diagnostics if d.severity == "error"]
    items = parsed.program.items
    if errors or len(items) != 1 or not isinstance(items[0], tree.Assign):
        raise CompileError(errors)
    with within(None):
        return compile_expression(items[0].value)
