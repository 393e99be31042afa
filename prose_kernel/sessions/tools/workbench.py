"""The tools of one attempt at a session: which there are, and every call of them checked, traced and told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from prose_kernel.machine.ports import FileWrite, SessionProgress, SessionRequest, ToolUse
from prose_kernel.sessions.options import Surroundings
from prose_kernel.sessions.permissions import PermissionDesk, Policy
from prose_kernel.sessions.tools.tool import Tool, ToolSpec

OnProgress = Callable[[SessionProgress], None]


def tool_names(request: SessionRequest, policy: Policy, more: Sequence[str] = ()) -> tuple[str, ...]:
    """The tools of a session, in the order they are offered: a part of a recording's key.

    What the rules could never allow is left out. `more` are the names of tools that others bring.
    """
    raise NotImplementedError


class SessionWorkbench:
    """The `Workbench` port. Calls run one at a time, in the order they were made."""

    def __init__(
        self,
        request: SessionRequest,
        policy: Policy,
        desk: PermissionDesk,
        where: Surroundings,
        on_progress: OnProgress,
        more: Sequence[Tool] = (),
    ) -> None: ...

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        raise NotImplementedError

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        raise NotImplementedError

    @property
    def trace(self) -> tuple[ToolUse, ...]:
        raise NotImplementedError

    @property
    def writes(self) -> tuple[FileWrite, ...]:
        raise NotImplementedError
