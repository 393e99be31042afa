"""Ports to the sessions room that load it when a program first uses one of them.

A program without sessions, and whose conditions rules decide, should not pay for providers, recordings and permissions.
Each class forwards to the part of `SessionServices` with the same name, which `services` makes at the first call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prose_kernel.runtime.ports import (
    Finding,
    JudgeRequest,
    MemoryBinding,
    MemoryMode,
    OpenMemory,
    Pick,
    Races,
    SessionProgress,
    SessionRequest,
    SessionResult,
    Verdict,
)

if TYPE_CHECKING:
    from prose_kernel.run.session_services import SessionServices

Services = Callable[[], "SessionServices"]


class DeferredSessions:
    """The `Sessions` port."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        return await self._services().sessions.run(request, on_progress)


class DeferredJudge:
    """The `Judge` port."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def decide(self, request: JudgeRequest) -> Verdict:
        return await self._services().judge.decide(request)

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        return await self._services().judge.choose(request, labels)

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        return await self._services().judge.extract(request, value, path)

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        return await self._services().judge.items(request, value)


class DeferredMemories:
    """The `Memories` port."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def open(self, binding: MemoryBinding, mode: MemoryMode) -> OpenMemory:
        return await self._services().digests.open(binding, mode)

    def prelude(self, binding: MemoryBinding, mode: MemoryMode) -> str:
        return self._services().digests.prelude(binding, mode)


class DeferredRaces:
    """The `Races` port, for services that record."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def _races(self) -> Races:
        races = self._services().races
        assert races is not None
        return races

    def recorded(self, at: str, text: str) -> tuple[int, ...] | None:
        return self._races.recorded(at, text)

    async def ended(self, at: str, text: str, branches: tuple[int, ...]) -> None:
        await self._races.ended(at, text, branches)
