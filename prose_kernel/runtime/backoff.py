"""The waits before further attempts at a failed session or command (docs/reference/openprose.md 3.13)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from prose_kernel.runtime.budgets import pause
from prose_kernel.runtime.events import Retried
from prose_kernel.runtime.execution_context import ExecutionContext, Node
from prose_kernel.runtime.ports import Wait

SECOND: Final = 1.0
LONGEST: Final = 60.0
JITTER: Final = 0.25


@dataclass(frozen=True, slots=True)
class Retries:
    """How many further attempts are allowed, and the `backoff` between them."""

    maximum: int = 0
    backoff: str = "none"

    def delay(self, retry: int) -> float:
        """Return the seconds before a retry, counted from 1: none, always the same (`linear`, `fixed`, or a number of
        seconds as text), or doubled up to a minute."""
        if self.backoff in ("linear", "fixed"):
            return SECOND
        if self.backoff[:1].isdecimal():
            return float(self.backoff)
        return float(min(2 ** min(retry - 1, 10), LONGEST)) if self.backoff == "exponential" else 0.0


def jittered(seconds: float, at: str, attempt: int) -> float:
    """Return a wait that is up to a quarter longer, so that branches which failed together do not repeat together.

    The part is drawn from the execution path: the same in every run of a program, and different for each branch.
    """
    drawn = random.Random(f"{at}#{attempt}").random()  # noqa: S311 - not used for secrets
    return seconds * (1 + JITTER * drawn)


@dataclass(frozen=True, slots=True)
class Attempted:
    """A session or command that may be repeated: its node, the number of its events, and its execution path."""

    node: Node
    spawn: int
    at: str


async def before_retry(
    s: ExecutionContext,
    what: Attempted,
    retries: Retries,
    attempt: int,
    *,
    least: float = 0.0,
    replayed: bool = False,
    why: str = "",
) -> None:
    """Emit `Retried`, and wait for the backoff, at least for `least` seconds. After a failure `replayed` from a
    recording it does not wait. `why` is the failure in a few words."""
    seconds = max(retries.delay(attempt), least)
    if s.host.listeners:
        s.emit(Retried(s.place(what.node), what.spawn, attempt, retries.maximum, seconds, why))
    if seconds > 0 and not replayed:
        seconds = jittered(seconds, what.at, attempt)
        wait = Wait("retry", f"{what.at}/w{attempt}", seconds)
        await s.ask(wait, type(None), lambda: pause(s.host.ports.clock, seconds))
