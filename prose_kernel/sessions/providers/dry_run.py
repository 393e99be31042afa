"""A run in which nothing runs: every session and command is shown, and yields a visible marker (sessions.md 3.1).

What depends on a marker cannot be decided by a rule; the judge of a dry run reports it as undecided.
"""

from __future__ import annotations

from collections.abc import Callable

from prose_kernel.machine.ports import (
    CommandRequest,
    CommandResult,
    OnOutput,
    SessionProgress,
    SessionRequest,
    SessionResult,
)
from prose_kernel.sessions.request import assemble, shown, summarise
from prose_kernel.sessions.text import marker


class DryRunSessions:
    """The `Sessions` port of a dry run: notes what a session would be asked, answers `⟦dry-run c2/s1⟧`."""

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        on_progress(SessionProgress("note", shown(request)))
        details = {
            "model": request.model,
            "permissions": dict(request.permissions),
            "skills": list(request.skills),
            "sizes": assemble(request).sizes,
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
