"""`prose graph`: output and exit status. tests/views/test_diagram.py tests the diagrams."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.test_docs_examples import blocks, named_files, printed

from prose_kernel.cli.main import main


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.prose").write_text('let x = exec "date"\nsession "Say {x}"\n')


def test_three_forms_of_one_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "a.prose"]) == 0
    assert capsys.readouterr().out == "$ date → x\nsession: Say {x}\n"
    assert main(["graph", "--format", "mermaid", "a.prose"]) == 0
    diagram = capsys.readouterr().out
    assert diagram.startswith("flowchart TD\n") and 'n1 -->|"x"| n2\n' in diagram
    assert main(["graph", "--format", "markdown", "a.prose"]) == 0
    assert capsys.readouterr().out == f"```mermaid\n{diagram}```\n"


def test_a_program_with_errors_and_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.prose").write_text("session: nobody\n")
    assert main(["graph", "bad.prose"]) == 1
    assert "E007" in capsys.readouterr().err
    assert main(["graph", "none.prose"]) == 2
    assert capsys.readouterr().out == ""


def test_the_page_shows_what_the_command_prints(tmp_path: Path) -> None:
    for name, content in named_files("reports"):
        Path(name).write_text(content)
    console = next(text for text in blocks("reports", "console") if text.startswith("$ prose graph"))
    assert printed(console.splitlines()[0].removeprefix("$ "), tmp_path) == console
