"""`prose run notebook.ipynb`: its cells in order, in one run, next to the notebook."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from prose_kernel.cli.main import main
from prose_kernel.cli.notebook_file import read_cells
from prose_kernel.errors import UsageError

PROSE = {"kernelspec": {"name": "prose", "display_name": "Prose", "language": "prose"}}
PYTHON = {"kernelspec": {"name": "python3", "display_name": "Python", "language": "python"}}


def write(path: Path, metadata: dict[str, object], *sources: str) -> None:
    cells = [new_markdown_cell("# title"), *map(new_code_cell, sources)]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells, metadata=metadata), path)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_cells_share_one_run_and_its_state_is_next_to_the_notebook(capfd: pytest.CaptureFixture[str]) -> None:
    write(Path("books/b.ipynb"), PROSE, 'let x = "one"', "", "# nothing", 'exec "ls"', 'output y = "{x} two"')
    assert main(["run", "books/b.ipynb", "--format", "json"]) == 0
    seen = capfd.readouterr()
    result = json.loads(seen.out)
    assert seen.err.startswith("b.ipynb\n")
    assert result["outputs"] == {"y": "one two"}
    assert result["bindings"] == {"x": "one", "y": "one two"}
    assert [p.name for p in Path(".prose/runs").iterdir()] == [result["run_id"]]


def test_in_a_python_notebook_only_prose_cells_are_run(capfd: pytest.CaptureFixture[str]) -> None:
    write(
        Path("b.ipynb"), PYTHON, "%load_ext prose_kernel", '%%prose\nlet x = "one"', "print(x)", "%%prose\noutput y = x"
    )
    assert main(["run", "b.ipynb"]) == 0
    assert capfd.readouterr().out == "y: one\n"


def test_a_cell_may_define_again_what_an_earlier_one_did(capfd: pytest.CaptureFixture[str]) -> None:
    write(Path("b.ipynb"), PROSE, 'let x = "one"', 'let x = "two"', "output y = x")
    assert main(["run", "b.ipynb"]) == 0
    assert capfd.readouterr().out == "y: two\n"


def test_going_back_is_refused_before_the_run_begins(capfd: pytest.CaptureFixture[str]) -> None:
    write(Path("b.ipynb"), PROSE, 'exec "touch ran"', 'let x = 1\nlet y = """\n%back 1\n"""', "output z = x\n%back 1")
    assert main(["run", "b.ipynb"]) == 2
    assert capfd.readouterr().err == (
        "Error: cell 3: %restore and %back are for a notebook in a kernel\nhint: prose run --resume resumes a run\n"
    )
    assert [path.name for path in Path().iterdir()] == ["b.ipynb"]


@pytest.mark.parametrize("magic", ["%back 1", "%back c1", "%back c2/1"])
def test_going_back_in_a_cell_that_may_fail_begins_no_branch(magic: str, capfd: pytest.CaptureFixture[str]) -> None:
    write(Path("b.ipynb"), PROSE, 'exec "echo one"', 'exec "echo two"', magic, "output z = 3")
    book = nbformat.read("b.ipynb", as_version=4)
    book.cells[3].metadata["tags"] = ["raises-exception"]
    nbformat.write(book, "b.ipynb")
    assert main(["run", "b.ipynb"]) == 0
    seen = capfd.readouterr()
    assert "%restore and %back are for a notebook in a kernel" in seen.out + seen.err
    assert seen.out.endswith("z: 3\n")
    assert len(list(Path(".prose/runs").iterdir())) == 1


def test_an_error_names_its_cell(capfd: pytest.CaptureFixture[str]) -> None:
    write(Path("b.ipynb"), PROSE, 'exec "touch ran"', '\nexec "exit 3"', 'exec "touch never"')
    assert main(["run", "b.ipynb"]) == 1
    assert capfd.readouterr().err.startswith("ExecError at line 2, column 1 of cell 2: ")
    assert (Path("ran").exists(), Path("never").exists()) == (True, False)


def test_a_cell_with_the_tag_may_fail(capfd: pytest.CaptureFixture[str]) -> None:
    write(Path("b.ipynb"), PROSE, 'exec "exit 3"', "let x = nothing", "%nonsense", 'output y = "on"')
    book = nbformat.read("b.ipynb", as_version=4)
    for cell in book.cells[1:4]:
        cell.metadata.tags = ["raises-exception"]
    nbformat.write(book, "b.ipynb")
    assert main(["run", "b.ipynb"]) == 0
    seen = capfd.readouterr()
    assert seen.out == "y: on\n"
    assert "cell 1 failed, as its tag raises-exception expects: exec failed with exit code 3" in seen.err


def test_a_compile_error_in_the_first_cell_is_an_error_before_the_start() -> None:
    write(Path("b.ipynb"), PROSE, "let r = session: nobody", 'exec "touch never"')
    assert main(["run", "b.ipynb"]) == 2
    write(Path("c.ipynb"), PROSE, 'exec "true"', "let r = session: nobody")
    assert main(["run", "c.ipynb"]) == 1


def test_magics_work_as_in_the_kernel(capfd: pytest.CaptureFixture[str]) -> None:
    Path("part.prose").write_text('let p = "from a file"\n')
    write(
        Path("b.ipynb"),
        PROSE,
        "%input name=Ada\n%gate approve go",
        'input name: "Who?"\ngate go:\n  prompt: "Go?"\n',
        "%run part.prose\n%bindings",
        'output y = "{name} {p}"',
    )
    assert main(["run", "b.ipynb"]) == 0
    seen = capfd.readouterr()
    assert seen.out.endswith("y: Ada from a file\n")
    assert "name  kind" in seen.out
    assert seen.err == "gate go: approved by user\n"


def test_inputs_and_decisions_reach_a_notebook(capfd: pytest.CaptureFixture[str]) -> None:
    write(Path("b.ipynb"), PROSE, 'gate go:\n  prompt: "Go?"', 'input name: "Who?"\noutput y = name')
    assert main(["run", "b.ipynb", "--yes", "go", "--input", "name=Ada"]) == 0
    assert capfd.readouterr().out == "y: Ada\n"
    assert main(["run", "b.ipynb", "--yes", "go"]) == 3


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--yes", "og"], "--yes og: the program has no such gate; its gates are go"),
        (["--no", "later:go"], "--no later:go: the program has no such gate; its gates are go"),
        (
            ["--input", "nam=Ada"],
            "--input nam: the program has no such input; its inputs are name\nhint: did you mean `name`?",
        ),
    ],
)
def test_an_option_that_no_cell_knows_is_refused_before_the_first_one(
    option: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write(
        Path("b.ipynb"), PROSE, 'exec "touch ran"', 'gate go:\n  prompt: "Go?"', 'input name: "Who?"\noutput y = name'
    )
    assert main(["run", "b.ipynb", *option]) == 2
    assert message in capfd.readouterr().err
    assert not Path("ran").exists() and not Path(".prose").exists()


def test_a_gate_of_a_file_that_a_cell_runs_is_decided_in_advance(capfd: pytest.CaptureFixture[str]) -> None:
    Path("part.prose").write_text('gate go:\n  prompt: "Go?"\n')
    write(Path("b.ipynb"), PROSE, "%run part.prose", "output y = 1")
    assert main(["run", "b.ipynb", "--yes", "go"]) == 0
    assert capfd.readouterr().out == "y: 1\n"


def test_an_unknown_magic_is_an_error_of_its_cell(capfd: pytest.CaptureFixture[str]) -> None:
    write(Path("b.ipynb"), PROSE, 'exec "true"', "%nonsense")
    assert main(["run", "b.ipynb", "--format", "json"]) == 1
    seen = capfd.readouterr()
    assert seen.err.startswith("In cell 2:\nError: there is no magic %nonsense\n")
    assert json.loads(seen.out)["error"]["type"] == "UsageError"


def test_lines_of_a_cell_count_from_its_magic() -> None:
    write(Path("b.ipynb"), PYTHON, "%%prose\nlet a = 1\nlet b = 2")
    (cell,) = read_cells("b.ipynb")[0]
    assert cell.text.splitlines()[1] == "let a = 1"


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"cells": 3}', "not json", '{"nbformat": 4, "cells": [{}]}'])
def test_a_file_that_is_not_a_notebook_is_a_usage_error(content: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("b.ipynb").write_text(content)
    assert main(["run", "b.ipynb"]) == 2
    assert capfd.readouterr().err.startswith("Error: b.ipynb ")


def test_a_notebook_without_prose_is_a_usage_error() -> None:
    write(Path("b.ipynb"), PYTHON, "print(1)")
    with pytest.raises(UsageError, match="no cells for Prose"):
        read_cells("b.ipynb")


def test_a_prose_notebook_without_code_cells_is_reported() -> None:
    write(Path("b.ipynb"), PROSE)
    with pytest.raises(UsageError, match=r"^b\.ipynb has no code cells: there is nothing to run$"):
        read_cells("b.ipynb")


@pytest.mark.parametrize("command", ["run", "test", "export"])
@pytest.mark.parametrize("tags", ["null", "3", '"raises-exception"', "[3]"])
def test_tags_that_are_not_a_list_are_named(command: str, tags: str, capfd: pytest.CaptureFixture[str]) -> None:
    cell = f'{{"cell_type": "code", "source": "output x = 1", "metadata": {{"tags": {tags}}}}}'
    Path("b.ipynb").write_text(
        f'{{"nbformat": 4, "metadata": {{"kernelspec": {{"name": "prose"}}}}, "cells": [{cell}]}}'
    )
    assert main([command, "b.ipynb"]) in (1, 2)
    seen = capfd.readouterr()
    assert "b.ipynb is not a notebook: the list of `tags` of its cell 1" in seen.out + seen.err


def test_a_kernelspec_that_is_not_an_object_is_not_a_prose_kernel(capfd: pytest.CaptureFixture[str]) -> None:
    cell = '{"cell_type": "code", "source": "output x = 1"}'
    Path("b.ipynb").write_text(f'{{"nbformat": 4, "metadata": {{"kernelspec": ["prose"]}}, "cells": [{cell}]}}')
    assert main(["test", "b.ipynb"]) == 1
    assert "Internal error" not in capfd.readouterr().err


def test_python_values_are_unavailable() -> None:
    write(Path("b.ipynb"), PYTHON, "%%prose --in name\noutput y = name")
    with pytest.raises(UsageError, match="no Python here"):
        read_cells("b.ipynb")


def test_a6_an_input_of_a_later_cell_decides_no_gate(capfd: pytest.CaptureFixture[str]) -> None:
    gate = 'gate go:\n  prompt: "Publish?"\nexec "echo published"'
    write(Path("b.ipynb"), PROSE, gate, '%cd .\ninput go: "Go where?"')
    assert main(["run", "b.ipynb", "--input", "go=approve"]) == 3
    write(Path("b.ipynb"), PROSE, gate)
    assert main(["run", "b.ipynb", "--input", "go=approve"]) == 0
    assert capfd.readouterr().out == "published\n"


def test_answers_are_reported_once_for_calls_between_languages(capfd: pytest.CaptureFixture[str]) -> None:
    Path("s.yaml").write_text('sessions:\n  "Go": "an answer"\n')
    write(
        Path("b.ipynb"),
        PROSE,
        '%%vvm\nagent one(prompt="x")\ndef f(n):\n  local = @one `Go`(n)\n  return local',
        'agent two:\n  prompt: "y"\nlet s = session: one\n  prompt: "Go"\nlet t = session: two\n  prompt: "Go"',
        "%%vvm\nu = @one `Go`()\nv = @two `Go`()",
        'parallel:\n  a = session: one\n    prompt: "Go"\n  b = do f(1)',
    )
    assert main(["run", "b.ipynb", "--provider", "scripted", "--script", "s.yaml"]) == 0
    names = [line.split(" = ")[0] for line in capfd.readouterr().err.splitlines() if " = " in line]
    assert names == ["s", "t", "u", "v", "a", "local", "b"]


def test_magics_that_inspect_the_run_see_earlier_cells(capfd: pytest.CaptureFixture[str]) -> None:
    write(Path("b.ipynb"), PROSE, '%step on\nlet x = exec "echo hi"', "%step off\n%graph")
    assert main(["run", "b.ipynb"]) == 0
    out = capfd.readouterr().out
    assert "cell 1:2  let x = exec" in out and "ran `echo hi`; x := hi" in out
    assert "$ echo hi → x  [✓ done]" in out


def test_a29_messages_name_a_cell_by_its_place_in_the_notebook(capfd: pytest.CaptureFixture[str]) -> None:
    write(Path("n.ipynb"), PROSE, "%bindings", "const n = 1", "%bindings", "%%vvm\nn = 2")
    assert main(["run", "n.ipynb"]) == 1
    printed = capfd.readouterr().err
    assert "a const of cell 2" in printed and "of cell 4" in printed
    assert main(["report", "-o", "report.html"]) == 0
    assert ">Cell 2 " in Path("report.html").read_text() and ">Cell 1 " not in Path("report.html").read_text()
