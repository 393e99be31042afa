"""Targets of calls as they run: nodes of contract files, instances of patterns, helpers, `.prose` programs
(docs/reference/prose-md.md 3.5, 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from prose_kernel.language.contracts.targets import Bound, Helper, Program
from prose_kernel.language.contracts.units import Unit
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.call_targets import CallTarget, ScriptSource
from prose_kernel.language.openprose.checker import free_inputs
from prose_kernel.machine.openprose.calls import CallRequest
from prose_kernel.machine.openprose.contract_text import ask_session, render_node
from prose_kernel.machine.openprose.frames import Temp
from prose_kernel.machine.openprose.program_context import ProgramContext
from prose_kernel.machine.openprose.program_text import any_call_of
from prose_kernel.machine.openprose.programs import in_program, nested_context, program_at, run_program
from prose_kernel.runtime.events import ProgramCalled
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value


async def render(s: ProgramContext, node: tree.Node, request: CallRequest) -> Value:
    """One attempt at the call `node`: what the script returned, or the answer of the session; the caller looks for
    missing outputs (E230). The target runs below the caller, in a run of its own whose `module` ends with its name.
    Raises a `RunError` when it fails.
    """
    match request.target.unit:
        case Unit() as unit:
            return await call(_in_own_run(s, node, request, unit))
        case Bound() as bound:
            return await call(_instance(s, node, request, bound))
        case Helper() as helper:
            return await call(_helper(s, node, request, helper))
        case Program() as program:
            entry = await call(program_at(s, node, program.address, program.name))
            supplied = {name: value for name, value in request.inputs.items() if name in request.given}
            return cast("Value", await call(run_program(s, node, entry, supplied, any_call_of)))
        case other:
            raise TypeError(f"no target of calls: {other!r}")


async def _instance(s: ProgramContext, node: tree.Node, request: CallRequest, bound: Bound) -> Value:
    """The Delegation of a pattern in a separate frame, with its slots bound."""
    pattern, source = bound.pattern, bound.source
    values: dict[str, Value] = {slot: _names(target) for slot, target in bound.slots.items()}
    values.update(dict.fromkeys(free_inputs(pattern.compiled.program, source)))
    values |= {"config": dict(bound.config), **bound.config, **request.inputs, **request.extra}
    return await call(_in_own_run(s, node, replace(request, inputs={}, extra={}), pattern, source, values))


def _names(target: object) -> Value:
    """A slot used as a value: the name of its function, or a list of names."""
    if isinstance(target, list):
        return [_names(one) for one in target]
    return target.name if isinstance(target, CallTarget) else None


async def _helper(s: ProgramContext, node: tree.Node, request: CallRequest, helper: Helper) -> Value:
    """One session in the caller's own run; its task is the line of the Shape."""
    values = {**request.inputs, **request.extra}
    outer, s.temps = s.temps, {**s.temps, **{name: Temp(value, "input") for name, value in values.items()}}
    task = f"{helper.task}\n\n{request.prompt}" if request.prompt else helper.task
    try:
        return await call(ask_session(s, task, tuple(values), request, node))
    finally:
        s.temps = outer


async def _in_own_run(
    s: ProgramContext,
    node: tree.Node,
    request: CallRequest,
    unit: Unit,
    script: ScriptSource | None = None,
    values: Mapping[str, Value] | None = None,
) -> Value:
    """Render a node below the caller; `script` and `values` are those of an instance."""
    target, source = request.target, unit.file.source
    inner = nested_context(s, node, target.name, (unit.handle, target.name), source, "", any_call_of)
    inputs = {one.name: not one.optional for one in target.inputs}
    outputs = tuple(one.name for one in target.outputs)
    called = ProgramCalled(s.place(node), target.name, inner.run.program[-1], source.name, inputs, outputs)
    return await call(in_program(s, node, inner, called, render_node(inner, unit, request, script, values)))
