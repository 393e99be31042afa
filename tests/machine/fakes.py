"""Ports with scripted answers, and functions that run source text on them."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import structs

from prose_kernel.errors import NoPerson, ProviderError, RunError, StateError, Undecided
from prose_kernel.language.diagnostics import Profile
from prose_kernel.language.openprose.parser import parse
from prose_kernel.language.source import Source
from prose_kernel.machine.openprose.machine import Machine
from prose_kernel.runtime.events import Event
from prose_kernel.runtime.host import Host
from prose_kernel.runtime.ports import (
    AnswerFile,
    Binding,
    CommandRequest,
    CommandResult,
    Finding,
    GateDecision,
    GateRequest,
    JudgeRequest,
    Key,
    LoadedProgram,
    LoadRequest,
    OnOutput,
    Outcome,
    Pick,
    Ports,
    Question,
    SessionProgress,
    SessionRequest,
    SessionResult,
    Verdict,
)
from prose_kernel.runtime.values import ErrorValue, ExecText, Value, full_text, plain

_PASSES, _IDLE = 300, 30
"""The clock advances after `_PASSES` passes of the event loop, or after `_IDLE` in a row with no other task ready."""


class FakeClock:
    """Time that passes only when all tasks wait."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._pump: asyncio.Task[None] | None = None

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.time)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.wait(seconds)

    async def wait(self, seconds: float) -> None:
        """Sleep without adding to `slept`; used by the other fakes."""
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.time + seconds, next(self._numbers), future))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
        await future

    async def _run(self) -> None:
        while self._sleepers:
            await self._wait_for_other_tasks()
            time, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                self.time = max(self.time, time)
                future.set_result(None)

    async def _wait_for_other_tasks(self) -> None:
        """Let all other tasks reach a wait first, except tasks that compute without ever waiting."""
        ready, idle = asyncio.get_running_loop()._ready, 0  # type: ignore[attr-defined]
        for _ in range(_PASSES):
            await asyncio.sleep(0)
            idle = 0 if ready else idle + 1
            if idle == _IDLE:
                return


@dataclass
class Reply:
    """The scripted reply of a command or session: wait `after` seconds, then answer or fail."""

    stdout: str = ""
    code: int = 0
    stderr: str = ""
    after: float = 0.0
    kind: str | None = None
    cwd: str | None = None
    fails: str | ProviderError | None = None
    retryable: bool = True


_OUTCOMES: dict[str, Outcome] = {
    "timeout": "timed_out", "spawn": "spawn_failed", "cwd": "spawn_failed", "lost": "lost",
}  # fmt: skip


class FakeCommands:
    """Looks up a reply by the text of the command; an unknown command prints its own text."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.requests: list[CommandRequest] = []
        self.cancelled: list[str] = []
        self.live = 0
        self.peak = 0

    @property
    def ran(self) -> list[str]:
        return [request.command for request in self.requests]

    async def run(self, request: CommandRequest, on_output: OnOutput | None = None) -> CommandResult:
        self.requests.append(request)
        self.live += 1
        self.peak = max(self.peak, self.live)
        try:
            reply = self.world.reply(self.world.commands_say, request.command, request.command + "\n")
            await self.world.pass_time(request.command, reply.after)
        except asyncio.CancelledError:
            self.cancelled.append(request.command)
            raise
        finally:
            self.live -= 1
        if on_output is not None and reply.stdout:
            on_output("stdout", reply.stdout)
        kind = reply.kind or ("exit" if reply.code else None)
        code = {"timeout": 124, "spawn": 127, "cwd": 127}.get(kind or "", reply.code)
        return CommandResult(
            _OUTCOMES.get(kind or "", "exited"),
            code,
            reply.stdout[: request.max_output],
            reply.stderr,
            kind,  # type: ignore[arg-type]
            stdout_truncated=len(reply.stdout) > request.max_output,
            stdout_bytes=len(reply.stdout.encode()),
            timed_out=kind == "timeout",
            cwd_after=(reply.cwd or request.cwd) if request.track and kind in (None, "exit") else None,
            spawn_error=reply.stderr if kind in ("spawn", "cwd") else None,
        )


class FakeSessions:
    """Looks up a reply by the task; the reply to an unknown task is `<task>`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.requests: list[SessionRequest] = []
        self.cancelled: list[str] = []
        self.live = 0
        self.peak = 0

    @property
    def tasks(self) -> list[str]:
        return [request.task for request in self.requests]

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        self.requests.append(request)
        self.live += 1
        self.peak = max(self.peak, self.live)
        try:
            reply = self.world.reply(self.world.sessions_say, request.task, f"<{request.task}>")
            await self.world.pass_time(request.task, reply.after)
        except asyncio.CancelledError:
            self.cancelled.append(request.task)
            raise
        finally:
            self.live -= 1
        if isinstance(reply.fails, ProviderError):
            raise reply.fails
        if reply.fails is not None:
            raise ProviderError(reply.fails, retryable=reply.retryable)
        on_progress(SessionProgress("text", reply.stdout))
        if reply.kind == "self":  # the session writes its binding file
            assert request.target is not None
            if reply.stdout:
                self.world.store.files[request.target.location] = reply.stdout
                self.world.store.written.append(request.target.location)
            return SessionResult(None, summary="written", provider="fake")
        return SessionResult(reply.stdout, summary="answered", provider="fake")


class FakeJudge:
    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: list[str] = []
        self.requests: list[JudgeRequest] = []

    def _next(self, request: JudgeRequest, text: str) -> Any:
        self.asked.append(text)
        self.requests.append(request)
        answer = self.world.judge_says.get(text)
        if isinstance(answer, list):
            answer = answer.pop(0) if answer else None
        if answer is None:
            raise Undecided(f"cannot decide {text}")
        return answer

    async def decide(self, request: JudgeRequest) -> Verdict:
        answer = self._next(request, request.text)
        await self.world.pass_time(request.text, 0)
        if answer == "uncertain":
            return Verdict(None, "script")
        if answer == "no-progress":
            return Verdict(None, "script", no_progress=True)
        return Verdict(bool(answer), "script", "because")

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        return Pick(self._next(request, request.text), "script")

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        return Finding(self._next(request, f"extract {path}"), "script")

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        return Finding(list(self._next(request, "items")), "script")


class FakeUser:
    def __init__(self, world: World) -> None:
        self.world = world
        self.questions: list[Question] = []

    async def ask(self, question: Question) -> str:
        self.questions.append(question)
        await asyncio.sleep(0)
        answer = self.world.user_says.get(question.name)
        if isinstance(answer, list):
            answer = answer.pop(0) if answer else None
        if answer is None:
            raise NoPerson("nobody is here")
        return str(answer)


class FakeGates:
    def __init__(self, world: World) -> None:
        self.world = world
        self.requests: list[GateRequest] = []
        self.closed: list[str] = []

    def replayed(self, request: GateRequest, decision: GateDecision) -> None:
        """Do nothing: no decision is given in advance."""

    async def decide(self, request: GateRequest) -> GateDecision:
        self.requests.append(request)
        answer = self.world.gates_say.get(request.name, "approved")
        if isinstance(answer, list):
            answer = answer.pop(0)
        if answer == "wait":
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.closed.append(request.id)
                raise
        await asyncio.sleep(0)
        if isinstance(answer, GateDecision):
            return answer
        return GateDecision(
            answer, "user" if answer != "timeout" else "system", "why not" if answer == "rejected" else ""
        )


class MemoryStore:
    """Keeps bindings in a dictionary; `files` holds the files that sessions wrote."""

    def __init__(
        self, chain: tuple[str, ...] = (), files: dict[str, str] | None = None, written: list[str] | None = None
    ) -> None:
        self.chain = chain
        self.kept: dict[str, Binding] = {}
        self.puts = 0
        self.flushes = 0
        self.files: dict[str, str] = {} if files is None else files
        self.memories: set[str] = set()
        self.inner: dict[str, MemoryStore] = {}
        self.full = False
        self.by_value = False
        self.in_files = True
        self.lost: str | None = None
        self.written: list[str] = [] if written is None else written

    @staticmethod
    def stem(key: Key) -> str:
        scope = f"__{key.execution_id}" if key.execution_id is not None else ""
        return key.name + scope + "".join(f"__i{index}" for index in key.iterations)

    def put(self, binding: Binding) -> None:
        self.puts += 1
        value = binding.value
        if not isinstance(value, (str, ExecText, ErrorValue)):
            value = full_text(value)
        self.kept[self.stem(binding.key)] = structs.replace(binding, value=value)

    def read(self, key: Key) -> str:
        if self.location(key) in self.files:
            return self.files[self.location(key)]
        if self.stem(key) not in self.kept:
            raise StateError(f"no binding {self.stem(key)}")
        return full_text(self.kept[self.stem(key)].value)

    def watch(self, key: Key) -> Callable[[], bool]:
        place = self.location(key)
        before = self.written.count(place)
        return lambda: self.written.count(place) != before

    def location(self, key: Key, within: tuple[str, ...] = ()) -> str:
        ahead = (f"imports/{name}" for name in within)
        return "/".join((*self.chain, *ahead, "bindings", f"{self.stem(key)}.md"))

    def target(self, binding: Binding) -> AnswerFile | None:
        if self.by_value:
            return None
        return AnswerFile(binding.key.name, self.location(binding.key), f"# {binding.key.name}")

    def memory(self, agent: str, persist: str) -> str:
        return f"agents/{persist}/{agent}/"

    def has_memory(self, agent: str, persist: str) -> bool:
        return agent in self.memories

    def nested(self, handle: str, slug: str, source: str, number: int = 1) -> MemoryStore:
        name = f"{handle}--{slug}" if number == 1 else f"{handle}--{slug}--{number}"
        assert name not in self.inner
        store = self.inner[name] = MemoryStore((*self.chain, name), self.files, self.written)
        return store

    async def flush(self) -> None:
        self.flushes += 1
        if self.full:
            raise StateError("'x' could not be stored: no space left")

    def text(self, name: str) -> str:
        return full_text(self.kept[name].value)


Script = Mapping[str, Any]


@dataclass
class World:
    """A machine with scripted ports. Each script maps a text to one answer or to a list of answers, used in order.

    `order` returns the seconds by which to delay each command or session, in addition to its reply's `after`.
    """

    commands_say: dict[str, Any] = field(default_factory=dict)
    sessions_say: dict[str, Any] = field(default_factory=dict)
    judge_says: dict[str, Any] = field(default_factory=dict)
    user_says: dict[str, Any] = field(default_factory=dict)
    gates_say: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    concurrency: int | None = None
    order: Callable[[str], float] | None = None
    hook: Any = None
    supplied: dict[str, str] = field(default_factory=dict)
    listening: bool = True

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.commands = FakeCommands(self)
        self.sessions = FakeSessions(self)
        self.judge = FakeJudge(self)
        self.user = FakeUser(self)
        self.gates = FakeGates(self)
        self.events: list[Event] = []
        self.loads: list[str] = []
        ports = Ports(self.commands, self.sessions, self.judge, self.user, self.gates, self.store, self.clock)
        host = Host(
            ports,
            [self.events.append] if self.listening else [],
            concurrency=self.concurrency,
            load=self._load,
            hook=self.hook,
            supplied=self.supplied,
        )
        self.machine = Machine(host, cwd="/start", program_file="main.prose")
        self.error: RunError | None = None

    # ------------------------------------------------------------ scripts

    def reply(self, script: dict[str, Any], text: str, otherwise: str) -> Reply:
        answer = script.get(text)
        if isinstance(answer, list):
            answer = answer.pop(0) if answer else None
        if isinstance(answer, int):
            return Reply(code=answer, stderr="bad\n" if answer else "")
        if isinstance(answer, str):
            return Reply(answer)
        return answer if answer is not None else Reply(otherwise)

    async def pass_time(self, text: str, seconds: float) -> None:
        if self.order is not None:
            seconds += self.order(text)
        if seconds > 0:
            await self.clock.wait(seconds)
        else:
            await asyncio.sleep(0)

    async def _load(self, request: LoadRequest) -> LoadedProgram:
        from prose_kernel.errors import ImportProgramError

        self.loads.append(request.at)
        path = request.path
        if path not in self.files:
            raise ImportProgramError(f"no program at '{path}'")
        source = Source(self.files[path], path)
        return LoadedProgram(tree_of(source), source, "local", path.rpartition("/")[2].removesuffix(".prose"))

    # ------------------------------------------------------------ running

    async def run(
        self, text: str, *, cell: bool = False, inputs: Mapping[str, str] | None = None, profile: Profile = "default"
    ) -> Value:
        source = Source(text, "cell" if cell else "main.prose")
        return await self.machine.run(tree_of(source, profile), source, inputs=inputs or {}, cell=cell)

    async def fail(self, text: str, **more: Any) -> RunError:
        """Run a program that must fail and return its error."""
        try:
            value = await self.run(text, **more)
        except RunError as error:
            self.error = error
            return error
        raise AssertionError(f"did not fail, but gave {value!r}")

    def value(self, name: str) -> Any:
        """Return the plain value of a root variable."""
        return plain(self.machine.bindings()[name].value)

    def values(self, *names: str) -> list[Any]:
        return [self.value(name) for name in names]

    def of(self, *kinds: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]

    def warnings(self) -> list[str]:
        return [event.code for event in self.events if type(event).__name__ == "Warned"]  # type: ignore[attr-defined]


def tree_of(source: Source, profile: Profile = "default") -> Any:
    parsed = parse(source, profile)
    errors = [d for d in parsed.diagnostics if d.severity == "error"]
    assert not errors, "\n".join(d.render() for d in errors)
    return parsed.program


def lines(*parts: str) -> str:
    return "\n".join(parts) + "\n"


async def value_of(text: str, name: str = "x", **world: Any) -> Any:
    """Run a text in a new world and return the plain value of the variable `name`."""
    there = World(**world)
    await there.run(text)
    return there.value(name)


def all_of(items: Iterable[Sequence[str]]) -> list[str]:
    return [text for item in items for text in item]
