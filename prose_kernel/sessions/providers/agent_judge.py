"""A CLI agent as the judge: its answer is the last line, one JSON object, read strictly and asked for twice."""

from __future__ import annotations

from prose_kernel.machine.ports import Finding, JudgeRequest, Pick, Verdict
from prose_kernel.sessions.providers.acp import AcpSessions


class AgentJudge:
    """The `Judge` port, answered by a CLI agent. Raises `Undecided` when its answers make no sense."""

    def __init__(self, name: str, sessions: AcpSessions, *, model: str | None = None) -> None:
        raise NotImplementedError

    async def decide(self, request: JudgeRequest) -> Verdict:
        raise NotImplementedError

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        raise NotImplementedError

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        raise NotImplementedError

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        raise NotImplementedError
