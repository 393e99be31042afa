"""Static checks of statements, calls, imports, cells; cost and robustness."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from language.marked import PROFILES, cases, check, findings, places, unmark
from language.programs import PROGRAMS
from scaling import assert_linear

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.diagnostics import Diagnostic
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.lexer import NESTING_LIMIT
from prose_kernel.language.openprose.parser import parse
from prose_kernel.language.openprose.program_interface import KnownAgent, KnownNames, ProgramInterface, Variable
from prose_kernel.language.source import Source

STATEMENTS = cases("statements")

IMPORTS = cases("imports")

CALLS = cases("calls")


def load(path: str) -> ProgramInterface | None:
    if path == "./gone.prose":
        raise ImportProgramError("there is no file ./gone.prose")
    if path == "./cycle.prose":
        raise ImportProgramError("a.prose imports itself through ./cycle.prose", code="E112")
    if path.endswith("r.prose"):
        return ProgramInterface({"topic": True, "depth": False}, ("findings", "sources"))
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


TABLES = sorted({path.stem for path in (Path(__file__).parent / "cases").glob("*.txt")} - {"scripts", "vvm_checks"})


@pytest.mark.parametrize("table", TABLES)
def test_the_cases_mean_what_they_say(table):
    """A case with a syntax error would be checked against half a tree."""
    for name, text in cases(table).items():
        found = parse(unmark(text, "default")[0]).diagnostics
        assert {d.code for d in found if d.severity == "error"} <= {"E154"}, name


# ---------------------------------------------------------------- cells

KNOWN = KnownNames(
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
    programs={"prog": ProgramInterface({"topic": True}, ("findings",))},
    skills=frozenset({"web"}),
    gates=frozenset({"gt"}),
    bodies={"g": tree.Block(tree.Name("g"), (), None, (tree.Output(tree.Name("made"), tree.Number(1)),))},
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
