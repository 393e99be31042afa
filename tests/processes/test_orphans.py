"""The process of a run is a sub-reaper, and reaps only orphans (exec-and-tasks.md 1.4, amendment A34)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes.conftest import Runner

from prose_kernel.processes import system

pytestmark = pytest.mark.skipif(not system.LINUX, reason="only Linux has sub-reapers")

GONE = "while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done; echo gone"
"""Wait as scripts that stop a service do: without an end until the dead process has been waited for."""


async def test_a34_an_orphan_is_a_child_of_the_run(run: Runner, tmp_path: Path) -> None:
    await run("setsid -f sh -c 'echo $$ > pid; exec sleep 4809'; until [ -s pid ]; do sleep 0.02; done")
    pid = int((tmp_path / "pid").read_text())
    try:
        assert system.process_info(pid)[3] == os.getpid()  # type: ignore[index]
    finally:
        os.kill(pid, 9)


async def test_a34_an_orphan_that_ended_is_gone(run: Runner) -> None:
    await run("setsid -f sh -c 'echo $$ > pid; sleep 0.5'; until [ -s pid ]; do sleep 0.02; done; sleep 0.3")
    assert (await run(GONE, timeout=20)).stdout == "gone\n"
    await run("sleep 0.3 & echo $! > pid")
    assert (await run(GONE, timeout=20)).stdout == "gone\n"
    assert (await run("(sleep 0.1 & echo $! > pid); sleep 0.2; " + GONE, timeout=20)).stdout == "gone\n"


def test_a34_an_orphan_in_its_own_session_is_reaped_in_an_idle_process(tmp_path: Path) -> None:
    (tmp_path / "p.prose").write_text(f"exec \"setsid -f sh -c 'echo $$ > pid; sleep 0.2'; sleep 0.1; {GONE}\"\n")
    program = tmp_path / "prose"  # as installed
    program.write_text("import sys; from prose_kernel.cli.main import main; sys.exit(main())")
    command = [sys.executable, program, "run", "p.prose"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == "gone\n", ended.stderr


async def test_a34_exit_codes_of_other_children_are_not_taken(run: Runner) -> None:
    """A notebook's Python code may read them an hour later."""
    others = [
        subprocess.Popen([sys.executable, "-I", "-S", "-c", "raise SystemExit(7)"], start_new_session=new)
        for new in (False, True)
    ]
    for _ in range(3):
        await run("sleep 0.3 & sleep 0.3")
    assert [other.wait(30) for other in others] == [7, 7]
