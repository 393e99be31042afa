"""The canonical form (openprose.md 8)."""

from __future__ import annotations

import pytest
from language.programs import PROGRAMS

from prose_kernel.language.openprose import tree as t
from prose_kernel.language.openprose.formatter import format_program
from prose_kernel.language.openprose.parser import parse
from prose_kernel.language.openprose.tree import Interpolation, Text
from prose_kernel.language.source import Source


def formatted(text: str) -> str:
    parsed = parse(Source(text))
    assert not [d for d in parsed.diagnostics if d.severity == "error"], [d.render() for d in parsed.diagnostics]
    return format_program(parsed.program)


def test_order_indentation_comments_and_blank_lines() -> None:
    text = """\
# a comment
block f(a):   # another
      session "{a}"

input x: "top"
agent w:
    model: opus
    permissions:
        bash: deny
let y = do f(x)

input late: "later"
use "dana/outline" as plan
"""
    assert formatted(text) == (
        'use "dana/outline" as plan\n'
        'input x: "top"\n'
        "agent w:\n"
        "  model: opus\n"
        "  permissions:\n"
        "    bash: deny\n"
        "block f(a):\n"
        '  session "{a}"\n'
        "let y = do f(x)\n"
        'input late: "later"\n'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ('session "x" (retry: 3)', 'session "x"\n  retry: 3\n'),
        ('session "x":\n  retry: 3', 'session "x"\n  retry: 3\n'),
        ('session "x" retry: 3', 'session "x"\n  retry: 3\n'),
        ('session: a\n  "go"', 'session: a\n  prompt: "go"\n'),
        ("session l: a", "session l: a\n"),
        ("throw agent", "throw agent\n"),  # in parentheses it would be a call
        ('gate g:\n  on-reject: "no"', 'gate g:\n  on_reject: throw "no"\n'),
        ('exec "a"\n  on_fail: ignore', 'exec "a"\n  on-fail: ignore\n'),
        ("let x = ((a))", "let x = a\n"),
        ("let x = (a or b) and not (c and d)", "let x = (a or b) and not (c and d)\n"),
        ("let x = a - (b - c) - d", "let x = a - (b - c) - d\n"),
        ("let x = (a + b).c[0]", "let x = (a + b).c[0]\n"),
        ("let x = { a, b.c, k: -1.5, 'x' }".replace("'", '"').replace(', "x"', ', "a b": 2'),
         'let x = { a, b.c, k: -1.5, "a b": 2 }\n'),
        ("let { a,b } = f(x:1)", "let { a, b } = f(x: 1)\n"),
        ("xs | map: item.a\n| filter: **it is good**",
         "xs\n  | map:\n    item.a\n  | filter:\n    **it is good**\n"),
        ("xs | reduce(a,b):\n      do f(a, b)", "xs\n  | reduce(a, b):\n    do f(a, b)\n"),
        ('session "a" -> session "b" ->\nexec "c"\n  cwd: "d"',
         'session "a" -> session "b" -> exec "c"\n  cwd: "d"\n'),
        ('session "a"\n  retry: 1\n-> session "b"', 'session "a"\n  retry: 1\n-> session "b"\n'),
        ('parallel (on-fail: continue, "any", count: 2):\n  a = do f\n  do g',
         'parallel ("any", count: 2, on-fail: "continue"):\n  a = do f\n  do g\n'),
        ('parallel ("all", on-fail: "fail-fast"):\n  do g', "parallel:\n  do g\n"),
        ("parallel for x in (f(count: 3)):\n  do g", "parallel for x in (f(count: 3)):\n  do g\n"),
        ('parallel for x in a and ("first" and a):\n  do g', 'parallel for x in a and ("first" and a):\n  do g\n'),
        ('parallel for x in (any and "a") ("any"):\n  do g', 'parallel for x in any and "a" ("any"):\n  do g\n'),
        ('parallel for x, i in ("a" and all):\n  do g', 'parallel for x, i in "a" and all:\n  do g\n'),
        ("loop until (f(max: 3)):\n  do g", "loop until (f(max: 3)):\n  do g\n"),
        ("loop while a.b (max: 3) as i:\n  do g", "loop while a.b (max: 3) as i:\n  do g\n"),
        ("let x = try:\n  do f\ncatch as e:\n  do g\nfinally:\n  do h",
         "let x = try:\n  do f\ncatch as e:\n  do g\nfinally:\n  do h\n"),
        ("output x = if a:\n  do f\nelif b:\n  do g\nelse:\n  do h",
         "output x = if a:\n  do f\nelif b:\n  do g\nelse:\n  do h\n"),
        ("input x: ***\n  what\n  now\n***", "input x: ***what\n  now***\n"),
        ("input x: ***what***", "input x: **what**\n"),
        ('let x = """a\nb"""', 'let x = "a\\nb"\n'),
        ('let x = """\na "b" \\\\\n"""', 'let x = """\na "b" \\\\\n"""\n'),
        ('let x = """\na \\\n"""', 'let x = """\na \\\\\n"""\n'),
        ("session \"a\"\n  context:\n    file: a\n    file: b", 'session "a"\n  context:\n    file: a\n    file: b\n'),
        ("block f() (max_depth: 3):\n  return", "block f (max_depth: 3):\n  return\n"),
        ("assert a:\n    \"m\"", 'assert a:\n  "m"\n'),
        ('choice **which one**:\n  option "a":\n    throw\n  option "b":\n    throw e',
         'choice **which one**:\n  option "a":\n    throw\n  option "b":\n    throw e\n'),
        ("let x = (exec)", "let x = (exec)\n"),
    ],
)  # fmt: skip
def test_canonical_forms(text: str, expected: str) -> None:
    assert formatted(text) == expected
    assert formatted(expected) == expected
    assert parse(Source(expected)).program == parse(Source(text)).program


@pytest.mark.parametrize("name", PROGRAMS)
def test_whole_programs(name: str) -> None:
    text = PROGRAMS[name]
    printed = formatted(text)
    assert formatted(printed) == printed
    before, after = parse(Source(text)).program, parse(Source(printed)).program
    assert sorted(map(repr, before.items)) == sorted(map(repr, after.items))


X = Interpolation("x", (), "{x}")


@pytest.mark.parametrize(
    "parts",
    [
        ('a"b',), ('\na"""b',), ('\n"',), ('\n""""',), ("\n\\",), ("\\d",), ("\n\\\nx",), ("a\tb",), ("{x}",),
        ("{{x}}",), ("{", X, "}"), (X, '"'), ("\n", X, '"'), ('\n""', X), ("$", Interpolation("x", (), "{x}", after_dollar=True)),
        ("\\{x}",), ("\r\na",), ("\na\rb",), ("{a}b{c}",), ("{x", X), ('\nlet x = """\nfoo\n"""\n',),
    ],
)  # fmt: skip
def test_texts_come_back_exactly(parts: tuple[str | Interpolation, ...]) -> None:
    program = t.Program((t.Throw(Text(parts)),))
    printed = format_program(program)
    parsed = parse(Source(printed))
    assert not parsed.diagnostics, printed
    assert parsed.program == program
    if not any("\\\n" in p for p in parts if isinstance(p, str)):
        assert not [d for d in parse(Source(printed), "strict").diagnostics if d.code != "E004"]
