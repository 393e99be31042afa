"""Sessions while no provider is chosen: a vendor whose key is there, the person, or a clear error (sessions.md 3.3)."""

from __future__ import annotations

from collections.abc import Callable

from prose_kernel.errors import CassetteMiss, NoProvider
from prose_kernel.runtime.asker import serial
from prose_kernel.runtime.ports import SessionProgress, SessionRequest, SessionResult, Sessions
from prose_kernel.runtime.services import Asker
from prose_kernel.sessions.providers import FIX, nobody

NOTICE = """\
No model is configured, so you are answering this program's sessions yourself.
Choose who answers with `%provider NAME`, `prose run --provider NAME` or PROSE_PROVIDER: anthropic, openai, acp:AGENT …
Models need one more package: `%pip install prose_kernel[llm]`, in a terminal `pip install 'prose_kernel[llm]'`.
To only see what each session would be asked: `%provider dry-run`, `prose run --provider dry-run`."""

NOBODY = "no model is configured, and nobody is here to answer this session"

Progress = Callable[[SessionProgress], None]


class Unconfigured:
    """The `Sessions` port with nothing chosen.

    `detected` gives the sessions of a vendor whose key is in the environment, after the person has been told; None:
    there is none. Otherwise the person answers, after a notice shown once. `interrupt` ends the run: `:quit` calls it.
    """

    def __init__(
        self,
        asker: Asker,
        interrupt: Callable[[], object] | None = None,
        detected: Callable[[], Sessions | None] = lambda: None,
    ) -> None:
        self._asker = serial(asker)
        self._interrupt = interrupt
        self._detected = detected
        self._noticed = False

    async def run(self, request: SessionRequest, on_progress: Progress) -> SessionResult:
        """Raises `NoProvider` when nobody is here; a fact of each request, which may change from cell to cell."""
        if not self._asker.available:
            raise nobody(NOBODY)
        vendor = self._detected()
        if vendor is not None:
            return await vendor.run(request, on_progress)
        from prose_kernel.sessions.providers.human import HumanSessions

        async with self._asker.turn():
            if not self._noticed:
                self._noticed = True
                self._asker.show(NOTICE)
            return await HumanSessions(self._asker, self._interrupt).run(request, on_progress)


class UnrecordedIsNobody:
    """The `Sessions` port around recorded sessions while no provider is chosen: where nobody is here, what is not
    recorded has nobody to answer it. That is the error, whatever else is recorded; what is missing is the hint."""

    def __init__(self, recorded: Sessions, asker: Asker) -> None:
        self._recorded = recorded
        self._asker = asker

    async def run(self, request: SessionRequest, on_progress: Progress) -> SessionResult:
        try:
            return await self._recorded.run(request, on_progress)
        except CassetteMiss as miss:
            if self._asker.available:
                raise
            raise NoProvider(NOBODY, hint=f"{FIX} ({miss})") from None
