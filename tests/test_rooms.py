"""Six rooms can be taken away: without its directory, everything else imports and runs (docs/contributing/architecture.md)."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

import forked
import pytest

import prose_kernel

PACKAGE = Path(prose_kernel.__file__).parent

IMPORT_ALL = """
import importlib, pkgutil, sys
import prose_kernel
assert prose_kernel.__path__[0].startswith(sys.argv[1]), prose_kernel.__path__
names = [found.name for found in pkgutil.walk_packages(prose_kernel.__path__, "prose_kernel.")]
for name in names:
    if not name.endswith(("_process", "_worker", "__main__", "papermill")):  # run by path; loaded by papermill
        importlib.import_module(name)
print(len(names))
"""

PROSE = "from prose_kernel.cli.main import main; raise SystemExit(main())"

PROGRAM = """
let lines = exec "printf 'a\\nb\\n'"
if **lines is not empty**:
  parallel:
    a = exec "echo 1"
    b = session "Say something"
output both = [a, b]
"""

CELLS = """
import asyncio
from pathlib import Path
from prose_kernel.notebook.cells import Cells
from prose_kernel.runtime.asker import Unattended

class Output:
    def __getattr__(self, name): return lambda *given, **named: None
    def error(self, problem): raise RuntimeError(str(problem))

async def main():
    cells = Cells(Path.cwd(), Unattended())
    for cell in ('let a = exec "echo 1"', "%bindings", "%help", "%%vvm\\nb = 2", "%graph"):
        await cells.run(cell, Output(), live=False)
    print(sorted(cells.values()))
    await cells.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("room", ["debugger", "evaluation", "lsp", "remote", "telemetry", "testing"])
def test_the_rest_imports_and_runs_without_a_room(tmp_path: Path, room: str) -> None:
    def unwanted(directory: str, names: list[str]) -> list[str]:
        return [room] if Path(directory) == PACKAGE else []

    shutil.copytree(PACKAGE, tmp_path / "prose_kernel", ignore=unwanted)
    work = tmp_path / "work"
    work.mkdir()
    (work / "p.prose").write_text(PROGRAM)
    (work / "s.yaml").write_text('sessions:\n  "*": "fine"\n')
    (work / "prose.toml").write_text('provider = "scripted"\nscript = "s.yaml"\n')
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    run = partial(forked.python, cwd=work, env=environment, package=tmp_path)
    imported = run(IMPORT_ALL, str(tmp_path))
    assert imported.returncode == 0, imported.stderr
    ran = run(PROSE, "run", "p.prose", "--format", "json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert '"fine"' in ran.stdout
    cells = run(CELLS)
    assert (cells.returncode, cells.stdout.strip()) == (0, "['a', 'b']"), cells.stderr
    commands = run(PROSE, "--help")
    assert commands.returncode == 0, commands.stderr
    verbs = {"evaluation": "eval", "lsp": "lsp", "testing": "test"}
    for name, verb in verbs.items():
        assert (f"  {verb} " in commands.stdout) == (name != room)
    if room in verbs:
        assert run(PROSE, verbs[room]).returncode == 2
