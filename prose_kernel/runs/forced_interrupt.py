"""Decide whether an interrupt may stop code at its current instruction.

An interrupt cancels the task of a cell or program at its next wait. Code that never waits is stopped by an exception
that a signal handler raises between two instructions. Writes, turns and imports must not end half-way: a journal whose
last line was written but not counted could no longer be read, and some modules cannot be loaded twice. So they are
finished first, and the code is stopped a moment later.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from types import FrameType
from typing import Final

in_cell: contextvars.ContextVar[bool] = contextvars.ContextVar("prose_kernel_in_cell", default=False)
"""True in all code that runs on behalf of a cell, or of the program of `prose run`."""

_FINISHED_FIRST: Final = (
    "asyncio",  # a lock whose waiter is half registered is never free again
    "concurrent.futures",
    "importlib._bootstrap",  # and `…_external`
    "prose_kernel.access.atomic",
    "prose_kernel.access.jsonl",
    "prose_kernel.cassettes.cassette_store",
    "prose_kernel.processes.engine",  # a thread that started and is not known yet would never end
    "prose_kernel.runtime.execution_context",  # the listeners of events count bindings
    "prose_kernel.runtime.journal",  # and `journal_…`
    "prose_kernel.runtime.open_request",
    "prose_kernel.runtime.parallel_branches",
    "prose_kernel.runtime.program_run",  # passes bindings to the store
    "prose_kernel.runtime.scheduler",
    "prose_kernel.runs.journal",
    "prose_kernel.runs.restored_files",
    "prose_kernel.storage.database",
    "prose_kernel.storage.journal_file",
    "prose_kernel.storage.pending_writes",
    "prose_kernel.storage.stores",
    "prose_kernel.storage.state_log",
)


def may_stop(frame: FrameType | None) -> bool:
    """Return whether an exception may be raised in this frame of the main thread.

    Only the running coroutine and the functions called by it count. The coroutines that await it don't: a provider that
    computes is awaited by the journal.
    """
    if not in_cell.get() or asyncio.current_task() is None:
        return False  # an output is being sent
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_FINISHED_FIRST):
            return False
        if frame.f_code.co_flags & inspect.CO_COROUTINE:
            break
        frame = frame.f_back
    return True
