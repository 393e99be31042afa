"""The end of a run in a workspace: the next text starts a new run after an interrupt, and no files or processes are left."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from killing import how_to_resume
from waiting import eventually

from prose_kernel.errors import CompileError, RunError, UsageError
from prose_kernel.processes.tasks.store import Owned, Store
from prose_kernel.runs import languages
from prose_kernel.runs.languages import VVM
from prose_kernel.runs.resumption import resumption
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.services import CommandPromoted, TaskCaller, TaskEvent
from prose_kernel.storage import pending_writes
from prose_kernel.storage.journal_reading import read

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


NAMES = "".join(f'let n{number} = "value"\n' for number in range(40))
"""More names than are written without a thread."""


@pytest.mark.parametrize("end", ['throw "why"', "let i = 0\nloop (max: 1000000000):\n  i = i + 1\n"])
async def test_an_interrupt_does_not_wait_for_the_disk(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of a text that failed or was interrupted are written meanwhile."""
    writes, goes_on = threading.Event(), threading.Event()
    write_whole = pending_writes.write_whole

    def slow(*given: str) -> None:
        writes.set()
        assert goes_on.wait(PATIENCE)
        write_whole(*given)

    workspace = Workspace(Settings(), Start(tmp_path), asker=Unattended())
    try:
        await workspace.execute('let first = "value"')
        monkeypatch.setattr(pending_writes, "write_whole", slow)
        running = asyncio.create_task(workspace.execute(NAMES + end))
        if "loop" in end:
            await eventually(lambda: workspace.loops(), what="the loop has begun")
            workspace.interrupt()
        await eventually(writes.is_set, what="the names are being written")
        workspace.interrupt()
        with pytest.raises(RunError if "throw" in end else asyncio.CancelledError):
            await asyncio.wait_for(running, PATIENCE)
        assert not goes_on.is_set()
        goes_on.set()
        await workspace.execute('let last = "value"')
        directory = workspace.opened.directory
        assert directory is not None
        stored = {path.stem for path in (directory / "bindings").iterdir()}
        assert stored == workspace.bindings().keys() >= {"first", "n0", "n39", "last"}
    finally:
        goes_on.set()
        await workspace.close()
    restored = Workspace(Settings(), Start(tmp_path), asker=Unattended(), resumption=how_to_resume(tmp_path))
    try:
        await restored.restore()
        assert restored.bindings().keys() == stored
    finally:
        await restored.close()


async def test_a_run_that_cannot_be_resumed_with_a_setting_can_be_resumed_without_it(tmp_path: Path) -> None:
    start, person = Start(tmp_path, "p.prose", notebook=False), Unattended()
    first = Workspace(Settings(), start, asker=person)
    with pytest.raises(RunError):
        await first.execute('let a = exec "false"', "p.prose")
    await first.end()
    await first.close()
    (path,) = tmp_path.glob(".prose/runs/*/journal.jsonl")
    invalid = Workspace(Settings().changed(judge="nobody"), start, asker=person, resumption=resumption(read(path)))
    with pytest.raises(UsageError, match="there is no provider `nobody`"):
        await invalid.restore()
    await invalid.close()
    again = Workspace(Settings(), start, asker=person, resumption=resumption(read(path)))
    await again.restore()
    await again.close()


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
