"""A preload for Dask's nannies that lets workers finish their commands before they end.

A nanny is the parent process of a worker. SIGTERM, and a cluster that scales down, close the nanny, which ends the
worker within ten seconds. Before that, Dask waits for the teardown of the nanny's preloads, without a time limit
(docs/reference/exec-and-tasks.md 1.5).
"""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

from prose_kernel.remote.worker_host import wait_until_drained


async def dask_teardown(nanny: Any) -> None:
    """Wait until the commands on the nanny's worker have ended. Dask calls this."""
    if nanny.worker_address is None:
        return
    with contextlib.suppress(OSError):  # the worker has ended; this includes Dask's `CommClosedError`
        async with nanny.rpc(nanny.worker_address) as worker:
            await worker.run(function=pickle.dumps(wait_until_drained))
