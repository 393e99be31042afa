"""Syntax errors (openprose.md 9.1 to 9.6): each is reported once, at its place; the rest is parsed as usual."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from language.marked import PROFILES, cases, unmark
from scaling import assert_linear

from prose_kernel.language.diagnostics import Diagnostic, Profile
from prose_kernel.language.openprose import compile_source
from prose_kernel.language.openprose import tree as t
from prose_kernel.language.openprose.expression_builder import DEPTH_LIMIT
from prose_kernel.language.openprose.lexer import NESTING_LIMIT
from prose_kernel.language.openprose.parser import parse
from prose_kernel.language.source import Source

TABLES = {
    f"{table}: {name}": text for table in ("lexical", "recovery") for name, text in cases(f"../syntax/{table}").items()
}


FINDINGS = [  # the table "recovery" says what the default profile finds
    (name, profile) for name in TABLES for profile in PROFILES if profile == "default" or name.startswith("lexical")
]


@pytest.mark.parametrize(("name", "profile"), FINDINGS)
def test_findings_at_their_places(name: str, profile: Profile) -> None:
    source, expected = unmark(TABLES[name].removesuffix("\n"), profile)
    found = parse(source, profile).diagnostics
    places = [(d.code, d.line, d.column) for d in found]
    if profile == "strict":
        places, expected = [p for p in places if p[0] != "E004"], [p for p in expected if p[0] != "E004"]
    assert places == expected, [d.render() for d in found]


def compiled(text: str) -> tuple[Diagnostic, ...]:
    return compile_source(Source(text)).diagnostics


def one(text: str, code: str) -> Diagnostic:
    (found,) = [d for d in compiled(text) if d.code == code]
    return found


def test_the_rendering_of_a_syntax_error() -> None:
    assert one('let a = 1\nif x = "a":\n  throw\nlet x = 1', "E004").render() == (
        'Error at line 2, column 6: unexpected `=` [E004]\n  if x = "a":\n       ^\nhint: write `if x == "a":`'
    )


@pytest.mark.parametrize(("operation", "code"), [("sort: item", "E171"), ("reduce(x): x", "E172")])
def test_a_wrong_operation_has_no_body_that_could_lack_a_value(operation: str, code: str) -> None:
    assert [d.code for d in compiled(f"let a = [1] | {operation}\n")] == [code]
    assert [d.code for d in compiled(f"let a = [1] | {operation}\nlet b = [1] | map:\n  throw\n")] == [
        code,
        "W171",
        "W184",
    ]


@pytest.mark.parametrize(("text", "code"), [('"abc', "E001"), ('"""abc', "E001"), ("**x", "E104"), ('"abc"', "E005")])
def test_a_statement_that_is_never_closed_is_one_mistake(text: str, code: str) -> None:
    assert [d.code for d in compiled(f"{text}\n")] == [code]


def test_an_agent_and_a_text_on_one_line() -> None:
    found = one('agent writer:\n  model: sonnet\nlet a = session writer "Write it"\n', "E004")
    assert (found.line, found.column, found.message) == (3, 17, "a session with an agent takes its text as a property")
    assert found.hint == 'write `session: writer`, and indent `prompt: "Write it"` below it'
    found = one('agent w:\n  persist: true\nlet a = resume w "x"\n', "E004")
    assert (found.line, found.column, found.message) == (3, 16, "a session with an agent takes its text as a property")
    assert one('session Write "it"!\n', "E003").hint == """put the prompt in quotes: `session "Write 'it'!"`"""


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ('session w """\n  a\n  b\n"""', 'write `session: w`, and indent `prompt: """..."""` below it'),
        ('session w "x":\n  model: sonnet', 'write `session: w`, and indent `prompt: "x"` below it'),
        ('resume w "x"', 'write `resume: w`, and indent `prompt: "x"` below it'),
        ('resume w "x":\n  model: sonnet', 'write `resume: w`, and indent `prompt: "x"` below it'),
        ("resume w", "write `resume: w`"),
    ],
)
def test_an_agent_and_a_text_on_one_line_in_other_forms(line: str, hint: str) -> None:
    assert one(f"agent w:\n  persist: true\n{line}\n", "E004").hint == hint


def test_the_hint_about_a_long_text_after_an_agent_has_one_line() -> None:
    text = 'agent w:\n  model: sonnet\nsession: w """\na\n"""\n'
    (found,) = compile_source(Source(text), profile="strict").diagnostics
    assert found.hint == 'indent `prompt: """..."""` below it'


def test_names_of_broken_lines_are_known_below() -> None:
    text = """\
let a = )
const b = session
output c = =
d = (
let { e, f } = ]
input g "x"
for each x in xs y z:
  session "{x}"
session "{a} {b} {c} {d} {e} {f} {g}"
  context: [a, b, c, d, e, f, g]
"""
    found = compiled(text)
    assert {d.code for d in found} <= {"E004", "E003", "E105", "W135"}, [d.render() for d in found]


def test_a_broken_definition_is_defined() -> None:
    text = """\
agent a
  model: opus
def f(x, y):
  session "{x} {y} and more"
session: a
  prompt: "go"
do f("1", "2")
"""
    assert [d.code for d in compiled(text)] == ["E004", "E004"]


def test_the_tree_keeps_what_could_be_read() -> None:
    parsed = parse(Source("let a = 1\nfoo bar\nlet b = 2\n"))
    assert [item.names[0].id for item in parsed.program.items if isinstance(item, t.Let)] == ["a", "b"]


def test_calls_with_unnamed_arguments() -> None:
    assert 'output result = "x"' in (one('print("x")', "E025").hint or "")
    known = 'use "./a.prose" as research\nresearch("x", depth: 1)'
    found = one(known, "E004")
    assert (found.line, found.column) == (2, 10)
    assert found.hint == "write `research(name: value)`"


# ---- nonsense


def deep(levels: int) -> str:
    return "".join("  " * n + "if **all is well**:\n" for n in range(levels)) + "  " * levels + "throw\n"


def test_nesting_has_a_limit() -> None:
    assert not [d for d in compiled(deep(NESTING_LIMIT)) if d.code != "W184"]
    found = compiled(deep(NESTING_LIMIT + 5))
    assert [(d.code, d.line) for d in found] == [("E005", NESTING_LIMIT + 2)]


@pytest.mark.parametrize("chain", ["not " * 60 + "y", "1" + " + 1" * 60, "a" + ".b" * 60, "a" + "[0]" * 60])
def test_operators_have_a_limit(chain: str) -> None:
    found = parse(Source(f"let y = 1\nlet x = {chain}\nfoo bar")).diagnostics
    assert [(d.code, d.line) for d in found] == [("E005", 2), ("E004", 3)]


def test_trees_within_the_limit_can_be_compared_hashed_shown_and_formatted() -> None:
    from prose_kernel.language.openprose.formatter import format_program

    inner = "(" * (NESTING_LIMIT - 1) + "a + 1" + ")" * (NESTING_LIMIT - 1)
    for text in (deep(NESTING_LIMIT), f"let x = {'[' * DEPTH_LIMIT}{']' * DEPTH_LIMIT}", f"let x = {inner}"):
        one, other = parse(Source(text)), parse(Source(text))
        assert not [d for d in one.diagnostics if d.severity == "error"]
        assert one.program == other.program
        assert hash(one.program) == hash(other.program)
        assert repr(one.program) == repr(other.program)
        assert parse(Source(format_program(one.program))).program == one.program


NONSENSE = {
    "nested headers": lambda n: "".join(" " * k + "if **all is well**:\n" for k in range(n // 20)),
    "brackets": lambda n: "let x = " + "[({" * (n // 3),
    "closing brackets": lambda n: "let x = " + "])}" * (n // 3),
    "not": lambda n: "let x = " + "not " * (n // 4) + "y",
    "sum": lambda n: "let x = 1" + " + 1" * (n // 4),
    "members": lambda n: "let x = a" + ".b" * (n // 2),
    "quotes": lambda n: '"' * n,
    "open strings": lambda n: 'session "\n' * (n // 10),
    "deep open strings": lambda n: 'session "a\n  b\n' * (n // 14),
    "triple openers": lambda n: 'x: """\n' * (n // 7),
    "nested triples": lambda n: ('x: """\n' * 5 + '"""\n' * 3) * (n // 50),
    "stars": lambda n: "*" * n,
    "open markers": lambda n: "if **a\n" * (n // 7),
    "open triple markers": lambda n: "if ***a\n" * (n // 8),
    "open brackets": lambda n: "do f(\n" * (n // 6),
    "open braces": lambda n: "x {\n" * (n // 4),
    "zeros": lambda n: "\0" * n,
    "surrogates": lambda n: 'session "\ud800"\n' * (n // 12),
    "bytes": lambda n: "".join(chr(k * 7919 % 256) for k in range(n)),
    "tabs": lambda n: '\tsession "x"\n' * (n // 12),
    "garbage": lambda n: "foo bar baz\n" * (n // 12),
    "garbage on a line": lambda n: "foo bar " * (n // 8),
    "colons": lambda n: "a: b:\n" * (n // 6),
    "elses": lambda n: "else:\n" * (n // 6),
    "loops on a line": lambda n: "loop: " * (n // 6),
    "escapes": lambda n: 'session "' + "\\q" * (n // 2) + '"',
    "braces in a string": lambda n: 'session "' + "{a" * (n // 2) + '"',
    "bad properties": lambda n: 'session "a"\n' + "  context x\n" * (n // 13),
    "bad statements in a block": lambda n: "block f:\n" + "  let x = = 3\n" * (n // 14),
    "wrong dedents": lambda n: "if **all is well**:\n    do f\n  do g\n" * (n // 36),
    "leading pipes": lambda n: "| map: x\n" * (n // 9),
    "wrong indents": lambda n: "let x = 1\n  let y = 2\n" * (n // 22),
    "digits": lambda n: "let x = " + "9" * n + " 9",
    "spaces": lambda n: " " * n + "x",
    "dots and commas": lambda n: ".," * (n // 2),
}


VALID = {"stars", "quotes", "triple openers", "braces in a string"}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_gives_findings_in_linear_time(name: str) -> None:
    def work(size: int) -> Callable[[], object]:
        text = NONSENSE[name](size)

        def parsed() -> None:
            found = parse(Source(text)).diagnostics
            assert any(d.severity == "error" for d in found) or name in VALID

        return parsed

    assert_linear(work, 5_000)


def test_a_long_text_on_one_line() -> None:
    text = "x " * 1_500_000
    parsed = parse(Source(text))
    assert [d.code for d in parsed.diagnostics] in (["E004"], ["E004", "E005"], ["E005"])


def test_findings_of_one_long_line_share_its_text() -> None:
    text = 'session "' + "\\q" * 50_000 + '"'
    found = parse(Source(text)).diagnostics
    assert len(found) == 100
    assert all(d.source_line is found[0].source_line for d in found)
