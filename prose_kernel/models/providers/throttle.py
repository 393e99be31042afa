"""Limits the simultaneous calls to one server: fewer after it has reported that it is busy, more again while it
answers.

As in network congestion control, the limit is halved when the server refuses a call because of load (429, 503, 529),
and grows by one for each round of answers, up to the limit of the settings. Calls that ran at the same time halve it
only once. While the server has requested a pause (`Retry-After`), no call begins; a server that has failed several
times in a row is skipped for a while by calls that have a fallback. Nothing is retried here: a refused call has failed,
and the program decides about another attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prose_kernel import errors
from prose_kernel.runtime.ports import Clock

UNAVAILABLE = (errors.ProviderRateLimit, errors.ProviderOverloaded, errors.ProviderTimeout, errors.ProviderConnection)
"""Errors that another server may not have; errors of the request, the key or the answer are not among them."""

LONGEST = 300.0  # seconds to wait for a server at most; calls to one that requests a longer pause fail immediately
IN_A_ROW = 3  # failures after which a server is skipped
SKIP_SECONDS = 30.0  # seconds until one call checks whether it is back


class Throttle:
    """The limit for one server, shared by all callers in a run: branches, sessions, judgements. It belongs to one event
    loop.

    `most` is the limit of the settings. Waiting calls begin in order of arrival. A call raises `ProviderOverloaded` if
    the server has requested a pause longer than the call's `patience`. With `elsewhere`, another server can take the
    call: it is also raised while this server is skipped.
    """

    def __init__(self, name: str, most: int, clock: Clock) -> None:
        self._name = name
        self.allowed = float(most)
        self._most = most
        self._clock = clock
        self._live = 0
        self._round = 0
        self._closed_until = 0.0
        self._failures = 0
        self._skipped_until = 0.0
        self._patient, self._impatient = asyncio.Lock(), asyncio.Lock()
        self._left = asyncio.Event()

    @property
    def closed_for(self) -> float:
        """Return the seconds until a call may begin; 0 if the server has not requested a pause."""
        return max(0.0, self._closed_until - self._clock.monotonic())

    @property
    def slowed(self) -> bool:
        """Return whether the server was busy and has not recovered yet."""
        return self.allowed < self._most

    @property
    def is_skipped(self) -> bool:
        """Return whether the server has failed so often that calls with a fallback skip it now."""
        return self._failures >= IN_A_ROW and self._clock.monotonic() < self._skipped_until

    async def opens(self, patience: float = LONGEST) -> None:
        """Wait until the server may be called again. Raises `ProviderOverloaded`."""
        while (seconds := self.closed_for) > 0:
            if seconds > patience:
                problem = errors.ProviderOverloaded(f"{self._name}: the server has asked not to be called for now")
                problem.retryable = seconds <= LONGEST
                raise problem
            await self._clock.sleep(seconds)

    @asynccontextmanager
    async def slot(self, patience: float = LONGEST, *, elsewhere: bool = False) -> AsyncIterator[None]:
        """Make a call inside the block; its outcome adjusts the limit."""
        # the first waiting call looks for a slot, the others queue after it; a call that could go elsewhere never
        # queues after one that cannot
        async with self._impatient if elsewhere else self._patient:
            await self._wait_until_open(patience, elsewhere)
            while self._live >= int(self.allowed):
                self._left.clear()
                await self._left.wait()
                await self._wait_until_open(patience, elsewhere)
            self._live += 1
        if self._failures >= IN_A_ROW:  # this call checks whether it is back; others do not wait for the result
            self._skipped_until = self._clock.monotonic() + SKIP_SECONDS
        begun = self._round
        try:
            yield
        except errors.ProviderError as problem:
            if isinstance(problem, UNAVAILABLE):
                self._failures += 1
                self._skipped_until = self._clock.monotonic() + SKIP_SECONDS
            else:
                self._failures = 0  # it has answered
            if isinstance(problem, errors.ProviderRateLimit | errors.ProviderOverloaded) and problem.busy:
                self._busy(problem.retry_after, begun)
            raise
        else:
            self._failures = 0
            if begun == self._round:
                self.allowed = min(float(self._most), self.allowed + 1 / self.allowed)
        finally:
            self._live -= 1
            self._left.set()

    async def _wait_until_open(self, patience: float, elsewhere: bool) -> None:
        if elsewhere and self.is_skipped:
            raise errors.ProviderOverloaded(
                f"{self._name}: the server has failed {IN_A_ROW} times in a row and is passed over"
            )
        await self.opens(patience)

    def _busy(self, retry_after: float | None, begun: int) -> None:
        if begun == self._round:  # else it began before the last cut, which covers it
            self._round += 1
            self.allowed = max(1.0, self.allowed / 2)
        self._closed_until = max(self._closed_until, self._clock.monotonic() + (retry_after or 0.0))
