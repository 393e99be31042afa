"""The shared state of the actors of one Dask worker: the owner of each run, and whether the worker is being retired.

A run has one owner, the process that runs it. When a resumed run claims a worker, the commands of the former owner are
ended first; a former owner that returns is refused.

Dask does not retire a worker that holds an actor: `retire_workers` gives up, and a worker whose lifetime is over closes
with its commands. So the `WorkerHost` notices the start of a retirement, keeps the worker open until its commands have
ended, and then completes the retirement.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from prose_kernel.runtime.ports import Owner

if TYPE_CHECKING:
    from prose_kernel.remote.worker_actor import DriverCommands

_PLUGIN: Final = "prose_kernel-host"
_NEWS_DELAY: Final = 0.3
"""Seconds to wait for the news that a closing worker is being retired, which may arrive after the order to close."""


class Superseded(Exception):
    """A later process has taken over the run."""


class WorkerHost:
    """A plugin of one Dask worker. Call all methods in the worker's loop, unless documented otherwise."""

    def __init__(self, worker: Any) -> None:
        self.leaving = False
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._tenants: set[DriverCommands] = set()
        self._newest: dict[str, Owner] = {}
        self._left, self._empty = asyncio.Event(), asyncio.Event()
        self._closing: asyncio.Task[object] | None = None

    def join(self, tenant: DriverCommands) -> None:
        self._tenants.add(tenant)

    def gone(self, tenant: DriverCommands) -> None:
        """Record that all commands of a tenant have ended. Callable from any thread."""
        # not by `call_in_loop`: a nanny imports this module, and needs none that runs commands
        with contextlib.suppress(RuntimeError):  # the worker has ended
            self._loop.call_soon_threadsafe(self._gone, tenant)

    async def claim(self, tenant: DriverCommands, owner: Owner) -> None:
        """Make the tenant's driver the owner of a run, and end all commands of its former owners here.

        Raises `Superseded`.
        """
        newest = self._newest.get(owner.run, owner)
        if newest.epoch > owner.epoch:
            raise Superseded
        self._newest[owner.run] = tenant.owner = owner
        former = [one for one in self._tenants if one is not tenant and one.owner and one.owner.run == owner.run]
        await asyncio.gather(*(asyncio.to_thread(one.end) for one in former))

    # ------------------------------------------------------------ retirement

    def watch(self) -> None:
        """Notice changes of the worker's status that the scheduler requests."""
        handlers = self._worker.stream_handlers
        change = handlers["worker-status-change"]

        def changed(status: str, stimulus_id: str) -> None:
            # The scheduler revokes a retirement when it sees an actor here. A worker that is already closing must not
            # become active again: Dask would close it twice, and the second close waits 30 s for its threads.
            if self._worker.status.name != "closing":
                change(status=status, stimulus_id=stimulus_id)
            if status == "closing_gracefully" and self._tenants:
                self._leave()
            self._complete()

        handlers["worker-status-change"] = changed

    async def drain(self) -> None:
        """Refuse new commands, and wait until the last one has ended."""
        if self._tenants:
            self._leave()
            await self._empty.wait()

    async def teardown(self, worker: Any) -> None:
        """End commands before the worker closes; Dask waits for this. A retired worker lets its commands finish."""
        if self._tenants and not self.leaving:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._left.wait(), _NEWS_DELAY)
        if not self.leaving:
            await asyncio.gather(*(asyncio.to_thread(tenant.end) for tenant in self._tenants))
        elif self._tenants:
            await self._empty.wait()

    def _leave(self) -> None:
        self.leaving = True
        self._left.set()
        for tenant in tuple(self._tenants):
            tenant.leave()

    def _gone(self, tenant: DriverCommands) -> None:
        self._tenants.discard(tenant)
        if self.leaving and not self._tenants:
            self._empty.set()
            self._complete()

    def _complete(self) -> None:
        """Close the worker if its commands have ended, unless the scheduler is still deciding about a retirement."""
        if self._empty.is_set() and self._closing is None and self._worker.status.name in ("running", "paused"):
            self._closing = asyncio.ensure_future(self._worker.close_gracefully(restart=None, reason="retired"))


def this_host() -> WorkerHost:
    """Return the host of the Dask worker whose actor calls this."""
    from distributed import get_worker

    worker: Any = get_worker()
    found: WorkerHost | None = worker.plugins.get(_PLUGIN)
    if found is None:
        found = worker.plugins[_PLUGIN] = WorkerHost(worker)
        found.watch()
    return found


async def wait_until_drained(dask_worker: Any) -> None:
    """Wait until the commands of a Dask worker have ended. Runs on this worker; Dask passes the argument."""
    host: WorkerHost | None = dask_worker.plugins.get(_PLUGIN)
    if host is not None:
        await host.drain()
