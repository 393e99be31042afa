"""Values and operators of VVM (docs/reference/vvm.md 3)."""

from __future__ import annotations

import json
import re
import sys

import pytest
from machine.vvm_world import raised_by, value_of

from prose_kernel.errors import VvmRaise
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import compile_source
from prose_kernel.language.vvm.expression_checks import ADD_HINT
from prose_kernel.machine.vvm import values
from prose_kernel.machine.vvm.values import OPERATORS, canonical, equal, inserted, is_error, is_ref, json_view, text_of
from prose_kernel.runtime.json_data import int_text

# ---------------------------------------------------------------- numbers (3.1, 3.6)


async def test_v1_whole_numbers_and_floats() -> None:
    assert await value_of("[1 + 2, 1 + 0.5, 0.5 + 1, 5 - 7, 0.25 - 0.25]") == [3, 1.5, 1.5, -2, 0.0]
    assert await value_of("n = 1", "for i in range(300):", "  n = n + n", "n - 1") == 2**300 - 1


async def test_a_number_that_a_float_cannot_hold_is_refused() -> None:
    assert await raised_by(f"{10**400} + 0.5") == (
        "R205",
        "unsupported operand types for +: the whole number is too large to be added to one with a decimal point",
    )


async def test_a_text_that_would_be_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """`except` gives a program only the message, so the message contains the reason."""
    monkeypatch.setitem(values._LONGEST, str, 10)
    assert await raised_by('"abcdef" + "abcdef"') == (
        "R205",
        "unsupported operand types for +: the result would have more than 10 characters",
    )


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('"a" + n', ADD_HINT),
        ('n + "a"', ADD_HINT),
        ("n + []", None),
        ('"a" - n', None),
        ('"abc".upper()', "members can be read of a text that is a JSON object or list; there are no methods"),
    ],
)
async def test_unsupported_text_operations_have_a_hint(text: str, hint: str | None) -> None:
    with pytest.raises(VvmRaise) as raised:
        await value_of("def plus(n):", f"  return {text}", "plus(1)")
    assert raised.value.hint == hint


async def test_the_hint_for_adding_text_and_a_number_is_valid_code() -> None:
    _, text, template = re.findall(r"`([^`]+)`", ADD_HINT)
    assert await value_of(f'"tickets: " + {text}') == "tickets: 4"
    program = f'agent w(model="m")\na = "n: "\nb = 4\nx = @w `{template}`()\nexport x\n'
    assert not compile_source(Source(program)).diagnostics


@pytest.mark.parametrize(("digits", "more"), [(0, 0), (1, -12), (3999, 0), (4300, -1), (9001, 17), (20_000, 5)])
def test_whole_numbers_of_any_size_are_text(digits: int, more: int) -> None:
    number = 10**digits + more
    limit = sys.get_int_max_str_digits()
    shown = int_text(number), int_text(-number)
    sys.set_int_max_str_digits(0)
    try:
        assert shown == (str(number), str(-number))
    finally:
        sys.set_int_max_str_digits(limit)


async def test_l3_strings_and_lists_are_joined() -> None:
    assert await value_of('["a" + "b", [1] + [2, 3]]') == ["ab", [1, 2, 3]]


@pytest.mark.parametrize(
    "text",
    [
        '1 + "a"',
        '"a" + 1',
        "[1] + 1",
        "() + ()",
        "true + 1",
        '"a" - "b"',
        "{} + {}",
        "1 < true",
        '"a" < "b"',
        "() <= 1",
    ],
)
async def test_other_operands_raise(text: str) -> None:
    code, message = await raised_by(text)
    assert code == "R205" and message.startswith("unsupported operand types")


# ---------------------------------------------------------------- equality (3.2)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("1 == true", False),
        ("true == 1", False),
        ("0 == false", False),
        ("[true] == [1]", False),
        ("{a: [0]} == {a: [false]}", False),
        ("1 == 1.0", True),
        ("[1, {b: 2}] == [1.0, {b: 2.0}]", True),
        ("{a: 1, b: 2} == {b: 2, a: 1}", True),
        ("{a: 1} == {b: 1}", False),
        ("() == ()", True),
        ("() == false", False),
        ('"1" == 1', False),
        ("[] == {}", False),
        ("[1, 2] == [1]", False),
    ],
)
async def test_equality_is_structural_and_never_takes_a_boolean_for_a_number(text: str, same: bool) -> None:
    assert await value_of(text) is same
    assert await value_of(text.replace("==", "!=")) is (not same)


async def test_functions_and_agents_are_not_compared() -> None:
    for text in ("len == len", "len != 1", "[1, len] == [1, 2]", "{a: len} == {a: 1}"):
        code, message = await raised_by(text)
        assert code == "R206" and message == "cannot compare a function"
    assert await value_of("[1, len] == [2, len]") is False  # never evaluated


def test_deep_values_are_compared_and_written() -> None:
    one: list[object] = []
    two: list[object] = []
    for _ in range(499):
        one, two = [one], [two]
    assert equal(one, two)  # type: ignore[arg-type]
    assert canonical(one) == "[" * 500 + "]" * 500  # type: ignore[arg-type]
    assert not equal(one, [two])  # type: ignore[arg-type, list-item]


async def test_l16_a_chained_comparison_compares_a_boolean() -> None:
    assert (await raised_by("1 < 2 < 3"))[0] == "R205"
    assert await value_of("1 == 1 == true") is True


async def test_and_or_not_take_booleans_and_stop_early() -> None:
    assert await value_of("[false and nowhere, true or nowhere, not false, true and false]") == [
        False,
        True,
        True,
        False,
    ]
    for text in ("1 and true", "true and 1", 'false or "x"', "not 0"):
        assert (await raised_by(text))[0] == "R203"


# ---------------------------------------------------------------- shapes (3.3, 3.4)


def test_error_values_and_refs_are_known_by_their_shape() -> None:
    assert is_error({"error": {}}) and is_error({"status": "x", "error": {"kind": "k"}})
    assert not is_error({"error": "text"}) and not is_error([{"error": {}}])
    assert is_ref({"ref": "a.md"}) and not is_ref({"ref": 1})


# ---------------------------------------------------------------- members (3.5)


async def test_l1_l2_members_and_indexes() -> None:
    assert await value_of('o = {a: [1, {b: 2}], "c d": 3}', '[o.a[1].b, o["c d"], o["a"][0]]') == [2, 3, 1]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{a: 1}.b", "R209"),
        ("[1, 2][2]", "R209"),
        ("[1, 2][0 - 1]", "R209"),
        ("[1, 2][true]", "R209"),
        ("[1][0.0]", "R209"),
        ("{a: 1}[0]", "R209"),
        ("[1].a", "R210"),
        ("().a", "R210"),
        ("true.a", "R210"),
        ('"text".a', "R210"),
        ('"text"[0]', "R210"),
        ("len.a", "R210"),
    ],
)
async def test_a_missing_member_raises(text: str, code: str) -> None:
    assert (await raised_by(text))[0] == code


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('{error: {kind: "k", message: "m"}}.message', "the fields of an error are below `error`: `.error.message`"),
        ("@{}.run", "call the agent: ``@name `the task`(input)``"),
        ('map(["a"], @{})', "write a function that calls the agent, and pass that"),
    ],
)
async def test_the_hint_shows_the_correct_form(text: str, hint: str) -> None:
    with pytest.raises(VvmRaise) as caught:
        await value_of(text)
    assert caught.value.hint == hint


async def test_v2_members_look_through_json_text() -> None:
    text = json.dumps({"a": [1, None], "error": {"kind": "x"}})
    fenced = f"\n```json\n{text}\n```\n"
    assert json_view(f"```json\n{' ' * 1_000_000}x") is None  # in linear time
    assert await value_of(f"s = {json.dumps(text)}", f"t = {json.dumps(fenced)}", "[s.a[0], t.a[1], t.error.kind]") == [
        1,
        None,
        "x",
    ]
    assert await value_of(f"s = {json.dumps(text)}", "len(s)") == len(text)  # the value remains a string
    assert await value_of('"[1, 2]"[1]') == 2
    for other in ("Here: {}", "3", '\\"a\\"', "[NaN]", "[1] [2]"):
        assert (await raised_by(f'"{other}".a'))[0] == "R210"


async def test_f2_functions_in_fields_can_be_called() -> None:
    assert await value_of("o = {f: len}", 'o.f("abc")') == 3
    assert await value_of("def twice(f):", "  return f", "twice(len)([1, 2])") == 2


# ---------------------------------------------------------------- text of values (3.7, A23)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, 0.5]}, '{"a": [true, null, 0.5], "b": 1}'),
        (3.0, "3.0"),
        (0.1, "0.1"),
        ({"ref": "p", "summary": "s"}, '{"ref": "p", "summary": "s"}'),
        ({"error": {"message": "ü", "kind": "k"}}, '{"error": {"kind": "k", "message": "ü"}}'),
    ],
)
def test_a23_the_canonical_serialisation(value: object, text: str) -> None:
    assert canonical(value) == text  # type: ignore[arg-type]


def test_huge_numbers_are_serialised() -> None:
    assert canonical([10**5000, {"a": -(10**4300)}]) == f'[1{"0" * 5000}, {{"a": -1{"0" * 4300}}}]'


def test_displayed_values_keep_the_order_of_keys_at_any_depth() -> None:
    from prose_kernel.machine.vvm.context import LIBRARY

    deep: list[object] = []
    for _ in range(498):
        deep = [deep]
    assert text_of({"b": LIBRARY["len"], "a": None}) == '{"b": "function len(value)", "a": null}'
    assert text_of({"b": deep, "a": 1}) == f'{{"b": {"[" * 499}{"]" * 499}, "a": 1}}'  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("verbatim\n text", "verbatim\n text"),
        (3, "3"),
        (3.0, "3.0"),
        (True, "true"),
        (None, "()"),
        ([None, "a"], '[null, "a"]'),
        ({"ref": "b/b1.md"}, "[ref: b/b1.md]\nsummary: (none)"),
        ({"ref": "b/b1.md", "summary": "Two words."}, "[ref: b/b1.md]\nsummary: Two words."),
        ("x" * 2000, "x" * 2000),
    ],
)
def test_v3_v4_text_inserted_by_a_placeholder(value: object, text: str) -> None:
    assert inserted(value, None) == text  # type: ignore[arg-type]


def test_v5_long_values_are_previewed() -> None:
    long = "x" * 2001
    assert inserted(long, None) == "x" * 300 + "\n[truncated, 2001 chars]"
    lines = "\n".join(f"line {number}" for number in range(1000))
    assert inserted(lines, None) == f"line 0\nline 1\nline 2\n[truncated, {len(lines)} chars]"
    items = ["a" * 1500, "b" * 1500]
    shown = inserted(items, items)  # type: ignore[arg-type]
    assert shown.endswith("\n[see input]") and len(shown) == 300 + len("\n[see input]")
    assert inserted(long, {"text": long, "f": 1}).endswith("\n[see input]")
    assert inserted([long], None).endswith(f"\n[truncated, {len(canonical([long]))} chars]")


def test_v6_functions_are_not_rendered() -> None:
    from prose_kernel.machine.vvm.context import LIBRARY

    for value in (LIBRARY["len"], [LIBRARY["len"]], {"ref": "x", "f": LIBRARY["map"]}):
        with pytest.raises(VvmRaise) as raised:
            inserted(value, None)
        assert (str(raised.value), raised.value.code) == ("cannot render a function", "R211")


def test_every_operator_refuses_functions() -> None:
    from prose_kernel.machine.vvm.context import LIBRARY

    for operate in OPERATORS.values():
        with pytest.raises(VvmRaise):
            operate(LIBRARY["len"], 1)
