"""The canonical form of VVM (docs/reference/vvm.md 14)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from language.vvm.random_trees import commented, expression, programs
from scaling import assert_linear

from prose_kernel.language.source import Source
from prose_kernel.language.vvm import tree as t
from prose_kernel.language.vvm.formatter import format_program
from prose_kernel.language.vvm.parser import parse
from prose_kernel.runs import reference_pages


def read(text: str) -> t.Program:
    parsed = parse(Source.of(text))
    assert not parsed.diagnostics, [found.render() for found in parsed.diagnostics]
    return parsed.program


def formatted(text: str) -> str:
    return format_program(read(text))


# ---------------------------------------------------------------- laws


@settings(deadline=None)
@given(programs)
def test_what_is_printed_parses_to_the_same_program(program: t.Program) -> None:
    text = format_program(program)
    assert read(text) == program
    assert formatted(text) == text


@settings(deadline=None)
@given(expression)
def test_every_expression_survives(node: t.Expression) -> None:
    program = t.Program((t.Assign(t.Name("x"), node),))
    text = format_program(program)
    assert read(text) == program
    assert formatted(text) == text


@settings(deadline=None)
@given(st.data())
def test_no_comment_is_lost_or_moved_past_another(data: st.DataObject) -> None:
    text = data.draw(programs.map(format_program).flatmap(commented))
    program = read(text)
    printed = format_program(program)
    assert read(printed) == program, printed  # with its comments, each on its own line or after code as before
    assert formatted(printed) == printed


# ---------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("# only a comment", "# only a comment\n"),
        ("# ! note\nx=1", "# ! note\nx = 1\n"),  # A49
        ("#!/usr/bin/env -S prose run\nx=1", "#!/usr/bin/env -S prose run\nx = 1\n"),
        ("#", "#\n"),
        ("x=1#a", "x = 1  # a\n"),
        ("if x:\n      pass\nelif  y :\n pass\nelse :\n  pass", "if x:\n  pass\nelif y:\n  pass\nelse:\n  pass\n"),
        # parentheses
        ("x = ((1))", "x = 1\n"),
        ("x = (a or b) and not (c and d)", "x = (a or b) and not (c and d)\n"),
        ("x = (a and b) or (not c)", "x = a and b or not c\n"),
        ("x = a - (b - c) - d", "x = a - (b - c) - d\n"),
        ("x = (a + b).c[0]", "x = (a + b).c[0]\n"),
        ("x = (a < b) < (c < d)", "x = a < b < (c < d)\n"),
        ("x = (not a) == b", "x = (not a) == b\n"),
        ("x = (@a)(1)", "x = (@a)(1)\n"),
        ("x = (?`t`)(1)", "x = (?`t`)(1)\n"),
        ("x = (1).a", "x = (1).a\n"),
        ("x = (o.with)(1)", "x = (o.with)(1)\n"),
        # texts and numbers
        (r'x = "\u00e9\/\t"', 'x = "é/\\t"\n'),
        ('x = """a "b" c"""', 'x = "a \\"b\\" c"\n'),
        ('x = """a\nb"""', 'x = """a\nb"""\n'),
        (r'x = "a\nb"', 'x = "a\\nb"\n'),
        ('x = """a\n""\\" b\\""""', 'x = """a\n\\""" b\\""""\n'),
        ("x = 007.50", "x = 7.5\n"),
        ("x = ?`a {{b}} \\` {c.d} {}`( )", "x = ?`a {{b}} \\` {c.d} {}`\n"),
        # brackets
        ("x = [1,2,]", "x = [1, 2]\n"),
        ('x = {"a":1,"b c":2,from:3}', 'x = {a: 1, "b c": 2, from: 3}\n'),
        ("x = @ a  `t` ( )", "x = @a `t`()\n"),
        ("x = @{model='m'}".replace("'", '"'), 'x = @{model="m"}\n'),
        ("x = a . with ( b = 1 )", "x = a.with(b=1)\n"),
        ("constrain x():\n  require ?`t`", "constrain x():\n  require ?`t`\n"),
        ("match x:\n case error( kind = 'k' ):\n  pass".replace("'", '"'), 'match x:\n  case error(kind="k"):\n    pass\n'),
        ("choose (x) by ?`t` as y:\n option 'a':\n  pass".replace("'", '"'), 'choose x by ?`t` as y:\n  option "a":\n    pass\n'),
        ('from "./m" import @a as b', 'from "./m" import @a as b\n'),
        ("export pack(a,b=1)", "export pack(a, b=1)\n"),
        # blank lines
        ("\n\nx = 1\n\n\n\ny = 2\n\n", "x = 1\n\ny = 2\n"),
        ("if x:\n\n  y\n\n  # z\n\n\nelse:\n  pass", "if x:\n  y\n\n  # z\nelse:\n  pass\n"),
        ("x = 1\ndef f():\n  pass\ny = 2", "x = 1\n\ndef f():\n  pass\n\ny = 2\n"),
        ("x = 1\n# about f\ndef f():\n  pass\n# about y\ny = 2", "x = 1\n\n# about f\ndef f():\n  pass\n\n# about y\ny = 2\n"),
        ("def f():\n  def g():\n    pass\n  return g", "def f():\n  def g():\n    pass\n\n  return g\n"),
        ("agent a()\nagent b()\nx = 1", "agent a()\nagent b()\n\nx = 1\n"),
        ('agent a()\nagent b(prompt="""x\ny""")\nagent c()', 'agent a()\n\nagent b(prompt="""x\ny""")\n\nagent c()\n'),
        # comments and their blocks
        ("if x:\n  # nothing", "if x:\n  # nothing\n"),
        ("if x:\n   y\n   # in\n # out\nz", "if x:\n  y\n  # in\n# out\nz\n"),
        ("def f():\n  if x:\n    y\n    # y\n  # x\n# f", "def f():\n  if x:\n    y\n    # y\n  # x\n# f\n"),
        ("try: # a\n # b\nfinally: # c\n # d", "try:  # a\n  # b\nfinally:  # c\n  # d\n"),
        ("x = ( # a\n 1 # b\n) # c", "x = (  # a\n  1  # b\n)  # c\n"),
        ("x = (1 # a\n)", "x = 1  # a\n"),
        ("x = [ # a\n]", "x = [  # a\n]\n"),
        ("x = f(1, # a\n 2)", "x = f(\n  1,  # a\n  2,\n)\n"),
        ("def f(a, # a\n b # b\n): # c\n  pass", "def f(\n  a,  # a\n  b,  # b\n):  # c\n  pass\n"),
        ("x = a + ( # t\n b)", "x = (\n  a  # t\n  + b\n)\n"),
    ],
)  # fmt: skip
def test_the_canonical_form(text: str, expected: str) -> None:
    assert formatted(text) == expected
    assert formatted(expected) == expected


A, B, C = "a" * 40, "b" * 40, "c" * 40


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"x = [{A}, {B}, {C}]", f"x = [\n  {A},\n  {B},\n  {C},\n]\n"),
        (f"x = f([{A}, {B}, {C}])", f"x = f([\n  {A},\n  {B},\n  {C},\n])\n"),
        (f"x = f({A}, {{k: {B}, l: {C}}})", f"x = f(\n  {A},\n  {{k: {B}, l: {C}}},\n)\n"),
        (f"x = {A} + {B} + {C}", f"x = (\n  {A}\n  + {B}\n  + {C}\n)\n"),
        (f"x = xs + [{A}, {B}, {C}]", f"x = xs + [\n  {A},\n  {B},\n  {C},\n]\n"),
        (f"if {A} and {B} or {C}:\n  pass", f"if (\n  {A} and {B}\n  or {C}\n):\n  pass\n"),
        (f"x = {A}[{B} + {C}]", f"x = {A}[\n  {B} + {C}\n]\n"),
        (f"x = ?`t`({A} + {B} + {C})", f"x = ?`t`(\n  {A}\n    + {B}\n    + {C}\n)\n"),
        (f"def f({A}, {B}, {C}):\n  pass", f"def f(\n  {A},\n  {B},\n  {C},\n):\n  pass\n"),
        (f"x = @a `{A} {B}`({C}, retry=1)", f"x = @a `{A} {B}`(\n  {C},\n  retry=1,\n)\n"),
        (f"x = @a `{A}\n{B}`({C}, retry=1)", f"x = @a `{A}\n{B}`({C}, retry=1)\n"),
        ('x = f(1, """a\nb""")', 'x = f(\n  1,\n  """a\nb""",\n)\n'),
        ('x = f("""a\nb""")', 'x = f("""a\nb""")\n'),
    ],
)
def test_what_is_too_long_is_broken_at_its_outermost_bracket(text: str, expected: str) -> None:
    assert formatted(text) == expected
    assert formatted(expected) == expected


def test_hand_made_trees_are_printed_too() -> None:
    body = t.If((t.Arm(t.Name("x"), ()),), ())
    assert format_program(t.Program((body,))) == "if x:\n  pass\nelse:\n  pass\n"
    late = (t.Comment("one", False), t.Comment("two", False), t.Comment("three", True))
    assert format_program(t.Program((t.Pass(), t.Pass()), late)) == "pass\npass  # one\n# two\n# three\n"
    assert format_program(t.Program((t.Assign(t.Name("x"), t.String("a\nb")),))) == 'x = """a\nb"""\n'
    assert len(format_program(t.Program((t.ExpressionStatement(t.Number(10**5000)),)))) == 5002


# ---------------------------------------------------------------- depth and size

NESTED: dict[str, Callable[[int], str]] = {
    "lists": lambda n: "x = " + "[" * n + "]" * n,
    "calls": lambda n: "x = " + "f(" * n + "1" + ", 2)" * n,
    "parentheses": lambda n: "x = " + "(1 - " * n + "1" + ")" * n,
    "not": lambda n: "x = " + "not " * n + "y",
    "operators": lambda n: "x = " + "a + " * n + "b",
    "mixed operators": lambda n: "x = " + "a and b or " * n + "c",
    "members": lambda n: "x = a" + ".b" * n,
    "derived agents": lambda n: "x = @a" + ".with(b=1)" * n + " `t`()",
    "arms": lambda n: "if a:\n  b\n" + "elif a:\n  b\n" * n,
    "statements": lambda n: "# c\nx = 1  # d\n\n" * n,
    "comments in brackets": lambda n: "x = " + "[ # c\n" * n + "]" * n,
    "elements": lambda n: "x = [" + "{a: 1}, # c\n" * n + "]",
}


_BRACKETS = {"lists", "calls", "parentheses", "comments in brackets"}  # these nest 500 levels at most (A32)


@pytest.mark.parametrize("shape", NESTED)
def test_nothing_is_too_deep_or_too_long(shape: str) -> None:
    program = read(NESTED[shape](400 if shape in _BRACKETS else 3_000))  # three times as deep as Python recurses
    text = format_program(program)
    assert read(text) == program
    assert formatted(text) == text


def test_blocks_nest_ten_thousand_levels_deep() -> None:
    body: tuple[t.Statement, ...] = (t.Pass(),)
    for _ in range(10_000):
        body = (t.While(t.Name("x"), body),)
    assert format_program(t.Program(body)).count("while x:\n") == 10_000


@pytest.mark.parametrize("shape", NESTED)
def test_time_grows_only_with_the_text(shape: str) -> None:
    def work(size: int) -> Callable[[], object]:
        program = read(NESTED[shape](size))
        return lambda: format_program(program)

    assert_linear(work, 100 if shape in _BRACKETS else 500)


def test_the_program_of_the_reference_is_in_canonical_form() -> None:
    section = reference_pages.text("vvm").partition("\n## 14.")[2]
    program = section.partition("```vvm\n")[2].partition("```")[0]
    assert formatted(program) == program
