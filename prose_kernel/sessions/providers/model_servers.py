"""The model servers of a run, shared by its sessions and its judge: one connection and one throttle to each, and the
way along a chain of fallbacks to the model that answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from prose_kernel.errors import (
    ProviderConnection,
    ProviderError,
    ProviderOverloaded,
    ProviderRateLimit,
    ProviderTimeout,
)
from prose_kernel.runtime.ports import Clock
from prose_kernel.runtime.session_options import SessionOptions, Surroundings
from prose_kernel.sessions.providers import vendors
from prose_kernel.sessions.providers.model_calls import AT_ONCE, Link, Reply, Way
from prose_kernel.sessions.providers.throttle import Throttle
from prose_kernel.sessions.providers.vendors import Meant

AWAY = (ProviderRateLimit, ProviderOverloaded, ProviderTimeout, ProviderConnection)
"""What another server may do better. What is wrong with the request, the key or the answer is not among it."""

PATIENCE = 10.0  # seconds that a server with a fallback may ask to wait before its fallback is asked

Opens = Callable[[], Awaitable[None]]
"""Waits until the server may be called again; raises `ProviderError` where another one is asked instead."""

Call = Callable[[Link, Meant, Opens], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply, the model that gave it, and why those before it in the chain did not."""

    by: Meant
    reply: Reply
    failed: tuple[str, ...] = ()

    @property
    def details(self) -> dict[str, object]:
        """What the metadata of an answer tell of it."""
        return {"model": self.reply.model, **({"instead_of": list(self.failed)} if self.failed else {})}


class ModelServers:
    """All model servers of one run. Nothing is imported or connected before it is used.

    `max_parallel` of the options bounds what is live at once, at all servers together.
    """

    def __init__(self, options: SessionOptions, where: Surroundings, clock: Clock) -> None:
        self._options = options
        self._where = where
        self._clock = clock
        self._most = options.max_parallel or AT_ONCE
        self._limit = asyncio.Semaphore(self._most)
        self._ways: dict[str, tuple[Way, Throttle]] = {}
        self._chains: dict[tuple[str, str | None, str | None], tuple[Meant, ...]] = {}
        self._told: set[str] = set()

    def chain(self, server: str, alias: str | None, default: str | None = None) -> tuple[Meant, ...]:
        """The model that `alias` means on a server, and its fallbacks in their order. Raises `ProviderError`."""
        key = (server, alias, default)
        if key not in self._chains:
            self._chains[key] = vendors.chain(server, self._options, alias, default)
        return self._chains[key]

    async def ask(self, chain: tuple[Meant, ...], call: Call, note: Callable[[str], object] | None = None) -> Answered:
        """Ask the models of a chain until one answers; `note` is told of what a person may want to know.

        Each is asked once; one that has a fallback, and asks to be left alone for no more than `PATIENCE`, once more
        then. Raises the error of the last one, or the first that another model would not help against.
        """
        failed: list[str] = []
        for at, meant in enumerate(chain):
            way, throttle = self._way(meant)
            last = at == len(chain) - 1
            again = not last
            patience = math.inf if last else PATIENCE
            while True:
                try:
                    async with AsyncExitStack() as places:
                        if not meant.options.batch:  # a batch is one call, and may hold any number of requests
                            await places.enter_async_context(throttle.slot(patience))
                            await places.enter_async_context(self._limit)
                        link = await way.open(meant.model)
                        reply = await call(link, meant, partial(throttle.opens, patience))
                        return Answered(meant, reply, tuple(failed))
                except ProviderError as problem:
                    if note is not None:
                        self._tell(meant.name, throttle, note)
                    if last or not isinstance(problem, AWAY) or not problem.retryable:
                        raise
                    if again and 0 < throttle.closed_for <= PATIENCE:
                        again = False
                        continue  # the slot is waited for until the server is open again
                    failed.append(f"{meant.name} {meant.model}: {problem}")
                    other = chain[at + 1]
                    if note is not None:
                        note(f"{problem}; {other.name} {other.model} is asked instead")
                    break
        raise AssertionError("a chain has a last model")

    async def prepare(self, meant: Meant) -> None:
        """Load what this model needs; nobody is called. Raises `ProviderError`."""
        await self._way(meant)[0].open(meant.model)

    def _tell(self, name: str, throttle: Throttle, note: Callable[[str], object]) -> None:
        if throttle.slowed and name not in self._told:
            self._told.add(name)
            note(f"{name} is busy: from now on it gets fewer calls at once")

    def _way(self, meant: Meant) -> tuple[Way, Throttle]:
        if meant.name not in self._ways:
            way = Way(meant.name, meant.server, self._where)
            self._ways[meant.name] = way, Throttle(meant.name, self._most, self._clock)
        return self._ways[meant.name]

    async def close(self) -> None:
        """Close the connections. A second call does nothing."""
        ways, self._ways = self._ways, {}
        await asyncio.gather(*(way.close() for way, _ in ways.values()))
