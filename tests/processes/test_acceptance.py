"""The acceptance statements for `exec`, end to end: from program text to values, errors, files and processes
(exec-and-tasks.md 2)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from waiting import PATIENCE

from prose_kernel.errors import ExecError
from prose_kernel.processes.process_table import members
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.values import ExecText


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[Workspace]:
    workspace = Workspace(Settings(shell="bash"), Start(tmp_path.resolve()), asker=Unattended())
    yield workspace
    await workspace.close()


async def stdout(workspace: Workspace, program: str) -> str:
    """Return the output of the last command of a program."""
    value = await workspace.execute(program)
    assert isinstance(value, ExecText)
    return value.text


def binding(workspace: Workspace, name: str) -> str:
    assert workspace.opened.directory is not None
    return (workspace.opened.directory / "bindings" / f"{name}.md").read_text()


def alive(directory: Path) -> list[int]:
    """Return the processes that work in the test's own directory."""
    found = []
    for member in members():
        try:
            if Path(f"/proc/{member.pid}/cwd").readlink().is_relative_to(directory):
                found.append(member.pid)
        except OSError:
            continue
    return found


async def test_acceptance_1_exit_codes_and_on_fail(workspace: Workspace) -> None:
    with pytest.raises(ExecError) as caught:
        await workspace.execute('exec "exit 3"')
    assert (caught.value.code, caught.value.details["exit_code"]) == ("E203", 3)
    await workspace.execute('let a = exec "exit 3"\n  on-fail: continue\nlet b = exec "exit 3"\n  on-fail: ignore')
    assert "exit_code: 3\n" in binding(workspace, "a")
    assert "exit_code" not in binding(workspace, "b")
    assert "stderr" not in binding(workspace, "b")


async def test_acceptance_2_what_cd_persists_across(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)

    async def where(text: str) -> str:
        with contextlib.suppress(ExecError):
            await workspace.execute(text)
        return str(Path(workspace.opened.machine.cwd).relative_to(tmp_path.resolve()))

    assert await where('exec "cd a"') == "a"
    assert await stdout(workspace, 'exec "pwd"') == f"{tmp_path.resolve()}/a\n"
    assert await where('exec "cd b; exit 0"') == "a/b"
    assert await where('exec "cd ..; false"') == "a"
    assert await where('exec "cd b; sleep 10"\n  timeout: "200ms"') == "a"
    assert await where('exec "(cd b)"') == "a"
    assert await where('parallel:\n  exec "cd b"\n  exec "cd .."') == "a"


@pytest.mark.parametrize("character", ["x", "😀"])
async def test_acceptance_3_the_cap(workspace: Workspace, character: str) -> None:
    for name, count in (("a", 30_000), ("b", 30_001)):
        await workspace.execute(f"""let {name} = exec "printf '{character}%.0s' $(seq {count})" """)
        assert binding(workspace, name).partition("\n---\n")[2].strip() == character * 30_000
    assert "stdout_truncated" not in binding(workspace, "a")
    assert "stdout_truncated: true" in binding(workspace, "b")


async def test_acceptance_4_the_time_limit(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(ExecError) as caught:
        async with asyncio.timeout(PATIENCE):
            await workspace.execute('exec "sleep 600"\n  timeout: "1s"')
    assert caught.value.code == "E204"
    assert alive(tmp_path) == []


async def test_acceptance_5_branches_at_the_same_time_and_apart(workspace: Workspace, tmp_path: Path) -> None:
    """Each branch waits for the other."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    branch = '  {} = exec "cd {}; touch here; until [ -e ../{}/here ]; do sleep 0.01; done; pwd"\n'
    async with asyncio.timeout(PATIENCE):
        await workspace.execute("parallel:\n" + branch.format("one", "a", "b") + branch.format("two", "b", "a"))
    for name, directory in (("one", "a"), ("two", "b")):
        assert binding(workspace, name).endswith(f"{tmp_path.resolve()}/{directory}\n")


async def test_acceptance_6_no_input_and_no_terminal(workspace: Workspace) -> None:
    async with asyncio.timeout(PATIENCE):
        assert await stdout(workspace, 'exec "cat"') == ""
        with pytest.raises(ExecError):
            await workspace.execute('exec "read x </dev/tty"')


async def test_acceptance_7_escaped_braces_and_quotes_reach_the_shell(workspace: Workspace) -> None:
    text = r"""exec "v=1; echo \"$(echo in)\" '\{a\}' $\{v\} `echo tick`" """
    assert await stdout(workspace, text) == "in {a} 1 tick\n"


async def test_acceptance_8_a_bare_exec_leaves_no_file_and_honours_on_fail(workspace: Workspace) -> None:
    await workspace.execute('let kept = exec "echo 1"\nexec "echo 2"\nexec "exit 3"\n  on-fail: continue')
    with pytest.raises(ExecError):
        await workspace.execute('exec "exit 3"')
    assert workspace.opened.directory is not None
    assert [path.name for path in (workspace.opened.directory / "bindings").iterdir()] == ["kept.md"]


async def test_acceptance_9_interpolation_strips_what_the_file_keeps(workspace: Workspace) -> None:
    result = await stdout(workspace, r"""let v = exec "printf 'a\n'" """ + "\nexec \"echo '[{v}]'\"")
    assert result == "[a]\n"
    assert binding(workspace, "v").endswith("\na\n")


async def test_acceptance_10_a_background_process(workspace: Workspace, tmp_path: Path) -> None:
    """test_watchdog.py tests that a killed kernel leaves no background process."""
    async with asyncio.timeout(PATIENCE):
        assert await stdout(workspace, 'exec "sleep 600 & echo hi"') == "hi\n"
    assert len(alive(tmp_path)) == 1
    await workspace.close()
    assert alive(tmp_path) == []
