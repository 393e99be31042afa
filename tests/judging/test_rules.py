"""Judge rules: every example of the documentation, and the laws of three-valued logic."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaling import assert_linear

from prose_kernel.errors import StateError
from prose_kernel.judging import rules
from prose_kernel.language.exit_codes import may_hide
from prose_kernel.runtime.ports import CommandResult, Key
from prose_kernel.runtime.values import ErrorValue, ExecText, Reference, Value

PAGES = (Path(__file__).parents[2] / "docs" / "reference" / "judge-rules.md", Path(__file__).with_name("rules.md"))
"""The page, and more examples that would make it long."""
ANSWERS = {"yes": True, "no": False, "open": None}


def command(exit_code: int, stdout: str, *, bare: bool = False, truncated: bool = False, of: str = "") -> ExecText:
    hidden = may_hide(of)
    result = CommandResult("exited", exit_code, stdout=stdout, stdout_truncated=truncated, code_hidden=hidden)
    return ExecText(stdout, result, bare)


def binding(text: str) -> Value:
    if match := re.fullmatch(r'exec (\d+) ("(?:\\.|[^"\\])*")(?: of (".*"))?', text):
        return command(int(match[1]), json.loads(match[2]), of=json.loads(match[3] or '""'))
    value: Value = json.loads(text)
    return value


def documented() -> Iterator[tuple[str, dict[str, Value], bool | None]]:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for block in re.findall(r"^```rules\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        above, _, below = block.partition("\n\n")
        bindings = {n: binding(v) for n, _, v in (line.partition(" = ") for line in above.splitlines())}
        for line in below.splitlines():
            text, expected = line.rsplit(None, 1)
            yield text.strip(), bindings, ANSWERS[expected]


EXAMPLES = list(documented())


def test_the_documentation_has_examples_of_every_answer() -> None:
    assert len(EXAMPLES) > 60
    assert {expected for _, _, expected in EXAMPLES} == {True, False, None}


@pytest.mark.parametrize(("text", "bindings", "expected"), EXAMPLES, ids=[text for text, _, _ in EXAMPLES])
def test_documented_examples(text: str, bindings: dict[str, Value], expected: bool | None) -> None:
    assert rules.decide(text, bindings).answer is expected


@pytest.mark.parametrize(("text", "bindings", "expected"), EXAMPLES, ids=[text for text, _, _ in EXAMPLES])
def test_not_inverts_every_documented_answer(text: str, bindings: dict[str, Value], expected: bool | None) -> None:
    turned = rules.decide(f"not ({text})", bindings).answer
    assert turned is (None if expected is None else not expected)


def test_every_ruling_names_its_rule_and_value() -> None:
    bindings: dict[str, Value] = {"score": "90", "docs": "", "build": command(2, "x")}
    assert rules.decide("score >= 85", bindings) == rules.Ruling(True, "number", 'score is "90"')
    assert rules.decide("docs is empty", bindings) == rules.Ruling(True, "empty", "docs is empty text")
    assert rules.decide("the build failed", bindings) == rules.Ruling(True, "exit", "build exit code is 2")
    assert rules.decide("the prose sings", bindings) == rules.Ruling(None, "", "no rule reads it")
    assert rules.decide("it is nice", bindings) == rules.Ruling(None, "", "no rule reads it")
    assert rules.decide("rating >= 85", bindings) == rules.Ruling(None, "number", "there is no rating to go by")
    both = rules.decide("score >= 85 and docs is empty", bindings)
    assert both == rules.Ruling(True, "and", 'score is "90", docs is empty text')


def test_values_of_other_kinds() -> None:
    failed = StateError("gone")
    bindings: dict[str, Value] = {
        "n": 3,
        "flag": True,
        "off": False,
        "error": ErrorValue({"message": "boom"}, failed),
        "plan": {"steps": ["a", "b"], "count": 7},
        "quiet": command(0, "", bare=True),
        "cut": command(0, "begin", truncated=True),
    }
    expected = {
        "n is empty": False,
        "flag is set": True,
        "off is set": None,
        "error is empty": None,
        'error is "boom"': None,
        'error.message is "boom"': True,
        "plan.count == 7": True,
        "plan has exactly 2 items": True,
        "quiet succeeded": None,
        "quiet.exit_code is 0": None,
        "quiet is empty": True,
        'cut contains "beg"': True,
        'cut contains "end"': None,
        'cut does not start with "x"': None,
        "cut has at least 1 words": None,
        "cut succeeded": True,
        "plan > 1": None,
        "plan is yes": None,
    }
    assert {text: rules.decide(text, bindings).answer for text in expected} == expected


def test_a_negation_next_to_unread_words_does_not_count_at_any_depth() -> None:
    for text in (
        "log does not contain 'x' or (not (warnings, in short) and t is 1)",
        "not (t is 1) or some warnings",
        "(t is 1 or not f is 1) and nothing else, really",
        "(not t is 0 and t is 1) or whatever comes",
    ):
        assert rules.decide(text, {**KNOWN, "log": "fine"}).answer is None, text
    assert rules.decide("t is 1 or there are warnings", KNOWN).answer is True
    for text in ("t is 1 or so", "t is 1 or some warnings", "t is 0 and change"):
        assert rules.decide(text, KNOWN).answer is None


def test_members_of_every_kind_of_value() -> None:
    kept = Reference(Key("kept"), lambda: '```json\n{"done": true, "list": [[1], {"k": "v"}]}\n```')
    bindings: dict[str, Value] = {
        "kept": kept,
        "broken": '{"a": ',
        "run": ExecText("out\n", CommandResult("exited", 3, stdout="out\n", stderr="bad news")),
        "deep": [kept, {"marked": 1}],
        "marked": {"inner": "⟦dry-run c1/s0⟧"},
        "markedlist": [Reference(Key("r"), lambda: "x", summary="⟦dry-run c1/s0⟧"), 1],
        "bag": {"xs": [1], "ys": [2]},
    }
    expected = {
        "kept.done is true": True,
        "kept.list[1].k is 'v'": True,
        "kept.list[7] is 1": None,
        "kept.list.length is 2": True,
        "broken.a is 1": None,
        "run.exit_code is 3": True,
        "run.stdout is 'out'": True,
        'run.stderr contains "bad"': True,
        "run.other is 1": None,
        "deep[1].marked is 1": True,
        "marked.inner is empty": None,
        "markedlist has at least 1 items": None,
        "bag has exactly 1 items": None,
        "run has at least 1 items": None,
        "kept has exactly 2 items": True,
        "broken has at least 1 words": True,
        "deep has at least 1 words": None,
        "marked is not set": None,
        "bag is given": True,
    }
    assert {text: rules.decide(text, bindings).answer for text in expected} == expected


def test_only_the_named_bindings_are_read() -> None:
    read: list[str] = []

    def reading(name: str, text: str) -> Reference:
        return Reference(Key(name), lambda: read.append(name) or text)  # type: ignore[func-returns-value]

    bindings: dict[str, Value] = {name: reading(name, "90") for name in ("score", "other", "third")}
    assert rules.decide("score >= 85", bindings).answer is True
    assert read == ["score"]


def test_a_binding_that_cannot_be_read_decides_nothing() -> None:
    def gone() -> str:
        raise StateError("the binding is gone")

    ruling = rules.decide("score >= 85", {"score": Reference(Key("score"), gone)})
    assert ruling == rules.Ruling(None, "number", "score cannot be read")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("score >= 85", True),
        ("score >= 85 and docs is not empty", True),
        ("not (the build failed)", True),
        ('status is "done"', True),
        ("status is done", False),  # a rule decides only if it is true
        ("score >= 85 or the reviewer agrees", False),
        ("the tests look good to everybody", False),
    ],
)
def test_decidable_lists_the_forms_that_need_no_judge(text: str, expected: bool) -> None:
    assert rules.decidable(text) is expected


# ---------------------------------------------------------------- laws

KNOWN: dict[str, Value] = {"t": "1", "f": "0", "build": command(1, "log\n"), "words": "some words", "xs": [1, 2]}
TRUE, FALSE, OPEN = "t is 1", "f is 1", "gone is 1"
ATOMS = {TRUE: True, FALSE: False, OPEN: None}


def joined(word: str, conditions: list[tuple[str, bool | None]]) -> str:
    return "(" + word.join(text for text, _ in conditions) + ")"


def conj(conditions: list[tuple[str, bool | None]]) -> bool | None:
    answers = [answer for _, answer in conditions]
    return False if False in answers else None if None in answers else True


def disj(conditions: list[tuple[str, bool | None]]) -> bool | None:
    answers = [answer for _, answer in conditions]
    return True if True in answers else None if None in answers else False


def several(inner: st.SearchStrategy[tuple[str, bool | None]]) -> st.SearchStrategy[list[tuple[str, bool | None]]]:
    return st.lists(inner, min_size=2, max_size=4)


conditions = st.recursive(
    st.sampled_from(sorted(ATOMS)).map(lambda text: (text, ATOMS[text])),
    lambda inner: st.one_of(
        inner.map(lambda c: (f"not ({c[0]})", None if c[1] is None else not c[1])),
        several(inner).map(lambda cs: (joined(" and ", cs), conj(cs))),
        several(inner).map(lambda cs: (joined(" or ", cs), disj(cs))),
    ),
    max_leaves=12,
)


@given(conditions)
@settings(max_examples=200, deadline=None)
def test_logic_is_kleenes_three_valued_logic(condition: tuple[str, bool | None]) -> None:
    text, answer = condition
    if len(text) <= rules.LONGEST and text.count("(") <= rules.DEEPEST // 2:
        assert rules.decide(text, KNOWN).answer is answer


FORMS = ["is{} empty", "is{} given", "is{} 85", "is{} at least 2", 'is{} "some words"', "is{} yes", "is{} some words"]
VALUES: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["85", "yes", "No.", "some words", "[]", "none", " 1,000 ", "12%"]),
    st.lists(st.text(max_size=3), max_size=3),
)


@given(st.sampled_from(FORMS), VALUES)
def test_negation_is_symmetric(form: str, value: Value) -> None:
    plain = rules.decide("x " + form.format(""), {"x": value}).answer
    turned = rules.decide("x " + form.format(" not"), {"x": value}).answer
    assert turned is (None if plain is None else not plain)


PIECES = [
    "the ",
    "x",
    "words",
    " is",
    " not ",
    "empty",
    " and ",
    " or ",
    "(",
    ")",
    '"a"',
    '"',
    "/a+/",
    " matches ",
    ">= ",
    "85",
    "%",
    ".count",
    "[0]",
    "has at least 2 items",
    "failed",
    "exit code",
    "\n",
    "’",
    "unless",
    "`",
]


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=14).map("".join)), VALUES)
@settings(max_examples=400, deadline=None)
def test_any_text_gets_a_ruling(text: str, value: Value) -> None:
    ruling = rules.decide(text, {**KNOWN, "x": value})
    assert ruling.answer in (True, False, None)
    assert isinstance(rules.decidable(text), bool)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("(" * 5000, None),
        ("not " * 450 + "t is 1", None),
        ("t is 1 and " * 180 + "t is 1", True),
        ("x" * 1_000_000, None),
        ('"' * 1999, None),
        ("a.b" * 600, None),
    ],
)
@pytest.mark.timeout(60)
def test_hostile_conditions_end(text: str, answer: bool | None) -> None:
    assert rules.decide(text, KNOWN).answer is answer


@pytest.mark.parametrize(
    "pattern", ["(a*)*b", "a*a*a*a*b", "(a|a)*b", "a?" * 30 + "a" * 30, r"(a)\1+b", "(", "a{1,9}{1,9}", "(?=a+)+"]
)
@pytest.mark.timeout(60)
def test_hostile_patterns_end(pattern: str) -> None:
    assert rules.decide(f"x matches /{pattern}/", {"x": "a" * 20_000}).answer in (None, False)


def test_a_condition_takes_linear_time() -> None:
    def work(count: int) -> Callable[[], None]:
        text = "t is 1 and " * count + "t is 1"
        assert len(text) < rules.LONGEST

        def decide() -> None:
            for _ in range(20):
                rules.parse.cache_clear()
                rules.decide(text, KNOWN)

        return decide

    assert_linear(work, 40)


@pytest.mark.parametrize(
    "text",
    [
        "There are no documents.", "No files were found in the directory.\n\nI looked everywhere.", "Nothing to report!",
        "I didn't find any.", "The list is empty.", "zero results", "n/a", "None of the sources answered.",
    ],
)  # fmt: skip
def test_a11_a_text_that_says_there_is_nothing_is_not_decided_by_rule(text: str) -> None:
    assert rules.decide("docs is empty", {"docs": text}).answer is None
    assert rules.decide("docs is not empty", {"docs": text}).answer is None


@pytest.mark.parametrize(("text", "answer"), [("", True), ("[]", True), ("a.md\nb.md", False), ('["no"]', False)])
def test_a11_a_text_that_has_something_is_still_decided(text: str, answer: bool) -> None:
    assert rules.decide("docs is empty", {"docs": text}).answer is answer


@pytest.mark.parametrize(
    "text",
    [
        "Yes, but the tests are missing.",
        "Yes\n\nHowever, two files failed.",
        "yes if you accept the risk",
        "No, except on Linux.",
        "Yes, once the review is done.",
        "Yes, probably.",
        "No.\nOn second thought, it is.",
        "No. 5 is the best",
        "True\nFalse",
    ],
)
def test_a11_a_qualified_yes_is_not_decided_by_rule(text: str) -> None:
    assert rules.decide("verdict is yes", {"verdict": text}).answer is None


@pytest.mark.parametrize(("text", "answer"), [("Yes", True), ("yes.", True), ("No.", False), ("YES!\n", True)])
def test_a11_a_plain_yes_or_no_is_decided(text: str, answer: bool) -> None:
    assert rules.decide("verdict is yes", {"verdict": text}).answer is answer


WRONG_ELSEWHERE: dict[str, tuple[str, dict[str, Value]]] = {
    "the end of a sum": ("the sum of a and b is 5", {"a": 2, "b": 3}),
    "the end of a difference": ("the difference between a and b is less than 5", {"a": 98, "b": 100}),
    "or beside and": ('mode is "a" or mode is "b" and docs is empty', {"mode": "a", "docs": "text"}),
    "or, then and": ('log contains "a" or "b" and not "c"', {"log": "a c"}),
    "a version is no number": ("python_version >= 3.9", {"python_version": "3.12"}),
    "a release is no number": ("the release is at least 1.9", {"release": "1.10"}),
    "a version in quotes": ('tag is "1.10"', {"tag": "1.1"}),
    "a key with zeros": ('key is "007"', {"key": "7"}),
    "percent in quotes": ('share is "50%"', {"share": "50"}),
    "a decimal comma": ("share is more than 5", {"share": "0,500"}),
    "no group of thousands": ("share is more than 5", {"share": "1234,567"}),
    "not a number": ("share is at least 5", {"share": float("nan")}),
    "an answer in words": ('mode is "query"', {"mode": "I choose query."}),
    "an answer in marks": ('mode is not "edit"', {"mode": "**edit**"}),
    "a boolean and a number": ('ready is "1"', {"ready": True}),
    "an error for a text": ("docs is given", {"docs": "Error: the server is away"}),
    "a boolean in quotes": ('ready is "yes"', {"ready": True}),
    "a count told": ("diff is more than 5 lines", {"diff": "7 lines"}),
    "a bare count": ("diff is longer than 5 lines", {"diff": "7"}),
    "blank lines": ("draft has exactly 3 lines", {"draft": "a\n\nb"}),
    "marks are no words": ("draft has exactly 3 words", {"draft": "- one two"}),
    "words without spaces": ("draft has at least 5 words", {"draft": "这是一个很长的句子"}),
    "two lists": ("bugs has exactly 4 items", {"bugs": "Bugs:\n- a\n- b\nNo bugs:\n- c\n- d"}),
    "a list in a list": ("bugs has exactly 3 items", {"bugs": "1. a\n- b\n- c"}),
    "none below a heading": ("docs is empty", {"docs": "# Findings\n\nNone."}),
    "none in a list": ("docs is given", {"docs": "Findings:\n- none"}),
    "JSON with spaces": ("docs is empty", {"docs": "[ ]"}),
    "JSON in a fence": ("docs is empty", {"docs": "```json\n[]\n```"}),
    "an object of empty lists": ("docs is empty", {"docs": {"items": []}}),
    "a space of no width": ("docs is not empty", {"docs": "\u200b"}),
    "an object that says it": ("result is empty", {"result": {"empty": True}}),
    "a line break in quotes": (r'log contains "a\nb"', {"log": "a\nb"}),
    "outer spaces": ('line starts with "  "', {"line": "  x"}),
    "a name in backticks": ("mode is `target`", {"mode": "edit", "target": "edit"}),
}


@pytest.mark.parametrize(("text", "bindings"), WRONG_ELSEWHERE.values(), ids=WRONG_ELSEWHERE)
def test_ambiguous_conditions_are_open(text: str, bindings: dict[str, Value]) -> None:
    assert rules.decide(text, bindings).answer is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('mode is "a" and score >= 85 or docs is empty', True),
        ('(mode is "b" or docs is empty) and score >= 95', False),
        ("score >= 85 and the reviewer agrees or docs is empty", None),
    ],
)
def test_and_with_or_is_decided_if_both_readings_agree(text: str, answer: bool | None) -> None:
    assert rules.decide(text, {"mode": "a", "score": 90, "docs": ""}).answer is answer
