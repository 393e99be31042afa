"""Sessions and judgements that pass through and are counted: what a run has consumed."""

from __future__ import annotations

from collections.abc import Callable

from prose_kernel.runtime.ports import (
    Finding,
    Judge,
    JudgeRequest,
    Pick,
    SessionProgress,
    SessionRequest,
    SessionResult,
    Sessions,
    Verdict,
)
from prose_kernel.sessions.usage import UsageTotals


class CountedSessions:
    """The `Sessions` port around another one."""

    def __init__(self, inner: Sessions, usage: UsageTotals) -> None:
        self._inner = inner
        self._usage = usage

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        result = await self._inner.run(request, on_progress)
        self._usage.session(result)
        return result


class CountedJudge:
    """The `Judge` port around another one."""

    def __init__(self, inner: Judge, usage: UsageTotals) -> None:
        self._inner = inner
        self._usage = usage

    async def decide(self, request: JudgeRequest) -> Verdict:
        verdict = await self._inner.decide(request)
        self._usage.judgement(verdict)
        return verdict

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        pick = await self._inner.choose(request, labels)
        self._usage.judgement(pick)
        return pick

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        found = await self._inner.extract(request, value, path)
        self._usage.judgement(found)
        return found

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        found = await self._inner.items(request, value)
        self._usage.judgement(found)
        return found
