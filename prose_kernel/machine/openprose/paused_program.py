"""Inspects a paused program: its frames, the names that each sees, the value of an expression there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, cast

from prose_kernel.errors import CompileError
from prose_kernel.language.diagnostics import Diagnostic
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.parser import parse
from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.machine.openprose.code import compile_expression
from prose_kernel.machine.openprose.frames import Caller, Frame, Layer, Temps
from prose_kernel.machine.openprose.judging import Asking, holds
from prose_kernel.machine.openprose.program_context import ProgramContext, ProgramRun
from prose_kernel.runtime import paused_program, preview
from prose_kernel.runtime.compiled_code import Code, value_of
from prose_kernel.runtime.execution_context import Node
from prose_kernel.runtime.host import Host
from prose_kernel.runtime.statement_hook import StackFrame, VisibleNames
from prose_kernel.runtime.values import Value

_View = tuple[Layer, Temps]
"""The names that a frame sees: `StackFrame.inner`."""


def frames(s: ProgramContext, node: Node) -> tuple[StackFrame, ...]:
    """Return the block invocations that led here, then the program itself, then its callers."""
    found: list[StackFrame] = []
    layer, temps, source, span = s.layer, s.temps, s.source, node.span
    while True:
        caller = layer.frame.caller
        if caller is None and paused_program.is_crossing(s):
            break  # another language has called a block directly: the program itself is not running
        frame = layer.frame
        name = f"{frame.block} #{frame.execution_id}" if frame.block is not None else source.name
        if not found and s.branches:
            name += f" [{' › '.join(step.label for step in s.branches)}]"
        found.append(StackFrame(name, source, span, _scopes(s.run, layer, temps), s, (layer, temps)))
        if caller is None:
            break
        layer, temps, source, span = caller.layer, caller.temps, caller.source, caller.span
    above = s.called_by
    return (*found, *above.frames(above.statement)) if above is not None else tuple(found)


def level(s: ProgramContext) -> int:
    return paused_program.level(s, s.frame.depth)


def _scopes(run: ProgramRun, layer: Layer, temps: Temps) -> tuple[VisibleNames, ...]:
    def own() -> Mapping[str, Value]:
        found = {name: temp.value for name, temp in temps.items()}
        for part in layer.chain():
            if part is not run.root:
                for table in (part.table, part.exports):
                    for name, slot in table.items():
                        found.setdefault(name, slot.value)
        return found

    def of_root() -> Mapping[str, Value]:
        root = run.root
        return {name: slot.value for name, slot in {**root.exports, **root.table}.items()}

    globals_ = VisibleNames("Globals", True, of_root)
    return (VisibleNames("Locals", False, own), globals_) if layer is not run.root or temps else (globals_,)


_STATEMENT_PREFIXES: Final = ("let debugger_value = ", "assert ")
"""Texts that turn an expression, or a condition with a marker, into a statement."""


async def evaluate(s: ProgramContext, frame: StackFrame, text: str) -> Value:
    code, is_condition = _compiled(text)
    layer, temps = cast("_View", frame.inner)
    host = paused_program.evaluation_host(s.host)
    looks_only = code.now is not None
    context = _context(s, host, *((layer, temps) if looks_only else _copied(layer, temps)))

    async def computed() -> Value:
        return await holds(code, context, Asking()) if is_condition else await value_of(code, context)

    return await paused_program.evaluated(host, computed())


@lru_cache(maxsize=64)
def _compiled(text: str) -> tuple[Code, bool]:
    """Compile an expression or a condition; the flag marks a condition. Repeated expressions are cached."""
    found: list[Diagnostic] = []
    for before in _STATEMENT_PREFIXES:
        parsed = parse(Source.of(f"{before}{text.strip()}\n", "expression"))
        errors = [d for d in parsed.diagnostics if d.severity == "error"]
        found = found or errors
        items = parsed.program.items
        if not errors and len(items) == 1:
            item = items[0]
            if isinstance(item, tree.Let):
                return compile_expression(item.value), False
            if isinstance(item, tree.Assert) and item.message is None:
                return compile_expression(item.condition), True
    raise CompileError(found)


def _context(s: ProgramContext, host: Host, layer: Layer, temps: Temps) -> ProgramContext:
    real = s.run
    run = ProgramRun(host, preview.ReadOnlyStore(real.store), real.name, real.program)
    run.root = next(part for part in _layers(layer) if part.frame.caller is None and part.parent is None)
    run.agents, run.blocks, run.programs = real.agents, real.blocks, real.programs
    run.functions, run.other_agents, run.supplied = real.functions, real.other_agents, real.supplied
    run.elsewhere = real.elsewhere
    run.progress = replace(real.progress, unsaved={}, dirty=False)
    context = ProgramContext(run, layer, s.source, s.cwd, "debugger")
    context.temps, context.catching = temps, s.catching
    return context


def _layers(layer: Layer) -> list[Layer]:
    """Return this layer and all outer layers that it sees."""
    found: list[Layer] = []
    at: Layer | None = layer
    while at is not None:
        found += at.chain()
        caller = at.frame.caller
        at = caller.layer if caller is not None else None
    return found


def _copied(layer: Layer, temps: Temps) -> _View:
    """Return copies of the layer and its temporary names, with new variables."""
    copies: dict[int, Layer] = {}
    frames: dict[int, Frame] = {}
    for real in reversed(_layers(layer)):
        frame = frames.get(id(real.frame))
        if frame is None:
            caller = real.frame.caller
            inside = None
            if caller is not None:
                inside = Caller(dict(caller.temps), copies[id(caller.layer)], caller.source, caller.span)
            frame = frames[id(real.frame)] = replace(real.frame, caller=inside)
        copy = Layer(frame, copies[id(real.parent)] if real.parent is not None else None, real.iterations)
        copy.table = {name: replace(slot) for name, slot in real.table.items()}
        copy.exports, copy.outputs = dict(real.exports), dict(real.outputs)
        copies[id(real)] = copy
    return copies[id(layer)], dict(temps)
