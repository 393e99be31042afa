"""What is checked before a program runs: every code of docs/reference/vvm.md 10.2 and 10.3 beyond the grammar."""

from __future__ import annotations

import pytest
from language.marked import cases, places, unmark
from language.vvm.programs import PROGRAMS

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import Compiled, compile_source, parse
from prose_kernel.language.vvm.contract import contract
from prose_kernel.language.vvm.modules import Module
from prose_kernel.language.vvm.names import Known

CHECKS = cases("vvm_checks")

TEAM = "agent lead()\ndef plan(x):\n  return x\nexport plan\nexport @lead\nexport other\n"


def module(text: str, name: str, **more) -> Module:
    source = Source(text, name)
    program = parse(source).program
    return Module(f"/p/{name}", source, program, contract(program), **more)


def load(path: str) -> Module | None:
    match path:
        case "./team.vvm":
            return module(TEAM, "team.vvm")
        case "./broken.vvm":
            return module("def f(:\n", "broken.vvm", whole=False)
        case "./cycle.vvm":
            raise ImportProgramError("main.vvm imports itself", code="E201")
    raise ImportProgramError(f"Module not found: {path[2:]}", code="E090")


def compiled(text: str, **given) -> Compiled:
    return compile_source(Source(text, "main.vvm"), **given)


def codes(text: str, **given) -> list[str]:
    return [d.code for d in compiled(text, **given).diagnostics]


@pytest.mark.parametrize("case", CHECKS)
def test_findings(case):
    source, expected = unmark(CHECKS[case], "default")
    found = compile_source(source, load=load).diagnostics
    if case == "a lost line is not missed":
        found = tuple(d for d in found if d.code not in ("E001", "E002"))
    assert places(found) == expected, "\n".join(d.render() for d in found)


def test_every_code_has_a_case():
    marked = " ".join(CHECKS.values())
    errors = "E020 E021 E030 E031 E040 E041 E051 E070 E080 E081 E090".split() + [f"E20{n}" for n in range(1, 10)]
    warnings = "W001 W010 W011 W020 W030 W031".split() + [f"W20{n}" for n in range(1, 10)]
    assert [code for code in errors + warnings if code not in marked] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_valid_programs_have_no_errors(name):
    assert compiled(PROGRAMS[name]).ok
