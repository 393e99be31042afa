"""How many calls one server gets at once: fewer after it has said that it is busy, more again while it answers.

As in a network, what is allowed is halved when the server refuses a call for its load (429, 503, 529), and grows by one
for each round of answers, up to what the settings allow. Calls that were under way together say the same thing once.
While the server asks to be left alone (`Retry-After`), no call begins. Nothing is asked again here: a refused call has
failed, and whether there is another attempt is said by the program.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prose_kernel.errors import ProviderOverloaded, ProviderRateLimit
from prose_kernel.runtime.ports import Clock

LONGEST = 300.0  # seconds that a server is left alone at most, whatever it asks
FIRST_PAUSE = 1.0  # seconds, where it does not say how long and is busy with one call at a time
LONGEST_PAUSE = 30.0


class Throttle:
    """Shared by all who call the same server in a run: branches, sessions, judgements. Belongs to one event loop.

    `most` is what the settings allow. Waiting calls begin in the order in which they came. A call that could be made
    elsewhere has a `patience`: it raises `ProviderOverloaded` where the server asks to be left alone for longer.
    """

    def __init__(self, name: str, most: int, clock: Clock) -> None:
        self._name = name
        self.allowed = float(most)
        self._most = most
        self._clock = clock
        self._live = 0
        self._round = 0
        self._closed_until = 0.0
        self._pause = 0.0
        self._patient, self._impatient = asyncio.Lock(), asyncio.Lock()
        self._left = asyncio.Event()

    @property
    def closed_for(self) -> float:
        """Seconds until a call may begin; 0 where the server has not asked for a pause."""
        return max(0.0, self._closed_until - self._clock.monotonic())

    @property
    def slowed(self) -> bool:
        """Whether it was busy, and has not recovered yet."""
        return self.allowed < self._most

    async def opens(self, patience: float = math.inf) -> None:
        """Wait until the server may be called again."""
        while (seconds := self.closed_for) > 0:
            if seconds > patience:
                raise ProviderOverloaded(f"{self._name}: the server has asked not to be called for now")
            await self._clock.sleep(seconds)

    @asynccontextmanager
    async def slot(self, patience: float = math.inf) -> AsyncIterator[None]:
        """A call, made inside the block; how it ends says how many may follow."""
        # the first of those who wait looks for its place, the others stand behind it: nobody who could go elsewhere
        # behind one who cannot
        async with self._patient if patience == math.inf else self._impatient:
            while self._live >= int(self.allowed) or self.closed_for > 0:
                if self._live >= int(self.allowed) and self.closed_for <= patience:
                    self._left.clear()
                    await self._left.wait()
                else:
                    await self.opens(patience)
            self._live += 1
        begun = self._round
        try:
            yield
        except (ProviderRateLimit, ProviderOverloaded) as problem:
            if problem.busy:
                self._busy(problem.retry_after, begun)
            raise
        else:
            self._answered(begun)
        finally:
            self._live -= 1
            self._left.set()

    def _busy(self, retry_after: float | None, begun: int) -> None:
        if begun == self._round:  # else it began before the last cut, which it says nothing new about
            self._round += 1
            self._pause = min(2 * self._pause or FIRST_PAUSE, LONGEST_PAUSE) if self.allowed < 2 else 0.0
            self.allowed = max(1.0, self.allowed / 2)
        wait = retry_after if retry_after is not None else self._pause
        self._closed_until = max(self._closed_until, self._clock.monotonic() + min(wait, LONGEST))

    def _answered(self, begun: int) -> None:
        if begun == self._round:
            self._pause = 0.0
            self.allowed = min(float(self._most), self.allowed + 1 / self.allowed)
