"""The memory of persistent agents: one session at a time, read before and written after it (openprose.md 4.4)."""

from __future__ import annotations

from collections.abc import Callable

from prose_kernel.machine.ports import Clock, SessionProgress, SessionRequest, SessionResult, Sessions
from prose_kernel.sessions.options import Surroundings


class RememberingSessions:
    """The `Sessions` port around another one, for agents with memory; all other sessions pass unchanged.

    The inner one gets `AgentMemory.text` and `.segment` filled in. Afterwards both files are written: with
    `memory_after` and `segment` of the result, or as the session left them, or by the machine in its place. An
    attempt that fails leaves the memory as it was.
    """

    def __init__(self, inner: Sessions, where: Surroundings, clock: Clock) -> None: ...

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        """Raises what the inner one raises, and `ProviderError` for a memory that cannot be read, kept or locked."""
        raise NotImplementedError
