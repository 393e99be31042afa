"""Tokens and texts (openprose.md 1): strings, escapes, interpolation, markers, names, numbers, soft keywords, bytes."""

from __future__ import annotations

import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prose_kernel.errors import CompileError
from prose_kernel.language.diagnostics import Profile, decode
from prose_kernel.language.openprose import tree as t
from prose_kernel.language.openprose.lexer import tokenize
from prose_kernel.language.openprose.parser import parse
from prose_kernel.language.openprose.tree import Interpolation, Name, Text
from prose_kernel.language.python_literals import number
from prose_kernel.language.source import Source


def kinds(text: str) -> list[str]:
    return [token.kind for token in tokenize(text)]


def text_of(string: str, profile: Profile = "default", codes: tuple[str, ...] = ()) -> Text:
    parsed = parse(Source(f"session {string}\n"), profile)
    assert tuple(d.code for d in parsed.diagnostics) == codes, [d.render() for d in parsed.diagnostics]
    (statement,) = parsed.program.items
    assert isinstance(statement, t.ExpressionStatement)
    assert isinstance(statement.value, t.Session)
    assert statement.value.title is not None
    return statement.value.title


def raw(string: str, profile: Profile = "default", codes: tuple[str, ...] = ()) -> str:
    literal = text_of(string, profile, codes).literal
    assert literal is not None
    return literal


# ---- tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("# only\n\n", []),
        ("a-b a->b a - b", ["NAME", "NAME", "ARROW", "NAME", "NAME", "MINUS", "NAME", "_NL"]),
        ("a-1 x--y", ["NAME", "NAME", "MINUS", "MINUS", "NAME", "_NL"]),
        ("1 1.5 120s 1.5h 500ms 2h30m 3d", ["NUMBER"] * 2 + ["DURATION"] * 5 + ["_NL"]),
        ("== != < <= > >= = -> | . , : + -", ["COMPARISON"] * 6 + [
            "EQUALS", "ARROW", "PIPE", "DOT", "COMMA", "COLON", "PLUS", "MINUS", "_NL"]),
        ("if a:\n  b\nc", ["IF", "NAME", "COLON", "_NL", "_INDENT", "NAME", "_NL", "_DEDENT", "NAME", "_NL"]),
        ("xs\n  | map: a\n  | map: b", ["NAME", *["PIPE", "NAME", "COLON", "NAME"] * 2, "_NL"]),
        ("(\na\n)", ["LPAR", "NAME", "RPAR", "_NL"]),
        ('""', ["STRING", "_NL"]),
        ('"a" "b"', ["STRING", "STRING", "_NL"]),
    ],
)  # fmt: skip
def test_tokens(text: str, expected: list[str]) -> None:
    assert kinds(text) == expected


@given(st.floats(0, allow_nan=False, allow_infinity=False) | st.integers(0, 10**3999))
@example(5e-324)
@example(sys.float_info.max)
def test_a_number_from_python_is_read_as_the_same_number(value: float) -> None:
    parsed = parse(Source(f"let x = {number(value)}\n"))
    (statement,) = parsed.program.items
    assert not parsed.diagnostics
    assert isinstance(statement, t.Let) and isinstance(statement.value, t.Number)
    assert (statement.value.value, type(statement.value.value)) == (value, type(value))


def test_tokens_have_their_places() -> None:
    text = 'let x = "é"  # c\n  y'
    found = [(text[token.start : token.end], token.kind) for token in tokenize(text) if token.end > token.start]
    assert found == [("let", "LET"), ("x", "NAME"), ("=", "EQUALS"), ('"é"', "STRING"), ("y", "NAME")]


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ('use "a"', True), ("use = 1", False), ('import "a"', True), ("import.x", False), ('exec "a"', True),
        ("exec = 1", False), ("input x", True), ("input:", True), ('input "a"', True), ("input = 1", False),
        ("output x", True), ("output = x", True), ("output.x", False), ("agent a", True), ("agent.x", False),
        ("gate g", True), ("gate = 1", False), ("block f", True), ("block:", True), ("block(", True),
        ("block = 1", False), ("let x", True), ("let = x", True), ("let.x", False), ("let(x", False),
        ("let | map", False), ("const x", True), ("const.x", False), ("session", True), ('session "a"', True),
        ("session = 1", False), ("session.x", False), ("session, x", False), ("session | map", False),
        ("resume: a", True), ("resume = 1", False), ("parallel:", True), ("parallel (", True), ("parallel for", True),
        ("parallel", True), ("parallel = 1", False), ("for x", True), ("for = 1", False), ("repeat 3", True),
        ("repeat n", True), ("repeat:", True), ("repeat -1", True), ('repeat "a"', True), ("repeat = 1", False),
        ("loop:", True), ("loop (", True), ("loop until", True), ("loop while", True), ("loop as", True),
        ("loop = 1", False), ("loop.x", False), ("try:", True), ("try = 1", False), ("finally:", True),
        ("finally.x", False), ("else:", True), ("else if", True), ("else = 1", False), ("catch:", True),
        ("catch as e", True), ("catch = 1", False), ("if x", True), ("if = 1", False), ("elif x", True),
        ("elif = 1", False), ("choice **a**", True), ("choice = 1", False), ("do:", True), ("do f", True), ("do", True),
        ("do = 1", False), ("throw", True), ('throw "a"', True), ("throw e", True), ("throw = 1", False),
        ("return", True), ("return x", True), ("return = 1", False), ("assert x", True), ("assert = 1", False),
        ("break", True), ("break = 1", False), ("continue", True), ("continue = 1", False), ('option "a"', True),
        ("option = 1", False), ("approve = 1", False),
    ],
)  # fmt: skip
def test_keywords_by_what_follows(text: str, keyword: bool) -> None:
    first = tokenize(text)[0]
    assert (first.kind != "NAME") is keyword
    assert first.word


# ---- strings


def test_escapes() -> None:
    assert raw(r'"\\ \" \n \t \{ \}"') == '\\ " \n \t { }'
    assert raw('""', codes=()) == ""
    assert raw(r'"\\"') == "\\"
    assert raw(r'"a \q b"', codes=("E002",)) == r"a \q b"


def test_triple_quoted_strings_are_verbatim() -> None:
    assert raw('"""\n  a\n\n b  \n"""') == "\n  a\n\n b  \n"
    assert raw('"""a"""') == "a"
    assert raw('""""""') == ""
    assert raw('"""\na "b" ""c""\n"""') == '\na "b" ""c""\n'
    assert raw('"""\ncolumn one\n  """') == "\ncolumn one\n  "


def test_a_long_run_of_quotes_closes_with_its_last_three() -> None:
    assert raw('"""\nsaid "stop"""""') == '\nsaid "stop""'
    parsed = parse(Source('session """\nsaid "stop"""""\n'), "strict")
    assert [d.code for d in parsed.diagnostics] == ["E004"]


def test_escapes_in_triple_quoted_strings() -> None:
    assert raw('"""\na \\\nb"""') == "\na \\\nb"
    assert raw('"""\na \\\nb"""', "strict", ("E002",)) == "\na \\\nb"
    assert raw('"""\na\\nb\\""""') == '\na\nb"'
    assert raw('"""\n\\d"""', codes=("W104",)) == "\n\\d"
    assert raw('"""\n\\d"""', "strict", ("E002",)) == "\n\\d"


def test_nested_triple_quotes() -> None:
    sample = '"""\nagent x:\n  prompt: """\n  inner\n  """\nlet y = """\nz\n"""\nsession """\nz\n"""\nend\n"""'
    assert raw(sample, codes=("W105",) * 3) == sample[3:-3]


def test_nested_triple_quotes_that_do_not_close_do_not_count() -> None:
    text = 'session """\nprompt: """\nlet x = 1\n'
    parsed = parse(Source(text))
    assert not parsed.diagnostics
    assert len(parsed.program.items) == 2


def test_strings_with_line_breaks() -> None:
    assert raw('"a\n  b\n\n    c"', codes=("W109",)) == "a\n  b\n\n    c"


# ---- interpolation


def refs(string: str) -> list[str | tuple[object, ...]]:
    return [p if isinstance(p, str) else (p.name, *p.steps) for p in text_of(string).parts]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a {x} b", ["a ", ("x",), " b"]),
        ("{x}{y}", [("x",), ("y",)]),
        ("{a.b-c.d}", [("a", "b-c", "d")]),
        ("{a[0].b[i]}", [("a", 0, "b", Name("i"))]),
        ("{}", ["{}"]),
        ("{ x }", ["{ x }"]),
        ("{x or y}", ["{x or y}"]),
        ("{...}", ["{...}"]),
        ("{'k': 1}", ["{'k': 1}"]),
        ("{x.}", ["{x.}"]),
        ("{x[}", ["{x[}"]),
        ("{1..3}", ["{1..3}"]),
        ("{a,b}", ["{a,b}"]),
        ("{{x}}", ["{{x}}"]),
        ("{{x}", ["{{x}"]),
        ("{x}}", ["{x}}"]),
        ("{.Names}", ["{.Names}"]),
        ("${HOME}", ["$", ("HOME",)]),
        ("${HOME:-/tmp}", ["${HOME:-/tmp}"]),
        ("\\{x\\}", ["{x}"]),
        ("$\\{x\\}", ["${x}"]),
        ("\\{{x}\\}", ["{", ("x",), "}"]),
        ("{x", ["{x"]),
        ("x}", ["x}"]),
    ],
)
def test_interpolation(content: str, expected: list[object]) -> None:
    assert refs(f'"{content}"') == expected
    assert refs(f'"""{content}"""') == expected


def test_a_dollar_before_an_interpolation_is_noted() -> None:
    first, second = text_of('"${a} {b}"').interpolations
    assert (first.after_dollar, second.after_dollar) == (True, False)
    assert first.raw == "{a}"


def test_raw_keeps_interpolations_as_written() -> None:
    assert text_of('"a {x.y[0]} b"').raw == "a {x.y[0]} b"
    assert text_of('"a {x} b"').literal is None


# ---- markers


def marker(text: str) -> Text:
    parsed = parse(Source(f"input x: {text}\n"))
    assert not parsed.diagnostics, [d.render() for d in parsed.diagnostics]
    (statement,) = parsed.program.items
    assert isinstance(statement, t.Input)
    assert isinstance(statement.prompt, t.Discretion)
    return statement.prompt.text


def test_markers() -> None:
    assert marker("** what  **").literal == "what"
    assert marker("***what***").literal == "what"
    assert marker("***\n  what\n  now\n***").literal == "what\n  now"
    assert marker("**what\n  now**").literal == "what\n  now"
    assert marker("***a ** b***").literal == "a ** b"
    assert marker('**a # b "c" \\d**').literal == 'a # b "c" \\d'
    assert marker("****").literal == ""
    assert marker("*** ***").literal == ""


def test_interpolation_in_markers() -> None:
    (first, reference) = marker("**is {x.y}**").parts
    assert first == "is "
    assert isinstance(reference, Interpolation)
    assert reference.name == "x"


# ---- bytes


def test_decode() -> None:
    assert decode(b"\xef\xbb\xbflet x = 1\r\nlet y = 2\n", "a.prose") == Source("let x = 1\nlet y = 2\n", "a.prose")
    assert decode("é".encode(), "a").text == "é"
    assert parse(decode(b'session """\r\na\r\n"""', "a")).program == parse(Source('session """\na\n"""')).program


@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf"])
def test_bytes_that_are_not_text(prefix: bytes) -> None:
    with pytest.raises(CompileError) as caught:
        decode(prefix + b"let x = 1\r\nlet y = \xff\n", "a")
    (found,) = caught.value.diagnostics
    assert (found.code, found.line, found.column) == ("E109", 2, 9)
    assert found.source_line.startswith("let y = ")


@pytest.mark.parametrize("text", ['session "\ud800"', "# \x00", "let x = \ud800", "\x00"])
def test_characters_that_no_text_has(text: str) -> None:
    assert [d.code for d in parse(Source(text)).diagnostics] == ["E106"]
