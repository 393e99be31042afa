"""Helpers for tests of gates: a clock that only tests advance, and a person with prepared answers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from prose_kernel.runtime.ports import GateRequest

RUN = "20260301-101500-k3x9qa"


class TestClock:
    """A clock that advances only by `advance`."""

    __test__ = False

    def __init__(self) -> None:
        self.seconds = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return datetime(2026, 3, 1, 10, 15, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.seconds + seconds, waker))
        await waker

    @property
    def sleepers(self) -> int:
        return sum(not waker.done() for _, waker in self._sleepers)

    async def advance(self, seconds: float) -> None:
        self.seconds += seconds
        for due, waker in self._sleepers:
            if due <= self.seconds and not waker.done():
                waker.set_result(None)
        self._sleepers = [s for s in self._sleepers if not s[1].done()]
        await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Person:
    """A person with prepared answers. Without one, the question stays open."""

    def __init__(self, *answers: str | type[BaseException], available: bool = True) -> None:
        self.available = available
        self.answers = list(answers)
        self.asked: list[str] = []
        self.shown: list[str] = []
        self.open = 0
        self.most_open = 0
        self._answered: asyncio.Future[None] | None = None

    async def ask(self, prompt: str) -> str:
        self.asked.append(prompt)
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        try:
            await asyncio.sleep(0)
            if not self.answers:
                self._answered = asyncio.get_running_loop().create_future()
                await self._answered
            answer = self.answers.pop(0)
            if not isinstance(answer, str):
                raise answer()
            return answer
        finally:
            self.open -= 1
            self._answered = None

    def say(self, answer: str) -> None:
        """Answer the open question, even before `ask` waits for an answer."""
        self.answers.append(answer)
        if self._answered is not None:
            self._answered.set_result(None)

    def show(self, text: str) -> None:
        self.shown.append(text)


def request(name: str = "release_ok", **changes: Any) -> GateRequest:
    given: dict[str, Any] = {
        "id": name,
        "name": name,
        "prompt": "Publish 1.2?",
        "allow": ("user",),
        "timeout": 600.0,
        "timeout_text": "10m",
        "on_reject": "throw",
    }
    return GateRequest(**{**given, **changes})


def anybody(pid: int) -> None:
    """Accept any process, because these tests run in the process of the run. test_gate_boundary.py tests the real check."""
