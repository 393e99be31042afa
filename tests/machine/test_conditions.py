"""`if`, `choice`, markers and the truth of values (openprose.md 3.4, 3.9, 3.10)."""

from __future__ import annotations

import pytest
from machine.fakes import World, lines, value_of

from prose_kernel.runtime.events import ArmChosen, Judged, OptionChosen
from prose_kernel.runtime.ports import LAST_RESULT, Verdict
from prose_kernel.runtime.value_text import material
from prose_kernel.runtime.values import ExecText, Reference

CHOOSE = ["let x = 0", "if {c}:", "  x = 1", "else:", "  x = 2"]


async def chosen(condition: str, *before: str, **world: object) -> int:
    return await value_of(lines(*before, *(line.replace("{c}", condition) for line in CHOOSE)), **world)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("value", "true"),
    [
        ("true", True),
        ("false", False),
        ("null", False),
        ("0", False),
        ("0.0", False),
        ("-1", True),
        ("[]", False),
        ("[0]", True),
        ("{}", False),
        ("{ a: 0 }", True),
        ('"yes, do it"', True),
        ('"Yes"', True),
        ('"OK.\\nmore"', True),
        ('"no"', False),
        ('"None"', False),
        ('"rejected: bad"', False),
        ('""', False),
        ('"  \\n "', False),
        ('"pass"', True),
        ('"failed!"', False),
        ('"0"', False),
        ('"yes do it"', True),
        ('"perhaps"', True),
    ],
)
async def test_truth_of_values(value: str, true: bool) -> None:
    """The last two values are free text, which is true if there is no judge."""
    assert await chosen("v", f"let v = {value}") == (1 if true else 2)


async def test_free_text_is_judged() -> None:
    w = World(judge_says={"it went badly": False})
    await w.run(lines('let v = "it went badly"', *(line.replace("{c}", "v") for line in CHOOSE)))
    assert w.value("x") == 2


async def test_an_error_value_is_not_true() -> None:
    text = lines(
        "let x = 0", "try:", '  throw "a"', "catch as e:", "  if e:", "    x = 1", "  elif not e:", "    x = 2"
    )
    assert await value_of(text) == 2


async def test_first_true_arm_runs_and_later_ones_are_not_judged() -> None:
    w = World(judge_says={"first thing": False, "second thing": True, "third thing": True})
    await w.run(
        lines(
            "let x = 0",
            "if **first thing**:",
            "  x = 1",
            "elif **second thing**:",
            "  x = 2",
            "elif **third thing**:",
            "  x = 3",
        )
    )
    assert (w.value("x"), w.judge.asked) == (2, ["first thing", "second thing"])
    assert [e.arm for e in w.of(ArmChosen)] == [2]
    assert [(e.question, e.answer, e.by) for e in w.of(Judged)] == [
        ("first thing", False, "script"),
        ("second thing", True, "script"),
    ]


async def test_arm_numbers() -> None:
    w = World()
    await w.run(lines("if false:", "  let a = 1", "else:", "  let a = 2", "if false:", "  let a = 3"))
    assert [e.arm for e in w.of(ArmChosen)] == [2, 0]


@pytest.mark.parametrize(
    ("condition", "depth", "asked", "result"),
    [
        ("**big enough** or depth <= 0", 0, [], 1),
        ("**big enough** or depth <= 0", 1, ["big enough"], 2),
        ("depth <= 0 and **big enough**", 1, [], 2),
        ("**big enough** and not depth <= 0", 0, [], 2),
        ("not (**big enough** or depth <= 0)", 0, [], 2),
        ("not **big enough**", 0, ["big enough"], 1),
        ("**big enough** and depth == 0 and **never asked**", 0, ["big enough"], 2),
    ],
)
async def test_markers_are_judged_last(condition: str, depth: int, asked: list[str], result: int) -> None:
    w = World(judge_says={"big enough": False})
    await w.run(lines(f"let depth = {depth}", *(line.replace("{c}", condition) for line in CHOOSE)))
    assert (w.judge.asked, w.value("x")) == (asked, result)


@pytest.mark.parametrize("condition", ["**is it so**", "not **is it so**", "**is it so** or false"])
async def test_uncertain_takes_no_arm(condition: str) -> None:
    assert await chosen(condition, judge_says={"is it so": "uncertain"}) == 2


async def test_a_marker_as_a_value() -> None:
    w = World(judge_says={"it is so": [True, "uncertain"]})
    await w.run(lines("let a = **it is so**", "let b = { ok: **it is so** }"))
    assert w.values("a", "b") == [True, {"ok": False}]


async def test_a_marker_is_interpolated_and_sees_the_bindings() -> None:
    w = World(judge_says={"is red fine": True})
    await w.run(lines('let colour = "red"', "if **is {colour} fine**:", "  let x = 1"))
    request = w.judge.requests[0]
    assert (request.text, dict(request.bindings), request.program) == ("is red fine", {"colour": "red"}, "main.prose")
    assert request.at == "c1/2/j0"


async def test_no_judge_is_e211() -> None:
    error = await World().fail(lines("let a = 1", "if **is it so**:", "  let x = 1"))
    assert (error.code, error.type, error.no_answer) == ("E211", "JudgeError", True)
    assert error.location is not None
    assert (error.location.line, error.location.column) == (2, 4)


CHOICE = lines("let x = 0", "choice **which one**:", '  option "A":', "    x = 1", '  option "B":', "    x = 2")


async def test_choice_runs_one_option() -> None:
    w = World(judge_says={"which one": "B"})
    await w.run(CHOICE)
    assert w.value("x") == 2
    assert [e.label for e in w.of(OptionChosen)] == ["B"]


async def test_a_wrong_label_is_asked_again_once() -> None:
    w = World(judge_says={"which one": ["C", "A"]})
    await w.run(CHOICE)
    assert (w.value("x"), len(w.judge.asked)) == (1, 2)


async def test_two_wrong_labels_are_e211() -> None:
    error = await World(judge_says={"which one": ["C", "D", "A"]}).fail(CHOICE)
    assert error.code == "E211"
    assert not error.no_answer
    assert error.message == 'the judge chose "D", which is none of "A", "B"'


async def test_values_of_if_and_choice() -> None:
    w = World(judge_says={"which one": "A"})
    await w.run(
        lines(
            "let a = if true:",
            "  let q = 3",
            "let b = if false:",
            "  let q = 4",
            "let c = choice **which one**:",
            '  option "A":',
            "    let q = 5",
        )
    )
    assert w.values("a", "b", "c") == [3, None, 5]


async def test_assert() -> None:
    error = await World().fail(lines("assert 1 == 1", "assert 1 == 2:", '  "they differ"'))
    assert (error.type, error.code, error.message) == ("ThrowError", "E207", "they differ")


async def test_a31_a_condition_without_a_name_sees_the_last_result_that_has_none() -> None:
    words = "everything is fine now"
    w = World(sessions_say={"Look": "All four are up."}, judge_says={words: Verdict(True, "model")})
    ask = f"if **{words}**:\n  let x = 1"
    named = "if **the early one is fine**:\n  let x = 1"
    w.judge_says["the early one is fine"] = Verdict(True, "model")
    await w.run(lines('let early = "a"', 'session "Look"', ask, named, 'let late = "b"', ask, 'exec "make"', ask))
    seen = [request.bindings.get(LAST_RESULT) for request in w.judge.requests]
    first, about, after, command = seen
    assert isinstance(first, Reference) and first.read() == "All four are up."
    assert next(iter(material(w.judge.requests[0]).whole)) == LAST_RESULT
    assert (about, after) == (None, None)  # the text names a binding; another was made after it
    assert isinstance(command, ExecText) and command.text == "make\n"
