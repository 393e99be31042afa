"""A run in which nothing runs: every session and command is shown, and yields a visible marker (sessions.md 3.1).

What depends on a marker cannot be decided by a rule; the judge of a dry run reports it as undecided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prose_kernel.runtime.ports import (
    CommandRequest,
    CommandResult,
    OnOutput,
    SessionProgress,
    SessionRequest,
    SessionResult,
)
from prose_kernel.runtime.text import marker
from prose_kernel.sessions.request import summarise

if TYPE_CHECKING:
    from prose_kernel.sessions.description import Description


class DryRunSessions:
    """The `Sessions` port of a dry run: notes what a session would be asked, answers `⟦dry-run c2/s1⟧`."""

    def __init__(self, describe: Callable[[SessionRequest], Description]) -> None:
        self._describe = describe

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        told = self._describe(request)
        on_progress(SessionProgress("note", told.text))
        details = {
            "model": told.model,
            "permissions": list(told.permissions),
            "tools": list(told.tools),
            "skills": list(request.skills),
            "sizes": dict(told.sizes),
            "recording": told.recording,
        }
        value = marker(request.at)
        return SessionResult(value, value, "dry-run", "dry-run", details)


class DryRunCommands:
    """The `Commands` port of a dry run: no process; a command succeeds with a marker as its output."""

    async def run(self, request: CommandRequest, on_output: OnOutput | None = None) -> CommandResult:
        text = marker(f"exec {summarise(request.command)}") + "\n"
        if on_output is not None:
            on_output("stdout", text)
        return CommandResult("exited", 0, stdout=text, stdout_bytes=len(text.encode()))
