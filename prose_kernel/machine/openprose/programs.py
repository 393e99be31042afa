"""Runs a text, whether a file, a cell or an imported program (docs/reference/openprose.md 3.1): its imports, first
inputs, definitions and statements. Also runs the calls of imported programs (6).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, cast

from msgspec import Struct, field

from prose_kernel.errors import ImportProgramError, RunError, StoreFailed
from prose_kernel.language.contracts import LIBRARY
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.call_targets import interface_of
from prose_kernel.language.openprose.keywords import HOST_READS
from prose_kernel.language.openprose.program_interface import (
    ProgramInterface,
    contract,
    is_executable,
    local_name,
    uses_of,
)
from prose_kernel.language.source import Source
from prose_kernel.machine.openprose import other_languages
from prose_kernel.machine.openprose.bindings import bind
from prose_kernel.machine.openprose.code import Body, compile_statement, expression
from prose_kernel.machine.openprose.program_context import ProgramContext, ProgramRun
from prose_kernel.machine.openprose.program_text import call_of
from prose_kernel.runtime.compiled_code import Code, Step, value_of
from prose_kernel.runtime.events import ProgramCalled, ProgramReturned, StatementDone
from prose_kernel.runtime.execution_context import ControlFlow, load, located
from prose_kernel.runtime.numbering import Kind
from prose_kernel.runtime.ports import LoadedProgram, LoadRequest
from prose_kernel.runtime.preview import unknown
from prose_kernel.runtime.structured_text import ProgramResult
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value, inserted_text

_HOISTED = (tree.Use, tree.SkillImport, tree.Agent, tree.Block)


class ImportedProgram(Struct):
    """An entry of the import registry. `path` is the path as written, or the URL of a fetched program; `imports` are
    the loaded imports of the program itself."""

    alias: str
    path: str
    loaded: LoadedProgram
    contract: ProgramInterface
    imports: dict[str, ImportedProgram] = field(default_factory=dict)

    @property
    def source(self) -> Source:
        return self.loaded.source


# ---------------------------------------------------------------- running


async def run_text(
    s: ProgramContext, program: tree.Program, imports: dict[str, ImportedProgram] | None = None, used: bool = False
) -> Value:
    """Run a checked text in the root frame of its run: imports, first inputs, definitions, then the statements.

    `imports` are the program's imports if they have been loaded already. Returns the value of the last statement; with
    `used` a `for` at the end computes its array.
    """
    if program.declared is not None:
        return cast("Value", await call(s.host.renderer.run_contract(s, program)))
    s.run.begin(program)
    if imports is not None:
        s.run.programs.update(imports)
    if (targets := interface_of(s.source).targets) is not None:
        await call(keep_texts(s, targets.texts()))
    start = s.path
    await call(_imports(s, program, loaded=imports is not None))
    return await call(run_statements(s, program, used=used, start=start))


async def keep_texts(s: ProgramContext, texts: dict[str, str]) -> None:
    """Record the contract files that the root of a run calls, so that a resumed run reads them from its journal."""

    async def given() -> dict[str, str]:
        return texts

    if texts and not s.run.program:
        await s.ask(LoadRequest(LIBRARY, s.source, s.at("load")), dict, given)


async def run_statements(
    s: ProgramContext, program: tree.Program, *, used: bool = False, start: str | None = None
) -> Value:
    """Run the statements of a text whose imports are loaded: first inputs, definitions, then the others. `start` is the
    path of the text."""
    start = s.path if start is None else start
    if program.script:
        s.run.uses.update(uses_of(program))
    rest = [item for item in program.items if not isinstance(item, _HOISTED)]
    first = 0
    while first < len(rest) and isinstance(rest[first], tree.Input):
        await call(_execute(s, compile_statement(rest[first], False)))
        first += 1
    _define(s, program)
    value: Value = None
    for node in rest[first:]:
        executable = is_executable(node)
        if executable:
            s.path = f"{start}/{s.run.next_statement()}"
            s.counts = {}
        step = compile_statement(node, used and node is rest[-1])
        try:
            result = await call(_execute(s, step))
        except ControlFlow as leave:
            return _ended(s, leave, node, value)
        if step.valued:
            value = result
        _done(s, step, node, result)
    return value


async def _imports(s: ProgramContext, program: tree.Program, *, loaded: bool) -> None:
    for item in program.items:
        if isinstance(item, tree.SkillImport):
            s.run.skills[item.skill.raw] = None
        elif isinstance(item, tree.Use) and not loaded and not program.script:
            try:
                entry = await call(register(s, item))
            except RunError as error:
                s.announce(error, item)
                raise
            s.run.programs[entry.alias] = entry


def _define(s: ProgramContext, program: tree.Program) -> None:
    for item in program.items:
        if isinstance(item, (tree.Agent, tree.Block)):
            s.run.define(item, s.source)
            if s.run.member is not None:
                s.run.publish(item.name.id, other_languages.for_other_languages(s.run, item))


async def _execute(s: ProgramContext, step: Step) -> Value:
    s.statement = step.node
    body = Body((step.node,), False)
    body.use([step])
    return await call(body.run(s))


def _done(s: ProgramContext, step: Step, node: tree.Node, value: Value) -> None:
    if step.binds:
        names = getattr(node, "names", None) or (getattr(node, "name", None),)
        s.run.finished.extend(name.id for name in names if isinstance(name, tree.Name))
    elif s.host.listeners:
        s.emit(StatementDone(s.place(node), value if step.valued else None))


def _ended(s: ProgramContext, leave: ControlFlow, node: tree.Node, value: Value) -> Value:
    """End the program after `return` or an anonymous output at root; the value becomes its outputs (3.16)."""
    if not leave.valued:
        return value
    if not (leave.outputs or (s.run.is_file and interface_of(s.source).kind == "cell")):
        return leave.value
    fields = leave.value if leave.fields and isinstance(leave.value, dict) else {"result": leave.value}
    for name, part in fields.items():
        s.layer.outputs[name] = bind(s, s.layer, name, "output", part, node, None)
    return leave.value


# ---------------------------------------------------------------- importing


async def register(s: ProgramContext, node: tree.Use) -> ImportedProgram:
    """Load a program and all its imports, depth first. Raises E112, E215 at the `use`."""
    try:
        return await call(_load(s, node, s.source, (s.source,)))
    except ImportProgramError as error:
        raise located(s, error, node.path) from None


async def _load(s: ProgramContext, node: tree.Use, importer: Source, chain: tuple[Source, ...]) -> ImportedProgram:
    path = node.path.raw
    if s.host.load is None:
        raise ImportProgramError(f"program '{path}' cannot be loaded: there is nothing to load programs with")
    loaded = await load(s, LoadRequest(path, importer, s.at("load")))
    if loaded.source in chain:
        names = [source.name for source in chain[chain.index(loaded.source) :]]
        cycle = " -> ".join([*names, loaded.source.name])
        raise ImportProgramError(f"import cycle: {cycle}", code="E112")
    alias = local_name(node) or loaded.slug
    entry = ImportedProgram(alias, loaded.url or path, loaded, contract(loaded.program))
    for item in loaded.program.items:
        if isinstance(item, tree.Use):
            inner = await call(_load(s, item, loaded.source, (*chain, loaded.source)))
            entry.imports[inner.alias] = inner
    return entry


# ---------------------------------------------------------------- calling


@expression(tree.ProgramCall, lambda node: [argument.value for argument in node.arguments])
class ProgramCallCode(Code):
    async def _run(self, s: ProgramContext) -> Value:
        node: tree.ProgramCall = self.node
        entry, preview = s.run.programs.get(node.program.id), s.host.preview
        if entry is None and s.run.is_script and node.program.id in HOST_READS:
            return await self._host_read(s)
        if entry is None and preview is not None:
            return cast("Value", preview.program(s, node))
        if entry is None:
            message = f"'{node.program.id}' is not an imported program"
            raise located(s, ImportProgramError(message, code="E025"), node.program)
        supplied: dict[str, Value] = {}
        for argument, part in zip(node.arguments, self.parts, strict=True):
            supplied[argument.name.id] = await value_of(part, s)
        _check(s, node, entry, supplied)
        result = cast("Value", await call(_run_program(s, node, entry, supplied)))
        return result if preview is None else unknown(entry.alias)

    async def _host_read(self, s: ProgramContext) -> Value:
        """Return the value of a host function: `read_world_model("self")` is the prior truth, and
        `read_subscription(node, facet)` the input named `facet`, or else the only input (prose-md.md 3.10)."""
        if self.node.program.id == "read_world_model":
            return s.run.prior
        inputs = interface_of(s.source).fixed
        wanted = inserted_text(await value_of(self.parts[-1], s)) if self.parts else ""
        name = wanted if wanted in inputs else inputs[0] if len(inputs) == 1 else ""
        found = s.find(name)
        return found.value if found is not None else None


def _check(s: ProgramContext, node: tree.ProgramCall, entry: ImportedProgram, supplied: dict[str, Value]) -> None:
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
    s: ProgramContext, node: tree.ProgramCall, entry: ImportedProgram, supplied: dict[str, Value]
) -> Value:
    program = (entry.loaded.handle, entry.loaded.slug)
    aliases = frozenset(
        alias for alias, other in s.run.programs.items() if (other.loaded.handle, other.loaded.slug) == program
    )
    return await call(run_program(s, node, entry, supplied, lambda name: call_of(name, aliases)))


async def run_program(
    s: ProgramContext, node: tree.Node, entry: ImportedProgram, supplied: dict[str, Value], kind: Callable[[str], Kind]
) -> Value:
    """Run the program with its own frames, registries, numbers and store. Returns its final outputs. `kind` returns the
    kind of number for its calls."""
    await s.flush()
    loaded, known = entry.loaded, entry.contract
    program = (loaded.handle, loaded.slug)
    inner = nested_context(s, node, entry.alias, program, loaded.source, loaded.source.text, kind)
    inner.run.supplied, inner.run.elsewhere = supplied, bool(loaded.url)
    work = run_text(inner, loaded.program, entry.imports, used=not known.outputs)
    outputs = known.outputs or ()
    called = ProgramCalled(s.place(node), entry.alias, inner.run.program[-1], entry.path, known.inputs, outputs)
    last = await call(in_program(s, node, inner, called, work))
    if not known.outputs:
        return last
    return ProgramResult({name: slot.value for name, slot in inner.run.root.outputs.items()}, entry.alias)


async def in_program(
    s: ProgramContext, node: tree.Node, inner: ProgramContext, called: ProgramCalled, work: Coroutine[Any, Any, Value]
) -> Value:
    """Run a called program in its own run, between its two events. Its errors are located at the call."""
    place, alias = called.place, called.alias
    s.emit(called)
    try:
        value = await call(work)
        await inner.flush()
    except RunError as error:
        if not isinstance(error, StoreFailed):
            error.details.setdefault("program", alias)
            error.location = s.location(node.span)
        s.emit(ProgramReturned(place, alias, error))
        raise
    s.emit(ProgramReturned(place, alias))
    return value


async def program_at(s: ProgramContext, node: tree.Node, address: str, alias: str) -> ImportedProgram:
    """Return the `.prose` program of a file, loaded only once in a run. Raises E112, E215 at `node`."""
    entry = s.run.programs.get(address)
    if entry is None:
        use = tree.Use(tree.Text((address,), span=node.span), tree.Name(alias, span=node.span), span=node.span)
        entry = s.run.programs[address] = await call(register(s, use))
    return entry


def nested_context(
    s: ProgramContext,
    node: tree.Node,
    alias: str,
    program: tuple[str, str],
    source: Source,
    text: str,
    kind: Callable[[str], Kind],
) -> ProgramContext:
    """Return the context of a new run, below the caller's run, for a program that is called by the name `alias`.

    `program` has the two parts of its directory's name, `text` is the copy that is kept there; `kind` returns the kind
    of number for its calls.
    """
    number = s.numbers.next(kind("--".join(program)))
    store = s.run.store.nested(*program, text, number)
    run = ProgramRun(s.host, store, source.name, store.chain)
    run.module = (*s.run.module, alias)
    location = s.location(node.span)
    run.entered = (f"in program {alias}", f"called at line {location.line} of {location.source}")
    run.call_stack = (*s.stack_lines(), *s.run.stack())
    return ProgramContext(run, run.root, source, s.cwd, s.at("program")).called_from(s)
