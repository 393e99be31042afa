"""Operators and coercions (openprose.md 3.11), and interpolated forms (1.6)."""

from __future__ import annotations

import pytest
from machine.fakes import World, lines, value_of


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ('" 1.0 " == 1', True), ('"a " == "a"', True), ('"A" == "a"', False), ('"A" is "a "', True), ("null == null", True),
        ('null == ""', False), ("[1, 2] == [1, 2]", True), ("{ a: 1, b: 2 } == { b: 2, a: 1 }", True), ("[true] == [1]", False),
        ('"x" != "y"', True), ("true == \"true\"", True), ('"10" > 9', True), ('"2" < "10"', True), ("1 <= 1.0", True),
        ("1 + 2", 3), ("0.1 + 0.2", 0.3), ('"1" + 2', 3), ('"1" + "2"', "12"), ("[1] + [2]", [1, 2]), ("[1] + 2", [1, 2]),
        ("1 + [2]", [1, 2]), ('"n: " + 3', "n: 3"), ('"a" + null', "a"), ('"v" + { a: [1] }', 'v{"a":[1]}'), ("5 - 7", -2),
        ('"5" - 1.5', 3.5), ("1 + 1 - 3", -1), ("[[]] + [[1]]", [[], [1]]), ("true + 1", "true1"), ("{ a: 1 }.a", 1),
    ],
)  # fmt: skip
async def test_values(expression: str, value: object) -> None:
    if expression.endswith(".a"):
        assert await value_of(lines("let o = { a: 1 }", "let x = o.a")) == value
    else:
        assert await value_of(f"let x = {expression}\n") == value


@pytest.mark.parametrize("expression", ['"a" < 1', "null < 1", '"a" - 1', "[1] - 1", "true > 0"])
async def test_operands_that_are_not_numbers(expression: str) -> None:
    assert (await World().fail(f"let x = {expression}\n")).code == "E209"


@pytest.mark.parametrize(
    ("access", "code"),
    [
        ("o.nope", "E209"), ("n.a", "E209"), ("l[3]", "E209"), ("l[0 - 1]", "E209"), ('l["a"]', "E209"), ("n[0]", "E210"),
        ("t.a", "E209"), ("e.a", "E209"),
    ],
)  # fmt: skip
async def test_failing_access(access: str, code: str) -> None:
    text = lines(
        "let o = { a: 1 }", "let n = 5", "let l = [1, 2]", 'let t = "{\\"b\\": 1}"', 'let e = ""', f"let x = {access}"
    )
    assert (await World().fail(text)).code == code


@pytest.mark.parametrize(
    ("access", "value"),
    [("o.a", 1), ('o["a"]', 1), ("l[1]", 2), ("l[i]", 2), ("t.b", 1), ("j[1]", "y"), ("b[0]", "one")],
)
async def test_access(access: str, value: object) -> None:
    text = lines(
        "let o = { a: 1 }", "let l = [1, 2]", "let i = 1", 'let t = "see\\n```json\\n\\{\\"b\\": 1\\}\\n```"',
        'let j = "[\\"x\\", \\"y\\"]"', 'let b = "- one\\n- two"', f"let x = {access}",
    )  # fmt: skip
    assert await value_of(text) == value


async def test_inserted_forms() -> None:
    w = World()
    await w.run(
        lines(
            "let a = [1, { b: null }]",
            "let n = 2.50",
            "let t = true",
            "let z = null",
            'let e = exec "run"',
            'let x = "{a}|{n}|{t}|{z}|{e}|"',
        )
    )
    assert w.value("x") == '[1,{"b":null}]|2.5|true||run|'


async def test_inserted_text_is_not_scanned_again() -> None:
    assert await value_of(lines('let a = "\\{b\\}"', 'let b = "no"', 'let x = "{a}"')) == "{b}"
