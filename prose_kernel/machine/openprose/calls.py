"""Calls of imported programs (openprose.md 6.2, 6.5)."""

from __future__ import annotations

from typing import cast

from prose_kernel.errors import ImportProgramError, RunError
from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose.code import Code, expression, value_of
from prose_kernel.machine.openprose.failures import located, stack_lines
from prose_kernel.machine.openprose.lifecycle import run_text
from prose_kernel.machine.openprose.numbering import call_of
from prose_kernel.machine.openprose.programs import ImportedProgram
from prose_kernel.machine.openprose.runs import ExecutionContext, Run
from prose_kernel.runtime.events import ProgramCalled, ProgramReturned
from prose_kernel.runtime.structured_text import ProgramResult
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value


@expression(tree.ProgramCall, lambda node: [argument.value for argument in node.arguments])
class ProgramCallCode(Code):
    __slots__ = ()

    async def _run(self, s: ExecutionContext) -> Value:
        node: tree.ProgramCall = self.node
        entry = s.run.programs.get(node.program.id)
        if entry is None:
            message = f"'{node.program.id}' is not an imported program"
            raise located(s, ImportProgramError(message, code="E025"), node.program)
        supplied: dict[str, Value] = {}
        for argument, part in zip(node.arguments, self.parts, strict=True):
            supplied[argument.name.id] = await value_of(part, s)
        _check(s, node, entry, supplied)
        return cast("Value", await call(_run_program(s, node, entry, supplied)))


def _check(s: ExecutionContext, node: tree.ProgramCall, entry: ImportedProgram, supplied: dict[str, Value]) -> None:
    inputs = entry.contract.inputs
    for argument in node.arguments:
        if argument.name.id not in inputs:
            message = f"program '{entry.alias}' has no input '{argument.name.id}'"
            raise located(s, ImportProgramError(message, code="E027"), argument.name)
    missing = [name for name, required in inputs.items() if required and name not in supplied]
    if missing:
        message = f"program '{entry.alias}' needs a value for input '{missing[0]}'"
        raise located(s, ImportProgramError(message, code="E026"), node)


async def _run_program(
    s: ExecutionContext, node: tree.ProgramCall, entry: ImportedProgram, supplied: dict[str, Value]
) -> ProgramResult:
    """Run the program with its own frames, registries, numbers and store; its final outputs are the result."""
    await s.flush()
    inner = strand_of_call(s, node, entry, supplied)
    directory = inner.run.program[-1]
    place = s.place(node.span)
    if s.host.listeners:
        s.emit(ProgramCalled(place, entry.alias, directory))
    s.host.scheduler.hand_on(s, inner)
    try:
        await call(run_text(inner, entry.loaded.program, entry.imports))
        await inner.flush()
    except RunError as error:
        error.details.setdefault("program", entry.alias)
        error.location = s.location(node.span)
        if s.host.listeners:
            s.emit(ProgramReturned(place, entry.alias, error))
        raise
    finally:
        s.host.scheduler.hand_on(inner, s)
    if s.host.listeners:
        s.emit(ProgramReturned(place, entry.alias))
    return ProgramResult({name: slot.value for name, slot in inner.run.root.outputs.items()}, entry.alias)


def strand_of_call(
    s: ExecutionContext, node: tree.ProgramCall, entry: ImportedProgram, supplied: dict[str, Value]
) -> ExecutionContext:
    """Where a called program runs: a run of its own, below that of the caller."""
    loaded = entry.loaded
    program = (loaded.handle, loaded.slug)
    aliases = frozenset(
        alias for alias, other in s.run.programs.items() if (other.loaded.handle, other.loaded.slug) == program
    )
    number = s.numbers.next(call_of("--".join(program), aliases))
    store = s.run.store.nested(*program, loaded.source.text, number)
    run = Run(s.host, store, loaded.source.name, store.chain)
    run.alias = entry.alias
    run.supplied = supplied
    location = s.location(node.span)
    called = f"in program {entry.alias}, called at line {location.line} of {location.source}"
    run.call_stack = (called, *stack_lines(s), *s.run.call_stack)
    context = ExecutionContext(run, run.root, loaded.source, s.cwd, f"{s.path}/u{s.count('program')}")
    context.race_gate = s.race_gate
    context.cancellation = s.cancellation
    context.branches = s.branches
    return context
