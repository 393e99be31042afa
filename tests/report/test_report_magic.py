"""`%report` writes a report of the run so far; the console on the documentation page is up to date."""

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


async def output_of(cells: Cells, code: str) -> str:
    output = Recording()
    await cells.run(code, output, live=False)
    if output.kinds[-1] == "error":
        return re.sub(r"\x1b\[\d+m", "", "\n".join(output.calls[-1][1].traceback))
    return str(output.calls[-1][1].data["text/plain"])


async def test_report_shows_the_run_so_far_in_both_languages(cells: Cells, tmp_path: Path) -> None:
    assert await output_of(cells, "%report") == "Nothing has happened in the run yet."
    await output_of(cells, PROGRAM)
    await output_of(cells, VVM)
    await output_of(cells, 'throw "stop <here>"')
    assert await output_of(cells, "%report") == "3 cells of the run so far: report.html"
    page = checked((tmp_path / "report.html").read_text())
    for part in (
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
        assert part in page.text, part
    assert {"c1", "c2", "c3", "p1", "p2", "p3"} <= set(page.ids)


async def test_report_writes_only_over_reports(cells: Cells, tmp_path: Path) -> None:
    await output_of(cells, PROGRAM)
    (tmp_path / "docs").mkdir()
    assert await output_of(cells, "%report docs/run.html") == "1 cell of the run so far: docs/run.html"
    assert await output_of(cells, "%report docs/run.html") == "1 cell of the run so far: docs/run.html"
    (tmp_path / "report.html").write_text("mine")
    assert "exists and isn't a report" in await output_of(cells, "%report")
    assert await output_of(cells, "%report --force") == "1 cell of the run so far: report.html"
    assert "%report: --what is not understood" in await output_of(cells, "%report --what")
    assert "%report: too many words" in await output_of(cells, "%report a b")
    assert "a" in cells.values()


async def test_each_notebook_of_a_directory_has_its_own_report(
    cells: Cells, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "sub/first steps.ipynb")
    await output_of(cells, PROGRAM)
    assert await output_of(cells, "%report") == "1 cell of the run so far: first steps.report.html"
    assert "first steps.ipynb running" in checked((tmp_path / "first steps.report.html").read_text()).text


async def test_a_run_without_a_journal_has_no_report(tmp_path: Path) -> None:
    (tmp_path / "prose.toml").write_text('journal = "off"\n')
    cells = Cells(tmp_path, ScriptedPerson(available=False))
    await output_of(cells, PROGRAM)
    assert "the run keeps no journal" in await output_of(cells, "%report")
    await cells.close()


async def test_a_run_in_memory_has_no_report_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / ".prose").write_text("a file where the state directory should be")
    cells = Cells(tmp_path, ScriptedPerson(available=False))
    await output_of(cells, PROGRAM)
    for magic in ("%report", "%history"):
        assert "hint: the state directory cannot be written: it is kept in memory" in await output_of(cells, magic)
    assert "hint: nothing of it is kept: %reset ends it" in await output_of(cells, "%restore")
    await cells.close()


def test_the_console_on_the_page_on_reports_is_up_to_date(
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
        messages = [line for line in err.splitlines() if not line.startswith(("run directory: ", "to resume it: "))]
        shown += "\n".join(
            [f"$ prose {command}", *out.splitlines(), *messages, *([f"[exit status {status}]"] if status else [])]
        )
        shown += "\n"
    assert shown == console
    checked(Path("check.html").read_text())
