"""Values keep their types everywhere (A28): typed answers, output in a declared format, and text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import needs_module

from prose_kernel.cli.main import main

BUG = {"kind": "bug", "n": 3, "why": None}
OUTPUT = '{ kind: "bug" or "question", n: integer, why: text or null }'
JSON_OUTPUT = 'exec "echo \'{\\"x\\": 1}\'"'
PROGRAM = f"""\
let one = session "Sort this"
  output: {OUTPUT}
let data = {JSON_OUTPUT}
  format: "json"
let text = exec "echo hi"
let words = session "Say"
let array = [one, data, text, words]
let piped = ["1", "2"] | pmap:
  session "Sort {{item}}"
    output: {OUTPUT}
let found = piped | filter:
  item.kind == "bug"
let looped = parallel for i in [1, 2]:
  {JSON_OUTPUT}
    format: "json"
let same = piped == [one, one]
one = session "Sort another"
  output: {OUTPUT}
if one:
  output kept = array
output piped = found
output looped = looped
output answer = one
output same = same
"""
VVM = """\
agent sorter(prompt="You sort", output={kind: ["bug", "question"], n: "integer", why: "text or null"})
def sort(item):
  return @sorter `Sort {}`(item)
rows = pmap(["1", "2"], sort)
def kind(row):
  return row.kind
kinds = map(rows, kind)
export rows
export kinds
"""
SCRIPT = {"sessions": {"Sort": {"kind": "bug", "n": 3}, "Say": "hello\n"}}


def outputs(
    capsys: pytest.CaptureFixture[str], directory: Path, name: str, program: str, script: object, *more: str
) -> dict[str, Any]:
    (directory / name).write_text(program)
    (directory / "script.yaml").write_text(json.dumps(script))
    arguments = ["--provider", "scripted", "--script", "script.yaml", "--judge", "off", "--format", "json", *more]
    assert main(["run", name, *arguments]) == 0, capsys.readouterr()
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])["outputs"]
    return found


@pytest.mark.parametrize("state", ["filesystem", "in-context"])
def test_a28_typed_values_keep_their_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert outputs(capsys, tmp_path, "p.prose", PROGRAM, SCRIPT, "--state", state) == {
        "kept": [BUG, {"x": 1}, "hi\n", "hello\n"],
        "piped": [BUG, BUG],
        "looped": [{"x": 1}, {"x": 1}],
        "answer": BUG,
        "same": True,
    }


def test_a28_typed_answers_of_vvm_are_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = outputs(capsys, tmp_path, "p.vvm", VVM, SCRIPT)
    assert found == {"rows": [BUG, BUG], "kinds": ["bug", "bug"]}


def test_a28_an_answer_that_looks_like_an_error_value_stays_text_in_vvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program = 'agent a(prompt="p", output={error: {kind: "text"}})\nr = @a `Sort`(())\nexport r\n'
    script = {"sessions": {"Sort": {"reply": {"error": {"kind": "x"}}}}}
    assert outputs(capsys, tmp_path, "p.vvm", program, script) == {"r": '{"error": {"kind": "x"}}'}


def test_a28_a_script_gives_a_typed_answer_as_words_of_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fields = '{ n: integer, ok: boolean, code: "1" or "2", list: [number], deep: [{ t: text }], no: text or null }'
    Path("p.prose").write_text(f'let r = session "Sort"\n  output: {fields}\noutput r = r\n')
    Path("s.yaml").write_text("Sort: {n: 3, ok: no, code: 1, list: [1, 2.5], deep: [{t: 7}], no: null}\n")
    assert main(["run", "p.prose", "--provider", "scripted", "--script", "s.yaml", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["outputs"]["r"]
    assert found == {"n": 3, "ok": False, "code": "1", "list": [1, 2.5], "deep": [{"t": "7"}], "no": None}


def test_a28_fields_for_a_session_without_output_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.prose").write_text('session "Sort"\n')
    Path("s.yaml").write_text("Sort: {replay: x}\n")
    assert main(["run", "p.prose", "--provider", "scripted", "--script", "s.yaml"]) != 0
    assert "has fields (replay), but the session has no `output`" in capsys.readouterr().err


# ---------------------------------------------------------------- Python


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from IPython.core.interactiveshell import InteractiveShell

    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("ipython")
        (home / "script.yaml").write_text(json.dumps(SCRIPT))
        patch.chdir(home)
        patch.setenv("IPYTHONDIR", str(home))
        patch.setenv("PROSE_PROVIDER", "scripted")
        patch.setenv("PROSE_SCRIPT", "script.yaml")
        made = InteractiveShell()
        made.run_line_magic("load_ext", "prose_kernel")
        yield made
        made.run_line_magic("unload_ext", "prose_kernel")


def test_a28_typed_answers_are_objects_in_python(shell: Any) -> None:
    pandas = needs_module("pandas")
    shell.run_cell(
        f"%%prose --out rows one --frame rows\n{PROGRAM.split('let found')[0]}let rows = piped"
    ).raise_error()
    prose = shell.user_ns["prose"]
    assert shell.user_ns["one"] == prose["one"] == BUG
    assert prose["array"] == [BUG, {"x": 1}, "hi\n", "hello\n"]
    assert isinstance(shell.user_ns["rows"], pandas.DataFrame)
    assert prose.frame("piped", "pandas").to_dict("list") == {"kind": ["bug"] * 2, "n": [3, 3], "why": [None, None]}


def test_a28_rows_of_text_that_hold_objects_make_a_frame(shell: Any) -> None:
    needs_module("pandas")
    shell.run_cell('%%prose\nlet loose = [1, 2] | map:\n  exec "printf \'{\\"n\\": 1}\'"').raise_error()
    assert shell.user_ns["prose"].frame("loose", "pandas").to_dict("list") == {"n": [1, 1]}


@pytest.mark.parametrize("text", ["a", "a\n", "\na", "a\n\n", "", "\n", " a ", "a\r\nb", '{"a": 1}\n', "\\n", "`{y}`"])
def test_a28_text_is_the_same_everywhere(shell: Any, text: str) -> None:
    shell.user_ns["t"] = text
    shell.run_cell('%%prose --in t\nlet kept = t\nlet printed = exec "cat"\n  stdin: t').raise_error()
    shell.run_cell("%%vvm --out seen\nagain = kept\nseen = [kept, printed]").raise_error()
    shell.run_cell("%%prose --out back\nlet back = [again, printed]").raise_error()
    assert shell.user_ns["seen"] == shell.user_ns["back"] == [text, text]
