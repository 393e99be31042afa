"""`session`, `resume`: requests, attempts, answers (openprose.md 3.13, 4, 7.4)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from prose_kernel.errors import ProviderError, ProviderTimeout, RecordedTimeout, RunError, SessionError, SessionTimeout
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.contract import persistence
from prose_kernel.language.openprose.durations import parse_duration
from prose_kernel.machine.openprose.bindings import Destination, SpawnCode
from prose_kernel.machine.openprose.code import expression
from prose_kernel.machine.openprose.context import assemble
from prose_kernel.machine.openprose.execs import permit, word
from prose_kernel.machine.openprose.failures import located
from prose_kernel.machine.openprose.frames import Spawned
from prose_kernel.machine.openprose.interpolation import kept_silently, render
from prose_kernel.machine.openprose.runs import AgentEntry, ExecutionContext
from prose_kernel.machine.openprose.statements import statement_text
from prose_kernel.runtime.events import Retried, SessionFinished, SessionProgressed, SessionStarted
from prose_kernel.runtime.ports import (
    TIME_IS_UP,
    AgentMemory,
    Binding,
    BlockScope,
    ContextItem,
    SessionProgress,
    SessionRequest,
    SessionResult,
    Target,
)
from prose_kernel.runtime.values import Reference, Value, inserted_text

T = TypeVar("T")
Properties = Mapping[str, object]

LINEAR: Final = 1.0
LONGEST: Final = 60.0


def delay(backoff: str, retry: int) -> float:
    """Seconds before a retry, counted from 1 (3.13)."""
    if backoff == "linear":
        return LINEAR
    return float(min(2 ** min(retry - 1, 10), LONGEST)) if backoff == "exponential" else 0.0


@dataclass(frozen=True, slots=True)
class Spawn:
    """One session statement while it runs: its number, where its answer goes, how often and how long it may try."""

    node: tree.Session | tree.Resume
    number: int
    binding: Binding
    bound_to: str | None
    retries: int
    backoff: str
    limit: str | None
    memory_of: str | None


class _SessionCode(SpawnCode):
    __slots__ = ()

    @property
    def spawned(self) -> Spawned:
        return "resume" if isinstance(self.node, tree.Resume) else "session"

    async def spawn(self, s: ExecutionContext, destination: Destination | None) -> Value:
        return None if s.cancellation.stopped else await run_session(s, self.node, destination)


@expression(tree.Session)
class SessionCode(_SessionCode):
    __slots__ = ()


@expression(tree.Resume)
class ResumeCode(_SessionCode):
    __slots__ = ()


async def run_session(s: ExecutionContext, node: tree.Session | tree.Resume, destination: Destination | None) -> Value:
    """Run a session with its retries; the value is a reference to the binding it left. Raises E018, E201, E218."""
    own: Properties = {p.name.id: p.value for p in node.properties}
    request, binding = await prepared(s, node, destination)
    retries = own["retry"].value if isinstance(own.get("retry"), tree.Number) else 0  # type: ignore[attr-defined]
    spawn = Spawn(
        node,
        s.host.next_spawn(),
        binding,
        destination.name if destination is not None else None,
        int(retries),
        word(own["backoff"]) if "backoff" in own else "none",
        word(own["timeout"]) if "timeout" in own else None,
        request.memory.agent if request.memory is not None else None,
    )
    return await _attempts(s, spawn, request)


async def prepared(
    s: ExecutionContext, node: tree.Session | tree.Resume, destination: Destination | None
) -> tuple[SessionRequest, Binding]:
    """What the first attempt is asked, and the binding that will hold its answer. Raises E018 and what the texts and
    values in it raise."""
    own: Properties = {p.name.id: p.value for p in node.properties}
    entry = _agent(s, node)
    agent: Properties = {p.name.id: p.value for p in entry.node.properties} if entry is not None else {}
    memory = _memory(s, node, entry)
    await s.flush()  # what the context refers to can be read from here on, or is passed by value
    request = await _request(s, node, own, agent, entry, memory)
    key = destination.key if destination is not None else s.next_anonymous()
    kind = destination.kind if destination is not None else "let"
    binding = Binding(key, kind, "", statement_text(s.source, s.statement.span), request.label)
    return dataclasses.replace(request, target=_target(s, binding)), binding


def _target(s: ExecutionContext, binding: Binding) -> Target | None:
    """Where the session writes its answer; None where it could not: then its reply is the answer (4.6, 7.6)."""
    store = s.run.store
    if store.by_value:
        return None
    return Target(binding.key.name, store.location(binding.key), store.header(binding))


# ---------------------------------------------------------------- attempts


async def _attempts(s: ExecutionContext, spawn: Spawn, request: SessionRequest) -> Value:
    attempt = 0
    while True:
        await s.flush()
        current = dataclasses.replace(request, target=_target(s, spawn.binding), attempt=attempt)
        if s.host.listeners:
            s.emit(SessionStarted(s.place(spawn.node.span), spawn.number, current, spawn.bound_to))
        again = replayed = False
        try:
            result, value = await _answer(s, spawn, current)
        except ProviderError as failure:
            error: RunError = _failure(spawn, failure)
            again, replayed = failure.retryable, failure.replayed
        except (SessionError, SessionTimeout) as failed:
            error, again = failed, True
        except RunError as failed:
            error = failed  # not the session's fault: what it did is not done again
        else:
            _finished(s, spawn, current, result=result, value=value)
            return value
        final = not again or attempt >= spawn.retries
        _finished(s, spawn, current, error=error, final=final)
        if final:
            raise located(s, error, spawn.node)
        attempt += 1
        await _pause(s, spawn, attempt, replayed)


async def _pause(s: ExecutionContext, spawn: Spawn, attempt: int, replayed: bool) -> None:
    """Wait before a retry; after a failure that was only replayed nobody needs the time."""
    seconds = delay(spawn.backoff, attempt)
    if s.host.listeners:
        s.emit(Retried(s.place(spawn.node.span), spawn.number, attempt, spawn.retries, seconds))
    if seconds > 0 and not replayed:
        await s.outside(s.host.ports.clock.sleep(seconds))


async def _answer(s: ExecutionContext, spawn: Spawn, request: SessionRequest) -> tuple[SessionResult, Reference]:
    """One attempt, and its answer kept."""
    key = spawn.binding.key
    s.run.secure_former(key)
    before = s.run.store.mark(key)
    result = await _attempt(s, spawn, request)
    return result, _accept(s, spawn, result, before)


async def _attempt(s: ExecutionContext, spawn: Spawn, request: SessionRequest) -> SessionResult:
    place = s.place(spawn.node.span)

    def progress(step: SessionProgress) -> None:
        if s.host.listeners:
            s.emit(SessionProgressed(place, spawn.number, step.kind, step.text, step.tool))

    await s.admitted()
    async with permit(s):
        running = s.host.ports.sessions.run(request, progress)
        if request.timeout is None:
            return await s.outside(running)
        return await s.outside(_within(s, running, request.timeout, spawn.limit or ""))


async def _within(s: ExecutionContext, running: Coroutine[Any, Any, T], seconds: float, limit: str) -> T:
    """Await something for at most so many seconds of the machine's clock; what runs longer is cancelled and awaited."""
    loop = asyncio.get_running_loop()
    session, timer = loop.create_task(running), loop.create_task(s.host.ports.clock.sleep(seconds))
    try:
        await asyncio.wait((session, timer), return_when=asyncio.FIRST_COMPLETED)
        if session.done():
            return session.result()
        session.cancel(TIME_IS_UP)
        raise _timed_out(limit)
    finally:
        for task in (session, timer):
            if not task.cancelling():
                task.cancel()
        await _all_ended(session, timer)


async def _all_ended(*tasks: asyncio.Future[T] | asyncio.Future[None]) -> None:
    """Wait for cancelled tasks, however often we are cancelled ourselves."""
    cancelled: asyncio.CancelledError | None = None
    while any(not task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen
    if cancelled is not None:
        raise cancelled


def _timed_out(limit: str) -> SessionTimeout:
    return SessionTimeout(f"session timed out after {limit}", details={"kind": "timeout"})


def _failure(spawn: Spawn, failure: ProviderError) -> RunError:
    if isinstance(failure, RecordedTimeout) and spawn.limit is not None:
        return _timed_out(spawn.limit)
    return SessionError(
        str(failure) or "the session failed",
        details={"kind": "timeout" if isinstance(failure, ProviderTimeout) else "error"},
        hint=failure.hint,
        nobody=failure.nobody,
    )


def _accept(s: ExecutionContext, spawn: Spawn, result: SessionResult, before: object) -> Reference:
    """Keep the answer, or check that the session has kept it since `before` (4.6). Raises E218."""
    key = spawn.binding.key
    if result.text is not None:
        s.run.put(dataclasses.replace(spawn.binding, value=result.text))
    elif s.run.store.mark(key) in (None, before):
        raise SessionError(f"the session announced '{key.name}' but did not write it", code="E218")
    else:
        s.run.hold_former(key)
    if spawn.memory_of is not None:
        s.run.started_agents.add(spawn.memory_of)
    return s.run.refer(key, result.summary, result.text)


def _finished(
    s: ExecutionContext,
    spawn: Spawn,
    request: SessionRequest,
    *,
    result: SessionResult | None = None,
    value: Value = None,
    error: RunError | None = None,
    final: bool = True,
) -> None:
    name = spawn.bound_to or spawn.binding.key.name
    s.recent.note(f"session {name}: {error.message if error is not None else 'done'}")
    if s.host.listeners:
        place, key = s.place(spawn.node.span), spawn.binding.key
        s.emit(SessionFinished(place, spawn.number, request, spawn.bound_to, key, result, value, error, final))


# ---------------------------------------------------------------- the request


def _agent(s: ExecutionContext, node: tree.Session | tree.Resume) -> AgentEntry | None:
    if node.agent is None:
        return None
    entry = s.run.agents.get(node.agent.id)
    if entry is None:
        raise located(s, SessionError(f"agent '{node.agent.id}' is not defined", code="E007"), node.agent)
    return entry


def _memory(s: ExecutionContext, node: tree.Session | tree.Resume, entry: AgentEntry | None) -> AgentMemory | None:
    """The memory of a persistent agent; whether there is any is judged now (4.4)."""
    if entry is None or node.agent is None:
        return None
    name, persist, store = node.agent.id, persistence(entry.node), s.run.store
    resume = isinstance(node, tree.Resume)
    if persist is None:
        if resume:
            raise located(s, SessionError(f"agent '{name}' keeps no memory", code="E017"), node.agent)
        return None
    known = name in s.run.started_agents or store.has_memory(name, persist)
    if resume and not known:
        if persist == "true":
            hint = f"start it first: `session: {name}`"
            raise located(s, SessionError(f"agent '{name}' has no memory to resume", code="E018", hint=hint), node)
        s.warn("W118", f"agent '{name}' has no memory yet; this is its first use", node.span)
    if known and not resume:
        s.warn("W011", f"agent '{name}' has memory already; `session:` starts it anew", node.span)
    return AgentMemory(name, persist, store.memory(name, persist), resume)


async def _request(
    s: ExecutionContext,
    node: tree.Session | tree.Resume,
    own: Properties,
    agent: Properties,
    entry: AgentEntry | None,
    memory: AgentMemory | None,
) -> SessionRequest:
    task, system = await _words(s, node, own, agent)
    model = own.get("model", agent.get("model"))
    seconds = parse_duration(word(own["timeout"])) if "timeout" in own else None
    frame = s.frame
    scope = None
    if frame.execution_id is not None:
        scope = BlockScope(frame.execution_id, frame.block or "", frame.depth, frame.parent_execution_id)
    label = node.label.id if isinstance(node, tree.Session) and node.label is not None else None
    return SessionRequest(
        "resume" if isinstance(node, tree.Resume) else "session",
        task,
        f"{s.path}/s{s.count('session')}",
        system=system,
        agent=node.agent.id if node.agent is not None else None,
        label=label,
        model=word(model) if model is not None else None,
        context=await _context(s, own, agent, entry),
        skills=_skills(agent.get("skills")),
        permissions=await _permissions(s, own, agent),
        memory=memory,
        scope=scope,
        program=s.run.name,
        position=s.run.ordinal,
        finished=tuple(s.run.finished),
        timeout=seconds,
    )


async def _words(
    s: ExecutionContext, node: tree.Session | tree.Resume, own: Properties, agent: Properties
) -> tuple[str, str | None]:
    """Task and system text (4.2)."""
    parts = []
    title = node.title if isinstance(node, tree.Session) else None
    for text in (title, own.get("prompt")):
        if isinstance(text, tree.Text):
            parts.append(await render(s, text))
    prompt = agent.get("prompt")
    instructions = await render(s, prompt, kept_silently) if isinstance(prompt, tree.Text) else None
    if not parts:
        return instructions or "", None
    return "\n\n".join(parts), instructions


async def _context(
    s: ExecutionContext, own: Properties, agent: Properties, entry: AgentEntry | None
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


def _skills(value: object) -> tuple[str, ...]:
    if not isinstance(value, tree.Array):
        return ()
    return tuple(element.raw for element in value.elements if isinstance(element, tree.Text))


async def _permissions(s: ExecutionContext, own: Properties, agent: Properties) -> dict[str, str | tuple[str, ...]]:
    """Per type, the session's entry over the agent's (4.2)."""
    found: dict[str, str | tuple[str, ...]] = {}
    for value in (agent.get("permissions"), own.get("permissions")):
        for entry in value.entries if isinstance(value, tree.Permissions) else ():
            if isinstance(entry.value, tree.Array):
                found[entry.type.id] = tuple([await _pattern(s, element) for element in entry.value.elements])
            else:
                found[entry.type.id] = word(entry.value)
    return found


async def _pattern(s: ExecutionContext, node: tree.Node) -> str:
    if isinstance(node, tree.Text):
        return await render(s, node)
    found = s.find(node.id) if isinstance(node, tree.Name) else None
    if found is None or isinstance(found.value, (list, dict, bool, type(None))):
        raise located(s, SessionError("a permission pattern must be text", code="E016"), node)
    return inserted_text(found.value)
