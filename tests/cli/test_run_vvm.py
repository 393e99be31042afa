"""`prose run`, `compile`, `fmt` and `check` with VVM, chosen by the suffix of a file or the kernel of a notebook."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import forked
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from stubs.model_server import StubServer

from prose_kernel.cli.main import main

VALID = """\
agent scribe(model="small")
def twice(n):
  return n + n
a = twice(21)
export a
export twice
export pack(u=(), list=[1, {x: ()}])
"""
SCRIPT = 'sessions:\n  "Fail": {error: "the server is overloaded", retryable: false}\n  "*": "an answer"\njudge:\n  "*": yes\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("v.vvm").write_text(VALID)
    Path("bad.vvm").write_text("a = \nb = ]\nc = 1\nexport c\n")
    Path("p.prose").write_text('output x = "one"\n')
    Path("s.yaml").write_text(SCRIPT)
    return tmp_path


def result(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_exports_are_printed_like_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "v.vvm"]) == 0
    assert capsys.readouterr().out == 'a: 42\nu: ()\nlist: [1, {"x": null}]\n'
    assert main(["run", "v.vvm", "--format", "json"]) == 0
    found = result(capsys)
    assert found["outputs"] == {"a": 42, "u": None, "list": [1, {"x": None}]}
    assert (found["status"], found["run_id"], found["error"]) == ("completed", None, None)
    assert sorted(path.name for path in Path().iterdir()) == ["bad.vvm", "p.prose", "s.yaml", "v.vvm"]


def test_a25_the_default_mode_leaves_nothing_on_disk(capsys: pytest.CaptureFixture[str]) -> None:
    Path("v.vvm").write_text("agent a()\nx = @a `Say`(())\ny = @a `More`(())\nexport x\n")
    Path("s.yaml").write_text('sessions:\n  "Say": "an answer"\n')
    before = sorted(Path().rglob("*"))
    call = ["run", "v.vvm", "--provider", "scripted", "--script", "s.yaml"]
    assert main([*call, "--format", "json"]) == 3
    seen = capsys.readouterr()
    assert json.loads(seen.out.splitlines()[-1])["run_id"] is None
    assert "prose run --resume" not in seen.err
    assert "--state=filesystem" in seen.err.splitlines()[-1]
    assert sorted(Path().rglob("*")) == before
    assert main(["run", "--resume", "v.vvm"]) == 2
    assert main([*call, "--state=filesystem"]) == 3
    assert "to resume it: prose run --resume" in capsys.readouterr().err


def test_a25_the_default_mode_records_nothing_unless_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    Path("v.vvm").write_text("agent a()\nx = @a `Say`(())\nexport x\n")
    before = sorted(Path().rglob("*"))
    with StubServer() as server:
        table = f'[providers.stub]\nkind = "openai"\nbase_url = "{server.openai_url}"\nmodel = "ok-1"\n'
        Path("prose.toml").write_text(table)
        terminal = forked.Terminal("run", "v.vvm", "--provider", "stub", cwd=Path.cwd())
        terminal.expect_exact("Completed")
        assert terminal.end() == 0
        Path("prose.toml").unlink()
        assert (server.stats.requests, sorted(Path().rglob("*"))) == (1, before)
        Path("prose.toml").write_text(table)
        assert main(["run", "v.vvm", "--provider", "stub", "--cassette-mode", "auto"]) == 0
    assert [path.name for path in Path("cassettes").iterdir() if path.suffix == ".jsonl"] == ["session.jsonl"]
    assert not Path(".vvm").exists()


def test_a25_a_terminal_shows_the_narration_of_a_program() -> None:
    Path("v.vvm").write_text("agent a()\nx = @a `Say`(())\nif 1 < 2:\n  pass\nexport x\n")
    call = ("run", "v.vvm", "--provider", "scripted", "--script", "s.yaml")
    terminal = forked.Terminal(*call, cwd=Path.cwd())
    for marker in ("📍 Run: v.vvm", "📍 @a `Say`(())", "⏳ @a", "📦 an answer", "✅ x bound", "✅ Completed"):
        terminal.expect_exact(marker)
    assert terminal.end() == 0
    piped = forked.prose(*call, cwd=Path.cwd())
    assert "✅" not in piped.stderr


def test_without_exports_the_last_value_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("v.vvm").write_text("x = 1\nx + 1.5\n")
    assert main(["run", "v.vvm"]) == 0
    assert capsys.readouterr().out == "2.5\n"
    Path("v.vvm").write_text("x = 1\n()\n")
    assert main(["run", "v.vvm"]) == 0
    assert capsys.readouterr().out == ""


def test_errors_before_the_start_run_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "bad.vvm"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("Error at line 1, column 4: ") and "\nError at line 2, column 5: " in printed
    assert main(["run", "bad.vvm", "--format", "json"]) == 2
    error = result(capsys)["error"]
    assert isinstance(error, dict) and [d["code"] for d in error["diagnostics"]] == ["V001", "V001"]


def test_a_raise_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("v.vvm").write_text('a = 1\nexport a\ndef f():\n  raise "on purpose"\nf()\n')
    assert main(["run", "v.vvm"]) == 1
    assert capsys.readouterr().err.startswith("thrown at line 4, column 3 of v.vvm: on purpose [R220]\n")
    assert main(["run", "v.vvm", "--format", "json"]) == 1
    error = result(capsys)["error"]
    assert isinstance(error, dict)
    assert (error["type"], error["code"], error["message"], error["line"]) == ("thrown", "R220", "on purpose", 4)


def test_a_missing_answer_cannot_be_caught(capsys: pytest.CaptureFixture[str]) -> None:
    Path("v.vvm").write_text("agent a()\ntry:\n  x = @a `Hello`()\nexcept as e:\n  pass\n")
    assert main(["run", "v.vvm", "--provider", "replay"]) == 3
    assert "nothing is recorded" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_a_loop(number: signal.Signals) -> None:
    Path("v.vvm").write_text("agent a()\nx = @a `Go`()\ntry:\n  while true:\n    pass\nfinally:\n  y = @a `Never`()\n")
    options = ("v.vvm", "--provider", "scripted", "--script", "s.yaml")
    with forked.Command("run", *options, cwd=Path.cwd()) as run:
        value_line = next(line for line in run.stderr if line.startswith("x = "))
        run.send_signal(number)
        rest = run.stderr.read()
        run.wait(60)
    assert (value_line, run.returncode) == ("x = an answer\n", 128 + number)
    assert "interrupted" in rest and "Never" not in rest and "y = " not in rest


def test_answers_are_values(capsys: pytest.CaptureFixture[str]) -> None:
    Path("v.vvm").write_text(
        "agent a()\ndef ask(x):\n  return @a `About {x}`(x)\ngood = ask(1)\nbad = @a `Fail`()\n"
        "sure = ?`it is good`(good)\nexport good\nexport bad\nexport sure\n"
    )
    assert main(["run", "v.vvm", "--provider", "scripted", "--script", "s.yaml"]) == 0
    seen = capsys.readouterr()
    assert seen.out == (
        'good: an answer\nbad: {"error": {"kind": "spawn_failed", "message": "the server is overloaded"}}\nsure: true\n'
    )
    assert "`it is good` an answer: yes (scripted)\n" in seen.err


def test_answers_can_be_files(capsys: pytest.CaptureFixture[str]) -> None:
    Path("v.vvm").write_text("agent a()\nx = @a `Hello`()\nexport x\n")
    given = ["run", "v.vvm", "--provider", "scripted", "--script", "s.yaml", "--format", "json"]
    assert main([*given, "--state=filesystem"]) == 0
    found = result(capsys)
    run = Path(".vvm/runs") / str(found["run_id"])
    assert found["outputs"] == {
        "x": {"ref": f"{run}/bindings/b000001.md", "summary": "an answer", "mime": "text/markdown"}
    }
    assert (run / "bindings/b000001.md").read_text() == "an answer"
    assert (run / "program.vvm").read_text() == Path("v.vvm").read_text()
    assert "Status: completed" in (run / "state.md").read_text()
    assert Path(".vvm/.gitignore").read_text().strip() == "*" and not Path(".prose").exists()
    assert main([*given, "--in-context"]) == 0
    assert result(capsys)["outputs"] == {"x": "an answer"}
    Path("prose.toml").write_text('[vvm]\nstate = "filesystem"\n')
    assert main(given) == 0
    assert str(result(capsys)["run_id"]) != "None"


def test_a_setting_limits_the_depth_of_calls(capsys: pytest.CaptureFixture[str]) -> None:
    Path("v.vvm").write_text("def f(n):\n  return f(n)\nf(1)\n")
    Path("prose.toml").write_text("[vvm]\ndepth = 3\n")
    assert main(["run", "v.vvm"]) == 1
    seen = capsys.readouterr().err
    assert "recursion limit" in seen and seen.count("in function f") <= 3


def test_vvm_takes_no_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "v.vvm", "--input", "a=1"]) == 2
    assert "--input a: the program has no such input; it has no inputs" in capsys.readouterr().err


# ---------------------------------------------------------------- compile, fmt, check


def test_a_valid_program_is_described_with_its_exports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "v.vvm"]) == 0
    assert capsys.readouterr().out == (
        "\N{WHITE HEAVY CHECK MARK} v.vvm is valid\n1 agent, 1 function\nexports: a, twice, u, list\n"
    )
    assert main(["compile", "bad.vvm"]) == 1
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.startswith("\N{CROSS MARK} Validation failed\nError at line 1, column 4: ")


def test_files_of_both_languages_in_one_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "--format", "json", "v.vvm", "p.prose", "bad.vvm", "gone.vvm"]) == 2
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["file"], one["language"], one["ok"]) for one in found] == [
        ("v.vvm", "vvm", True),
        ("p.prose", "openprose", True),
        ("bad.vvm", "vvm", False),
        ("gone.vvm", "vvm", False),
    ]
    assert main(["fmt", "v.vvm", "p.prose"]) == 0
    formatted = capsys.readouterr().out
    assert "# v.vvm\n" in formatted and '# p.prose\noutput x = "one"\n' in formatted
    assert main(["fmt", "--check", "v.vvm", "p.prose"]) in (0, 1)


def test_content_that_is_not_utf8_or_a_program_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    Path("b.vvm").write_bytes(b"x = \xff\n")
    assert main(["compile", "b.vvm"]) == 1
    assert "line 1, column 5: not UTF-8" in capsys.readouterr().err
    assert main(["run", "b.vvm"]) == 2
    Path("c.vvm").write_bytes(b"\xef\xbb\xbfx = 1\r\nexport x\r\n")
    capsys.readouterr()
    assert main(["run", "c.vvm"]) == 0
    assert capsys.readouterr().out == "x: 1\n"


# ---------------------------------------------------------------- notebooks


def write(name: str, kernel: str, *sources: str) -> None:
    spec = {"kernelspec": {"name": kernel, "display_name": kernel, "language": kernel}}
    nbformat.write(new_notebook(cells=[new_code_cell(source) for source in sources], metadata=spec), name)


@pytest.mark.parametrize(
    ("kernel", "cells"),
    [
        ("vvm", ["a = 1", "%%prose\nlet b = a + 1", "c = b + 1\nexport c", "%%prose\noutput d = c"]),
        ("prose", ["%%vvm\na = 1", "let b = a + 1", "%%vvm\nc = b + 1\nexport c", "output d = c"]),
        (
            "python3",
            [
                "import os",
                "%%vvm\na = 1",
                "%%prose\nlet b = a + 1",
                "%%vvm\nc = b + 1\nexport c",
                "%%prose\noutput d = c",
            ],
        ),
    ],
)
def test_cells_of_both_languages_are_one_run(kernel: str, cells: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    write("b.ipynb", kernel, *cells)
    assert main(["run", "b.ipynb", "--format", "json"]) == 0
    found = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert found["bindings"] == {"a": 1, "b": 2, "c": 3, "d": 3}
    assert found["outputs"] == {"c": 3, "d": 3}
    assert Path(".prose").exists() == (kernel != "vvm")


def test_an_error_names_its_cell_and_line(capfd: pytest.CaptureFixture[str]) -> None:
    write("b.ipynb", "vvm", "a = 1", '\nraise "no"')
    assert main(["run", "b.ipynb"]) == 1
    assert capfd.readouterr().err.startswith("thrown at line 2, column 1 of cell 2: no [R220]")
    write("b.ipynb", "prose", 'exec "true"', '%%vvm\nraise "no"')
    assert main(["run", "b.ipynb"]) == 1
    assert capfd.readouterr().err.startswith("thrown at line 2, column 1 of cell 2: no [R220]")


def test_a_cell_runs_a_file_of_the_other_language(capfd: pytest.CaptureFixture[str]) -> None:
    write("b.ipynb", "vvm", "%run p.prose", 'export pack(y=x + "!")')
    assert main(["run", "b.ipynb"]) == 0
    assert capfd.readouterr().out.endswith("x: one\ny: one!\n")
    write("b.ipynb", "prose", "%run v.vvm", "output z = do twice(a)")
    assert main(["run", "b.ipynb", "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["bindings"]["z"] == 84
