"""Agent calls: ``@agent `template`(input, options)`` (docs/reference/vvm.md 6.4, 6.5, 7.3).

A failed call returns an error value. Only errors of the program itself raise, and a missing person or provider (A23).
The memory of an agent is locked for a call from before its first attempt until its patch is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from msgspec import Struct

from prose_kernel.errors import (
    BudgetSpent,
    ImportProgramError,
    MemoryLocked,
    PermissionDenied,
    ProviderError,
    ProviderRateLimit,
    ResumeMismatch,
    SessionCancelled,
    SessionError,
    SessionTimeout,
    StateError,
    VvmRaise,
)
from prose_kernel.language.structs import replace
from prose_kernel.language.text import clipped
from prose_kernel.language.typed_answers import FILE_PREFIX, Schema
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.configurations import (
    CONFIGURATION_KEYS,
    OPTIONS,
    OUTPUT,
    PERMISSION_KEYS,
    duration,
    escaped,
    fault_of,
    permissions,
    schema_of,
)
from prose_kernel.machine.vvm.agent_values import ASK_AGENT, ConfiguredAgent
from prose_kernel.machine.vvm.code import expression
from prose_kernel.machine.vvm.context import Context
from prose_kernel.machine.vvm.functions import LANGUAGE
from prose_kernel.machine.vvm.judging import TemplateCode
from prose_kernel.machine.vvm.memory_patches import split
from prose_kernel.machine.vvm.values import adopted, canonical, input_text, is_ref, raised, typed
from prose_kernel.runtime.attempts import AttemptLimits, Failure, Retries, SessionAttempts, Success
from prose_kernel.runtime.compiled_code import Code, value_of
from prose_kernel.runtime.execution_context import ExecutionContext, Node, load, located
from prose_kernel.runtime.numbering import Kind
from prose_kernel.runtime.ports import (
    AnswerFile,
    Given,
    Key,
    LoadRequest,
    MemoryBinding,
    MemoryMode,
    MemoryRequest,
    OpenMemory,
    SessionRequest,
    SessionResult,
)
from prose_kernel.runtime.preview import unknown
from prose_kernel.runtime.shared_names import Agent, AgentRequest
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.typed_answers import WrongAnswer, require_schema
from prose_kernel.runtime.values import Value

ANSWER: Final = Kind("answer", lambda _: 0)
"""Numbers files of answers, over all modules of a run. With branches there may be gaps."""

SUMMARY: Final = 500
SENTENCES: Final = 3
"""The maximum length of a summary, in characters and sentences."""
_SMALL: Final = 1_000_000
"""The characters of an answer whose file is surely small enough to be read again."""

_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+")
_SUMMARY: Final = re.compile(r"(?mi)^[ \t>*_`-]*Summary[*_`]*:[*_`]*[ \t]*(.*(?:\n[ \t]*\S.*)*)")
_CONFIRMED: Final = re.compile(r"(?mi)^[ \t>*_`-]*Binding written[*_`]*:")


class CallOptions(Struct, frozen=True):
    """The options of a call (6.5)."""

    retry: int = 0
    timeout: str | None = None
    backoff: str = "none"
    name: str | None = None
    memory_mode: str = "continue"

    @classmethod
    def of(cls, s: Context, node: tree.AgentCall, given: Mapping[str, Value]) -> CallOptions:
        """Return the checked options without unknown ones. Raises R212."""
        for name, value in given.items():
            if (fault := fault_of(OPTIONS, name, value)) is not None:
                at = next(option for option in reversed(node.options) if option.name == name)
                raise raised(s, at, "R212", f"bad option: {fault}", hint=fault.accepted)
        return cls(**{name: value for name, value in given.items() if name in cls.__struct_fields__})  # type: ignore[arg-type]


class AgentTask(Struct, frozen=True):
    """A call of a VVM agent with all its values computed, ready to be made."""

    agent: ConfiguredAgent
    text: str
    given: Given | None
    options: CallOptions
    bound_to: str | None
    model: str | None = None
    consumed: bool = False
    output: Schema | None = None


# ---------------------------------------------------------------- the expression


def _operands(node: tree.AgentCall) -> list[tree.Expression]:
    argument = [] if node.argument is None else [node.argument]
    return [node.agent, *argument, *(option.value for option in node.options)]


@expression(tree.AgentCall, _operands)
class AgentCallCode(Code):
    def prepare(self, node: tree.AgentCall) -> None:
        self.template = TemplateCode(node.template)

    async def _run(self, s: Context) -> Value:
        node: tree.AgentCall = self.node
        bound_to = _target_of(s, node)
        parts = iter(self.parts)
        agent = await value_of(next(parts), s)
        assert isinstance(agent, Agent)
        if isinstance(agent, ConfiguredAgent):
            agent.check(s, node)
        value = s.it if node.argument is None else await value_of(next(parts), s)
        named = {option.name: await value_of(part, s) for option, part in zip(node.options, parts, strict=True)}
        options = CallOptions.of(s, node, named)
        text = self.template.render(s, value).text
        given = input_channel(s, node, value)
        s.require_open()
        if s.cancellation.stopped:  # a sibling branch in another language has ended the race
            return error_value("cancelled", "the call was cancelled")
        if not isinstance(agent, ConfiguredAgent):
            return await _ask_other(s, node, agent, text, value, options, bound_to)
        alone = isinstance(s.statement, tree.ExpressionStatement) and s.statement.value is node
        output = await _output(s, node, agent)
        task = AgentTask(agent, text, given, options, bound_to, consumed=not alone, output=output)
        if s.host.preview is not None:
            await s.host.preview.announce(s, node, bound_to, preview_request(s, node, task))
            return unknown(bound_to or "answer")
        return _value(s, node, await run_task(s, node, task))


async def _output(s: Context, node: Node, agent: ConfiguredAgent) -> Schema | None:
    """Return the schema of the answer from the agent's `output`. Raises R214 for a file with an unusable schema."""
    stated = agent.configuration.get(OUTPUT)
    if stated is None:
        return None
    if not isinstance(stated, str):
        schema = schema_of(stated)
    elif s.host.load is None:
        return None
    else:
        request = LoadRequest(f"{FILE_PREFIX}{stated}", s.source, s.at("load"))
        try:
            loaded = await (s.host.load(request) if s.host.preview is not None else load(s, request))
        except ImportProgramError as problem:
            message = f"bad agent configuration: `{OUTPUT}` cannot be used: {problem.message}"
            raise raised(s, node, "R214", message) from None
        return cast("Schema", loaded.program)
    try:
        require_schema(schema or {})
    except ValueError as problem:
        raise raised(s, node, "R214", f"bad agent configuration: `{OUTPUT}` cannot be used: {problem}") from None
    return schema


def _target_of(s: Context, node: tree.AgentCall) -> str | None:
    """Return the name that takes the answer, if the call is all of an assignment's right side (R5), else None."""
    statement = s.statement
    return statement.target.id if isinstance(statement, tree.Assign) and statement.value is node else None


def input_channel(s: ExecutionContext, node: Node, value: Value) -> Given | None:
    """Return the input as a separate channel; None for unit. Raises R211."""
    if value is None:
        return None
    try:
        text = input_text(value)
    except VvmRaise as error:
        raise located(s, error, node) from None
    answers = s.host.ports.answers
    found = tuple(dict.fromkeys(_references(value)))
    return Given(text, found, answers.readable if answers is not None and found else "")


def _references(value: Value) -> Iterator[str]:
    """Yield the paths of the refs in a value, at any depth."""
    agenda: list[Any] = [value]
    while agenda:
        part = agenda.pop()
        if type(part) is list:
            agenda.extend(reversed(part))
        elif type(part) is dict:
            if is_ref(part):
                yield part["ref"]
            agenda.extend(reversed(part.values()))


# ---------------------------------------------------------------- error values


def error_value(kind: str, message: str, data: Mapping[str, Value] | None = None) -> dict[str, Value]:
    """Return an error value in its canonical form (3.3)."""
    fields: dict[str, Value] = {"kind": kind, "message": message}
    return {"error": {**fields, "data": dict(data)} if data else fields}


def _value(s: Context, node: Node, ended: Success | Failure) -> Value:
    """Return the result of a call: its answer, or an error value. Raises an error if no one can answer (A23), or if a
    budget is spent."""
    if isinstance(ended, Success):
        return ended.value
    if ended.error.no_answer or isinstance(ended.error, BudgetSpent):
        raise located(s, ended.error, node)
    kind, data = failure_of(ended)
    return error_value(kind, ended.error.message, data)


def failure_of(ended: Failure) -> tuple[str, Mapping[str, Value]]:
    """Return the kind of a failure and its details (3.3)."""
    error = ended.error
    match ended.cause:
        case _ if isinstance(error, SessionTimeout):
            return "timeout", {}
        case PermissionDenied():
            return "rejected", {"permanent": True}
        case ProviderRateLimit():
            return "rejected", {}
        case SessionCancelled():
            return "cancelled", {}
        case None if error.details.get("kind") == "answer":
            return "answer", {}
        case None if isinstance(error, StateError) or error.code == "E218":
            path = error.details.get("path")
            return "binding_failed", {"path": str(path)} if path else {}
        case None if isinstance(error.details.get("kind"), str) and isinstance(error.details.get("data"), dict):
            data: Any = error.details["data"]
            return str(error.details["kind"]), data
        case _:
            return "spawn_failed", {"hint": error.hint} if error.hint else {}


def _refusal(kind: str, message: str, data: Mapping[str, Value]) -> Failure:
    """Return the failure of a call before its first attempt."""
    return Failure(SessionError(message, details={"kind": kind, "data": dict(data)}))


# ---------------------------------------------------------------- making calls


async def run_task(s: Context, node: Node, task: AgentTask) -> Success | Failure:
    """Make the call: memory, binding, attempts, and the memory again (6.4, steps 5 to 9)."""
    at = s.at("session")
    if task.given is not None and len(task.given.text) > s.run.longest_input:
        size = f"{len(task.given.text):,} characters; at most {s.run.longest_input:,} can be passed"
        return await _attempts(s, node, task, at, _refusal("rejected", f"the input has {size}", {"permanent": True}))
    binding = memory_binding(task)
    if binding is None:
        return await _attempts(s, node, task, at)
    await s.flush()
    async with _memory(s, binding, task, at) as opened:
        return await _attempts(s, node, task, at, opened)


class _RecordedMemory(Struct, frozen=True):
    """The memory of a call in a resumed run, with its recorded text. It is opened again only if the call was not
    finished before."""

    prelude: str
    take: Callable[[], Awaitable[OpenMemory]]

    async def keep(self, patches: Sequence[str]) -> str | None:
        try:
            memory = await self.take()
        except ProviderError as problem:
            return str(problem)
        return await memory.keep(patches)

    def close(self) -> None:
        """Do nothing: the caller that opened the memory closes it."""


async def open_memory(
    s: ExecutionContext, request: MemoryRequest, take: Callable[[], Awaitable[OpenMemory]]
) -> OpenMemory:
    """Lock a memory and read it. A resumed run gets the recorded text."""
    opened: list[OpenMemory] = []

    async def ask() -> str:
        opened.append(await take())
        return opened[0].prelude

    prelude = await s.ask(request, str, ask)
    return opened[0] if opened else _RecordedMemory(prelude, take)


@contextlib.asynccontextmanager
async def _memory(s: Context, binding: MemoryBinding, task: AgentTask, at: str) -> AsyncIterator[OpenMemory | Failure]:
    """Yield the locked memory of a call, or the failure to lock it."""
    memories = s.host.ports.memories
    if memories is None:
        yield _refusal("rejected", f"the memory '{binding.key}' cannot be used here", {"permanent": True})
        return
    port = memories
    opened: OpenMemory | None = None

    async def take() -> OpenMemory:
        nonlocal opened
        opened = await port.open(binding, _mode(task))
        return opened  # closed below, even if the branch is cancelled before it gets its turn

    try:
        try:
            memory: OpenMemory | Failure = await open_memory(s, MemoryRequest(binding.key, "open", f"{at}/m"), take)
        except MemoryLocked as locked:
            memory = _refusal("locked", str(locked), {"key": binding.key})
        except ProviderError as unusable:
            memory = _refusal("rejected", str(unusable), {"permanent": True})
        yield memory
    finally:
        if opened is not None:
            opened.close()


async def _attempts(
    s: Context, node: Node, task: AgentTask, at: str, memory: OpenMemory | Failure | None = None
) -> Success | Failure:
    """Make the attempts, with a number and a file for the answer. A call that has failed already makes none."""
    answers = s.host.ports.answers
    target = answers.target(s.numbers.next(ANSWER)) if answers is not None else None
    prelude = "" if memory is None or isinstance(memory, Failure) else memory.prelude
    attempts = CallAttempts(s, node, task, request_of(s, task, at, prelude, target), target)
    ended: Success | Failure
    if isinstance(memory, Failure):
        ended = attempts.refused(memory)
    else:
        ended = await attempts.run()
        if isinstance(ended, Success) and memory is not None and task.options.memory_mode == "continue":
            await _keep(s, node, task, at, memory, attempts.patches)
    if answers is not None and target is not None:
        if isinstance(ended, Success):
            assert isinstance(ended.value, dict)
            answers.answered(task.bound_to, task.agent.name, target, str(ended.value["summary"]))
        else:
            answers.failed(task.bound_to, task.agent.name, target, failure_of(ended)[0])
    return ended


async def _keep(s: Context, node: Node, task: AgentTask, at: str, memory: OpenMemory, patches: tuple[str, ...]) -> None:
    """Apply the patch of an answer. Its errors cause warnings and change nothing (M5, M8)."""
    request = MemoryRequest(task.agent.name, "keep", f"{at}/k")
    reason = cast("type[str | None]", str | None)
    why = await s.ask(request, reason, lambda: memory.keep(patches), also=patches)
    if why == "unknown keys":
        s.warn("V710", "a memory update has unknown keys, which are ignored", node)
    elif why is not None:
        s.warn("V710", f"a memory update of @{task.agent.name} is discarded: {why}", node)


def memory_binding(task: AgentTask) -> MemoryBinding | None:
    """Return the memory that a call uses; None if its agent has none, or for the mode `fresh`."""
    memory = task.agent.configuration.get("memory")
    if memory is None or task.options.memory_mode == "fresh":
        return None
    return MemoryBinding(memory["scope"], memory["key"], escaped(memory["key"]), memory.get("path"))


def _mode(task: AgentTask) -> MemoryMode:
    return "dry_run" if task.options.memory_mode == "dry_run" else "continue"


def request_of(s: Context, task: AgentTask, at: str, prelude: str, target: AnswerFile | None) -> SessionRequest:
    """Return the request of the first attempt."""
    configuration, options = task.agent.configuration, task.options
    allowed = configuration.get("permissions")
    if allowed is not None:
        allowed = _permissions(permissions(allowed))
    elif target is not None:
        allowed = {"write": ()}  # only the file of its answer (7.5)
    return SessionRequest(
        "call",
        task.text,
        at,
        system=configuration.get("prompt"),
        agent=task.agent.name,
        label=options.name,
        model=task.model or configuration.get("model"),
        skills=tuple(configuration.get("skills", ())),
        permissions=allowed or {},
        target=target,
        filed=target is not None,
        program=s.run.name,
        position=s.run.progress.ordinal,
        timeout=duration(options.timeout) if options.timeout is not None else None,
        given=task.given,
        prelude=prelude,
        settings={key: value for key, value in configuration.items() if key not in (*CONFIGURATION_KEYS, OUTPUT)},
        output=task.output,
        tools=_tools(configuration.get("tools")),
        bare=configuration.get("tools") == "none",
    )


def _tools(stated: object) -> tuple[str, ...]:
    """Return the tools that a configuration names. Other values are ignored: `tools` isn't a key of the language."""
    if isinstance(stated, list | tuple) and all(isinstance(name, str) for name in stated):
        return tuple(dict.fromkeys(stated))
    return ()


def _permissions(stated: Mapping[str, Any]) -> dict[str, str | tuple[str, ...]]:
    """Return a permission object in the form of the permissions of sessions. Unknown keys are passed as text (6.2)."""
    found: dict[str, str | tuple[str, ...]] = {}
    for key, value in stated.items():
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            found[key] = tuple(value)
        else:
            found[key] = value if key in PERMISSION_KEYS or isinstance(value, str) else canonical(value)
    return found


async def preview_request(s: Context, node: Node, task: AgentTask) -> SessionRequest:
    """Return the request that a call would make now, without locks or files. Raises `RunError` for an unusable
    memory."""
    prelude = ""
    binding, memories = memory_binding(task), s.host.ports.memories
    if binding is not None and memories is not None:
        try:
            prelude = memories.prelude(binding, _mode(task))
        except ProviderError as unusable:
            raise located(s, SessionError(str(unusable), hint=unusable.hint), node) from None
    answers = s.host.ports.answers
    target = answers.target(s.numbers.next(ANSWER)) if answers is not None else None
    return request_of(s, task, s.at("session"), prelude, target)


# ---------------------------------------------------------------- attempts


class CallAttempts(SessionAttempts):
    """The attempts at one call. `patches` are the memory patches of the answer. The rest of the answer is the value: a
    text, or a ref to the file that contains it."""

    s: Context

    def __init__(
        self, s: Context, node: Node, task: AgentTask, request: SessionRequest, target: AnswerFile | None
    ) -> None:
        options = task.options
        allowed = AttemptLimits(Retries(options.retry, options.backoff), options.timeout or "")
        super().__init__(
            s, node, request, Key(task.bound_to or "answer"), task.bound_to, allowed, consumed=task.consumed
        )
        self._target = target
        self.patches: tuple[str, ...] = ()

    def target(self) -> AnswerFile | None:
        return self._target if self.request.output is None else None  # a typed answer is always the reply

    def kept(self, result: SessionResult) -> SessionResult:
        """Write the answer to its file, and return it without its text: the journal has the digest of the file."""
        answers, target = self.s.host.ports.answers, self._target
        if target is None or answers is None:
            return result
        text = self.whole(result).text
        found = split(text or "")
        try:
            kept = self.fitting(replace(result, text=found.visible)) or ""
        except WrongAnswer:  # the next attempt corrects the answer and overwrites the file
            return result
        if kept.strip():
            try:
                answers.write(target, kept)
                written = kept if len(kept) <= _SMALL else answers.read(target) or ""  # too large a file is an error
                file = target.name, digest(written)
                return replace(result, text=None, summary="", answer_file=file, patches=found.patches)
            except StateError:  # keep the text in the journal
                pass
        return replace(result, text=text)

    def whole(self, result: SessionResult) -> SessionResult:
        answers, target = self.s.host.ports.answers, self._target
        if target is None or answers is None or result.text is not None or self.request.output is not None:
            return result
        return replace(result, text=answers.read(target))

    def _recorded(self, file: tuple[str, str]) -> str:
        """Return the answer that a journal refers to. Raises `ResumeMismatch` if it is missing or has changed."""
        answers, target = self.s.host.ports.answers, self._target
        text = answers.read(target) if answers is not None and target is not None else None
        if text is None or digest(text) != file[1]:
            place = target.location if target is not None else file[0]
            raise ResumeMismatch(
                f"the answer in {place} is gone, or another one now",
                details={"path": place},
                hint="the run had got another text from there: put that back, or run the program again",
            )
        return text

    def before_request(self) -> None:
        if self._target is not None:
            assert self.s.host.ports.answers is not None
            self.s.host.ports.answers.clear(self._target)

    def retries_after(self, failure: ProviderError) -> bool:
        return failure.retryable and not isinstance(failure, SessionCancelled)

    async def _attempt(self, request: SessionRequest) -> SessionResult:
        """Return an answer without its patches, which outer callers do not see (6.6)."""
        result = await super()._attempt(request)
        reply = split(result.reply or "")
        visible = reply.visible if result.reply is not None else None
        if result.answer_file is not None:
            self.patches = result.patches + reply.patches
            recorded = self._recorded(result.answer_file)
            return replace(result, text=recorded, summary=bounded(recorded), reply=visible)
        answer = split(self.whole(result).text or "")
        self.patches = answer.patches + reply.patches
        return replace(result, text=answer.visible, reply=visible)

    def keep(self, result: SessionResult) -> Value:
        text = self.typed(result) or ""
        target = self._target
        if target is None:
            return typed(text) if self.request.output is not None else text
        answers = self.s.host.ports.answers
        assert answers is not None
        if not text.strip():
            raise SessionError(
                f"the session did not write its binding {target.name}", code="E218", details={"path": target.location}
            )
        is_kept = result.answer_file is not None and text == result.text
        if not is_kept and answers.read(target) != text:
            answers.write(target, text)
        summary = summary_of(replace(result, text=text))
        return {"ref": target.location, "summary": summary, "mime": "text/markdown"}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def summary_of(result: SessionResult) -> str:
    """Return the summary in a confirmation, or else the beginning of the reply, or else of the answer."""
    reply = (result.reply or "").strip()
    found = _SUMMARY.search(reply) if _CONFIRMED.search(reply) else None
    return bounded(found[1] if found is not None and found[1].strip() else reply or result.text or "")


def bounded(text: str) -> str:
    """Return the beginning of a text on one line: at most three sentences and 500 characters."""
    line = " ".join(text[: 8 * SUMMARY].split()).strip("*_` ")
    line = " ".join(_SENTENCE.split(line, maxsplit=SENTENCES)[:SENTENCES])
    return clipped(line, SUMMARY, tidy=True)


# ---------------------------------------------------------------- calls from and to other languages


async def _ask_other(
    s: Context, node: tree.AgentCall, agent: Agent, text: str, value: Value, options: CallOptions, bound_to: str | None
) -> Value:
    """Ask an agent of another language, which runs a session. A failure becomes an error value here (13)."""
    if s.host.preview is not None:
        return unknown(agent.name)
    backoff = "linear" if options.backoff == "fixed" else options.backoff
    asked = AgentRequest(text, value, bound_to, options.retry, backoff, options.timeout or "")
    ended = await call(agent.ask(s, node, asked))
    if isinstance(ended, Success):
        ended = Success(adopted(ended.value, refs=s.run.refs))
    return _value(s, node, ended)


async def ask_from_outside(
    agent: ConfiguredAgent, caller: ExecutionContext, node: Node, asked: AgentRequest
) -> Success | Failure:
    run = agent.module.run
    s = Context(run, agent.module, caller.source, caller.cwd, caller.path).continue_from(caller)
    agent.check(s, node)
    given = input_channel(s, node, adopted(asked.given, refs=run.refs))
    options = CallOptions(asked.retries, asked.timeout or None, asked.backoff)
    output = asked.output or await _output(s, node, agent)
    task = AgentTask(agent, asked.task, given, options, asked.bound_to, asked.model, output=output)
    return await call(run_task(s, node, task))


ASK_AGENT[LANGUAGE] = ask_from_outside
