"""Syntax errors: each mistake is reported once, at its place (docs/reference/vvm.md 10.2)."""

from __future__ import annotations

import pytest
from language.marked import cases, places, unmark

from prose_kernel.errors import CompileError
from prose_kernel.language.diagnostics import decode
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import tree as t
from prose_kernel.language.vvm.parser import parse

TABLE = cases("../syntax/vvm")


@pytest.mark.parametrize("name", TABLE)
def test_findings_at_their_places(name: str) -> None:
    source, expected = unmark(TABLE[name].removesuffix("\n"), "default")
    found = parse(source).diagnostics
    assert places(found) == expected, "\n".join(d.render() for d in found)


def test_a_finding_as_it_is_shown() -> None:
    (found,) = parse(Source("x = 1\ny = (2")).diagnostics
    assert found.render() == (
        "Error at line 2, column 5: `(` is never closed [V001]\n  y = (2\n      ^\nhint: write `)` after the last item"
    )


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        ('@w "Say it"', "@w `Say it`()"),
        ('@w "Say it"(1)', "@w `Say it`(1)"),
        ("@w Say it (f(1), a=[2])", "@w `Say it`(f(1), a=[2])"),
        ("@w 'Say it'(`b`)", "@w `Say it`(…)"),
        ('@w "Say it"(' + "x" * 50 + ")", "@w `Say it`(…)"),
        ('@w "Say it"(1', "@w `Say it`(…)"),
    ],
)
def test_the_hint_about_a_task_in_quotes_keeps_the_input(call: str, meant: str) -> None:
    (found,) = [one for one in parse(Source(f"x = {call}\n")).diagnostics if "backticks" in one.message]
    assert found.hint == f"write ``{meant}``"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("x = {1, 2}", "write a list: `[a, b]`; an object is written `{key: value}`"),
        ('x = {"a",\n  "b"}', "write a list: `[a, b]`; an object is written `{key: value}`"),
        ("x = {**d}", "write the fields out: `{key: value}`"),
        ("x = [*a, 1]", "join lists with `+`: `[a] + items`"),
        ("f(1, *a)", "write the arguments out, one by one"),
        ("if **x is nice**:\n  pass", "a question is written ``?`criterion`(value)``"),
        ('raise ValueError("bad")', 'there are no types of errors; write `raise "bad"`'),
        ("raise err", "a message is written out; to hand an error value on, write `return`"),
        (
            'x = input("name?")',
            'only OpenProse asks for inputs: `input name: "…"` in a notebook cell that begins with `%%prose`',
        ),
        ("a = b = 1", "assign each name on a line of its own"),
        ("x = @writer `hello` topic", "write `()` after the task, or `(input)`"),
        ("x = topic ?`fine`", "write the value after the criterion: ``?`criterion`(value)``"),
    ],
)
def test_what_python_writes_is_one_mistake_with_a_hint(text: str, hint: str) -> None:
    (found,) = parse(Source(f"{text}\n")).diagnostics
    assert found.hint == hint


def test_what_cannot_be_assigned_to_has_no_wrong_hint() -> None:
    (found,) = parse(Source("1 = 2\n")).diagnostics
    assert (found.message, found.hint) == ("only a plain name can be assigned", None)


def test_bytes_that_are_not_text() -> None:
    with pytest.raises(CompileError) as caught:
        decode(b'\xef\xbb\xbfx = 1\r\ny = "\xff"\r\n', "a.vvm", "V001")
    (found,) = caught.value.diagnostics
    assert found.render().splitlines()[0] == "Error at line 2, column 6: not UTF-8: byte 0xff [V001]"


def test_a_byte_order_mark_and_line_ends_are_not_part_of_the_text() -> None:
    source = decode(b'\xef\xbb\xbfx = """a\r\nb"""\r\n', "a.vvm")
    parsed = parse(source)
    assert parsed.diagnostics == ()
    assert parsed.program.items == (t.Assign(t.Name("x"), t.String("a\nb")),)


def test_what_can_be_read_is_read() -> None:
    parsed = parse(Source("def f(x=1):\n  y = 2\n  return = 3\nz = 4\nif z = 4:\n  w = 5\nelse:\n  w = 6\n"))
    function, assign, choice = parsed.program.items
    assert isinstance(function, t.Def) and function.name.id == "f"
    assert function.body[0] == t.Assign(t.Name("y"), t.Number(2))
    assert assign == t.Assign(t.Name("z"), t.Number(4))
    assert isinstance(choice, t.If) and choice.otherwise == (t.Assign(t.Name("w"), t.Number(6)),)
