"""Six directories of the package are optional: without them, the rest imports and runs (docs/contributing/architecture.md)."""

from __future__ import annotations

import os
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
    if not name.endswith(("_process", "_worker", "__main__", "papermill")):  # run by path, or loaded by papermill
        importlib.import_module(name)
"""

PROSE = """
import sys
from prose_kernel.cli.main import main
for words in sys.argv[2:]:
    print("status", main(words.split()), flush=True)
"""

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


VERBS = {"evaluation": "eval", "lsp": "lsp", "testing": "test"}
REMOVED = (("debugger", "evaluation", "remote"), ("lsp", "telemetry", "testing"))
"""The six directories in two halves, of which one is removed at a time. A contract of import-linter forbids imports among
the six."""


@pytest.mark.parametrize("rooms", REMOVED, ids="-".join)
def test_the_package_imports_and_runs_without_optional_directories(tmp_path: Path, rooms: tuple[str, ...]) -> None:
    copy = tmp_path / "prose_kernel"
    copy.mkdir()
    for found in PACKAGE.iterdir():
        if found.name not in rooms:
            (copy / found.name).symlink_to(found)
    work = tmp_path / "work"
    work.mkdir()
    (work / "p.prose").write_text(PROGRAM)
    (work / "s.yaml").write_text('sessions:\n  "*": "fine"\n')
    (work / "prose.toml").write_text('provider = "scripted"\nscript = "s.yaml"\n')
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    removed_commands = [VERBS[room] for room in rooms if room in VERBS]
    commands = ("run p.prose --format json", "--help", *removed_commands)
    ran = forked.python(
        PROSE + IMPORT_ALL + CELLS, str(tmp_path), *commands, cwd=work, env=environment, package=tmp_path
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    output, _, rest = ran.stdout.partition("status 0\n")
    assert '"fine"' in output, ran.stdout + ran.stderr
    listed, _, rest = rest.partition("status 0\n")
    for name, verb in VERBS.items():
        assert (f"  {verb} " in listed) == (name not in rooms)
    assert rest.splitlines() == [*(["status 2"] * len(removed_commands)), "['a', 'b']"], ran.stderr
