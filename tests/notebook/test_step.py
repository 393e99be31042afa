"""`%step`: the machine at work, statement by statement; the same in every run, and without influence on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.generated import DOCS
from models.people import ScriptedPerson
from notebook.recording import Recording

from prose_kernel.notebook.cells import Cells
from prose_kernel.views.step_display import ROWS

ON_THE_PAGE = """\
let log = exec "echo hello"
parallel:
  a = exec "echo one"
  b = exec "echo $log"
    env: { log }
if **log is empty**:
  exec "false"
"""
PROGRAM = """\
let n = 1
parallel:
  slow = exec "sleep 0.05; echo slow"
  fast = session "Say it"
for x in [1, 2]:
  if x == 2:
    exec "echo two"
try:
  exec "exit 3"
catch as problem:
  let code = problem.exit_code
loop until **n is 1** (max: 2):
  exec "true"
block shout(t):
  return "{t}!"
let z = do shout("hey")
"""
SHOWN = [
    ["1", "let n = 1", "n := 1"],
    ["2", "parallel:"],
    ["3 slow", 'slow = exec "sleep 0.05; echo slow"', "ran `sleep 0.05; echo slow`; slow := slow"],
    ["4 fast", 'fast = session "Say it"', "asked the session: it; fast := it"],
    ["5", "for x in [1, 2]:", "pass 1; pass 2; leaves the loop: end"],
    ["6", "if x == 2:", "x = 1", "takes no branch"],
    ["6", "if x == 2:", "x = 2", "takes branch 1"],
    ["7", 'exec "echo two"', "ran `echo two`"],
    ["8", "try:", "catches ExecError"],
    ["9", 'exec "exit 3"', "ran `exit 3`: exit code 3; fails: exec failed with exit code 3"],
    ["11", "let code = problem.exit_code", "problem = exec failed with exit code 3", "code := 3"],
    ["12", "loop until **n is 1** (max: 2):", "pass 1; n is 1 → yes, says a rule; leaves the loop: **n is 1**"],
    ["16", 'let z = do shout("hey")', "enters shout; z := hey!"],
    ["15", 'return "{t}!"', "t = hey"],
]
VVM = """\
%%vvm
def f(x):
  y = x + [1]
  return y
z = pmap([[1], [2]], f)
if len(z) > 2:
  q = 3
"""


async def shown(tmp_path: Path, *codes: str) -> list[list[str]]:
    """The rows of the last cell that has some."""
    (tmp_path / "script.yaml").write_text('"*": it\n')
    cells = Cells(tmp_path, ScriptedPerson(available=False))
    cells.overrides = {"provider": "scripted", "script": "script.yaml", "cassette_mode": "off"}
    found: list[list[str]] = []
    try:
        for code in ("%step on", *codes):
            seen = Recording()
            await cells.run(code, seen, live=False)
            texts = [
                c[1].data["text/plain"] for c in seen.calls if c[0] == "display" and "what happens" in str(c[1].data)
            ]
            found = [re.split(r"\s{2,}", row) for text in texts for row in text.splitlines()[1:]] or found
    finally:
        await cells.close()
    return found


async def test_statements_in_order_with_what_they_did(tmp_path: Path) -> None:
    assert await shown(tmp_path, PROGRAM) == SHOWN


async def test_functions_and_branches_of_vvm(tmp_path: Path) -> None:
    assert await shown(tmp_path, VVM) == [
        ["5", "z = pmap([[1], [2]], f)", "f = function f(x)", "enters f; enters f; z := [[1, 1], [2, 1]]"],
        ["3 i0", "y = x + [1]", "x = [1]", "y := [1, 1]"],
        ["4 i0", "return y", "y = [1, 1]"],
        ["3 i1", "y = x + [1]", "x = [2]", "y := [2, 1]"],
        ["4 i1", "return y", "y = [2, 1]"],
        ["6", "if len(z) > 2:", "z = [[1, 1], [2, 1]]", "takes no branch"],
    ]


async def test_the_page_shows_what_is_shown(tmp_path: Path) -> None:
    page = (DOCS / "how-to" / "teaching.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d.*) \|$", page, re.MULTILINE)
    told = [[c.strip() for c in re.sub(r"\\?`", "", row).split("|") if c.strip()] for row in rows]
    assert [[c.replace("`", "") for c in row] for row in await shown(tmp_path, ON_THE_PAGE)] == told


async def test_a_failure_is_the_last_row(tmp_path: Path) -> None:
    assert await shown(tmp_path, 'let a = 1\nexec "exit 1"\nlet b = 2') == [
        ["1", "let a = 1", "a := 1"],
        ["2", 'exec "exit 1"', "ran `exit 1`: exit code 1; fails: exec failed with exit code 1"],
    ]


async def test_a_long_loop_is_counted(tmp_path: Path) -> None:
    rows = await shown(tmp_path, "let n = 0\nrepeat 1000:\n  n = n + 1")
    assert len(rows) == ROWS + 1 and rows[-1][-1] == f"… and {1002 - ROWS:,} more statements"


async def test_a_program_shows_the_same_without_it(tmp_path: Path) -> None:
    texts = {}
    for mode in ("on", "off"):
        (tmp_path / mode).mkdir()
        cells = Cells(tmp_path / mode, ScriptedPerson(available=False))
        seen = Recording()
        for code in (f"%step {mode}", "%step", ON_THE_PAGE, "let q = 2\noutput r = q"):
            await cells.run(code, seen, live=False)
        await cells.close()
        texts[mode] = [text for text in seen.texts if not text.startswith("line ")]
    assert texts["on"][0] == "on" and texts["on"][1:] == texts["off"][1:]


@pytest.mark.parametrize("code", ["%step maybe", "%step on off"])
async def test_misuse(tmp_path: Path, code: str) -> None:
    cells = Cells(tmp_path, ScriptedPerson(available=False))
    problem = await cells.run(code, Recording(), live=False)
    assert problem is not None and problem.evalue.startswith("%step: ")
    await cells.close()
