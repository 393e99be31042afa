"""Shares names with another language in one run (docs/reference/vvm.md 13).

Values cross as data. A function of another language is called like a block, and an agent of another language is asked
like an OpenProse agent: `session: scribe`; a failure raises an error, like that of any session. For the other language
a block is a function, and asking an agent runs a session with its prompt, memory and permissions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from prose_kernel.language.openprose import tree
from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.machine.openprose import sessions
from prose_kernel.machine.openprose.blocks import invoke_block
from prose_kernel.machine.openprose.frames import Slot
from prose_kernel.machine.openprose.program_context import AgentEntry, BlockEntry, ProgramContext, ProgramRun
from prose_kernel.machine.openprose.session_context import item_of_value
from prose_kernel.runtime.attempts import AttemptLimits, Failure, Retries, Success
from prose_kernel.runtime.execution_context import ExecutionContext, Node
from prose_kernel.runtime.ports import Key
from prose_kernel.runtime.shared_names import Agent, AgentRequest, Function
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import ExecText, Value

ELSEWHERE = Source("", "another language")
"""The source of a name that another language has bound."""


def adopt(run: ProgramRun, name: str, value: Value) -> None:
    """Register a name that another language has bound at its root."""
    if isinstance(value, Function):
        run.root.table.pop(name, None)
        run.blocks.pop(name, None)
        run.functions[name] = value
    elif isinstance(value, Agent):
        run.agents.pop(name, None)
        run.other_agents[name] = value
    else:
        _adopt_value(run, name, value)


def _adopt_value(run: ProgramRun, name: str, value: Value) -> None:
    """Bind the value. It is also kept in the run's store, where a session's context can refer to it."""
    slot = run.root.table.get(name)
    if slot is None:
        slot = run.root.table[name] = Slot(name, "let", value, Key(name), ELSEWHERE, tree.NOWHERE)
    if isinstance(slot.value, ExecText):
        run.result_unbound(slot.value)
    run.root.outputs.pop(name, None)
    slot.kind, slot.value, slot.source, slot.span = "let", value, ELSEWHERE, tree.NOWHERE
    slot.spawned, slot.cell = None, run.progress.cell
    run.changed(slot)


def shared(run: ProgramRun) -> dict[str, Value]:
    """Return the values of the root's names, for another language to adopt."""
    entries: list[BlockEntry | AgentEntry] = [*run.blocks.values(), *run.agents.values()]
    found: dict[str, Value] = {entry.node.name.id: for_other_languages(run, entry.node) for entry in entries}
    found.update((name, slot.value) for name, slot in run.root.table.items())
    return found


def for_other_languages(run: ProgramRun, item: tree.Agent | tree.Block) -> BlockFunction | DeclaredAgent:
    """Return a registered agent or block in the form for other languages."""
    name = item.name.id
    if isinstance(item, tree.Agent):
        return DeclaredAgent(run, run.agents[name])
    return BlockFunction(run, run.blocks[name])


def _context(run: ProgramRun, caller: ExecutionContext) -> ProgramContext:
    return ProgramContext(run, run.root, caller.source, caller.cwd, caller.path).continue_from(caller)


class BlockFunction(Function):
    """A block, as a function for other languages."""

    __slots__ = ("entry", "run")

    language: ClassVar[str] = "openprose"
    noun: ClassVar[str] = "block"

    def __init__(self, run: ProgramRun, entry: BlockEntry) -> None:
        super().__init__(entry.node.name.id, tuple(parameter.id for parameter in entry.node.parameters))
        self.run, self.entry = run, entry

    async def invoke(self, caller: ExecutionContext, node: Node, arguments: Sequence[Value]) -> Value:
        s = _context(self.run, caller)
        try:
            value, _ = await call(invoke_block(s, node, self.entry, [(value, None) for value in arguments], used=True))
        finally:
            caller.cwd = s.cwd
        return value


class DeclaredAgent(Agent):
    """An agent that other languages can ask. Each request runs a session."""

    __slots__ = ("entry", "run")

    language: ClassVar[str] = "openprose"

    def __init__(self, run: ProgramRun, entry: AgentEntry) -> None:
        super().__init__(entry.node.name.id)
        self.run, self.entry = run, entry

    async def ask(self, caller: ExecutionContext, node: Node, asked: AgentRequest) -> Success | Failure:
        s = _context(self.run, caller)
        written: list[tuple[str, tree.Node]] = [("prompt", tree.Text((asked.task,) if asked.task else ()))]
        if asked.timeout:
            written.append(("timeout", tree.Duration(asked.timeout)))
        if asked.model:
            written.append(("model", tree.Name(asked.model)))
        properties = tuple(tree.Property(tree.Name(name), cast("tree.Expression", value)) for name, value in written)
        session = tree.Session(None, None, tree.Name(self.name), properties)
        request, binding = await sessions.prepare_request(s, session, None)
        if asked.given is not None:
            item = item_of_value(s, "input", asked.given, session)
            request = replace(request, context=(item,))
        allowed = AttemptLimits(Retries(asked.retries, asked.backoff), asked.timeout)
        return await sessions.Attempts(s, node, request, binding.key, asked.bound_to, allowed, binding=binding).run()
