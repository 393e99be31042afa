"""The end of a run in a workspace: whatever disturbs it, the next text starts anew and nothing stays behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from prose_kernel.runtime.services import CommandPromoted, TaskCaller, TaskEvent
from prose_kernel.settings import Settings
from prose_kernel.workspace import Start, Workspace

PATIENCE = 30


class Nobody:
    available = False

    async def ask(self, prompt: str, *, password: bool = False) -> str:
        raise AssertionError("nobody is here")

    def show(self, text: str) -> None:
        """Nobody reads it."""


async def test_a_reset_that_is_interrupted_is_a_reset_all_the_same(tmp_path: Path) -> None:
    workspace = Workspace(Settings(), Start(tmp_path), asker=Nobody())
    try:
        await workspace.execute('let a = "of the first run"')
        first = workspace.run_id
        stubborn = {"cmd": "trap '' TERM; while :; do sleep 0.05; done", "yield_time_ms": 0}
        receipt = await workspace.tasks.start(stubborn, TaskCaller())
        assert isinstance(receipt, CommandPromoted)
        ending, here = asyncio.Event(), asyncio.get_running_loop()

        def told(event: TaskEvent) -> None:
            here.call_soon_threadsafe(ending.set)

        workspace.tasks.subscribe(told)
        resetting = asyncio.create_task(workspace.reset())
        await asyncio.wait_for(ending.wait(), PATIENCE)  # the run is ending, and waits for the task
        resetting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(resetting, PATIENCE)

        await workspace.execute('let b = "of the second run"')
        assert set(workspace.machine.bindings()) == {"b"}
        assert workspace.run_id != first
    finally:
        await workspace.close()
