"""Work of a notebook besides its cells: coroutines such as cards that follow their tasks, and tasks of earlier runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prose_kernel.runtime.services import TaskFollowUp, TaskSnapshot

_GRACE: Final = 0.5
"""Seconds that work may take to show its last state when the notebook closes."""


class Background:
    """Runs coroutines until they end, at the latest until `close`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[object, object, None], context: Context) -> None:
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give the work a moment to show its last state, then cancel it."""
        if not (tasks := tuple(self._tasks)):
            return
        await asyncio.wait(tasks, timeout=_GRACE)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class EarlierTasks:
    """Finds the tasks that earlier runs left in a notebook's directory (docs/reference/exec-and-tasks.md): once, when
    the first cell runs. `state_dir` returns the name of the state directory; it raises `UsageError` if a setting is
    invalid. `follow_ups` are waiting continuations with their runs' directories."""

    def __init__(self, cwd: Path, state_dir: Callable[[], str]) -> None:
        self._cwd = cwd
        self._state_dir = state_dir
        self._looked = False
        self.follow_ups: list[tuple[Path, TaskFollowUp]] = []

    def is_due(self) -> bool:
        """Return whether `look` has yet to be called and there may be tasks. Loads no modules of tasks."""
        if not self._looked and not (self._cwd / self._state_dir() / "tasks").is_dir():
            self._looked = True
        return not self._looked

    async def look(self, *, live: bool) -> tuple[TaskSnapshot, ...]:
        """Mark unfinished tasks as interrupted, and return them. Unless a person is watching (`live`), return none: a
        later kernel reports them."""
        if not self.is_due():
            return ()
        from prose_kernel.processes.tasks.ledger import recover_all
        from prose_kernel.runs.settings import surroundings
        from prose_kernel.runtime.clock import SystemClock

        self._looked = True
        state_dir = self._state_dir()
        notebook = surroundings(self._cwd, None, state_dir).notebook
        found = await asyncio.to_thread(recover_all, self._cwd / state_dir, SystemClock(), notebook, notify=live)
        self.follow_ups = list(found.follow_ups)
        return found.tasks
