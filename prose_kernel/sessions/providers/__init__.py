"""Who runs a session: one module a way (sessions.md 3.1)."""

from __future__ import annotations

from prose_kernel.errors import NoProvider

FIX = (
    "run it where somebody can answer; or choose who answers: PROSE_PROVIDER=anthropic (a model),"
    " PROSE_PROVIDER=dry-run (only see what would be asked); or record it there, and replay it here"
)


def nobody(why: str) -> NoProvider:
    """The error of a session that nobody can answer, with the fix."""
    return NoProvider(why, hint=FIX)
