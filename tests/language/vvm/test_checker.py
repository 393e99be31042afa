"""The checks before a program runs: every code of docs/reference/vvm.md 10.2 and 10.3 beyond the grammar."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from language.marked import cases, places, unmark
from language.vvm.appendix import EXAMPLES, SEED, SEED_AGENTS, SEED_VARIABLES
from language.vvm.appendix import TEAM as TEAM_AGENTS
from language.vvm.programs import PROGRAMS
from language.vvm.random_trees import programs
from scaling import assert_linear

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.diagnostics import Compiled
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import compile_source
from prose_kernel.language.vvm.checker import check
from prose_kernel.language.vvm.names import KnownNames
from prose_kernel.language.vvm.parser import parse
from prose_kernel.language.vvm.program_interface import CheckedModule, contract

CHECKS = cases("vvm_checks")

TEAM = "agent lead()\ndef plan(x):\n  return x\nexport plan\nexport @lead\nexport other\n"


def module(text: str, name: str, **more) -> CheckedModule:
    source = Source(text, name)
    program = parse(source).program
    return CheckedModule(f"/p/{name}", source, program, contract(program), **more)


def load(path: str) -> CheckedModule | None:
    match path:
        case "./team.vvm":
            return module(TEAM, "team.vvm")
        case "./broken.vvm":
            return module("def f(:\n", "broken.vvm", whole=False)
        case "./cycle.vvm":
            raise ImportProgramError("main.vvm imports itself", code="V201")
    raise ImportProgramError(f"Module not found: {path[2:]}", code="V090")


def compiled(text: str, **given) -> Compiled:
    return compile_source(Source(text, "main.vvm"), **given)


def codes(text: str, **given) -> list[str]:
    return [d.code for d in compiled(text, **given).diagnostics]


@pytest.mark.parametrize("case", CHECKS)
def test_findings(case):
    source, expected = unmark(CHECKS[case], "default")
    found = compile_source(source, load=load).diagnostics
    if case == "a lost line is not missed":
        found = tuple(d for d in found if d.code not in ("V001", "V002"))
    assert places(found) == expected, "\n".join(d.render() for d in found)


def test_every_code_has_a_case():
    marked = " ".join(CHECKS.values())
    errors = ["V020", "V021", "V030", "V031", "V040", "V041", "V051", "V070", "V080", "V081", "V090"]
    warnings = ["V501", "V510", "V511", "V520", "V530", "V531"]
    numbered = [f"V{kind}0{number}" for kind in "27" for number in range(1, 10)]
    assert [code for code in (*errors, *warnings, *numbered) if code not in marked] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_valid_programs_have_no_errors(name):
    assert compiled(PROGRAMS[name]).ok


# ---------------------------------------------------------------- whole programs


def load_example(path: str) -> CheckedModule:
    assert path == "./team-agents.vvm"
    return module(TEAM_AGENTS, "team-agents.vvm")


@pytest.mark.parametrize("name", EXAMPLES)
def test_appendix_a_every_row_passes(name):
    found = compiled(EXAMPLES[name], load=load_example).diagnostics
    assert [d.render() for d in found if d.code not in ("V706", "V703")] == []


@pytest.mark.parametrize("text", SEED)
def test_the_programs_of_the_founding_document_compile(text):
    known = KnownNames(SEED_VARIABLES, agents=dict.fromkeys(SEED_AGENTS))
    assert [d.render() for d in compiled(text, known=known, cell=True).diagnostics] == []


# ---------------------------------------------------------------- cells (9.6)

EARLIER = KnownNames(
    frozenset({"x", "f", "plan", "note"}), {"f": ("a",)}, {"writer": object()}, {"search": "npm:search"}
)


def test_earlier_names_count_as_known():
    text = """\
y = x + f(1)
@writer `{x} {y} {note}`()
z = @{skills=["search"]}
constrain x():
  require ?`fine`
export note
export @writer
@x `an agent may be in it`()
"""
    assert codes(text, known=EARLIER, cell=True) == []
    assert "V040" in codes(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("max(1, 2)", "write `reduce(items, larger)`, with a function `larger(a, b)`"),
        ("sum([1])", "write `reduce(items, add, 0)`, with a function `add(a, b)`"),
        ("dict(a=1)", "write an object: `{key: value}`"),
        ('exec("ls")', 'write `exec "…"` in a notebook cell that begins with `%%prose`'),
    ],
)
def test_functions_of_python_have_a_hint(text, hint):
    source = Source(f"{text}\n")
    (found,) = check(parse(source).program, source)
    assert (found.code, found.hint) == ("V701", hint)


def test_a_model_without_quotes_is_a_text():
    (found,) = compiled("agent a(model=haiku)\nexport @a\n").diagnostics
    assert found.code == "V041"
    assert found.hint == 'a text is written `"haiku"`; compute it where the agent is used: `@agent.with(model=...)`'


def test_earlier_names_may_be_redefined():
    text = """\
import "search" from "npm:other"
from "./team.vvm" import plan
from "./team.vvm" import @lead as writer
def f(b):
  return b
def x():
  return 1
note = 2
"""
    assert codes(text, known=EARLIER, load=load, cell=True) == []


def test_within_a_cell_all_rules_hold():
    text = "agent a()\nagent a()\ndef f():\n  pass\ndef f():\n  unread = 1\n"
    assert codes(text, known=EARLIER, cell=True) == ["V020", "V021", "V530"]


def test_a_later_cell_may_read_what_a_cell_assigns():
    assert codes("a = 1\n", cell=True) == []
    assert codes("a = 1\n") == ["V530"]


def test_a_known_name_is_bound_before_the_first_assignment_here():
    assert codes("x = x + 1\n", known=EARLIER, cell=True) == []
    assert codes("def g():\n  x = x + 1\n  return x\n", known=EARLIER, cell=True) == ["V701"]


# ---------------------------------------------------------------- cost and robustness


def deep_block(depth: int) -> str:
    return "".join(f"{' ' * at}if x:\n" for at in range(depth)) + " " * depth + "y = x\n"


def deep_functions(depth: int) -> str:
    lines = [f"{' ' * at}def f{at}(x{at}):\n" for at in range(depth)]
    return "".join(lines) + " " * depth + "return [x0, outer, nothing]\nouter = 1\n"


GROWING = {
    "names": lambda n: "".join(f"x{at} = x{at - 1}\n" for at in range(n)),
    "unknown names": lambda n: "".join(f"y = unknown{at}\n" for at in range(n)),
    "functions": lambda n: "".join(f"def f{at}(a, b):\n  c = f{at + 1}(a, b=b)\n  return c\n" for at in range(n)),
    "one call": lambda n: "f(" + ", ".join(f"k{at}=1" for at in range(n)) + ")\n",
    "one object": lambda n: "x = {" + ", ".join(f"k{at}: {at}" for at in range(n)) + "}\n",
    "placeholders": lambda n: "x = ?`" + "{x} {missing} " * n + "`\n",
    "a long sum": lambda n: "x = " + " + ".join(["x"] * n) + "\n",
    "a chain of comparisons": lambda n: "x = " + " < ".join(["x"] * n) + "\n",
    "agents": lambda n: "".join(f'agent a{at}(skills=["s{at}"], permissions=perm(read=["x"]))\n' for at in range(n)),
    "syntax errors": lambda n: "x = = 1\ny = x\n" * n,
}


@pytest.mark.parametrize("shape", GROWING)
def test_the_cost_is_linear(shape):
    def work(size: int):
        source = Source(GROWING[shape](size))
        parsed = parse(source)
        return lambda: check(parsed.program, source, syntax_findings=parsed.diagnostics)

    assert_linear(work, 1500)


@pytest.mark.parametrize("make", [deep_block, deep_functions])
def test_deep_programs_do_not_exhaust_the_stack(make):
    source = Source(make(498))
    parsed = parse(source)
    assert parsed.diagnostics == ()
    assert "V701" in {d.code for d in check(parsed.program, source)}


def test_deep_expressions_do_not_exhaust_the_stack():
    depth = 498
    deep = "[" * depth + "missing" + "]" * depth
    text = f"agent a(skills={deep}, extra={deep})\nx = @a.with(memory={deep}) `t`({deep}, retry={deep})\nexport x\n"
    assert {"V041", "V209", "V208", "V701"} <= set(codes(text))


@settings(deadline=None)
@given(programs, st.booleans())
def test_random_programs_are_checked_without_an_exception(program, cell):
    check(program, Source(""), known=EARLIER, load=load, cell=cell)


@settings(deadline=None)
@given(st.sampled_from(sorted(EXAMPLES.values())), st.data())
def test_damaged_programs_are_compiled_without_an_exception(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 30)))
    damage = data.draw(
        st.sampled_from(["", "`", '"', "(", "}", ":", "\n", "  ", "= =", "case", "def f(", "\t", "\x00"])
    )
    found = compiled(text[:start] + damage + text[end:], load=load).diagnostics
    assert all(d.code and d.message for d in found)
