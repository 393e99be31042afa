"""`prose eval`: runs, statistics and output."""

from __future__ import annotations

import importlib.util
import os
import py_compile
from pathlib import Path

import pytest
from evaluation.evaluations import LIVE, RIGHT, Model, evaluate, write

from prose_kernel.cli.main import main
from prose_kernel.errors import UsageError
from prose_kernel.evaluation.assertions import PythonFunction
from prose_kernel.evaluation.report import document
from prose_kernel.views.document import plain_text

CASES = [
    {"id": "one", "question": "What is 1+1?", "expected": "2"},
    {"id": "two", "question": "What is 2+2?", "expected": "4"},
    {"id": "odd", "question": "What is 3+3?", "expected": "7"},
]


def arithmetic(request) -> str:
    first = request.task.removeprefix("What is ").partition("+")[0]
    return str(2 * int(first))


def test_pass_rates_and_failed_checks_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Model(arithmetic).plug_in(monkeypatch)
    summary = evaluate(write(tmp_path, LIVE + RIGHT + '[[assert]]\nrule = "answer >= 3"\n', CASES))
    (variant,) = summary.variants
    assert [one.status for one in variant.results] == ["failed", "passed", "failed"]
    assert variant.checks == {"right": 2 / 3, "answer >= 3": 2 / 3}
    assert summary.status == 0
    text = plain_text(document(summary))
    assert "default  33 % (6 % to 79 %)  1       2       0       0.67   12            0.0030 usd" in text
    assert 'odd: right: answer is "6", expected is "7"' in text


def test_the_time_of_scripted_answers_is_not_measured(tmp_path: Path) -> None:
    (tmp_path / "replies.yaml").write_text('"*": {reply: "5", delay: 20ms}\n')
    spec = '[settings]\nprovider = "scripted"\nscript = "replies.yaml"\n' + RIGHT
    (variant,) = evaluate(write(tmp_path, spec, CASES)).variants
    assert [one.sessions for one in variant.results] == [1, 1, 1]
    assert variant.seconds == 0


def test_recorded_answers_are_replayed_the_same_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = iter(range(100))
    model = Model(lambda request: f"{next(count)}")
    model.plug_in(monkeypatch)
    spec = write(tmp_path, "repeat = 3\n" + LIVE + RIGHT, [*CASES, {**CASES[0], "id": "again"}])
    first = evaluate(spec)
    assert model.asked == 12
    assert len({one.outputs["answer"] for one in first.results}) == 12, "each repetition has a separate answer"
    monkeypatch.setenv("CI", "true")
    for parallel in (1, 7):
        again = evaluate(spec, parallel=parallel)
        assert [(one.case, one.repetition, one.outputs, one.tokens, one.cost) for one in again.results] == [
            (one.case, one.repetition, one.outputs, one.tokens, one.cost) for one in first.results
        ]
    assert model.asked == 12


def test_a_missing_recording_is_an_error_in_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(arithmetic)
    model.plug_in(monkeypatch)
    monkeypatch.setenv("CI", "true")
    summary = evaluate(write(tmp_path, LIVE + RIGHT, CASES))
    assert summary.status == 3
    assert model.asked == 0
    assert all(one.no_answer for one in summary.results)


def test_a_mistake_in_the_specification_has_its_place_and_a_hint(tmp_path: Path) -> None:
    path = write(tmp_path, 'repeat = 2\n[[assert]]\nrul = "x"\n', CASES)
    with pytest.raises(
        UsageError, match=r"t.eval.toml line 5, column 1: assert\[1\]\.rul: there is no such key"
    ) as found:
        evaluate(path)
    assert found.value.hint == "did you mean `rule`?"


def test_the_command_prints_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Model(arithmetic).plug_in(monkeypatch)
    path = write(tmp_path, LIVE + RIGHT, CASES)
    assert main(["eval", str(path), "--junit-xml", str(tmp_path / "r.xml"), "--html", str(tmp_path / "r.html")]) == 0
    assert "67 % (21 % to 94 %)" in capsys.readouterr().out
    assert 'tests="3" failures="1"' in (tmp_path / "r.xml").read_text()
    assert "<script" not in (tmp_path / "r.html").read_text()


def test_a_file_that_cannot_be_written_is_reported_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Model(arithmetic)
    model.plug_in(monkeypatch)
    path = write(tmp_path, LIVE + RIGHT, CASES)
    for name in ("cases.jsonl", "cases.jsonl/page.html"):
        (tmp_path / "cases.jsonl").touch()
        assert main(["eval", str(path), "--html", str(tmp_path / name)]) == 2
        assert "Error: " in capsys.readouterr().err
    for option in ("--junit-xml", "--save-baseline"):
        text = path.read_text()
        assert main(["eval", str(path), option, str(path)]) == 2
        assert (path.name in capsys.readouterr().err, path.read_text()) == (True, text)
    assert model.asked == 0
    assert main(["eval", "sub/missing.toml"]) == 2
    assert "Error: sub/missing.toml cannot be read: no such file or directory" in capsys.readouterr().err
    assert main(["eval", str(path), "--html", str(tmp_path / "new" / "page.html")]) == 0
    assert (tmp_path / "new" / "page.html").is_file()


def test_functions_that_print_or_change_the_directory_do_not_affect_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Model(arithmetic).plug_in(monkeypatch)
    away = tmp_path / "away"
    away.mkdir()
    (tmp_path / "odd.py").write_text(
        f"import os\ndef odd():\n    print('odd')\n    os.chdir({str(away)!r})\n    return True\n"
    )
    path = write(tmp_path, LIVE + '[[assert]]\npython = "odd.py:odd"\n', CASES)
    monkeypatch.chdir(tmp_path)
    assert main(["eval", path.name, "--junit-xml", "r.xml", "--html", "r.html", "--save-baseline", "b.json"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("t.eval.toml: ")
    assert shown.err == "odd\n" * 3
    assert all((tmp_path / name).is_file() for name in ("r.xml", "r.html", "b.json"))


def test_a_file_of_functions_is_loaded_once_within_the_largest_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Different spellings of its path count as one file."""
    Model(arithmetic).plug_in(monkeypatch)
    (tmp_path / "checks.py").write_text(
        "with open(__file__ + '.log', 'a') as log: log.write('loaded ')\nimport threading\nthreading.Event().wait(0.5)\n"
        "def f(): return True\ndef g(): return True\n"
    )
    (tmp_path / "no").mkdir()
    places = ("checks.py:f", 0.01), ("./checks.py:g", 60), ("no/../checks.py:f", 0.1)
    asserts = "".join(f'[[assert]]\npython = "{place}"\nseconds = {seconds}\n' for place, seconds in places)
    summary = evaluate(write(tmp_path, LIVE + asserts, CASES[:1]))
    assert summary.results[0].checks[1].passed  # the others need more time on a busy machine
    assert (tmp_path / "checks.py.log").read_text() == "loaded "


def test_a_path_through_a_linked_directory_names_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Model(arithmetic).plug_in(monkeypatch)
    (tmp_path / "other" / "inner").mkdir(parents=True)
    (tmp_path / "sub").symlink_to(tmp_path / "other" / "inner")
    (tmp_path / "checks.py").write_text("def f(): return True\n")
    (tmp_path / "other" / "checks.py").write_text("def f(): return False\n")
    asserts = "".join(f'[[assert]]\npython = "{place}"\n' for place in ("checks.py:f", "sub/../checks.py:f"))
    summary = evaluate(write(tmp_path, LIVE + asserts, CASES[:1]))
    assert [check.passed for check in summary.results[0].checks] == [True, False]


@pytest.mark.parametrize("name", ["t.eval", "other"])
def test_a47_recordings_of_an_evaluation_are_separate_from_those_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    model = Model(arithmetic)
    model.plug_in(monkeypatch)
    (tmp_path / "prose.toml").write_text('[cassette]\nname = "mine"\nrepeats = "reuse"\n')
    spec = write(tmp_path, ("" if name == "t.eval" else f'cassette = "{name}"\n') + RIGHT, CASES[:1])
    evaluate(spec, overrides={"provider": "anthropic:m", "cassette_mode": "auto"})
    assert [path.name for path in (tmp_path / "cassettes").iterdir() if path.suffix == ".jsonl"] == [f"{name}.jsonl"]
    monkeypatch.chdir(tmp_path)
    assert main(["run", "clerk.prose", "--input", "question=What is 1+1?", "--provider", "replay"]) == 3
    assert evaluate(spec, overrides={"provider": "replay"}).results[0].status == "passed"
    assert model.asked == 1


def test_recordings_of_runs_answer_the_first_repetition_of_each_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(arithmetic)
    model.plug_in(monkeypatch)
    two = '[[variant]]\nname = "a"\n[[variant]]\nname = "b"\npass_rate = 0.1\n'
    spec = write(tmp_path, "repeat = 2\n" + two + RIGHT, CASES[:1])
    monkeypatch.chdir(tmp_path)
    run = ["run", "clerk.prose", "--input", "question=What is 1+1?", "--provider", "anthropic:m"]
    assert main([*run, "--cassette-mode", "auto", "--cassette", "ordinary"]) == 0
    summary = evaluate(spec, parallel=4)
    assert [one.status for one in summary.results] == ["passed", "error", "passed", "error"]
    assert model.asked == 1


@pytest.mark.parametrize("kind", ["link", "pipe", "large"])
def test_a36_a_file_of_assertions_must_be_a_regular_file(kind: str, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("def f(): return True\n")
    file = tmp_path / "checks.py"
    if kind == "link":
        file.symlink_to("other.py")
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        with file.open("wb") as sparse:
            sparse.truncate(17 * 1024 * 1024)
    reason = "it is larger than 16 megabytes, the limit" if kind == "large" else f"it is a {kind}"
    with pytest.raises(UsageError, match=f"checks.py cannot be read: {reason}"):
        PythonFunction(tmp_path, "checks.py:f")


def test_a35_compiled_byte_code_of_assertions_is_not_read(tmp_path: Path) -> None:
    """Another user may have written the byte code into the cache."""
    ran = tmp_path / "ran"
    for name, text in (("checks", "def f(): return True\n#" + " " * 200), ("evil", f"open({str(ran)!r}, 'w')\n#")):
        (tmp_path / f"{name}.py").write_text(text.ljust(250))
        os.utime(tmp_path / f"{name}.py", ns=(10**18, 10**18))
    cache = importlib.util.cache_from_source(str(tmp_path / "checks.py"))
    py_compile.compile(str(tmp_path / "evil.py"), cfile=cache, doraise=True)
    PythonFunction(tmp_path, "checks.py:f")
    assert not ran.exists()


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs"),
    [
        ("function", "Parameters\n\n- `question`\n- `tone` (default: 1)", "Returns"),
        ("responsibility", "Requires\n\n- `question`", "Maintains"),  # it has a prior truth
    ],
)
def test_optional_inputs_of_a_contract_file_need_no_value(
    kind: str, inputs: str, outputs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract = f"---\nname: a\nkind: {kind}\n---\n\n### {inputs}\n\n### {outputs}\n\n- `answer`: one word\n"
    (tmp_path / "a.prose.md").write_text(contract)
    Model(lambda request: "4").plug_in(monkeypatch)
    summary = evaluate(write(tmp_path, f'program = "a.prose.md"\n{LIVE}{RIGHT}', CASES[1:2]))
    assert [one.status for one in summary.results] == ["passed"]
