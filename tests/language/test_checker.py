"""Static checks of statements, calls, imports, cells; the hints of openprose.md 9.6; cost and robustness."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from language.marked import PROFILES, cases, findings, places, unmark
from language.programs import PROGRAMS
from scaling import assert_linear

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.diagnostics import Diagnostic
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.checker import check
from prose_kernel.language.openprose.lexer import NESTING_LIMIT
from prose_kernel.language.openprose.names import Contract, Known, KnownAgent, Variable
from prose_kernel.language.openprose.parser import parse
from prose_kernel.language.source import Source

STATEMENTS = cases("statements")

IMPORTS = cases("imports")

CALLS = cases("calls")


def load(path: str) -> Contract | None:
    if path == "./gone.prose":
        raise ImportProgramError("there is no file ./gone.prose")
    if path == "./cycle.prose":
        raise ImportProgramError("a.prose imports itself through ./cycle.prose", code="E112")
    if path.endswith("r.prose"):
        return Contract({"topic": True, "depth": False}, ("findings", "sources"))
    return None


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("text", [pytest.param(t, id=n) for t_ in (STATEMENTS, IMPORTS) for n, t in t_.items()])
def test_statements_and_imports(text, profile):
    source, expected = unmark(text, profile)
    assert places(findings(source, profile)) == expected


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("case", CALLS)
def test_calls_against_contracts(case, profile):
    source, expected = unmark(CALLS[case], profile)
    assert places(findings(source, profile, load=load)) == expected


def test_sources_of_skills():
    text = 'import "a" from "github:x/a"\nimport "b" from «W006»"pip:b"\nagent x:\n  skills: ["a", "b", «W007»"c"]\n'
    source, expected = unmark(text, "default")
    assert places(findings(source)) == expected


@pytest.mark.parametrize("depth", [0, -3])
def test_a_depth_that_reaches_the_checker(depth):
    block = tree.Block(tree.Name("f"), (), depth, (tree.Break(),))
    assert "E145" in {d.code for d in check(tree.Program((block,)), Source(""))}


TABLES = sorted({path.stem for path in (Path(__file__).parent / "cases").glob("*.txt")} - {"vvm_checks"})


@pytest.mark.parametrize("table", TABLES)
def test_the_cases_mean_what_they_say(table):
    """A case with a syntax error would be checked against half a tree."""
    for name, text in cases(table).items():
        found = parse(unmark(text, "default")[0]).diagnostics
        assert {d.code for d in found if d.severity == "error"} <= {"E154"}, name


# ---------------------------------------------------------------- cells

KNOWN = Known(
    variables={
        "x": Variable("let"),
        "c": Variable("const"),
        "i": Variable("input"),
        "o": Variable("output"),
        "r": Variable("let", from_exec=True),
    },
    soft_exports=frozenset({"soft"}),
    agents={"a": KnownAgent(), "p": KnownAgent("true")},
    blocks={"f": ("one", "two"), "g": ()},
    programs={"prog": Contract({"topic": True}, ("findings",))},
    skills=frozenset({"web"}),
    gates=frozenset({"gt"}),
    bodies={
        "g": tree.Block(tree.Name("g"), (), None, (tree.Output(tree.Name("made"), tree.Number(1)),)),
    },
)

CELLS = cases("cells")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("case", CELLS)
def test_a_cell_after_others(case, profile):
    source, expected = unmark(CELLS[case], profile)
    expected = [e for e in expected if e[0] != "E022"]
    assert places(findings(source, profile, known=KNOWN, cell=True)) == expected


def test_a_block_of_unknown_content_may_export_anything():
    assert not findings("do f(1, 2)\nlet y = whatever\n", known=KNOWN, cell=True)


def test_outside_a_notebook_known_names_are_declared():
    text = (
        "let «E019»x = 1\nconst «E019»c = 1\noutput «E024»o = 1\nlet y = r.«E138»stderr\n"
        'agent «E006»a:\n  prompt: "p"\nblock «E141»g:\n  exec "ls"\nuse "./q.prose" as «E110»prog\n'
    )
    source, expected = unmark(text, "default")
    assert places(findings(source, known=KNOWN)) == expected


# ---------------------------------------------------------------- hints (9.6)

HINTS = [
    ('exec "echo ${HOME}"\n', "E053", "write `$HOME`, or `$\\{HOME\\}` to keep the braces for the shell"),
    ('exec "echo ${arr[0]}"\n', "E053", "write `$\\{arr[0]\\}` to keep the braces for the shell"),
    ("exec \"awk '{print}' f\"\n", "E053", "define `print` first, or write `\\{print\\}` to pass the braces on"),
    (
        'let branch = 1\nexec "git push {brnch}"\n',
        "E053",
        "did you mean `{branch}`? otherwise define `brnch` first, or write `\\{brnch\\}` to pass the braces on",
    ),
    (
        'let x = 1\nexec "echo ${x}"\n',
        "W051",
        'the program\'s `x` is inserted after the `$`, not the shell\'s; write `exec "echo \\"$x\\""`, and below it '
        "`env: { x }`; a long text can go in as `stdin: x`",
    ),
    (
        'let result = exec "ls"\nlet y = result.exit_code\n',
        "E138",
        "use a marker, `if **result shows a failure**:`, or pass it as context",
    ),
    ('exec "ls"\n  timeout: 30\n', "E051", 'write a duration: `"30s"`, `"1h"`'),
    ('gate g:\n  prompt: "p"\n  timeout: "1 hour"\n', "E197", 'write a duration: `"30s"`, `"1h"`'),
    ('exec "ls"\n  retry: 3\n', "W005", "exec is not retried; use `loop (max: 3)` with `try`"),
    (
        "agent a:\n  model: 4\n",
        "E008",
        'one of sonnet, opus, haiku (mapped in the settings), or another name: `model: "gpt-5"`',
    ),
    ('agent writer:\n  prompt: "p"\nsession: writr\n', "E007", "did you mean `writer`?"),
    ('block review:\n  exec "ls"\ndo reviw()\n', "E140", "did you mean `review`?"),
    ('let research = 1\nsession "a"\n  context: reserch\n', "E132", "did you mean `research`?"),
    ("let research = 1\nlet y = reserch\n", "E131", "did you mean `research`?"),
    ('print(text: "x")\n', "E025", 'to show a value, write `output result = "x"`'),
    ('print("x")\n', "E025", 'to show a value, write `output result = "x"`'),
    ('let topic = 1\nblock review(t):\n  exec "ls"\nreview(topic)\n', "E025", "write `do review(topic)`"),
    ('use "./h.prose" as helper\ndo helper(1)\n', "E140", "`helper` is an imported program: `helper(name: value)`"),
    ("gate g:\n  prompt: **ask nicely**\n", "E196", 'a gate shows its text as written: `prompt: "..."`'),
    ('gate g:\n  timeout: "5m"\n', "E196", 'a gate shows its text as written: `prompt: "..."`'),
    (
        'gate g:\n  prompt: "p"\nlet x = g\n',
        "E131",
        "`g` is a gate, and a gate binds nothing; to ask for a value use `input`",
    ),
    ('agent a:\n  promt: "p"\n', "W005", "did you mean `prompt`?"),
    ('session "a"\n  retry: 2\n  backoff: exponental\n', "E183", "did you mean `exponential`?"),
    ('exec "ls"\n  on-fail: contnue\n', "E052", "did you mean `continue`?"),
    ("x = 1\n", "W135", "write `let x = ...`"),
    ("agent a:\n  permissions:\n    bash: ask\n", "W009", "write `prompt`"),
    (
        "let y = x\nlet x = 1\n",
        "E131",
        "`x` has no value here: it is bound further down, or only inside a branch or iteration",
    ),
    ('agent writer:\n  prompt: "p"\nlet x = writer\n', "E131", "`writer` is an agent: `session: writer`"),
    ('block check:\n  exec "ls"\nlet x = check\n', "E131", "`check` is a block: `do check(...)`"),
    ('use "./h.prose" as helper\nlet x = helper\n', "E131", "`helper` is an imported program: `helper(input: value)`"),
    ('agent writer:\n  prompt: "p"\ndo writer()\n', "E140", "`writer` is an agent: `session: writer`"),
    ('agent writer:\n  prompt: "p"\nwriter(a: 1)\n', "E025", "write `session: writer`"),
    ('use "./h.prose" as helper\nhelpr(a: 1)\n', "E025", "did you mean `helper`?"),
    ('session "see {x}"\n', "W108", "define `x` first, or write `\\{x\\}` if the braces are meant"),
]


@pytest.mark.parametrize(("text", "code", "hint"), HINTS)
def test_hints(text, code, hint):
    assert [d.hint for d in findings(text) if d.code == code] == [hint]


def test_hints_stay_cheap_in_a_program_of_wrong_names():
    lines = [f"let name_{n} = 1\nlet y_{n} = nome_{n}\n" for n in range(2_000)]
    found = findings("".join(lines))
    assert len(found) == 2_000
    assert found[0].hint == "did you mean `name_0`?"


# ---------------------------------------------------------------- whole programs


@pytest.mark.parametrize("name", PROGRAMS)
def test_realistic_programs_have_no_errors(name):
    source = Source(PROGRAMS[name])
    parsed = parse(source, "default")
    found = [*parsed.diagnostics, *check(parsed.program, source)]
    assert [d.render() for d in found if d.severity == "error"] == []


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("profile", PROFILES)
def test_findings_are_sorted_and_lie_in_the_text(name, profile):
    found = findings(PROGRAMS[name], profile)
    assert list(found) == sorted(found, key=lambda d: (d.line, d.column, d.code))
    lines = PROGRAMS[name].split("\n")
    for item in found:
        assert isinstance(item, Diagnostic)
        assert item.source_line == lines[item.line - 1]
        assert 1 <= item.column <= len(item.source_line) + 1


TEXTS = sorted(PROGRAMS.values())
PIECES = sorted({line for text in TEXTS for line in text.splitlines()})


@settings(max_examples=settings().max_examples * 5 // 2, deadline=None)
@given(st.data())
def test_nothing_crashes_on_mutated_programs(data):
    lines = data.draw(st.sampled_from(TEXTS)).splitlines()
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, max(0, len(lines) - 1)))
        how = data.draw(st.sampled_from(["drop", "double", "insert", "cut", "indent"]))
        if how == "drop":
            del lines[at : at + 1]
        elif how == "double":
            lines[at:at] = lines[at : at + 3]
        elif how == "insert":
            lines.insert(at, data.draw(st.sampled_from(PIECES)))
        elif how == "indent":
            lines[at : at + 2] = ["  " + line for line in lines[at : at + 2]]
        elif lines:
            lines[at] = lines[at][: data.draw(st.integers(0, 30))]
    for profile in PROFILES:
        for cell in (False, True):
            found = findings("\n".join(lines), profile, known=KNOWN, cell=cell, load=load)
            assert list(found) == sorted(found, key=lambda d: (d.line, d.column, d.code))


@pytest.mark.parametrize("head", ["do:", "if **w**:", "let x{n} = try:", "let x{n} = y | pmap:"])
def test_programs_nest_as_deep_as_the_lexer_allows(head: str) -> None:
    lines = [f"{'  ' * n}{head.replace('{n}', str(n))}\n" for n in range(NESTING_LIMIT)]
    text = "let y = [1]\n" + "".join(lines) + "  " * NESTING_LIMIT + "let z = missing + y\n"
    assert [(d.code, d.line) for d in findings(Source(text), "default") if d.severity == "error"] == [
        ("E131", NESTING_LIMIT + 2)
    ]


@pytest.mark.parametrize(
    "line",
    [
        'let x{n} = session "Do the work {y}"\n  context: y\n',
        "if **it is still not good enough**:\n  output y{n} = y\nelse:\n  output y{n} = y\n",
        "if **it is still not good enough**:\n  output same = y\n",
        'parallel:\n  a{n} = exec "ls {y}"\n  b{n} = exec "ls"\n',
    ],
)
def test_cost_is_linear(line):
    def work(size: int) -> Callable[[], object]:
        source = Source("let y = 1\n" + "".join(line.replace("{n}", str(n)) for n in range(size)))
        program = parse(source, "default").program
        return lambda: check(program, source)

    assert_linear(work, 500)
