"""Find the tasks that earlier runs left in a notebook's directory (docs/reference/exec-and-tasks.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prose_kernel.runtime.services import TaskFollowUp, TaskSnapshot


class EarlierTasks:
    """Looks for such tasks once, when the first cell runs. `state_dir` returns the name of the state directory, or
    raises `UsageError` if a setting is invalid. `follow_ups` are waiting continuations with their runs' directories."""

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
        from prose_kernel.processes.tasks.recovery import recover_all
        from prose_kernel.runs.settings import surroundings
        from prose_kernel.runtime.clock import SystemClock

        self._looked = True
        state_dir = self._state_dir()
        notebook = surroundings(self._cwd, None, state_dir).notebook
        found = await asyncio.to_thread(recover_all, self._cwd / state_dir, SystemClock(), notebook, notify=live)
        self.follow_ups = list(found.follow_ups)
        return found.tasks
