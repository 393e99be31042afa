"""Tasks that earlier runs in the directory of a notebook have left (docs/reference/exec-and-tasks.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prose_kernel.runtime.services import TaskFollowUp, TaskSnapshot


class EarlierTasks:
    """Looks once, when the first cell runs. `state_dir` returns the name of the state directory; it raises `UsageError`
    when a setting makes no sense. `follow_ups` are the continuations that wait, with the directories of their runs."""

    def __init__(self, cwd: Path, state_dir: Callable[[], str]) -> None:
        self._cwd = cwd
        self._state_dir = state_dir
        self._looked = False
        self.follow_ups: list[tuple[Path, TaskFollowUp]] = []

    def is_due(self) -> bool:
        """Whether there is something to look at. The modules of tasks are not loaded for this."""
        if not self._looked and not (self._cwd / self._state_dir() / "tasks").is_dir():
            self._looked = True
        return not self._looked

    async def look(self, *, live: bool) -> tuple[TaskSnapshot, ...]:
        """Record what could not be finished as interrupted, and return it. Without a person watching (`live`), nothing
        is returned: a later kernel reports it."""
        if not self.is_due():
            return ()
        from prose_kernel.processes.tasks.recovery import recover_all
        from prose_kernel.runs.settings import surroundings
        from prose_kernel.runtime.clock import SystemClock

        self._looked = True
        state_dir = self._state_dir()
        notebook = surroundings(self._cwd, None, state_dir).notebook
        found = await asyncio.to_thread(recover_all, self._cwd / state_dir, SystemClock(), notebook, notify=live)
        self.follow_ups = list(found.follow_ups)
        return found.tasks
