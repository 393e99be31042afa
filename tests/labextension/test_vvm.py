"""Highlighting of VVM in JupyterLab agrees with the lexer of the language."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labextension.script import Colour, ask, by_offset
from language.vvm.character_kinds import kinds, without_errors
from language.vvm.random_trees import programs

from prose_kernel.language.vvm.formatter import format_program
from prose_kernel.language.vvm.names import LIBRARY, RESERVED

KEY, NAME, NEW, PROPERTY, BUILTIN = (
    "keyword",
    "variableName",
    "variableName.definition",
    "propertyName",
    "variableName.standard",
)
TEXT, ESCAPE, TEMPLATE, BRACE, PATH = "string", "string.special", "string.special", "string", "variableName.special"
AGENT, COLON, SIGN, WORD, IT = "attributeName", "punctuation", "operator", "operatorKeyword", "self"
OPEN, CLOSE, COMMA = ("(", "paren"), (")", "paren"), (",", "separator")


def tokens(*texts: str) -> list[list[Colour]]:
    return ask(*({"do": "tokens", "text": text, "language": "vvm"} for text in texts))


LINES: list[tuple[str, list[tuple[str, str]]]] = [
    ("# def x", [("# def x", "comment")]),
    ("%bindings x", [("%bindings x", "meta")]),
    ("%%vvm\nx", [("%%vvm", "meta"), ("x", NAME)]),
    ('import "a" from "b" # c', [("import", KEY), ('"a"', TEXT), ("from", KEY), ('"b"', TEXT), (" # c", "comment")]),
    ('from "./a" import @b as c', [("from", KEY), ('"./a"', TEXT), ("import", KEY), ("@b", AGENT), ("as", KEY), ("c", NEW)]),
    ('agent a(model="b")', [("agent", KEY), ("a", NEW), OPEN, ("model", PROPERTY), ("=", SIGN), ('"b"', TEXT), CLOSE]),
    ("def f(a, b):", [("def", KEY), ("f", NEW), OPEN, ("a", NEW), COMMA, ("b", NEW), CLOSE, (":", COLON)]),
    ("for x in range(3):", [("for", KEY), ("x", NEW), ("in", KEY), ("range", BUILTIN), OPEN, ("3", "number"), CLOSE, (":", COLON)]),
    ("x = a == 0.5", [("x", NAME), ("=", SIGN), ("a", NAME), ("==", SIGN), ("0.5", "number")]),
    ("x = {from: 1, \"a\": it}", [("x", NAME), ("=", SIGN), ("{", "brace"), ("from", PROPERTY), (":", COLON), ("1", "number"), COMMA, ('"a"', TEXT), (":", COLON), ("it", IT), ("}", "brace")]),
    ("a.error.it", [("a", NAME), (".", "derefOperator"), ("error", NAME), (".", "derefOperator"), ("it", NAME)]),
    ("f(from=true)", [("f", NAME), OPEN, ("from", PROPERTY), ("=", SIGN), ("true", "bool"), CLOSE]),
    ("f(a == b)", [("f", NAME), OPEN, ("a", NAME), ("==", SIGN), ("b", NAME), CLOSE]),
    ("@a `b {} {c.d} {{e}} \\` {f g}`(h)", [("@a", AGENT), ("`b ", TEMPLATE), ("{}", PATH), (" ", TEMPLATE), ("{c.d}", PATH), (" ", TEMPLATE), ("{{", BRACE), ("e", TEMPLATE), ("}}", BRACE), (" ", TEMPLATE), ("\\`", BRACE), (" {f g}`", TEMPLATE), OPEN, ("h", NAME), CLOSE]),
    ('@{model="m"}', [("@", AGENT), ("{", "brace"), ("model", PROPERTY), ("=", SIGN), ('"m"', TEXT), ("}", "brace")]),
    ("if not ?`a`(b) and c:", [("if", KEY), ("not", WORD), ("?", SIGN), ("`a`", TEMPLATE), OPEN, ("b", NAME), CLOSE, ("and", WORD), ("c", NAME), (":", COLON)]),
    ('case error(kind="a"):', [("case", KEY), ("error", KEY), OPEN, ("kind", PROPERTY), ("=", SIGN), ('"a"', TEXT), CLOSE, (":", COLON)]),
    ("choose a by ?`b` as c:", [("choose", KEY), ("a", NAME), ("by", KEY), ("?", SIGN), ("`b`", TEMPLATE), ("as", KEY), ("c", NEW), (":", COLON)]),
    ('x = "a {b} # \\n\\u00e9"', [("x", NAME), ("=", SIGN), ('"a {b} # ', TEXT), ("\\n\\u00e9", ESCAPE), ('"', TEXT)]),
    ('x = """a\n% "b" #c\n"""\ny', [("x", NAME), ("=", SIGN), ('"""a', TEXT), ('% "b" #c', TEXT), ('"""', TEXT), ("y", NAME)]),
    ("@a `x\n# y`()", [("@a", AGENT), ("`x", TEMPLATE), ("# y`", TEMPLATE), ("()", "paren")]),
    # unfinished text
    ('x = "a\ndef f', [("x", NAME), ("=", SIGN), ('"a', TEXT), ("def", KEY), ("f", NEW)]),
    ("x = [1,\ndef f", [("x", NAME), ("=", SIGN), ("[", "squareBracket"), ("1", "number"), COMMA, ("def", KEY), ("f", NEW)]),
]  # fmt: skip


@pytest.fixture(scope="module")
def tokens_of_lines() -> dict[str, list[tuple[str, str]]]:
    """The styled tokens of all texts of `LINES`, from one request."""
    texts = [text for text, _ in LINES]
    return {
        text: [(piece, style) for _, piece, style in answer if style]
        for text, answer in zip(texts, tokens(*texts), strict=True)
    }


@pytest.mark.parametrize(("text", "expected"), LINES, ids=[text for text, _ in LINES])
def test_words_and_text_have_their_styles(
    tokens_of_lines: dict[str, list[tuple[str, str]]], text: str, expected: list[tuple[str, str]]
) -> None:
    assert tokens_of_lines[text] == expected


@settings(max_examples=5, deadline=None)
@given(st.lists(st.text(alphabet='aexcl def if:\n "`{}[]()\\#@?=->%.0', max_size=60), min_size=100, max_size=100))
def test_tokens_cover_any_text(texts: list[str]) -> None:
    for text, answer in zip(texts, tokens(*texts), strict=True):
        lines = [""] * len(text.split("\n"))
        for line, piece, _ in answer:
            lines[line] += piece
        assert "\n".join(lines) == text


def test_every_reserved_word_and_library_function_has_a_colour() -> None:
    words = sorted(RESERVED | set(LIBRARY))
    plain = [word for word, found in zip(words, tokens(*words), strict=True) if found[0][2] in (None, NAME)]
    assert plain == []


STYLES = {
    "comment": {"comment"},
    "string": {TEXT, ESCAPE},
    "template": {TEMPLATE, BRACE, PATH},
    "number": {"number"},
    "name": {NAME, NEW, PROPERTY, BUILTIN, AGENT},
    "reserved": {KEY, WORD, "bool", IT},
    "sign": {SIGN, AGENT, COLON, "paren", "squareBracket", "brace", "separator", "derefOperator"},
}


def differences(text: str, answer: list[Colour]) -> list[str]:
    kinds_of_text = kinds(text)
    return [
        f"line {text.count(chr(10), 0, at) + 1}: {text[at]!r} is {colour or 'plain'}, not {kind}"
        for at, (kind, colour) in enumerate(zip(kinds_of_text, by_offset(text, answer), strict=True))
        if kind and text[at] not in " \n" and colour not in STYLES[kind]
    ]


def test_tokens_of_vvm_programs_agree_with_the_lexer() -> None:
    found = without_errors()
    assert len(found) > 40
    answers = tokens(*(text for _, text in found))
    wrong = {
        name: bad for (name, text), answer in zip(found, answers, strict=True) if (bad := differences(text, answer))
    }
    assert wrong == {}


@settings(max_examples=15, deadline=None)
@given(programs.map(format_program))
def test_tokens_of_generated_programs_agree_with_the_lexer(text: str) -> None:
    assert differences(text, tokens(text)[0]) == []


# ---------------------------------------------------------------- indentation


@pytest.mark.parametrize(
    ("text", "after", "typed", "column"),
    [
        ("if x:", "", None, 2),
        ("if x: # why", "", None, 2),
        ("def f():\n   x\n   if x:", "", None, 6),  # as deep as the text's own blocks
        ("x = [", "", None, 2),
        ("x = f(\n  {", "", None, 4),
        ("x = [\n  1,", "]", None, 0),
        ("@a `b", "", None, None),  # text keeps the indentation of its line
        ("if x:\n  y", "else:", None, 0),
        ("if x:\n  if y:\n    z", "elif", None, 2),
        ("if x:\n  if y:\n    z", "else:", "else:", 0),  # a person has indented it
        ("try:\n  x", "except", None, 0),
        ("try:\n  x\nexcept as e:\n  y", "finally:", None, 0),
        ("match x:", "case", None, 2),
        ("match x:\n  case _:\n    y", "case", None, 2),
        ('choose x by ?`y` as z:\n  option "a":\n    if b:\n      c', "option", None, 2),
        ("match x:\n  case _:\n    match y:\n      case _:\n        z", "case", "  case", 2),
        ("x", "else:", None, None),
        ("%%vvm", "", None, 0),
    ],
)
def test_a_new_line_has_the_expected_indentation(text: str, after: str, typed: str | None, column: int | None) -> None:
    question = {"do": "indent", "text": text, "after": after, "language": "vvm"}
    assert ask(question if typed is None else {**question, "typed": typed}) == [column]


def test_a_complete_clause_is_indented_again() -> None:
    lines = ["  else:", "  elif x:", "  except as e:", "  finally:", "  case _:", '  option "a":', "  ]"]
    others = ["  elsewhere", "  else", "  x = {else: 1", "  cases:"]
    questions = ({"do": "reindents", "line": line, "language": "vvm"} for line in [*lines, *others])
    assert ask(*questions) == [True] * len(lines) + [False] * len(others)
