"""Comparison of variants, baselines, both languages, notebooks."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest
from evaluation.evaluations import LIVE, PROGRAM, RIGHT, Model, evaluate, write
from waiting import eventually

from prose_kernel.errors import ProviderError, UsageError
from prose_kernel.evaluation import spec
from prose_kernel.evaluation.report import document
from prose_kernel.evaluation.results import one_sided, sign_test
from prose_kernel.judging.calibration import wilson
from prose_kernel.runtime.asker import Unattended
from prose_kernel.views.document import plain_text

TEN = [{"id": f"q{number}", "question": f"What is {number}?", "expected": f"{number}"} for number in range(10)]
TWO = """
[[variant]]
name = "vague"

[[variant]]
name = "exact"
agent.clerk.prompt = "Answer with the number, \\"as it is\\"."
"""


def by_prompt(request) -> str:
    exact = 'Answer with the number, "as it is".' in (request.system or "")
    number = request.task.removeprefix("What is ").removesuffix("?")
    return number if exact or int(number) < 2 else f"It is {number}."


def test_intervals_and_sign_tests_are_computed() -> None:
    assert [round(end, 4) for end in wilson(8, 10)] == [0.4902, 0.9433]
    assert wilson(0, 4)[0] == 0 and wilson(4, 4)[1] == 1
    assert sign_test(8, 0) == 2 / 256
    assert sign_test(5, 5) == sign_test(0, 0) == 1
    assert one_sided(0, 5) == 1 / 32
    assert sign_test(600, 400) < 1e-9, "large numbers are no problem"


def test_variants_are_compared_with_a_sign_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Model(by_prompt).plug_in(monkeypatch)
    summary = evaluate(write(tmp_path, LIVE + TWO + RIGHT, TEN))
    assert [one.passed for one in summary.variants] == [2, 10]
    (difference,) = summary.differences
    assert (difference.better, difference.worse, difference.same) == (8, 0, 2)
    text = plain_text(document(summary))
    assert (
        "exact against vague: better in 8 cases, worse in 0, the same in 2; p = 0.008 (sign test), significant" in text
    )


def test_a_baseline_of_errors_only_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(request) -> str:
        raise ProviderError("there is no key", retryable=False)

    Model(broken).plug_in(monkeypatch)
    baseline = tmp_path / "base.json"
    summary = evaluate(write(tmp_path, LIVE + RIGHT, TEN), save_baseline=baseline)
    assert summary.status == 1 and not baseline.exists()
    assert "base.json is not written" in plain_text(document(summary))


def test_a_regression_from_a_baseline_is_exit_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(lambda request: request.task.removeprefix("What is ").removesuffix("?"))
    model.plug_in(monkeypatch)
    baseline = tmp_path / "base.json"
    spec = write(tmp_path, LIVE + RIGHT, TEN)
    assert evaluate(spec, save_baseline=baseline).status == 0
    assert json.loads(baseline.read_text())["variants"]["default"]["q1"] == [1, 1]
    assert evaluate(spec, baseline=baseline).status == 0
    model.answer = lambda request: "no idea" if "9" in request.task else by_prompt(request)
    changed = write(tmp_path, "regression = 'any'\n" + LIVE + RIGHT, TEN, PROGRAM.replace("one word", "a sentence"))
    summary = evaluate(changed, baseline=baseline)
    assert summary.status == 1
    (found,) = summary.regressions
    assert (found.better, found.worse) == (0, 8)
    assert "default against the baseline base.json: 100 % then, 20 % now" in plain_text(document(summary))
    with pytest.raises(UsageError, match="cannot read gone"):
        evaluate(changed, baseline=tmp_path / "gone.json")
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(UsageError, match="isn't a baseline"):
        evaluate(changed, baseline=tmp_path / "bad.json")


def test_a_variant_that_changes_nothing_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Model(by_prompt).plug_in(monkeypatch)
    same = '[[variant]]\nname = "a"\n[[variant]]\nname = "b"\nagent.clerk.prompt = "Answer in one word."\n'
    summary = evaluate(write(tmp_path, LIVE + same + RIGHT, TEN[:2]))
    assert "variant b is the same as a: the difference is nothing but chance" in plain_text(document(summary))
    assert [one.runs for one in summary.variants] == [2, 2], "each variant has separate results"


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ('agent.clrk.prompt = "x"', "clerk.prose has no agent `clrk`"),
        ('input.tone = "x"', "the program clerk.prose has no input and no constant `tone`"),
        ('program = "other.prose"', "there is no file other.prose"),
        ('settings.providr = "x"', "there is no such setting"),
        ("pass_rate = 90", "a number from 0 to 1, not 90"),
    ],
)
def test_invalid_changes_of_a_variant_are_errors(tmp_path: Path, variant: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        evaluate(write(tmp_path, f'[[variant]]\nname = "v"\n{variant}\n{RIGHT}', TEN))


def test_a_missing_program_or_specification_has_a_hint_to_a_similar_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        evaluate(write(tmp_path, f'[[variant]]\nname = "v"\nprogram = "clark.prose"\n{RIGHT}', TEN, name="team"))
    assert raised.value.hint == "did you mean `clerk.prose`?"
    with pytest.raises(UsageError) as raised:
        spec.read(tmp_path / "tea.eval.toml")
    assert raised.value.hint == "did you mean `team.eval.toml`?"


def test_a_variant_may_have_other_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(by_prompt)
    model.plug_in(monkeypatch)
    (tmp_path / "prose.toml").write_text('[models.anthropic]\ndefault = "m"\nsonnet = "s-1"\n')
    servers = '[[variant]]\nname = "b"\n[variant.settings.models.anthropic]\nsonnet = "s-2"\n'
    spec = write(tmp_path, LIVE + '[[variant]]\nname = "a"\n' + servers + RIGHT, TEN[:1])
    summary = evaluate(spec)
    assert model.asked == 2, "the same request to another model is another recording"
    assert not summary.notes


def test_variants_with_other_permissions_have_separate_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(by_prompt)
    model.plug_in(monkeypatch)
    open_, closed = (
        f'[[variant]]\nname = "{rule}"\n[variant.settings.permissions]\nbash = "{rule}"\n' for rule in ("allow", "deny")
    )
    evaluate(write(tmp_path, LIVE + open_ + closed + RIGHT, TEN[:2]))
    assert model.asked == 4
    evaluate(write(tmp_path, LIVE + closed + open_ + RIGHT, TEN[:2]))
    assert model.asked == 4, "the order of variants has no effect"
    evaluate(write(tmp_path, LIVE + closed.replace('bash = "deny"', 'bash = "allow"') + RIGHT, TEN[:2]))
    assert model.asked == 6


def test_repetitions_are_not_further_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Model(by_prompt).plug_in(monkeypatch)
    once = evaluate(write(tmp_path, LIVE + RIGHT, TEN)).variants[0]
    often = evaluate(write(tmp_path, "repeat = 5\n" + LIVE + RIGHT, TEN)).variants[0]
    assert (often.passed, often.runs) == (10, 50)
    assert often.interval == pytest.approx(once.interval)


def test_results_before_the_budget_is_spent_are_comparable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Model(by_prompt).plug_in(monkeypatch)
    spec = write(tmp_path, 'parallel = 1\nbudget = "6 sessions"\n' + LIVE + TWO + RIGHT, TEN)
    summary = evaluate(spec)
    assert [list(one.cases()) for one in summary.variants] == [["q0", "q1", "q2"]] * 2
    assert summary.status == 1
    assert [one.runs for one in evaluate(spec, budget="100 sessions").variants] == [10, 10]


# ---------------------------------------------------------------- languages and notebooks


def test_columns_are_constants_and_names_in_vvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Model(lambda request: "9").plug_in(monkeypatch)
    program = (
        'agent clerk(model="sonnet", prompt="Be short.")\n'
        'question = "What is 1?"\n'
        "answer = @clerk `{question} {hint}`(())\n"
        "export answer\n"
    )
    (tmp_path / "clerk.vvm").write_text(program.replace("`{question} {hint}`(())", "`{question}`(hint)"))
    cases = [{"id": n, "question": f"What is {n}?", "hint": "please", "expected": "9"} for n in ("8", "9")]
    spec = write(tmp_path, 'program = "clerk.vvm"\n' + LIVE + RIGHT, cases)
    summary = evaluate(spec)
    assert [one.status for one in summary.results] == ["passed", "passed"], plain_text(document(summary))
    recorded = (tmp_path / "cassettes" / "t.eval.jsonl").read_text()
    assert "What is 8?" in recorded and "please" in recorded and "What is 1?" not in recorded


def test_a_notebook_of_both_languages_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Model(by_prompt).plug_in(monkeypatch)
    texts = ["%provider human\n" + PROGRAM, "%%vvm\nloud = answer\n"]
    cells = [{"cell_type": "code", "source": text, "metadata": {}, "outputs": []} for text in texts]
    book = {"cells": cells, "metadata": {"kernelspec": {"language": "prose"}}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "clerk.ipynb").write_text(json.dumps(book))
    assertions = '[[assert]]\nrule = "answer is 1"\n[[assert]]\npython = "checks.py:same"\n'
    (tmp_path / "checks.py").write_text("def same(bindings, expected):\n    return bindings['loud'] == expected, 'x'\n")
    summary = evaluate(write(tmp_path, 'program = "clerk.ipynb"\n' + LIVE + assertions, TEN[1:2]))
    assert summary.variants[0].passed == 1, plain_text(document(summary))


@pytest.mark.parametrize("kernel", [{"kernelspec": {"name": "prose"}}, {"language_info": {"name": "prose"}}])
def test_a_notebook_in_prosescript_is_evaluated(kernel: dict[str, object], tmp_path: Path) -> None:
    cell = {
        "cell_type": "code",
        "source": "let ready = 1\nlet both = {\n  a: 1\n  b: 2\n}\n",
        "metadata": {},
        "outputs": [],
    }
    metadata = {**kernel, "prose": {"profile": "prosescript"}}
    book = {"cells": [cell], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "script.ipynb").write_text(json.dumps(book))
    spec = write(tmp_path, 'program = "script.ipynb"\n' + LIVE + '[[assert]]\nrule = "ready is 1"\n', TEN[1:2])
    summary = evaluate(spec)
    assert summary.variants[0].passed == 1, plain_text(document(summary))


# ---------------------------------------------------------------- the magic


async def test_the_magic_shows_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prose_kernel.notebook.cells import Cells
    from prose_kernel.runs import languages
    from prose_kernel.testing.notebook_run import CapturedOutput, Statements

    Model(by_prompt).plug_in(monkeypatch)
    write(tmp_path, LIVE + TWO + RIGHT, TEN)
    cells = Cells(tmp_path, Unattended(), languages.default())
    output = CapturedOutput(languages.default(), Statements())
    try:
        assert await cells.run("%eval t.eval.toml -n 3 --html page.html", output, live=False) is None
        counted, shown = output.outputs
        assert counted["data"]["text/plain"] == "20 runs"
        assert "| <code>exact</code> | 100 % (72 % to 100 %) | 10 |" in shown["data"]["text/markdown"]
        assert "Evaluation: t.eval.toml" in (tmp_path / "page.html").read_text()
        problem = await cells.run("%eval t.eval.toml --freshh", output, live=False)
        assert problem is not None and "--freshh is not understood" in problem.evalue
        for wrong in ("t.eval\0.toml", "t.eval.toml --html p\0.html"):
            problem = await cells.run(f"%eval {wrong}", output, live=False)
            assert problem is not None
            assert (problem.ename, "U+0000" in problem.evalue) == ("UsageError", True)
        problem = await cells.run("%eval sub/missing.toml", output, live=False)
        assert problem is not None and "sub/missing.toml cannot be read: no such file" in problem.evalue
    finally:
        await cells.close()


async def test_an_interrupt_while_a_file_of_assertions_loads_leaves_no_thread(tmp_path: Path) -> None:
    from prose_kernel.notebook.cells import Cells
    from prose_kernel.runs import languages
    from prose_kernel.testing.notebook_run import CapturedOutput, Statements

    (tmp_path / "held.py").write_text("import threading\nthreading.Event().wait(600)\ndef check(): return True\n")
    write(tmp_path, LIVE + '[[assert]]\npython = "held.py:check"\nseconds = 60\n', TEN)
    cells = Cells(tmp_path, Unattended(), languages.default())
    output = CapturedOutput(languages.default(), Statements())
    try:
        cell = asyncio.create_task(cells.run("%eval t.eval.toml", output, live=False))
        await eventually(lambda: any(one.name == "loading held.py" for one in threading.enumerate()))
        cells.interrupt()
        problem = await cell
        assert problem is not None and problem.ename == "KeyboardInterrupt"
    finally:
        await cells.close()
    await asyncio.wait_for(asyncio.get_running_loop().shutdown_default_executor(), 10)
