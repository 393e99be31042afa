"""The end of a run in a workspace: the next text starts a new run after an interrupt, and no files or processes are left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from waiting import eventually

from prose_kernel.errors import CompileError, RunError
from prose_kernel.processes.tasks.store import Owned, Store
from prose_kernel.runs import languages
from prose_kernel.runs.languages import VVM
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.services import CommandPromoted, TaskCaller, TaskEvent

PATIENCE = 30


def owned(run: Path) -> bool:
    """Whether a process holds the tasks of a run."""
    try:
        Store(run).close()
    except Owned:
        return True
    return False


async def test_an_interrupted_reset_still_resets(tmp_path: Path) -> None:
    workspace = Workspace(Settings(), Start(tmp_path), asker=Unattended())
    try:
        await workspace.execute('let a = "of the first run"')
        first = workspace.opened.id
        stubborn = {"cmd": "trap '' TERM; while :; do sleep 0.05; done", "yield_time_ms": 0}
        receipt = await workspace.opened.tasks.start(stubborn, TaskCaller())
        assert isinstance(receipt, CommandPromoted)
        ending, here = asyncio.Event(), asyncio.get_running_loop()

        def on_event(event: TaskEvent) -> None:
            here.call_soon_threadsafe(ending.set)

        workspace.opened.tasks.subscribe(on_event)
        resetting = asyncio.create_task(workspace.reset())
        await asyncio.wait_for(ending.wait(), PATIENCE)  # the run is ending, and waits for the task
        resetting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(resetting, PATIENCE)

        await workspace.execute('let b = "of the second run"')
        assert set(workspace.opened.machine.bindings()) == {"b"}
        assert workspace.opened.id != first
        await eventually(lambda: not owned(tmp_path / ".prose" / "runs" / first), what="the first run has ended")
    finally:
        await workspace.close()


async def test_an_interrupt_at_the_end_of_a_program_cancels_nothing_later(tmp_path: Path) -> None:
    workspace = Workspace(Settings(), Start(tmp_path), asker=Unattended())
    try:
        compiled = languages.without_errors(workspace.compile("let a = 1\n"))
        machine = workspace.opened.machine
        work = machine.run

        async def run(*given: Any, **options: Any) -> Any:
            value = await work(*given, **options)
            workspace.interrupt()  # like a signal: the loop cancels the task later
            return value

        machine.run = run  # type: ignore[method-assign]
        await workspace.run(compiled)
        for _ in range(5):
            await asyncio.sleep(0)
    finally:
        await workspace.close()


# ---------------------------------------------------------------- several languages


async def test_texts_of_two_languages_belong_to_one_run(tmp_path: Path) -> None:
    workspace = Workspace(Settings(), Start(tmp_path), asker=Unattended())
    try:
        await workspace.execute("a = 20", language=VVM)
        first = workspace.opened.id
        (tmp_path / "sub").mkdir()
        await workspace.execute('let b = a + 1\nexec "cd sub"\noutput c = b')
        assert workspace.cwd == tmp_path / "sub"
        assert await workspace.execute("a + b", language=VVM) == 41
        await workspace.execute("a = 2\nexport a", language=VVM)
        found = workspace.bindings()
        assert {name: (named.info.value, named.language.name) for name, named in found.items()} == {
            "a": (2, "vvm"),
            "b": (21, "openprose"),
            "c": (21, "openprose"),
        }
        assert {name: value for name, (value, _) in workspace.outputs().items()} == {"a": 2, "c": 21}
        assert workspace.opened.id == first is not None
        await workspace.reset()
        assert workspace.bindings() == {}
        with pytest.raises(RunError, match="unbound name: a"):
            await workspace.execute("a", language=VVM)
    finally:
        await workspace.close()


async def test_a_compile_error_changes_nothing(tmp_path: Path) -> None:
    workspace = Workspace(Settings(), Start(tmp_path, language=VVM), asker=Unattended())
    try:
        await workspace.execute("a = 1")
        with pytest.raises(CompileError):
            await workspace.execute("let a = ", language=languages.default())
        with pytest.raises(CompileError):
            await workspace.execute("a = ]")
        assert await workspace.execute("a") == 1
        assert [path.name for path in tmp_path.iterdir()] == [".vvm"]  # in VVM, only the journal of a notebook is kept
    finally:
        await workspace.close()


async def test_the_depth_of_calls_is_a_setting(tmp_path: Path) -> None:
    down = "def down(n):\n  if n == 0:\n    return 0\n  return down(n - 1)\n"
    for first in (VVM, languages.default()):
        workspace = Workspace(Settings().changed(vvm_depth=7), Start(tmp_path, language=first), asker=Unattended())
        try:
            assert await workspace.execute(down + "down(6)", language=VVM) == 0
            with pytest.raises(RunError, match="recursion limit"):
                await workspace.execute("down(7)", language=VVM)
        finally:
            await workspace.close()
