"""What a session left in files, turned into its result: the binding's value, memory, segment, other writes."""

from __future__ import annotations

from prose_kernel.machine.ports import SessionRequest, SessionResult
from prose_kernel.sessions.options import Surroundings
from prose_kernel.sessions.tools.tool import Workbench


class Outputs:
    """The files that a session may write itself (binding, memory, segment), as they were when the session started.

    For every provider, whether its session writes through a workbench or behind our back (a CLI agent).
    """

    def __init__(self, request: SessionRequest, where: Surroundings) -> None: ...

    def harvest(self, said: SessionResult, bench: Workbench | None = None) -> SessionResult:
        """The result with what was written since: `said` is what `request.answered` made of the reply."""
        raise NotImplementedError


def harvest(request: SessionRequest, bench: Workbench, said: SessionResult) -> SessionResult:
    """`Outputs.harvest` of the files as they were when the `SessionWorkbench` was made; adds its trace and writes.

    `text` is the value in the binding's file when the session wrote it, else that of `said`.
    """
    raise NotImplementedError
