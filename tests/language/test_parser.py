"""The grammar of openprose.md 2: every row of 2.3 that syntax decides, in both profiles, and the trees of 2.1."""

from __future__ import annotations

import pytest
from language.marked import PROFILES, cases, unmark

from prose_kernel.language.diagnostics import Profile
from prose_kernel.language.openprose import tables
from prose_kernel.language.openprose import tree as t
from prose_kernel.language.openprose.parser import parse
from prose_kernel.language.openprose.tree import ExpressionStatement as Run
from prose_kernel.language.openprose.tree import Name, Number, Text
from prose_kernel.language.source import Source

ROWS = cases("../syntax/rows")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_the_construct_table(name: str, profile: Profile) -> None:
    source, expected = unmark(ROWS[name], profile)
    found = parse(source, profile).diagnostics
    assert [(d.code, d.line, d.column) for d in found] == expected, [d.render() for d in found]


def items(text: str) -> tuple[t.Statement, ...]:
    parsed = parse(Source(text))
    assert not [d for d in parsed.diagnostics if d.severity == "error"], [d.render() for d in parsed.diagnostics]
    return parsed.program.items


def only(text: str) -> t.Statement:
    (item,) = items(text)
    return item


def value(text: str) -> t.Expression:
    item = only(f"let v = {text}")
    assert isinstance(item, t.Let)
    return item.value


def words(text: str) -> Text:
    return Text((text,))


def call(name: str) -> Run:
    return Run(t.BlockCall(Name(name)))


def marker(text: str) -> t.Discretion:
    return t.Discretion(words(text))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ('use "a/b" as c', t.Use(words("a/b"), Name("c"))),
        ('use "a/b"', t.Use(words("a/b"))),
        ('import "s" from "npm:x"', t.SkillImport(words("s"), words("npm:x"))),
        ("agent a:", t.Agent(Name("a"))),
        ("agent a:\n  model: opus", t.Agent(Name("a"), (t.Property(Name("model"), Name("opus")),))),
        ("block f:\n  do g", t.Block(Name("f"), (), None, (call("g"),))),
        ("block f(a, b) (max_depth: 7):\n  do g", t.Block(Name("f"), (Name("a"), Name("b")), 7, (call("g"),))),
        ('input x: "q"', t.Input(Name("x"), words("q"))),
        ("input x: **q**", t.Input(Name("x"), marker("q"))),
        ("output x = y", t.Output(Name("x"), Name("y"))),
        ("output y", t.Output(None, Name("y"))),
        ("output do f()", t.Output(None, t.BlockCall(Name("f")))),
        ("output session: a", t.Output(None, t.Session(agent=Name("a")))),
        ("let x = y", t.Let("let", (Name("x"),), Name("y"))),
        ("const x = y", t.Let("const", (Name("x"),), Name("y"))),
        ("let { a, b } = y", t.Let("let", (Name("a"), Name("b")), Name("y"), destructured=True)),
        ("x = y", t.Assign(Name("x"), Name("y"))),
        ("throw", t.Throw()),
        ('throw "m"', t.Throw(words("m"))),
        ("throw e", t.Throw(Name("e"))),
        ("return", t.Return()),
        ("return x", t.Return(Name("x"))),
        ("break", t.Break()),
        ("continue", t.Continue()),
        ("assert x", t.Assert(Name("x"))),
        ('assert x:\n  "m"', t.Assert(Name("x"), words("m"))),
        ("gate g:", t.Gate(Name("g"), ())),
        ('session "p"', Run(t.Session(words("p")))),
        ("session: a", Run(t.Session(agent=Name("a")))),
        ("session l: a", Run(t.Session(label=Name("l"), agent=Name("a")))),
        ("resume: a", Run(t.Resume(Name("a")))),
        ('exec "c"', Run(t.Exec(words("c")))),
        ('exec "c"\n  cwd: "d"', Run(t.Exec(words("c"), (t.Property(Name("cwd"), words("d")),)))),
        ("do:\n  do f", Run(t.Do((call("f"),)))),
        ("do f(x, 1)", Run(t.BlockCall(Name("f"), (Name("x"), Number(1))))),
        ("repeat 3 as i:\n  do f", Run(t.Repeat(Number(3), Name("i"), (call("f"),)))),
        ("for x in xs:\n  do f", Run(t.For(Name("x"), None, Name("xs"), (call("f"),)))),
        ("parallel for x, i in xs:\n  do f", Run(t.For(Name("x"), Name("i"), Name("xs"), (call("f"),), t.Modifiers()))),
        ("loop:\n  do f", Run(t.Loop(None, None, None, None, (call("f"),)))),
        (
            "loop while **it goes** (max: 3) as i:\n  do f",
            Run(t.Loop("while", marker("it goes"), 3, Name("i"), (call("f"),))),
        ),
        ("loop until ready (max: 3):\n  do f", Run(t.Loop("until", Name("ready"), 3, None, (call("f"),)))),
        (
            "try:\n  do f\ncatch as e:\n  do g\nfinally:\n  do h",
            Run(t.Try((call("f"),), t.Catch(Name("e"), (call("g"),)), (call("h"),))),
        ),
        (
            'choice **which one**:\n  option "a":\n    do f\n\n  option "b":\n    do g',
            Run(
                t.Choice(marker("which one"), (t.Option(words("a"), (call("f"),)), t.Option(words("b"), (call("g"),))))
            ),
        ),
        (
            "if a:\n  do f\n\nelif b:\n  do g\nelse:\n  do h",
            Run(t.If((t.Arm(Name("a"), (call("f"),)), t.Arm(Name("b"), (call("g"),))), (call("h"),))),
        ),
        (
            'parallel ("any", count: 2, on-fail: ignore):\n  a = do f\n  let b = do g\n  do h',
            Run(
                t.Parallel(
                    t.Modifiers("any", "ignore", 2),
                    (t.Branch(Name("a"), call("f")), t.Branch(Name("b"), call("g")), t.Branch(None, call("h"))),
                )
            ),
        ),
        (
            "xs | map: item.a\n  | reduce(a, b):\n      do f\n| filter: ok",
            Run(
                t.Pipe(
                    Name("xs"),
                    (
                        t.PipeOperation("map", (), (Run(t.Member(Name("item"), Name("a"))),)),
                        t.PipeOperation("reduce", (Name("a"), Name("b")), (call("f"),)),
                        t.PipeOperation("filter", (), (Run(Name("ok")),)),
                    ),
                )
            ),
        ),
        (
            'session "a" -> resume: b -> exec "c"\n  cwd: "d"',
            Run(
                t.Arrow(
                    (
                        t.Session(words("a")),
                        t.Resume(Name("b")),
                        t.Exec(words("c"), (t.Property(Name("cwd"), words("d")),)),
                    )
                )
            ),
        ),
        ("f(a: 1)", Run(t.ProgramCall(Name("f"), (t.Argument(Name("a"), Number(1)),)))),
    ],
)
def test_statements(text: str, tree: t.Statement) -> None:
    assert only(text) == tree


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("-1", Number(-1)),
        ("2.5", Number(2.5)),
        ("90s", t.Duration("90s")),
        ("true", t.Constant(True)),
        ("null", t.Constant(None)),
        ("[a, 1,]", t.Array((Name("a"), Number(1)))),
        ("[]", t.Array(())),
        ("{}", t.Object(())),
        ("{ a, b.c, k: 1, }", t.Object((
            t.Entry("a", Name("a"), shorthand=True),
            t.Entry("c", t.Member(Name("b"), Name("c")), shorthand=True),
            t.Entry("k", Number(1)),
        ))),
        ("a.b[0].c", t.Member(t.Index(t.Member(Name("a"), Name("b")), Number(0)), Name("c"))),
        ("a - b + c", t.Binary("+", t.Binary("-", Name("a"), Name("b")), Name("c"))),
        ("a-b", Name("a-b")),
        ("a - -1", t.Binary("-", Name("a"), Number(-1))),
        ("a or b and not c", t.Logical("or", (Name("a"), t.Logical("and", (Name("b"), t.Not(Name("c"))))))),
        ("(a or b) and c", t.Logical("and", (t.Logical("or", (Name("a"), Name("b"))), Name("c")))),
        ("a + 1 == b", t.Binary("==", t.Binary("+", Name("a"), Number(1)), Name("b"))),
        ('a is "b"', t.Binary("is", Name("a"), words("b"))),
        ("parallel:\n  do f", t.Parallel(t.Modifiers(), (t.Branch(None, call("f")),))),
        ("if a:\n  do f", t.If((t.Arm(Name("a"), (call("f"),)),), None)),
    ],
)  # fmt: skip
def test_values(text: str, tree: t.Expression) -> None:
    assert value(text) == tree


def test_spans_cover_the_text_of_a_node() -> None:
    text = 'if **is it so** or a:\n  let x = session "t {a.b[0]}"\n    context: [a, b]\nelse:\n  do f(1 + 2)\n'
    source = Source(text)
    (statement,) = parse(source).program.items
    assert isinstance(statement, Run)
    choice = statement.value
    assert isinstance(choice, t.If)
    assert choice.otherwise is not None
    assert source.slice(statement.span) == text.rstrip()
    let = choice.arms[0].body[0]
    assert isinstance(let, t.Let)
    assert source.slice(let.span) == 'let x = session "t {a.b[0]}"\n    context: [a, b]'
    session = let.value
    assert isinstance(session, t.Session)
    assert session.title is not None
    assert source.slice(session.title.span) == '"t {a.b[0]}"'
    assert source.slice(session.title.interpolations[0].span) == "{a.b[0]}"
    assert source.slice(session.properties[0].value.span) == "[a, b]"
    assert source.slice(choice.otherwise[0].span) == "do f(1 + 2)"


@pytest.mark.parametrize(
    "text",
    [
        'let exec = exec "a"', "let context = 1", "let map = xs", "agent filter:", "for item in items:\n  do f",
        "let x = session.a", "f(session: session, input: output)", "let loop = 3\nlet y = loop",
        "let if = 1\nlet y = [if, for, in, as]", "do session", "xs | map: map", "let as = max + until",
        "let o = { session: 1, try, loop: 2, a.true }", "output x = output.y",
        "input for: \"q\"", "gate gate:", "parallel:\n  for = do f",
    ],
)  # fmt: skip
def test_keywords_are_soft(text: str) -> None:
    items(text)


@pytest.mark.parametrize("name", ["on_fail", "on-fail"])
def test_property_names_are_canonical(name: str) -> None:
    statement = only(f'exec "a"\n  {name}: continue')
    assert statement == Run(t.Exec(words("a"), (t.Property(Name("on-fail"), Name("continue")),)))


@pytest.mark.parametrize(
    ("written", "reject"),
    [
        ("throw", t.OnReject("throw")),
        ('throw "a"', t.OnReject("throw", words("a"))),
        ("retry", t.OnReject("retry")),
        ("continue", t.OnReject("continue")),
        ('session "a"', t.OnReject("session", words("a"))),
        ('"a"', t.OnReject("throw", words("a"))),
    ],
)
@pytest.mark.parametrize("name", ["on_reject", "on-reject"])
def test_on_reject(name: str, written: str, reject: t.OnReject) -> None:
    assert only(f"gate g:\n  {name}: {written}") == t.Gate(Name("g"), (t.Property(Name("on_reject"), reject),))


def test_property_blocks() -> None:
    text = 'session "a"\n  permissions:\n    bash: deny\n    read: ["x"]\n  context:\n    file: a\n    file: b'
    statement = only(text)
    assert isinstance(statement, Run)
    assert isinstance(statement.value, t.Session)
    permissions, context = (item.value for item in statement.value.properties)
    entries = (t.Argument(Name("bash"), Name("deny")), t.Argument(Name("read"), t.Array((words("x"),))))
    assert permissions == t.Permissions(entries)
    assert context == t.ContextBlock((t.Argument(Name("file"), Name("a")), t.Argument(Name("file"), Name("b"))))


def test_the_block_of_an_unknown_property_is_skipped() -> None:
    text = 'session "a"\n  hooks:\n    = any ( thing\n      at all\n  retry: 3'
    statement = only(text)
    given = (t.Property(Name("hooks"), t.Constant(None)), t.Property(Name("retry"), Number(3)))
    assert statement == Run(t.Session(words("a"), properties=given))


def test_old_session_forms_have_the_shape_of_the_new_ones() -> None:
    retry = (t.Property(Name("retry"), Number(3)),)
    expected = Run(t.Session(words("x"), properties=retry))
    for text in (
        'session "x"\n  retry: 3',
        'session "x":\n  retry: 3',
        'session "x" (retry: 3)',
        'session "x" retry: 3',
    ):
        assert only(text) == expected
    prompt = (t.Property(Name("prompt"), words("go")),)
    assert (
        only('session: a\n  "go"')
        == only('session: a\n  prompt: "go"')
        == Run(t.Session(agent=Name("a"), properties=prompt))
    )


def test_the_kept_tables_belong_to_the_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    kept = json.loads(tables.TABLES_FILE.read_bytes())
    assert kept["grammar"] == tables.GRAMMAR_FILE.read_text(), "run python -m prose_kernel.language.openprose.tables"
    assert tables._unpack(kept) == tables._unpack(tables._generate(tables.GRAMMAR_FILE.read_bytes()))


def test_the_grammar_has_no_conflicts(caplog: pytest.LogCaptureFixture) -> None:
    import logging

    from lark import logger

    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        tables._lark(tables.GRAMMAR_FILE.read_bytes(), debug=True)
    finally:
        logger.setLevel(level)
    assert "conflict" not in caplog.text.lower()


def test_stale_or_missing_tables_are_made_again(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from pathlib import Path

    stale = Path(str(tmp_path)) / "grammar.json"
    fresh = tables.load()
    for content in (None, b"", b"[]", b'{"format": 1, "grammar": "old"}'):
        if content is not None:
            stale.write_bytes(content)
        monkeypatch.setattr(tables, "TABLES_FILE", stale)
        assert tables.load.__wrapped__() == fresh
