"""Judgements with a recording in front of them, the same way as sessions."""

from __future__ import annotations

from prose_kernel.machine.ports import Asker, Finding, Judge, JudgeRequest, Pick, Verdict
from prose_kernel.sessions.cassettes.library import Cassettes


class RecordedJudge:
    """The `Judge` port over another one (live judge, then the person). A miss that nobody may answer is `Undecided`."""

    def __init__(self, inner: Judge, cassettes: Cassettes, *, asker: Asker) -> None:
        raise NotImplementedError

    async def decide(self, request: JudgeRequest) -> Verdict:
        raise NotImplementedError

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        raise NotImplementedError

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        raise NotImplementedError

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        raise NotImplementedError
