"""A model as the judge: it sees the question and what it is about, gives its reason first, then one of few answers."""

from __future__ import annotations

import asyncio

from prose_kernel.machine.ports import Clock, Finding, JudgeRequest, Pick, Verdict
from prose_kernel.sessions.options import ModelServer, Surroundings


class ModelJudge:
    """The `Judge` port, answered by a model. Raises `Undecided` when its answers make no sense, or none comes."""

    def __init__(
        self,
        server_name: str,
        server: ModelServer,
        model: str | None = None,
        *,
        where: Surroundings,
        limit: asyncio.Semaphore | None = None,
        clock: Clock | None = None,
    ) -> None:
        raise NotImplementedError

    async def decide(self, request: JudgeRequest) -> Verdict:
        raise NotImplementedError

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        raise NotImplementedError

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        raise NotImplementedError

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connections to the server."""
        raise NotImplementedError
