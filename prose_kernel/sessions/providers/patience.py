"""How long a CLI agent is waited for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: `start` to answer a request that is no prompt (hello, a new session), `noise` to say hello after it has
    printed something else, `cancel` to end a cancelled turn by protocol, `grace` between TERM and KILL."""

    start: float = 60.0
    noise: float = 5.0
    cancel: float = 2.0
    grace: float = 2.0
