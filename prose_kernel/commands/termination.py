"""The ladders: which signals end a command, and how long each is given (exec-and-tasks.md 1.2)."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from prose_kernel.runtime.ports import Outcome

GRACE = 2.0
"""Seconds that `exec` gives a command between two steps."""

_AFTER_KILL = 2.0
"""Seconds until we give up on a process that even KILL does not end: one in the kernel's hands, or not ours."""


@dataclass(frozen=True, slots=True)
class Step:
    """One signal, and the seconds to wait for the scope to be empty. KILL is repeated while waiting."""

    signal: signal.Signals
    grace: float


@dataclass(frozen=True, slots=True)
class Ladder:
    """The steps of one cause, and the outcome that the cause gives a command which was still running."""

    outcome: Outcome
    steps: tuple[Step, ...]


def ladder(outcome: Outcome, grace: float = GRACE) -> Ladder:
    """INT, TERM, KILL for a user's interrupt; TERM, KILL for everything else."""
    first = (Step(signal.SIGINT, grace),) if outcome == "interrupted" else ()
    return Ladder(outcome, (*first, Step(signal.SIGTERM, grace), Step(signal.SIGKILL, _AFTER_KILL)))
