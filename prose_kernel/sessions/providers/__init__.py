"""Who runs a session: one module a way, and the choice among them (sessions.md 3.1, 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prose_kernel.errors import NoProvider, UsageError
from prose_kernel.machine.ports import Asker, Clock, SessionProgress, SessionRequest, SessionResult, Sessions
from prose_kernel.sessions.user import serial

if TYPE_CHECKING:
    from prose_kernel.sessions.providers.scripted import Script

# Each provider is imported when it is chosen or first needed: most cells run no session.

NAMES = ("scripted", "human", "dry-run")

NOTICE = """\
No model is configured, so you are answering this program's sessions yourself.
Choose who answers with `%provider NAME`, or PROSE_PROVIDER: scripted, human, dry-run.
To have answers read from a file: `%provider scripted FILE`.
To only see what each session would be asked: `%provider dry-run`."""


FIX = "run it where somebody can answer, or choose who answers: PROSE_PROVIDER=scripted or PROSE_PROVIDER=dry-run"


def nobody(why: str) -> NoProvider:
    """The error of a session that nobody can answer, with the fix."""
    return NoProvider(why, hint=FIX)


class Unconfigured:
    """The `Sessions` port with nothing configured: the person who is here, after a notice shown once; else an error."""

    def __init__(self, asker: Asker, interrupt: Callable[[], object] | None = None) -> None:
        self._asker = serial(asker)
        self._interrupt = interrupt
        self._noticed = False

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        """The person's answer. Raises `NoProvider` when nobody is here."""
        if not self._asker.available:  # a fact of each request: it may change from cell to cell
            raise nobody("no model is configured, and nobody is here to answer this session")
        from prose_kernel.sessions.providers.human import HumanSessions

        async with self._asker.turn():
            if not self._noticed:
                self._noticed = True
                self._asker.show(NOTICE)
            return await HumanSessions(self._asker, self._interrupt).run(request, on_progress)


def select(
    name: str | None,
    *,
    asker: Asker,
    script: Script | None = None,
    clock: Clock | None = None,
    interrupt: Callable[[], object] | None = None,
) -> Sessions:
    """The provider of that name; None is the person here, if there is one.

    `script` is what `scripted` answers from; `interrupt` is called by `:quit` of a person and must cancel the run.
    Raises `UsageError` for an unknown name, and for `scripted` without a script.
    """
    match name:
        case None | "":
            return Unconfigured(asker, interrupt)
        case "human":
            from prose_kernel.sessions.providers.human import HumanSessions

            return HumanSessions(asker, interrupt)
        case "dry-run":
            from prose_kernel.sessions.providers.dry_run import DryRunSessions

            return DryRunSessions()
        case "scripted" if script is not None:
            from prose_kernel.sessions.providers.scripted import ScriptedSessions

            return ScriptedSessions(script, clock)
        case "scripted":
            raise UsageError("provider scripted has no script", hint="set PROSE_SCRIPT to a YAML file of replies")
        case _:
            raise UsageError(f"there is no provider `{name}`", hint=f"one of {', '.join(NAMES)}")
