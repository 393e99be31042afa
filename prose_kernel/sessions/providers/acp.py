"""Sessions of CLI agents over the Agent Client Protocol: one client for all of them (sessions.md 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prose_kernel.machine.ports import Guard, SessionProgress, SessionRequest, SessionResult, Terminals
from prose_kernel.sessions.options import AgentCommand, Surroundings

if TYPE_CHECKING:
    from prose_kernel.sessions.permissions import PermissionDesk, Policy

AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: `start` for an agent to say hello and to open a session, `cancel` to end a cancelled one by protocol,
    `grace` between TERM and KILL."""

    start: float = 60.0
    cancel: float = 2.0
    grace: float = 2.0


class AcpSessions:
    """The `Sessions` port, answered by a CLI agent. Close it when the run is over."""

    def __init__(
        self,
        name: str,
        command: AgentCommand,
        *,
        policy_of: Callable[[SessionRequest], Policy],
        desk: PermissionDesk,
        where: Surroundings,
        limit: int | None = None,
        guard: Guard,
        terminals: Terminals | None = None,
        patience: Patience | None = None,
    ) -> None:
        raise NotImplementedError

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        raise NotImplementedError

    async def ask(self, message: str, model: str | None = None) -> str:
        """The reply to a message that is no session's: nothing is allowed to the agent."""
        raise NotImplementedError

    async def close(self) -> None:
        """End the agent's process and all that it started."""
        raise NotImplementedError
