"""The trees of valid programs: docs/reference/vvm.md 1 and 2."""

from __future__ import annotations

import pytest
from language.vvm.programs import PROGRAMS

from prose_kernel.language.nodes import Node
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import tree as t
from prose_kernel.language.vvm.parser import parse


def read(text: str) -> t.Program:
    parsed = parse(Source(text))
    assert [d.render() for d in parsed.diagnostics] == []
    return parsed.program


def expression(text: str) -> t.Expression:
    (statement,) = read(text).items
    assert isinstance(statement, t.ExpressionStatement)
    return statement.value


@pytest.mark.parametrize("name", PROGRAMS)
def test_valid_programs_have_no_findings(name: str) -> None:
    read(PROGRAMS[name])


a, b, c = t.Name("a"), t.Name("b"), t.Name("c")
one = t.Number(1)
EXPRESSIONS: list[tuple[str, t.Expression]] = [
    ("007", t.Number(7)),
    ("0.50", t.Number(0.5)),
    ("true", t.Boolean(True)),
    ("( )", t.Unit()),
    ("(it)", t.It()),
    ('"a\\n\\u00e4\\ud83d\\ude00\\"{x}"', t.String('a\n\u00e4\U0001f600"{x}')),
    ('"""\na "" \\"""b"""', t.String('\na "" """b')),
    ('""', t.String("")),
    ("a or b and not c", t.Logical("or", a, t.Logical("and", b, t.Not(c)))),
    ("not a == b", t.Not(t.Compare("==", a, b))),
    ("not not a", t.Not(t.Not(a))),
    ("a < b < c", t.Compare("<", t.Compare("<", a, b), c)),
    ("a - b + 1 >= c", t.Compare(">=", t.Sum("+", t.Sum("-", a, b), one), c)),
    ("a - (b - c)", t.Sum("-", a, t.Sum("-", b, c))),
    ("a.from.x[1](b)", t.Call(t.Index(t.Member(t.Member(a, "from"), "x"), one), (b,), ())),
    ("a(b, c, if=1,)", t.Call(a, (b, c), (t.Keyword("if", one),))),
    ("[a, [b],]", t.List((a, t.List((b,))))),
    ('{if: a, "x y": {},}', t.Object((t.Pair("if", a), t.Pair("x y", t.Object(()))))),
    ("?`x`", t.Predicate(t.Template(("x",)), None)),
    ("?`x`()", t.Predicate(t.Template(("x",)), None)),
    ("?``(())", t.Predicate(t.Template(()), t.Unit())),
    ("?`x`(a)(b)", t.Call(t.Predicate(t.Template(("x",)), a), (b,), ())),
    ("@if", t.AgentName("if")),
    ("@{}", t.InlineAgent(())),
    ("@a.with(x=1).with()", t.With(t.With(t.AgentName("a"), (t.Keyword("x", one),)), ())),
    ("a.with(x=1)", t.With(a, (t.Keyword("x", one),))),
    ("a.with", t.Member(a, "with")),
    ("@a.b", t.Member(t.AgentName("a"), "b")),
    ("@a `x` ()", t.AgentCall(t.AgentName("a"), t.Template(("x",)), None, ())),
    ("@a `x`(())", t.AgentCall(t.AgentName("a"), t.Template(("x",)), t.Unit(), ())),
    ("@a `x`(b, in=1,)", t.AgentCall(t.AgentName("a"), t.Template(("x",)), b, (t.Keyword("in", one),))),
    ("@a `x`(in=1)", t.AgentCall(t.AgentName("a"), t.Template(("x",)), None, (t.Keyword("in", one),))),
    (
        "(@a\n.with\n()\n`x`\n(b\n)\n.c)",
        t.Member(t.AgentCall(t.With(t.AgentName("a"), ()), t.Template(("x",)), b, ()), "c"),
    ),
    ("@{x=1} `x`()", t.AgentCall(t.InlineAgent((t.Keyword("x", one),)), t.Template(("x",)), None, ())),
]


@pytest.mark.parametrize(("text", "meaning"), EXPRESSIONS, ids=[text for text, _ in EXPRESSIONS])
def test_expressions(text: str, meaning: t.Expression) -> None:
    assert expression(text) == meaning


name = t.Placeholder(("name",))
TEMPLATES: list[tuple[str, tuple[str | t.Placeholder, ...]]] = [
    ("", ()),
    ("{}", (t.Placeholder(()),)),
    ("{{{name}}}", ("{", name, "}")),
    ("a{name}{name.if.x}", ("a", name, t.Placeholder(("name", "if", "x")))),
    ('\\` \\" \\\\n', ('` \\" \\\\n',)),
    ("{{}}", ("{}",)),
    ('"', ('"',)),
    ("\n # a\n", ("\n # a\n",)),
]


@pytest.mark.parametrize(("text", "parts"), TEMPLATES)
def test_templates(text: str, parts: tuple[str | t.Placeholder, ...]) -> None:
    assert expression(f"?`{text}`") == t.Predicate(t.Template(parts), None)


def test_a_template_cannot_end_in_a_backslash() -> None:
    (found,) = parse(Source("?`a\\`")).diagnostics
    assert (found.code, found.line, found.column) == ("V004", 1, 2)


def test_comments_are_kept_outside_the_tree() -> None:
    text = "# one\n\nx = [ # two\n  # three\n  1]\nif x:# four\n  # five\n# six"
    found = [(comment.text, comment.alone) for comment in read(text).comments]
    assert found == [("one", True), ("two", False), ("three", True), ("four", False), ("five", True), ("six", True)]


SPANS = """\
agent scribe(model="small")
def note(item, _):
  x = a.b[1] + (c)
  if not x == 1:
    return f(x, k=[1])
  elif ?`y {z}`(it):
    pass
  else:
    raise "m"
for e in {k: 1, "l": ()}:
  break
match x:
  case error(kind="k"):
    continue
  case error(e):
    y = @scribe `t`(1, o=2)
try:
  z = @{a=1}.with(b=2)
except as e:
  # nothing
finally:
  w
"""


def test_spans_cover_the_text_of_each_node() -> None:
    source = Source(SPANS)
    texts: dict[str, list[str]] = {}
    agenda: list[object] = list(reversed(read(SPANS).items))
    while agenda:
        part = agenda.pop()
        if isinstance(part, tuple):
            agenda.extend(reversed(part))
        elif isinstance(part, Node):
            texts.setdefault(type(part).__name__, []).append(source.slice(part.span))
            agenda.extend(getattr(part, field) for field in reversed(part.__struct_fields__[:-1]))
    assert texts["Sum"] == ["a.b[1] + (c)"]
    assert texts["Index"] == ["a.b[1]"]
    assert texts["Not"] == ["not x == 1"]
    assert texts["Call"] == ["f(x, k=[1])"]
    assert texts["Keyword"] == ['model="small"', "k=[1]", "o=2", "a=1", "b=2"]
    assert texts["Pair"] == ["k: 1", '"l": ()']
    assert texts["Predicate"] == ["?`y {z}`(it)"]
    assert texts["Placeholder"] == ["{z}"]
    assert texts["Template"] == ["`y {z}`", "`t`"]
    assert texts["AgentCall"] == ["@scribe `t`(1, o=2)"]
    assert texts["With"] == ["@{a=1}.with(b=2)"]
    assert texts["InlineAgent"] == ["@{a=1}"]
    assert texts["Arm"][1] == "elif ?`y {z}`(it):\n    pass"
    assert texts["If"][0].startswith("if not") and texts["If"][0].endswith('raise "m"')
    assert texts["ErrorPattern"] == ['error(kind="k")', "error(e)"]
    assert texts["Case"][0] == 'case error(kind="k"):\n    continue'
    assert texts["Handler"] == ["except as e:"]
    assert texts["Try"][0].endswith("finally:\n  w")
    assert texts["Def"] == [SPANS[SPANS.index("def") : SPANS.index("\nfor")]]
    assert texts["AgentDeclaration"] == ['agent scribe(model="small")']
    assert texts["Break"] == ["break"]
