"""Judge rules against an independent evaluator, and wordings that must stay open for all values."""

from __future__ import annotations

import operator
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prose_kernel.judging import rules
from prose_kernel.runtime.ports import CommandResult
from prose_kernel.runtime.values import ExecText, Value


def command(exit_code: int, stdout: str = "") -> ExecText:
    return ExecText(stdout, CommandResult("exited", exit_code, stdout=stdout), False)


# ---------------------------------------------------------------- another evaluator

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "{a} > {b}": operator.gt,
    "{a} >= {b}": operator.ge,
    "{a} < {b}": operator.lt,
    "{a} <= {b}": operator.le,
    "{a} is at least {b}": operator.ge,
    "{a} is at least the {b}": operator.ge,
    "{a} is at most {b}": operator.le,
    "{a} is more than {b}": operator.gt,
    "{a} is not more than {b}": operator.le,
    "{a} is greater than or equal to {b}": operator.ge,
    "{a} is less than or equal to {b}": operator.le,
    "{a} exceeds {b}": operator.gt,
    "{a} does not exceed {b}": operator.le,
    "{a} equals {b}": operator.eq,
    "{a} is equal to {b}": operator.eq,
    "{a} is not equal to {b}": operator.ne,
    "{a} == {b}": operator.eq,
    "{a} != {b}": operator.ne,
}
NUMBERS = st.integers(-50, 50) | st.integers(-50, 50).map(lambda n: n / 4)
FORMS_OF_NUMBERS = st.sampled_from((lambda n: n, str))


@given(st.sampled_from(list(COMPARISONS)), NUMBERS, NUMBERS, FORMS_OF_NUMBERS, FORMS_OF_NUMBERS)
@settings(max_examples=300)
def test_two_numbers_compare_as_in_python(
    form: str, left: float, right: float, a: Callable[[Any], Value], b: Callable[[Any], Value]
) -> None:
    wanted = COMPARISONS[form](left, right)
    bindings = {"score": a(left), "limits": {"high": b(right)}}
    assert rules.decide(form.format(a="score", b="limits.high"), bindings).answer is wanted
    assert rules.decide("not " + form.format(a="score", b="limits.high"), bindings).answer is not wanted
    if right >= 0:
        assert rules.decide(form.format(a="score", b=right).replace("the ", ""), bindings).answer is wanted


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 200),
    st.text(max_size=20),
    st.sampled_from(["", "[]", "{}", "null", "yes", "No.", "12%", "87 of 100", "true", "high", "approved", "1,000"]),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.sampled_from(["count", "high", "approved", "done"]), st.booleans() | st.integers(), max_size=3),
    st.integers(0, 3).map(command),
)


def plain_number(value: Value) -> tuple[float, bool] | None:
    """Return a value's number, computed independently of the rules, and whether it is a percentage."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value), False
    text = value.text if isinstance(value, ExecText) else value
    if not isinstance(text, str):
        return None
    text = text.strip().replace(",", "")
    try:
        return float(text.removesuffix("%")), text.endswith("%")
    except ValueError:
        return None


@given(st.sampled_from(list(COMPARISONS)), ANYTHING, ANYTHING)
@settings(max_examples=400)
def test_a_value_that_is_not_a_number_is_never_compared(form: str, left: Value, right: Value) -> None:
    answer = rules.decide(form.format(a="score", b="bound"), {"score": left, "bound": right}).answer
    a, b = plain_number(left), plain_number(right)
    if answer is None:
        return
    if a is None or b is None:  # the only possible result: the text is that word
        assert "=" in form and str(left).strip().casefold() == "bound"
        return
    assert a[1] == b[1]
    assert answer is COMPARISONS[form](a[0], b[0])


EXITS = {
    "all tests pass": lambda code: code == 0,
    "all of the tests passed": lambda code: code == 0,
    "All the tests have passed": lambda code: code == 0,
    "all tests are passing": lambda code: code == 0,
    "not all tests passed": lambda code: code != 0,
    "tests are failing": lambda code: code != 0,
    "the tests are not passing": lambda code: code != 0,
    "tests was successful": lambda code: code == 0,
    "tests exited with code 0": lambda code: code == 0,
    "tests exits with status 2": lambda code: code == 2,
    "tests exited with non-zero": lambda code: code != 0,
}


@given(st.sampled_from(list(EXITS)), ANYTHING | st.integers(0, 255).map(command))
def test_only_a_command_has_an_exit_code(form: str, value: Value) -> None:
    answer = rules.decide(form, {"tests": value}).answer
    assert answer is (EXITS[form](value.result.exit_code) if isinstance(value, ExecText) else None)


@given(st.sampled_from(["review.approved", "the review.approved", "`review.approved`"]), ANYTHING)
def test_a_member_is_a_condition_only_where_it_is_a_boolean(form: str, value: Value) -> None:
    answer = rules.decide(form, {"review": {"approved": value}}).answer
    assert answer is (value if isinstance(value, bool) else None)
    assert rules.decide(f"not {form}", {"review": {"approved": value}}).answer is (
        None if answer is None else not answer
    )


@given(st.sampled_from(["approved", "ready to ship", "done"]), ANYTHING, st.booleans())
def test_an_object_has_a_property_if_its_boolean_field_is_true(words: str, value: Value, negated: bool) -> None:
    key = words.replace(" ", "_")
    answer = rules.decide(f"review is {'not ' * negated}{words}", {"review": {key: value, "other": "x"}}).answer
    assert answer is ((value != negated) if isinstance(value, bool) else None)


@given(st.text("ab \n", max_size=40), st.integers(0, 12), st.sampled_from(["word", "character"]))
def test_lengths_are_counted_as_in_python(text: str, count: int, unit: str) -> None:
    lengths = {len(text.split())} if unit == "word" else {len(text), len(text.strip())}
    bindings: dict[str, Value] = {"draft": text}
    for form, test in (("longer than", int.__gt__), ("shorter than", int.__lt__)):
        answer = rules.decide(f"draft is {form} {count} {unit}s", bindings).answer
        verdicts = {test(length, count) for length in lengths}
        assert answer is (verdicts.pop() if len(verdicts) == 1 else None) or answer is None


@given(ANYTHING)
def test_the_number_of_a_value_that_is_not_a_list_is_open(value: Value) -> None:
    answer = rules.decide("the number of issues is at least 1", {"issues": value}).answer
    if isinstance(value, list):
        assert answer is (len(value) >= 1)
    elif isinstance(value, dict) and isinstance(count := value.get("count"), int) and not isinstance(count, bool):
        assert answer is (count >= 1)
    elif value == "[]":
        assert answer is False
    else:
        assert answer is None


# ---------------------------------------------------------------- wordings that no rule may decide

VALUES: dict[str, Value] = {
    "tests": command(1, "3 failed"),
    "build": command(0),
    "issues": [],
    "bugs": ["crash"],
    "errors": [],
    "warnings": ["slow"],
    "approved": True,
    "done": False,
    "review": {"approved": True, "score": 7, "clear": False},
    "note": 'It says {"approved": true} somewhere.',
    "score": 90,
    "threshold": "about 85",
    "status": "done",
}

OPEN = """
no issues remain
there are no issues
there are no issues left
there are issues
issues remain
no more issues are found
any issues are left
there are no errors or warnings
no errors or warnings remain
no errors and warnings remain
approved
not approved
done
not done
status is finished or approved
approved by everybody
all tests failed
all tests did not pass
all tests have not passed
all of the reviewers approved
no tests failed
some tests passed
most tests pass
nearly all tests pass
all tests but one pass
all tests pass except the slow ones
all tests pass without warnings
all tests pass twice
tests pass on Windows
tests were failing
the build was passing before
build exited with code 0 on Linux
review is approved by two people
review is almost approved
review is not yet approved
review is as clear as it can be
review was approved
review approved
review.approved by Ada
review.score
review.missing
note is approved
score is greater than threshold
score exceeds expectations
score exceeds the average of the others
score > threshold + 5
score equals the best score
score is equal to or above threshold
the score is more than twice the threshold
the number of open issues is 0
the number of issues in the tracker is 0
issues has no open items
status is longer than needed
""".strip().splitlines()


@pytest.mark.parametrize("text", OPEN)
def test_wordings_that_stay_open(text: str) -> None:
    assert rules.decide(text, VALUES).answer is None
    assert rules.decide(f"not ({text})", VALUES).answer is None


@pytest.mark.parametrize("text", OPEN)
@given(st.data())
@settings(max_examples=15)
def test_wordings_stay_open_for_all_values(text: str, data: st.DataObject) -> None:
    """Only for wordings about names: a value may equal a word of the condition (`status is finished`)."""
    values = {
        name: data.draw(ANYTHING, name) for name in ("tests", "build", "issues", "bugs", "errors", "approved", "done")
    }
    assert rules.decide(text, VALUES | values).answer is None


@given(ANYTHING | st.integers(0, 255).map(command))
def test_an_exit_with_an_error_is_a_non_zero_code(value: Value) -> None:
    """With code 0 the output may still report one."""
    failed = isinstance(value, ExecText) and value.result.exit_code != 0
    assert rules.decide("the build exited with an error", {"build": value}).answer is (True if failed else None)


@pytest.mark.parametrize("text", ["score > threshold", "score is more than expected", "review.approved", "it is done"])
def test_forms_that_depend_on_the_values_do_not_count_as_decidable(text: str) -> None:
    assert rules.named(text) and not rules.decidable(text)


def test_the_conditions_of_programs_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.prose").write_text(
        'let score = "9"\nif **score >= 5**:\n  session "x"\nif **score >= 5**:\n  session "y"\nif **it rains**:\n  session "z"\n'
    )
    (tmp_path / "b.md").write_text('```prose\nlet r = 1\nif **r is done**:\n  session "x"\n```\n')
    count = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "conditions.py"))["main"]
    assert count([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 distinct conditions and criteria, 0 choices"
    assert sorted(line.split("%  ")[1] for line in lines[1:4]) == [
        "a rule decides if its subject is a name with a fitting value",
        "no rule reads it",
        "rules decide both ways",
    ]
    assert lines[4] == "forms: number 1, word 1"
