"""The life of a text: steps 3 to 7 of openprose.md 3.1, the same for a file, a cell and an imported program."""

from __future__ import annotations

from prose_kernel.errors import RunError
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.contract import is_executable
from prose_kernel.machine.openprose.bindings import bind
from prose_kernel.machine.openprose.code import Step, compile_statement
from prose_kernel.machine.openprose.control_flow import ControlFlow
from prose_kernel.machine.openprose.failures import announce
from prose_kernel.machine.openprose.programs import ImportedProgram, register
from prose_kernel.machine.openprose.runs import AgentEntry, BlockEntry, ExecutionContext
from prose_kernel.runtime.events import StatementDone
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value

_HOISTED = (tree.Use, tree.SkillImport, tree.Agent, tree.Block)


async def run_text(
    s: ExecutionContext, program: tree.Program, imports: dict[str, ImportedProgram] | None = None
) -> Value:
    """Run a checked text in the root frame of its run: imports, first inputs, definitions, then the statements.

    `imports` are the program's own when they have been loaded before. Returns the value of the last statement.
    """
    s.run.begin(program)
    if imports is not None:
        s.run.programs.update(imports)
    start = s.path
    await call(_imports(s, program, loaded=imports is not None))
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
            s.run.ordinal += 1
            s.run.in_cell += 1
            s.path = f"{start}/{s.run.in_cell}"
            s.counts = {}
        step = compile_statement(node, False)
        try:
            result = await call(_execute(s, step))
        except ControlFlow as leave:
            return _ended(s, leave, node, value)
        if step.valued:
            value = result
        _done(s, step, node, result)
    return value


async def _imports(s: ExecutionContext, program: tree.Program, *, loaded: bool) -> None:
    for item in program.items:
        if isinstance(item, tree.SkillImport):
            s.run.skills[item.skill.raw] = None
        elif isinstance(item, tree.Use) and not loaded:
            try:
                entry = await call(register(s, item))
            except RunError as error:
                announce(s, error, item)
                raise
            s.run.programs[entry.alias] = entry


def _define(s: ExecutionContext, program: tree.Program) -> None:
    for item in program.items:
        if isinstance(item, tree.Agent):
            s.run.agents[item.name.id] = AgentEntry(item, s.source)
        elif isinstance(item, tree.Block):
            s.run.blocks[item.name.id] = BlockEntry(item, s.source)


async def _execute(s: ExecutionContext, step: Step) -> Value:
    """One top-level statement."""
    s.statement = step.node
    host = s.host
    try:
        if host.before is not None:
            await s.outside(host.before(s.place(step.node.span)))
        if host.scheduler.due():
            await s.breathe()
        return step.now(s) if step.now is not None else await call(step.run(s))
    except RunError as error:
        announce(s, error, step.node)
        raise


def _done(s: ExecutionContext, step: Step, node: tree.Node, value: Value) -> None:
    if step.binds:
        names = getattr(node, "names", None) or (getattr(node, "name", None),)
        s.run.finished.extend(name.id for name in names if isinstance(name, tree.Name))
    elif s.host.listeners:
        s.emit(StatementDone(s.place(node.span), value if step.valued else None))


def _ended(s: ExecutionContext, leave: ControlFlow, node: tree.Node, value: Value) -> Value:
    """`return` or an anonymous output at root: the program ends, its value becomes the outputs (3.16)."""
    if not leave.valued:
        return value
    fields = leave.value if leave.fields and isinstance(leave.value, dict) else {"result": leave.value}
    for name, part in fields.items():
        s.layer.outputs[name] = bind(s, s.layer, name, "output", part, node, None)
    return leave.value
