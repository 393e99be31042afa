"""`%report`: the run so far, written from a notebook; and what the page on reports shows is what happens."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cli.generated import DOCS
from models.people import ScriptedPerson
from notebook.recording import Recording
from report.pages import checked

from prose_kernel.cli.main import main
from prose_kernel.notebook.cells import Cells

PROGRAM = 'let a = exec "echo one"\nlet b = exec "echo two; exit 3"\n  on-fail: "continue"\n'
VVM = '%%vvm\nagent helper(model="sonnet")\nc = @helper `Say`(a)\n'


@pytest.fixture
async def cells(tmp_path: Path) -> AsyncIterator[Cells]:
    (tmp_path / "s.yaml").write_text('sessions:\n  "*": "answer"\n')
    (tmp_path / "prose.toml").write_text('provider = "scripted"\nscript = "s.yaml"\n')
    made = Cells(tmp_path, ScriptedPerson(available=False))
    yield made
    await made.close()


async def said(cells: Cells, code: str) -> str:
    output = Recording()
    await cells.run(code, output, live=False)
    if output.kinds[-1] == "error":
        return re.sub(r"\x1b\[\d+m", "", "\n".join(output.calls[-1][1].traceback))
    return str(output.calls[-1][1].data["text/plain"])


async def test_the_run_so_far_with_both_languages(cells: Cells, tmp_path: Path) -> None:
    assert await said(cells, "%report") == "Nothing has happened in the run yet."
    await said(cells, PROGRAM)
    await said(cells, VVM)
    await said(cells, 'throw "stop <here>"')
    assert await said(cells, "%report") == "3 cells of the run so far: report.html"
    page = checked((tmp_path / "report.html").read_text())
    for words in (
        "notebook running",
        "3 cells 2 commands 1 session",
        "Cell 3: ",
        "stop <here>",
        "Cell 1 done 1 $ echo one → a",
        "exit code 3",
        "Cell 2 done 3 session helper Say → c scripted",
        "input one",
        "a let, text from exec 1 one",
        "c string 3 answer",
    ):
        assert words in page.text, words
    assert {"c1", "c2", "c3", "p1", "p2", "p3"} <= set(page.ids)


async def test_the_file_that_it_writes(cells: Cells, tmp_path: Path) -> None:
    await said(cells, PROGRAM)
    (tmp_path / "docs").mkdir()
    assert await said(cells, "%report docs/run.html") == "1 cell of the run so far: docs/run.html"
    assert await said(cells, "%report docs/run.html") == "1 cell of the run so far: docs/run.html"
    (tmp_path / "report.html").write_text("mine")
    assert "exists and isn't a report" in await said(cells, "%report")
    assert await said(cells, "%report --force") == "1 cell of the run so far: report.html"
    assert "%report: --what is not understood" in await said(cells, "%report --what")
    assert "%report: too many words" in await said(cells, "%report a b")
    assert "a" in cells.values()


async def test_a_run_without_a_journal_has_no_report(tmp_path: Path) -> None:
    (tmp_path / "prose.toml").write_text('journal = "off"\n')
    cells = Cells(tmp_path, ScriptedPerson(available=False))
    await said(cells, PROGRAM)
    assert "the run keeps no journal" in await said(cells, "%report")
    await cells.close()


async def test_a_run_in_memory_has_no_report_and_is_not_called_empty(tmp_path: Path) -> None:
    (tmp_path / ".prose").write_text("a file where the state directory should be")
    cells = Cells(tmp_path, ScriptedPerson(available=False))
    await said(cells, PROGRAM)
    for magic in ("%report", "%history"):
        assert "hint: the state directory cannot be written: it is kept in memory" in await said(cells, magic)
    assert "hint: nothing of it is kept: %reset ends it" in await said(cells, "%restore")
    await cells.close()


def test_the_page_on_reports_shows_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (DOCS / "how-to" / "reports.md").read_text(encoding="utf-8").partition("\n## Write a report\n")[2]
    ((name, program),) = re.findall(r"^`([\w.]+)`:\n\n```prose\n(.*?)```", source, re.MULTILINE | re.DOTALL)
    (console,) = re.findall(r"```console\n(.*?)```", source, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(program)
    shown = ""
    for command in re.findall(r"^\$ prose (.*)$", console, re.MULTILINE):
        status = main(command.split())
        out, err = capsys.readouterr()
        told = [line for line in err.splitlines() if not line.startswith(("run directory: ", "to resume it: "))]
        shown += "\n".join(
            [f"$ prose {command}", *out.splitlines(), *told, *([f"[exit status {status}]"] if status else [])]
        )
        shown += "\n"
    assert shown == console
    checked(Path("check.html").read_text())
