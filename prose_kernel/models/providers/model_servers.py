"""The model servers of a run, shared by its sessions and its judge: a connection and a throttle for each server, and
the search along a chain of fallbacks for a model that answers.

Nothing is retried here: a refused call has failed, and the program decides about another attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from msgspec import Struct

from prose_kernel import errors
from prose_kernel.models.providers import vendors
from prose_kernel.models.providers.model_calls import AT_ONCE, LazyConnection, Link, Reply
from prose_kernel.models.providers.vendors import ModelTarget
from prose_kernel.models.usage_and_prices import has_price
from prose_kernel.runtime import budgets, open_request
from prose_kernel.runtime.open_request import MODEL
from prose_kernel.runtime.ports import Clock
from prose_kernel.runtime.session_options import ModelServer, SessionOptions, Surroundings

UNAVAILABLE = (errors.ProviderRateLimit, errors.ProviderOverloaded, errors.ProviderTimeout, errors.ProviderConnection)
"""Errors that another server may not have; errors of the request, the key or the answer are not among them."""

LONGEST = 300.0  # seconds to wait for a server at most; calls to one that requests a longer pause fail immediately
IN_A_ROW = 3  # failures after which a server is skipped
SKIP_SECONDS = 30.0  # seconds until one call checks whether it is back


class Throttle:
    """Limits the simultaneous calls to one server, for all callers in a run: branches, sessions, judgements. It belongs
    to one event loop.

    As in network congestion control, the limit is halved when the server refuses a call because of load (429, 503,
    529), and grows by one for each round of answers, up to the limit of the settings. Calls that ran at the same time
    halve it only once. While the server has requested a pause (`Retry-After`), no call begins; a server that has failed
    several times in a row is skipped for a while by calls that have a fallback.

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


WaitUntilOpen = Callable[[], Awaitable[None]]
"""Waits until the server may be called again; raises `ProviderError` if another server should be asked instead."""

Call = Callable[[Link, ModelTarget, WaitUntilOpen], Awaitable[Reply]]
Chain = tuple[ModelTarget, ...]
_Server = tuple[LazyConnection, Throttle]


class Answered(Struct, frozen=True):
    """A reply, the model that gave it, and the errors of the earlier models of the chain."""

    by: ModelTarget
    reply: Reply
    failed: tuple[str, ...] = ()

    @property
    def details(self) -> dict[str, object]:
        """Return the metadata of an answer about its model."""
        return {"model": self.reply.model, **({"instead_of": list(self.failed)} if self.failed else {})}


class SharedConnections:
    """Connections and throttles that the runs of an evaluation share: opening a connection costs more than a request,
    and all runs skip a server that fails. `most` is the limit of simultaneous calls of all runs to one server. Close it
    after all runs have ended."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._connections: list[_Server] = []

    def connection(self, name: str, server: ModelServer, where: Surroundings, clock: Clock) -> _Server:
        """Return the connection and throttle for this server with these keys."""
        for known in self._connections:
            if known[0].leads_to(name, server, where):
                return known
        self._connections.append((LazyConnection(name, server, where), Throttle(name, self._most, clock)))
        return self._connections[-1]

    async def close(self) -> None:
        connections, self._connections = self._connections, []
        await asyncio.gather(*(connection.close() for connection, _ in connections))


class ModelServers:
    """All model servers of one run. Nothing is imported or connected before it is used.

    `max_parallel` of the options limits the simultaneous calls to all servers together.
    """

    def __init__(
        self, options: SessionOptions, where: Surroundings, clock: Clock, shared: SharedConnections | None = None
    ) -> None:
        self._options = options
        self._where = where
        self._clock = clock
        self._shared = shared
        self._most = options.max_parallel or AT_ONCE
        self._limit = asyncio.Semaphore(self._most)
        self._connections: dict[str, _Server] = {}
        self._chains: dict[tuple[str, str | None, str | None], Chain] = {}
        self._warned: set[str] = set()

    def chain(self, server: str, alias: str | None, default: str | None = None) -> Chain:
        """Return the model that `alias` means on a server, and its fallbacks in order. Raises `ProviderError`."""
        key = (server, alias, default)
        if key not in self._chains:
            self._chains[key] = vendors.chain(server, self._options, alias, default)
        return self._chains[key]

    async def ask(self, chain: Chain, call: Call, note: Callable[[str], object] | None = None) -> Answered:
        """Ask the models of a chain until one answers; `note` is called with messages for the person.

        Each is asked once, without waiting; servers that are skipped, or have requested a pause, come last. Only the
        last model is worth waiting for a requested pause. Raises the error of the last model that was asked, or the
        first error that another model cannot avoid.
        """
        failed: list[str] = []
        then = _recorded_provider()  # the recorded model first; the others keep their order unless a server is closed
        order = sorted(chain, key=lambda one: ((one.name, one.model) != then, *self._readiness(one)))
        asked: errors.ProviderError | None = None
        for at, target in enumerate(order):
            connection, throttle = self._connection(target)
            last = at == len(order) - 1
            patience = LONGEST if last else 0.0
            begun = False
            try:
                async with throttle.slot(patience, elsewhere=not last), self._limit:
                    await budgets.placed(reserves=True)
                    self._refuse_unpriced(target)
                    begun = True
                    link = await connection.open(target.model)
                    reply = await call(link, target, partial(throttle.opens, patience))
                    return Answered(target, reply, tuple(failed))
            except errors.ProviderError as problem:
                if note is not None and throttle.slowed and target.name not in self._warned:
                    self._warned.add(target.name)
                    note(f"{target.name} is busy: it now gets fewer simultaneous calls")
                if not isinstance(problem, UNAVAILABLE) or (begun and not problem.retryable):
                    raise
                if last:
                    ended = problem if begun or asked is None else asked
                    if all(self._connection(one)[1].closed_for > LONGEST for one in chain):
                        ended.retryable = False
                    raise ended from None
                failed.append(f"{target.name} {target.model}: {problem}")
                asked = problem if begun else asked
                other = order[at + 1]
                if note is not None and begun:
                    note(f"{problem}; {other.name} {other.model} is asked instead")
        raise AssertionError("a chain has a last model")

    def _readiness(self, target: ModelTarget) -> tuple[bool, float]:
        """Return the sort key of a chain: first models that can be asked now, then the others by their pauses."""
        throttle = self._connection(target)[1]
        closed = throttle.closed_for
        return throttle.is_skipped or closed > 0, closed

    def _refuse_unpriced(self, target: ModelTarget) -> None:
        """Raise `ProviderError` if a budget in US dollars applies and the price of the model is unknown."""
        if budgets.nearest("usd") is None or self._options.unpriced == "allow":
            return
        if not has_price(target.name, target.model, target.options.price):
            message, hint = vendors.unpriced(target)
            raise errors.ProviderError(message, retryable=False, hint=hint)

    async def prepare(self, target: ModelTarget) -> None:
        """Load the packages of this model without calling it. Raises `ProviderError`."""
        await self._connection(target)[0].open(target.model)

    def _connection(self, target: ModelTarget) -> _Server:
        if target.name not in self._connections:
            to = target.name, target.server, self._where
            if self._shared is not None:
                self._connections[target.name] = self._shared.connection(*to, self._clock)
            else:
                self._connections[target.name] = LazyConnection(*to), Throttle(target.name, self._most, self._clock)
        return self._connections[target.name]

    async def close(self) -> None:
        """Close the connections. A second call does nothing."""
        connections, self._connections = self._connections, {}
        if self._shared is None:
            await asyncio.gather(*(connection.close() for connection, _ in connections.values()))


def _recorded_provider() -> tuple[str, ...] | None:
    """Return the provider and the model that answered the last recorded step of this request; None if there is none."""
    steps = open_request.steps()
    recorded = steps.coming(MODEL) if steps is not None else None
    return tuple(recorded.step.by) if recorded is not None else None
