"""Runs with recordings: a real machine over a real store, a provider double behind `RecordedSessions`, a fake clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine.fakes import FakeClock, FakeCommands, FakeGates, FakeUser, World, tree_of
from models.people import ScriptedPerson

from prose_kernel.cassettes.recorded_answers import RecordedJudge, RecordedRaces, RecordedSessions
from prose_kernel.cassettes.recordings import Cassettes
from prose_kernel.errors import ProviderError, RunError, Undecided
from prose_kernel.language.source import Source
from prose_kernel.machine.openprose.machine import Machine
from prose_kernel.models.usage_and_prices import CountedSessions, UsageTotals
from prose_kernel.runtime.events import Event
from prose_kernel.runtime.host import Host
from prose_kernel.runtime.ports import (
    Finding,
    JudgeRequest,
    Pick,
    Ports,
    SessionProgress,
    SessionRequest,
    SessionResult,
    Verdict,
)
from prose_kernel.runtime.session_options import CassetteOptions, Surroundings
from prose_kernel.runtime.values import plain
from prose_kernel.storage.run_directory import RunDirectory
from prose_kernel.storage.stores import FilesystemStore

NEVER = float("inf")
Delay = Callable[[SessionRequest], float]


@dataclass
class Provider:
    """Gives a different answer to each call, so that only a recording can repeat one."""

    clock: FakeClock
    delay: Delay = lambda _: 0.0
    says: Mapping[str, Any] = field(default_factory=dict)
    origin: str = "model"

    def __post_init__(self) -> None:
        self.asked: list[str] = []
        self.cancelled: list[str] = []

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        self.asked.append(request.at)
        number = len(self.asked)
        answer = self.says.get(request.task)
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        seconds = self.delay(request)
        try:
            await (asyncio.get_running_loop().create_future() if seconds == NEVER else self.clock.wait(seconds))
        except asyncio.CancelledError:
            self.cancelled.append(request.at)
            raise
        if isinstance(answer, ProviderError):
            raise answer
        if isinstance(answer, SessionResult):
            return answer
        text = answer if isinstance(answer, str) else f"answer {number} to {request.task}"
        return SessionResult(text, text[:40], "vendor", self.origin, {"model": "big-1"})


class NobodyCalls:
    """A provider that must not be reached."""

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        raise AssertionError(f"called for {request.at}")


@dataclass
class Late:
    """Delays sessions before or after the recordings, so that they arrive and return in any order."""

    inner: RecordedSessions
    clock: FakeClock
    delay: Delay

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        seconds = self.delay(request)
        if seconds < 50:  # short delays come before the recordings, long ones after
            await self.clock.wait(seconds)
            return await self.inner.run(request, on_progress)
        result = await self.inner.run(request, on_progress)
        await self.clock.wait(seconds)
        return result


@dataclass
class JudgeDouble:
    says: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.asked: list[str] = []

    def _next(self, label: str) -> Any:
        self.asked.append(label)
        answer = self.says.get(label)
        if isinstance(answer, list):
            answer = answer.pop(0) if answer else None
        if answer is None:
            raise Undecided(f"cannot decide {label}")
        return answer

    async def decide(self, request: JudgeRequest) -> Verdict:
        answer = self._next(request.text)
        return answer if isinstance(answer, Verdict) else Verdict(answer, "model", "because")

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        return Pick(self._next(request.text), "model", "it fits")

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        return Finding(self._next(path), "model", "found")

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        return Finding(self._next("items"), "model", "split")


class Recording:
    """A workspace that runs several programs. Each `run` is a separate run with newly opened recordings."""

    def __init__(self, cwd: Path, *, environment: Mapping[str, str] | None = None, notebook: str | None = None) -> None:
        self.cwd = cwd
        self.environment = dict(environment or {})
        self.notebook = notebook
        self.person = ScriptedPerson()
        self.runs = 0
        self.clock = FakeClock()
        self.cassettes: Cassettes | None = None
        self.events: list[Event] = []
        self.error: RunError | None = None

    def where(self, run: str | None = None) -> Surroundings:
        return Surroundings(str(self.cwd), run, self.notebook, self.environment)

    def open(self, mode: Any = None, **options: Any) -> Cassettes:
        self.cassettes = Cassettes(
            CassetteOptions(mode=mode, **options), self.where(), self.clock, tool_names=lambda _: ("read",)
        )
        return self.cassettes

    async def run(
        self,
        text: str,
        mode: Any = "auto",
        *,
        provider: Any = None,
        judge: Any = None,
        clock: FakeClock | None = None,
        cells: Sequence[str] = (),
        late: Delay | None = None,
        counted: bool = False,
        asks_model: bool = True,
        **options: Any,
    ) -> Any:
        """Run a program or cells; return all variables sorted by name, or the error as text."""
        self.runs += 1
        self.clock = clock or FakeClock()
        self.error = None
        if provider is None:
            provider = NobodyCalls()
        store = FilesystemStore(
            RunDirectory(Path(".prose"), f"20260101-00000{self.runs % 10}-abcde{self.runs}", cwd=self.cwd)
        )
        cassettes = Cassettes(CassetteOptions(mode=mode, **options), self.where(str(store.paths.directory)), self.clock)
        self.cassettes = cassettes
        world = World()
        recorded: Any = RecordedSessions(provider, cassettes, asker=self.person, asks_model=lambda: asks_model)
        if counted:
            recorded = CountedSessions(recorded, UsageTotals())
        self.events = []
        ports = Ports(
            FakeCommands(world),
            recorded if late is None else Late(recorded, self.clock, late),
            RecordedJudge(judge or JudgeDouble(), cassettes, asker=self.person),
            FakeUser(world),
            FakeGates(world),
            store,
            self.clock,
            RecordedRaces(cassettes, asker=self.person),
        )
        self.machine = Machine(Host(ports, [self.events.append]), cwd=str(self.cwd), program_file="main.prose")
        try:
            for cell in cells or (text,):
                source = Source(cell, "cell" if cells else "main.prose")
                await self.machine.run(tree_of(source), source, inputs={}, cell=bool(cells))
        except RunError as error:
            self.error = error
            return f"{error.code} {error.message}"
        finally:
            await self.machine.end()
            cassettes.close()
        return {name: plain(slot.value) for name, slot in sorted(self.machine.bindings().items())}

    # ------------------------------------------------------------ files on disk

    def path(self, name: str = "session") -> Path:
        return self.cwd / "cassettes" / f"{name}.jsonl"

    def records(self, name: str = "session", kind: str | None = None) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.path(name).read_bytes().splitlines()]
        return [line for line in lines if kind is None or line["t"] == kind]
