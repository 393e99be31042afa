"""Invalid data sets, assertions and functions, and evaluations that are interrupted or limited."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from evaluation.evaluations import LIVE, PROGRAM, RIGHT, Model, evaluate, write

from prose_kernel.errors import CompileError, RunError, UsageError
from prose_kernel.evaluation import dataset, item
from prose_kernel.evaluation.report import document
from prose_kernel.evaluation.runner import Evaluation, EvaluationOptions
from prose_kernel.evaluation.spec import read
from prose_kernel.runs.workspace import Workspace
from prose_kernel.views.document import plain_text

ABOVE_0 = "a number above 0, at most 1,000,000"
CASES = [{"id": f"q{number}", "question": f"What is {number}?", "expected": "5"} for number in range(6)]


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    made = Model(lambda request: "5")
    made.plug_in(monkeypatch)
    return made


# ---------------------------------------------------------------- data sets


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "cases.jsonl has no cases"),
        ('{"question": "a"}\n{"question": \n', r"cases.jsonl line 2: not JSON: .*column"),
        ('{"question": "\\ud800"}\n', "line 1: half of a surrogate pair"),
        ('{"id": "' + "x" * 300 + '"}\n', "line 1: the id has more than 200 characters"),
        ("[1]\n", "cases.jsonl line 1: a case is an object"),
        (
            '{"id": "a", "question": "x"}\n\n{"id": "a", "question": "y"}\n',
            r"line 3: a second case with the id 'a' .line 1",
        ),
        ('{"id": "a"}\n', r"line 1: the input `question` of clerk.prose is missing"),
        ("[" * 100_000 + "\n", "line 1: nested too deeply"),
    ],
)
def test_errors_of_a_data_set_have_their_line(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        evaluate(write(tmp_path, LIVE + RIGHT, lines))


def test_broken_lines_may_count_as_errors(tmp_path: Path) -> None:
    lines = '{"id": "a", "question": "x", "expected": "5"}\n{oops\n[]\n'
    summary = evaluate(write(tmp_path, 'broken_lines = "count"\n' + LIVE + RIGHT, lines))
    assert [(one.case, one.status) for one in summary.results] == [
        ("a", "passed"),
        ("line 2", "error"),
        ("line 3", "error"),
    ]
    assert summary.status == 1
    (tmp_path / "cases.csv").write_text("question,expected\nx,5\nx\n\ny,5\n")
    spec = tmp_path / "t.eval.toml"
    spec.write_text(spec.read_text().replace("cases.jsonl", "cases.csv"))
    summary = evaluate(spec)
    assert [one.status for one in summary.results] == ["passed", "error", "passed"]
    assert summary.results[1].error == "1 value for 2 columns"


def test_a_line_of_100_mb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.jsonl"
    with path.open("w") as file:
        file.write('{"question": "')
        for _ in range(100):
            file.write("x" * 1_000_000)
        file.write('"}\n{"question": "y"}\n')
    with pytest.raises(UsageError, match="line 1: longer than 10,000,000 characters"):
        dataset.read(path, "huge.jsonl", "id")
    broken, whole = dataset.read(path, "huge.jsonl", "id", count_broken=True)
    assert broken.broken and (whole.line, whole.columns) == (2, {"question": "y"})


def test_a_case_without_an_id_keeps_its_name_when_lines_move(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"q": "a", "expected": 1}\n{"q": "b"}\n{"q": "a", "expected": 2}\n')
    first, other, again = dataset.read(path, "d.jsonl", "id")
    path.write_text('{"q": "b"}\n{"q": "a", "expected": 7}\n')
    assert [one.id for one in dataset.read(path, "d.jsonl", "id")] == [other.id, first.id]
    assert again.id == f"{first.id}~1"


# ---------------------------------------------------------------- programs and specifications


def test_a_decision_about_an_unknown_gate_is_an_error_with_its_line(tmp_path: Path) -> None:
    gate = 'gate check_it:\n  prompt: "ok?"\n'
    path = write(tmp_path, 'yes = ["chek_it"]\n' + LIVE + RIGHT, CASES, PROGRAM + gate)
    with pytest.raises(UsageError, match=r"t.eval.toml line 3, .*yes: chek_it: the program has no such gate") as caught:
        evaluate(path)
    assert caught.value.hint == "did you mean `check_it`?"
    path.write_text(path.read_text().replace("chek_it", "check_it"))
    assert evaluate(path).status == 0


def test_a_program_with_errors_runs_nothing(tmp_path: Path, model: Model) -> None:
    with pytest.raises(CompileError):
        evaluate(write(tmp_path, LIVE + RIGHT, CASES, PROGRAM + "output x = nobody\n"))
    assert model.asked == 0


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("repeat = 0\n" + RIGHT, "line 3, column 1: repeat: a whole number from 1 to 10,000, not 0"),
        ('repeat = "3"\n' + RIGHT, "repeat: a whole number from 1 to 10,000, not '3'"),
        ("repeat = 99999999999\n" + RIGHT, "repeat: a whole number from 1 to 10,000"),
        ("", r"there is no \[\[assert\]\]"),
        ("assert = 3\n", r"tables \[\[assert\]\]"),
        ('[[assert]]\nname = "x"\n', r"line 3, column 3: assert\[1\]: an assertion is one of expression, rule"),
        ('[[assert]]\nrule = "a > 1"\njudge = "good"\n', "rule and judge together"),
        ('[[assert]]\nrule = "it is rather nice"\n', "no rule reads `it is rather nice`"),
        ('[[assert]]\npython = "checks.py"\n', "FILE.py:FUNCTION"),
        (
            '[[assert]]\nrule = "a > 1"\nweight = 1e308\n',
            r"assert\[1\]\.weight: a number from 0 to 1,000,000, not 1e\+308",
        ),
        ('[[assert]]\nrule = "a > 1"\nweight = inf\n', r"assert\[1\]\.weight: a number from 0 to 1,000,000, not inf"),
        *(
            (f'[[assert]]\npython = "checks.py:f"\nseconds = {seconds}\n', f"seconds: {ABOVE_0}, not {shown}")
            for seconds, shown in (("1e10", "10000000000.0"), ("inf", "inf"), ("nan", "nan"), ("-1", "-1"), ("0", "0"))
        ),
        (RIGHT + RIGHT, "a second one with the name 'right'"),
        ('budget = "2 bananas"\n' + RIGHT, "budget: not a limit"),
        ("repeat = \n", "is not TOML"),
        (
            '[[assert]]\nexpression = "answr == 1"\n',
            r"line 4, column 1: assert\[1\]\.expression: .*Undefined variable `answr`",
        ),
        ('[[assert]]\nrule = "answr is empty"\n', "Undefined variable `answr`"),
        ('[settings]\nprovider = "anthropc"\n' + RIGHT, "anthropc"),
    ],
)
def test_an_invalid_specification_is_an_error(tmp_path: Path, model: Model, spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        evaluate(write(tmp_path, spec, CASES))
    assert model.asked == 0


def test_all_mistakes_of_a_specification_are_reported(tmp_path: Path, model: Model) -> None:
    spec = 'repeat = 0\nseconds = "x"\n[[assert]]\nrul = "x"\n[[assert]]\nrule = "a > 1"\nweight = -1\n[[variant]]\n'
    with pytest.raises(UsageError) as refused:
        evaluate(write(tmp_path, spec, CASES))
    lines = str(refused.value).splitlines()[1:]
    assert [line.split(": ")[1] for line in lines] == [
        "repeat",
        "seconds",
        "assert[1].rul",
        "assert[2].weight",
        "variant[1]",
    ]
    assert model.asked == 0


# ---------------------------------------------------------------- Python functions and the judge


def test_python_functions_give_scores_and_reasons(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(
        "def share(output, case):\n    return 0.25, f'{output} of {case[\"id\"]}'\n"
        "def fails(**all):\n    raise KeyError('gone')\n"
        "def leaves():\n    raise SystemExit(3)\n"
        "def odd(): return 'yes'\n"
    )
    asserts = "".join(
        f'[[assert]]\nname = "{n}"\npython = "checks.py:{n}"\n' for n in ("share", "fails", "leaves", "odd")
    )
    summary = evaluate(write(tmp_path, LIVE + asserts, CASES[:1]))
    share, fails, leaves, odd = summary.results[0].checks
    assert (share.score, share.passed, share.reason) == (0.25, False, "5 of q0")
    assert (fails.error, fails.reason) == (True, "fails raised KeyError: 'gone'")
    assert leaves.reason == "leaves raised SystemExit: 3"
    assert odd.reason.startswith("odd gave 'yes': a boolean or a number is wanted")
    assert summary.status == 1


def test_results_of_functions_may_have_no_conversion_or_repr(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(
        "class Odd(Exception):\n    def __repr__(self): raise ValueError('no')\n    __str__ = __repr__\n"
        "def large(): return 10**400\n"
        "def address(): return object()\n"
        "def hidden(): return Odd()\n"
        "def raises(): raise Odd()\n"
    )
    names = ("large", "address", "hidden", "raises")
    asserts = "".join(f'[[assert]]\nname = "{n}"\npython = "checks.py:{n}"\n' for n in names)
    large, address, hidden, raises = evaluate(write(tmp_path, LIVE + asserts, CASES[:1])).results[0].checks
    assert (large.score, large.passed) == (1.0, True)
    assert (address.error, address.reason.split(":")[0]) == (True, "address gave <object object>")
    assert hidden.reason == "hidden raised ValueError: no"
    assert raises.reason == "raises raised Odd"


def test_a_function_that_blocks_is_abandoned_and_not_called_again(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text("import threading\ndef waits():\n    threading.Event().wait(600)\n")
    summary = evaluate(
        write(tmp_path, LIVE + '[[assert]]\npython = "checks.py:waits"\nseconds = 0.05\n', CASES), parallel=1
    )
    reasons = [one.checks[0].reason for one in summary.results]
    assert reasons[0] == "waits has not ended within 0.05 s"
    assert set(reasons[1:]) == {"waits has not ended before, and is not called again"}
    assert sum(one.name == "assertion waits" for one in threading.enumerate()) == 1


def test_a_file_of_functions_that_blocks_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text("import threading\nthreading.Event().wait(600)\ndef check(): return True\n")
    one = '[[assert]]\nname = "{0}"\npython = "{1}.py:{0}"\nseconds = {2}\n'
    asserts = one.format("check", "checks", 0.01), one.format("more", "checks", 0.05), one.format("f", "other", 60)
    with pytest.raises(UsageError, match=r"checks\.py was not loaded within 0\.05 s") as caught:
        evaluate(write(tmp_path, "".join(asserts), CASES))
    assert caught.value.hint == "set a larger limit in the [[assert]], such as `seconds = 120`"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def other(): return True", "checks.py has no function check"),
        ("def check(output, colour): return True", "check wants `colour`"),
        ("import nowhere_at_all", "checks.py cannot be loaded: ModuleNotFoundError"),
        ("async def check(): return True", "check is asynchronous"),
        ("def check(:", "checks.py cannot be loaded: SyntaxError"),
    ],
)
def test_a_function_that_cannot_be_called_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "checks.py").write_text(text + "\n")
    with pytest.raises(UsageError, match=message):
        evaluate(write(tmp_path, '[[assert]]\npython = "checks.py:check"\n', CASES))


def test_judgements_have_reasons_and_are_recorded_for_each_run(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.judged = lambda request: "q1" not in request.at
    spec = write(tmp_path, LIVE + '[[assert]]\njudge = "the answer is polite"\n', CASES[:3])
    summary = evaluate(spec)
    assert [one.status for one in summary.results] == ["passed", "failed", "passed"]
    assert [one.tokens for one in summary.results] == [16, 16, 16], "the judge counts"
    assert "q1: the answer is polite: because" in plain_text(document(summary))
    asked = model.asked
    monkeypatch.setenv("CI", "true")
    again = evaluate(spec, parallel=6)
    assert [(one.checks, one.tokens) for one in again.results] == [(one.checks, one.tokens) for one in summary.results]
    assert model.asked == asked


def test_weights_and_thresholds_decide_whether_a_case_passes(tmp_path: Path) -> None:
    asserts = '[[assert]]\nrule = "answer is 5"\nweight = 3\n[[assert]]\nrule = "answer is 6"\n'
    (result,) = evaluate(write(tmp_path, LIVE + asserts, CASES[:1])).results
    assert (result.score, result.status) == (0.75, "failed")
    (result,) = evaluate(write(tmp_path, "threshold = 0.7\n" + LIVE + asserts, CASES[:1])).results
    assert result.status == "passed"
    assert evaluate(write(tmp_path, "pass_rate = 0.5\n" + LIVE + asserts, CASES[:1])).status == 1


# ---------------------------------------------------------------- interrupts and limits


def test_an_interrupted_evaluation_continues(tmp_path: Path, model: Model) -> None:
    spec = write(tmp_path, "parallel = 1\n" + LIVE + '[settings.cassette]\nmode = "off"\n' + RIGHT, CASES)

    async def interrupted() -> None:
        def stop(result: object, done: int, planned: int) -> None:
            if done == 2:
                evaluation.interrupt()

        evaluation = Evaluation(read(spec), EvaluationOptions(), stop)
        summary = await evaluation.run()
        assert (summary.status, len(summary.results)) == (130, 2)
        assert "interrupted: 2 of 6 results are there; the same command continues with the rest" in plain_text(
            document(summary)
        )

    asyncio.run(interrupted())
    file = tmp_path / ".prose" / "evaluations" / "t.eval.jsonl"
    first, second = file.read_text().splitlines()
    damaged = second.replace('"score":1.0', '"score":1e308')
    file.write_text(f'{first}\n{damaged}\n{damaged}\n{{"key":"half')
    asked = model.asked
    summary = evaluate(spec)
    assert model.asked == asked + 5
    assert len(summary.results) == 6
    assert "1 of 6 results were there; --fresh starts again" in plain_text(document(summary))
    evaluate(spec)
    assert model.asked == asked + 11, "a completed evaluation starts again"


def test_an_evaluation_can_be_cancelled_while_it_waits(tmp_path: Path, model: Model) -> None:
    spec = write(tmp_path, LIVE + RIGHT, CASES)

    async def cancelled() -> None:
        waits = asyncio.Event()

        async def forever(request: object, on_progress: object) -> object:
            waits.set()
            await asyncio.Event().wait()
            return None

        model.run = forever  # type: ignore[method-assign]
        task = asyncio.ensure_future(Evaluation(read(spec), EvaluationOptions()).run())
        await waits.wait()
        task.cancel()
        summary = await task
        assert (summary.stopped, summary.results) == ("interrupted", [])

    asyncio.run(cancelled())


def test_an_interrupt_just_before_a_run_begins_ends_it(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example while its program is being compiled."""

    class Interrupted(Workspace):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            evaluation.interrupt()

    monkeypatch.setattr(item, "Workspace", Interrupted)
    evaluation = Evaluation(read(write(tmp_path, LIVE + RIGHT, CASES)), EvaluationOptions())
    summary = asyncio.run(evaluation.run())
    assert (summary.stopped, summary.results, model.asked) == ("interrupted", [], 0)


def test_an_interrupt_of_a_run_that_has_ended_keeps_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closing(Workspace):
        async def close(self, error: RunError | None = None) -> None:
            evaluation.interrupt()
            await super().close(error)

    monkeypatch.setattr(item, "Workspace", Closing)
    evaluation = Evaluation(read(write(tmp_path, LIVE + RIGHT, CASES[:1])), EvaluationOptions())
    summary = asyncio.run(evaluation.run())
    assert [one.status for one in summary.results] == ["passed"]


def test_a_run_that_exceeds_its_time_limit_is_an_error(tmp_path: Path, model: Model) -> None:
    async def forever(request: object, on_progress: object) -> object:
        await asyncio.Event().wait()
        return None

    model.run = forever  # type: ignore[method-assign]
    summary = evaluate(write(tmp_path, "seconds = 0.2\n" + LIVE + RIGHT, CASES[:2]))
    assert [one.error for one in summary.results] == ["it did not end within 0.2 s"] * 2


def test_a_budget_applies_to_the_whole_evaluation(tmp_path: Path, model: Model) -> None:
    spec = write(tmp_path, 'parallel = 1\nbudget = "3 sessions"\n' + LIVE + RIGHT, CASES)
    summary = evaluate(spec)
    assert len(summary.results) == 3
    assert summary.status == 1
    assert "the budget of the evaluation is spent (3 sessions)" in summary.stopped
    assert len(evaluate(spec, budget="100 sessions").results) == 6
    assert model.asked == 6


def test_results_within_a_budget_are_kept(tmp_path: Path, model: Model) -> None:
    off = '[settings.cassette]\nmode = "off"\n'
    spec = write(tmp_path, 'parallel = 4\nbudget = "3 sessions"\n' + LIVE + off + RIGHT, CASES)
    summary = evaluate(spec)
    assert (len(summary.results), model.asked, summary.status) == (3, 3, 1)
    assert len(evaluate(spec).results) == 6, "the rest fits in the same budget"
