"""`session`, `resume`: requests, attempts, answers (openprose.md 3.13, 4, 7.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from msgspec import Struct
from msgspec import field as struct_field

from prose_kernel.errors import ImportProgramError, SessionError
from prose_kernel.language import typed_answers
from prose_kernel.language.durations_and_budgets import parse_duration
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.output_types import schema_of
from prose_kernel.language.openprose.program_interface import persistence
from prose_kernel.language.openprose.properties import no_tools
from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.language.typed_answers import Schema
from prose_kernel.machine.openprose.bindings import Destination, SpawnCode
from prose_kernel.machine.openprose.code import compile_expression, expression
from prose_kernel.machine.openprose.execs import retries_of, word
from prose_kernel.machine.openprose.expressions import cut_notes, keep_braces_silently, render
from prose_kernel.machine.openprose.program_context import AgentEntry, ProgramContext
from prose_kernel.machine.openprose.program_text import statement_text
from prose_kernel.machine.openprose.session_context import assemble, value_given
from prose_kernel.runtime.attempts import AttemptLimits, Failure, SessionAttempts
from prose_kernel.runtime.budgets import Budget
from prose_kernel.runtime.compiled_code import value_of
from prose_kernel.runtime.execution_context import Node, agent_budget, budget_of, load, located
from prose_kernel.runtime.ports import (
    AgentMemory,
    AnswerFile,
    Binding,
    BlockScope,
    ContextItem,
    LoadRequest,
    SessionRequest,
    SessionResult,
)
from prose_kernel.runtime.preview import unknown
from prose_kernel.runtime.shared_names import Agent, AgentRequest
from prose_kernel.runtime.values import Reference, Value, inserted_text

Properties = Mapping[str, object]
_SHAPE: Final = {"self": "You are responsible for", "delegates": "You delegate to", "prohibited": "You must not"}


@expression(tree.Resume)
@expression(tree.Session)
class SessionCode(SpawnCode):
    def prepare(self, node: tree.Session | tree.Resume) -> None:
        self.spawned = "resume" if isinstance(node, tree.Resume) else "session"

    async def spawn(self, s: ProgramContext, destination: Destination | None) -> Value:
        return None if s.cancellation.stopped else await run_session(s, self.node, destination)


Inspect = Callable[[SessionResult], None]
"""Checks an answer before it is accepted. An error that it raises is the session's error."""


class Rendering(Struct, frozen=True):
    """Additions for a session that renders a node of a contract file: more context, other fields of the request."""

    context: tuple[ContextItem, ...] = ()
    changes: Mapping[str, Any] = struct_field(default_factory=dict)
    inspect: Inspect | None = None

    def of(self, request: SessionRequest) -> SessionRequest:
        return replace(request, context=(*(request.context or ()), *self.context), **self.changes)


async def run_session(
    s: ProgramContext,
    node: tree.Session | tree.Resume,
    destination: Destination | None,
    rendering: Rendering | None = None,
) -> Value:
    """Run a session with its retries. Returns a reference to the binding of its answer. Raises E018, E201, E218."""
    name = destination.name if destination is not None else None
    other = s.run.other_agents.get(node.agent.id) if node.agent is not None else None
    if other is not None:
        return await _ask_other(s, node, other, name)
    if s.host.preview is not None:
        work = prepare_request(s, node, destination, rendering)
        return cast("Value", await s.host.preview.session(s, node, name, work))
    request, binding = await prepare_request(s, node, destination, rendering)
    allowed = _allowed(s.run.properties("session", node.properties))
    allowed = replace(allowed, budgets=tuple(_budgets(s, node, request)))
    inspect = rendering.inspect if rendering is not None else None
    consumed = rendering is not None  # the answer is the value of the rendered node, and is shown as that
    attempts = Attempts(
        s, node, request, binding.key, name, allowed, consumed=consumed, binding=binding, inspect=inspect
    )
    ended = await attempts.run()
    if isinstance(ended, Failure):
        raise located(s, ended.error, node)
    return ended.value


async def prepare_request(
    s: ProgramContext,
    node: tree.Session | tree.Resume,
    destination: Destination | None,
    rendering: Rendering | None = None,
) -> tuple[SessionRequest, Binding]:
    """Return the request of the first attempt, and the binding for its answer. Raises E018, and the errors of its texts
    and values."""
    own = s.run.properties("session", node.properties)
    entry = _agent(s, node)
    agent: Properties = {p.name.id: p.value for p in entry.node.properties} if entry is not None else {}
    memory = _memory(s, node, entry)
    await s.flush()  # from here on, bindings that the context refers to can be read
    request = await _request(s, node, own, agent, entry, memory)
    request = rendering.of(request) if rendering is not None else request
    key = destination.key if destination is not None else s.next_anonymous()
    kind = destination.kind if destination is not None else "let"
    binding = Binding(key, kind, "", statement_text(s.source, s.statement.span), request.label)
    target = s.run.store.target(binding) if request.output is None else None
    return replace(request, target=target), binding


def _allowed(own: Properties) -> AttemptLimits:
    return AttemptLimits(retries_of(own), word(own["timeout"]) if "timeout" in own else "")


def _budgets(s: ProgramContext, node: tree.Session | tree.Resume, request: SessionRequest) -> list[Budget]:
    """Return the budgets of the session and of its agent; all sessions of an agent share one."""
    entry = _agent(s, node)
    agent = s.run.properties("agent", entry.node.properties) if entry is not None else {}
    shared = agent.get("budget")
    found = [agent_budget(s, str(request.agent), shared.raw)] if isinstance(shared, tree.Text) else []
    return [*found, *_budget(s, s.run.properties("session", node.properties), request.at)]


def _budget(s: ProgramContext, own: Properties, at: str) -> list[Budget]:
    """Return a list with the session's own budget, if it has one."""
    limits = own.get("budget")
    return [budget_of(s, f"session {at}", "this session", limits.raw)] if isinstance(limits, tree.Text) else []


async def _ask_other(s: ProgramContext, node: tree.Session | tree.Resume, agent: Agent, name: str | None) -> Value:
    """Ask an agent of another language. A failure raises an error, like that of any session."""
    if isinstance(node, tree.Resume):
        hint = f"ask it with `session: {agent.name}`; whether it remembers is up to its own declaration"
        raise located(s, SessionError(f"agent '{agent.name}' is not resumed from here", code="E017", hint=hint), node)
    own = s.run.properties("session", node.properties)
    task, _ = await _task_and_system(s, node, own, {})
    given = await value_given(s, own["context"]) if "context" in own else None
    if s.host.preview is not None:
        return unknown(agent.name)
    allowed, model = _allowed(own), word(own["model"]) if "model" in own else None
    output = await _output(s, node, own, None)
    most, backoff = allowed.retries.maximum, allowed.retries.backoff
    asked = AgentRequest(task, given, name, most, backoff, allowed.timeout, model, output)
    with s.within(*_budget(s, own, f"{s.path}/{s.count('budget')}")):
        ended = await agent.ask(s, node, asked)
    if isinstance(ended, Failure):
        raise located(s, ended.error, node)
    return ended.value


@dataclass(eq=False, repr=False)
class Attempts(SessionAttempts):
    """The attempts at one session statement. The answer becomes the binding."""

    s: ProgramContext
    binding: Binding = field(kw_only=True)
    inspect: Inspect | None = field(default=None, kw_only=True)
    _written: Callable[[], bool] = field(default=bool, init=False)

    def target(self) -> AnswerFile | None:
        if self.request.output is not None:
            return None  # the reply is the answer
        return self.s.run.store.target(self.binding)

    def before_attempt(self) -> None:
        self.s.run.read_before_overwrite(self.key)
        self._written = self.s.run.store.watch(self.key)

    def whole(self, result: SessionResult) -> SessionResult:
        if result.text is not None or not self._written():
            return result
        return replace(result, text=self.s.run.store.read(self.key))

    def keep(self, result: SessionResult) -> Reference:
        """Store the answer, or check that the session has stored it itself (4.6). Raises E218."""
        run, key = self.s.run, self.key
        if self.inspect is not None:
            self.inspect(self.kept(result))
        text = self.typed(result)
        if text is not None:
            run.put(replace(self.binding, value=text))
        elif not self._written():
            raise SessionError(f"the session announced '{key.name}' but did not write it", code="E218")
        else:
            run.detach_overwritten(key)
        if self.request.memory is not None:
            run.started_agents.add(self.request.memory.agent)
        return run.refer(key, result.summary, text, self.request.output)


# ---------------------------------------------------------------- the request


def _agent(s: ProgramContext, node: tree.Session | tree.Resume) -> AgentEntry | None:
    if node.agent is None:
        return None
    entry = s.run.agents.get(node.agent.id)
    if entry is None:
        raise located(s, SessionError(f"agent '{node.agent.id}' is not defined", code="E007"), node.agent)
    return entry


def _memory(s: ProgramContext, node: tree.Session | tree.Resume, entry: AgentEntry | None) -> AgentMemory | None:
    """Return the memory of a persistent agent, and check now whether it exists (4.4). Raises E017, E018."""
    if entry is None or node.agent is None:
        return None
    name, persist, store = node.agent.id, persistence(entry.node), s.run.store
    resume = isinstance(node, tree.Resume)
    if persist is None:
        if resume:
            raise located(s, SessionError(f"agent '{name}' keeps no memory", code="E017"), node.agent)
        return None
    known = name in s.run.started_agents or s.note(s.at("memory"), bool, lambda: store.has_memory(name, persist))
    if resume and not known:
        if persist == "true":
            hint = f"start it first: `session: {name}`"
            raise located(s, SessionError(f"agent '{name}' has no memory to resume", code="E018", hint=hint), node)
        s.warn("W118", f"agent '{name}' has no memory yet; this is its first use", node)
    if known and not resume:
        s.warn("W011", f"agent '{name}' has memory already; `session:` replaces it by an empty one", node)
    return AgentMemory(name, persist, store.memory(name, persist), resume)


async def _request(
    s: ProgramContext,
    node: tree.Session | tree.Resume,
    own: Properties,
    agent: Properties,
    entry: AgentEntry | None,
    memory: AgentMemory | None,
) -> SessionRequest:
    task, system = await _task_and_system(s, node, own, agent)
    model = own.get("model", agent.get("model"))
    seconds = parse_duration(word(own["timeout"])) if "timeout" in own else s.run.timeout
    frame = s.frame
    scope = None
    if frame.execution_id is not None:
        scope = BlockScope(frame.execution_id, frame.block or "", frame.depth, frame.parent_execution_id)
    label = node.label.id if isinstance(node, tree.Session) and node.label is not None else None
    return SessionRequest(
        "resume" if isinstance(node, tree.Resume) else "session",
        task,
        s.at("session"),
        system=system,
        agent=node.agent.id if node.agent is not None else None,
        label=label,
        model=(await model_word(s, model) if model is not None else None) or s.run.model,
        context=await _context(s, own, agent, entry),
        skills=_texts(agent.get("skills")),
        permissions=await _permissions(s, own, agent),
        memory=memory,
        scope=scope,
        program=s.run.name,
        position=s.run.progress.ordinal,
        finished=tuple(s.run.finished),
        timeout=seconds,
        output=await _output(s, node, own, entry),
        tools=_tools(own, agent),
        bare=no_tools(own.get("tools")) or no_tools(agent.get("tools")),
        elsewhere=s.run.elsewhere,
    )


async def model_word(s: ProgramContext, value: object) -> str | None:
    """Return the model that a property names, in ProseScript also by a variable or a path (prose-md.md 3.9)."""
    if not s.run.is_script:
        return word(value)
    if isinstance(value, tree.Name) and (found := s.find(value.id)) is not None:
        return inserted_text(found.value) if found.value is not None else None
    if isinstance(value, tree.Member | tree.Index | tree.Constant):
        found_value = await value_of(compile_expression(value), s)
        return inserted_text(found_value) if found_value is not None else None
    return await render(s, value) if isinstance(value, tree.Text) else word(value)


def _with_shape(agent: Properties, instructions: str | None) -> str | None:
    """Return an agent's prompt with the lines that its `shape` adds (prose-md.md 3.9)."""
    shape = agent.get("shape")
    lines = [instructions] if instructions else []
    for entry in shape.entries if isinstance(shape, tree.ContextBlock) else ():
        value = entry.value
        parts = value.elements if isinstance(value, tree.Array) else (value,)
        described = ", ".join(part.raw for part in parts if isinstance(part, tree.Text))
        lines.append(f"{_SHAPE.get(entry.name.id, entry.name.id)}: {described}")
    return "\n".join(lines) or None


async def _schema(s: ProgramContext, node: Node, value: object, source: Source) -> Schema | None:
    """Return the schema of the answer from an `output` in `source`. Raises E224 for an unusable file."""
    if isinstance(value, tree.ContextBlock | tree.Object):
        return schema_of(value)  # the checker has made sure that it is one
    if not isinstance(value, tree.Text) or s.host.load is None:
        return None
    request = LoadRequest(f"{typed_answers.FILE_PREFIX}{value.raw}", source, s.at("load"))
    try:
        loaded = await (s.host.load(request) if s.host.preview is not None else load(s, request))
    except ImportProgramError as problem:
        raise located(s, problem, node) from None
    return cast("Schema", loaded.program)


async def _output(s: ProgramContext, node: Node, own: Properties, entry: AgentEntry | None) -> Schema | None:
    """Return the schema of the session's `output`, or else of the agent's."""
    if "output" in own:
        return await _schema(s, node, own["output"], s.source)
    if entry is None:
        return None
    agent = s.run.properties("agent", entry.node.properties)
    return await _schema(s, node, agent.get("output"), entry.source)


async def _task_and_system(
    s: ProgramContext, node: tree.Session | tree.Resume, own: Properties, agent: Properties
) -> tuple[str, str | None]:
    """Return the task and the system text (4.2)."""
    parts = []
    title = node.title if isinstance(node, tree.Session) else None
    for text in (title, own.get("prompt")):
        if isinstance(text, tree.Text):
            parts.append(await render(s, text) + cut_notes(s, text))
    prompt = agent.get("prompt")
    instructions = await render(s, prompt, keep_braces_silently) if isinstance(prompt, tree.Text) else None
    instructions = _with_shape(agent, instructions)
    if not parts:
        return instructions or "", None
    return "\n\n".join(parts), instructions


async def _context(
    s: ProgramContext, own: Properties, agent: Properties, entry: AgentEntry | None
) -> tuple[ContextItem, ...] | None:
    if "context" in own:
        return await assemble(s, own["context"])
    if "context" not in agent or entry is None:
        return None
    outer, s.source = s.source, entry.source
    try:
        return await assemble(s, agent["context"])
    finally:
        s.source = outer


def _texts(value: object) -> tuple[str, ...]:
    """Return the texts in an array as written; none for another value."""
    elements = value.elements if isinstance(value, tree.Array) else ()
    return tuple(element.raw for element in elements if isinstance(element, tree.Text))


def _tools(own: Properties, agent: Properties) -> tuple[str, ...]:
    """Return the tools of the agent and of the session, each once; none if the session says `none`."""
    if no_tools(own.get("tools")):
        return ()
    return tuple(dict.fromkeys((*_texts(agent.get("tools")), *_texts(own.get("tools")))))


async def _permissions(s: ProgramContext, own: Properties, agent: Properties) -> dict[str, str | tuple[str, ...]]:
    """Return the permissions: for each type the session's entry, or else the agent's (4.2)."""
    found: dict[str, str | tuple[str, ...]] = {}
    for value in (agent.get("permissions"), own.get("permissions")):
        for entry in value.entries if isinstance(value, tree.Permissions) else ():
            if isinstance(entry.value, tree.Array):
                found[entry.name.id] = tuple([await _pattern(s, element) for element in entry.value.elements])
            else:
                found[entry.name.id] = word(entry.value)
    return found


async def _pattern(s: ProgramContext, node: tree.Node) -> str:
    if isinstance(node, tree.Text):
        return await render(s, node)
    found = s.find(node.id) if isinstance(node, tree.Name) else None
    if found is None or isinstance(found.value, (list, dict, bool, type(None))):
        raise located(s, SessionError("a permission pattern must be text", code="E016"), node)
    return inserted_text(found.value)
