"""Sessions with a recording in front of them: looked up first, called and recorded where the mode allows it."""

from __future__ import annotations

from collections.abc import Callable

from prose_kernel.machine.ports import Asker, SessionProgress, SessionRequest, SessionResult, Sessions
from prose_kernel.sessions.cassettes.library import Cassettes


class RecordedSessions:
    """The `Sessions` port over another one. `inner` None: nobody answers what is not recorded (`%provider replay`)."""

    def __init__(self, inner: Sessions | None, cassettes: Cassettes, *, asker: Asker) -> None:
        raise NotImplementedError

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        """The recorded answer or failure of this attempt, else that of the inner provider, which is then recorded.

        Raises `CassetteMiss` where nothing is recorded and nobody may be called.
        """
        raise NotImplementedError
