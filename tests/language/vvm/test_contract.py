"""The contract of a program (docs/reference/vvm.md 8, 9.2), and the order in which modules run."""

from __future__ import annotations

from prose_kernel.language.source import Source
from prose_kernel.language.vvm.parser import parse
from prose_kernel.language.vvm.program_interface import (
    CheckedModule,
    ProgramInterface,
    contract,
    execution_order,
    report,
)

TEXT = """\
import "search" from "npm:search"
from "./a.vvm" import x
from "./b.vvm" import @lead
from "./a.vvm" import y
agent scribe()
def f(a, b):
  def inner():
    pass
  return a
def g():
  pass
export x
export pack(y, it, z=1)
export @lead
export @scribe
export x
"""


def test_names_are_in_source_order_each_once():
    assert contract(parse(Source(TEXT)).program) == ProgramInterface(
        agents=("scribe",),
        functions={"f": ("a", "b"), "g": ()},
        exports=("x", "y", "it", "z"),
        exported_agents=("lead", "scribe"),
        imports=("./a.vvm", "./b.vvm"),
        skills={"search": "npm:search"},
    )


def test_section_8_what_is_printed_for_a_valid_program():
    program = parse(Source(TEXT)).program
    assert report(program, "tour.vvm") == (
        "✅ tour.vvm is valid\n1 agent, 2 functions\nexports: x, y, it, z, @lead, @scribe\n"
    )
    assert report(parse(Source("")).program, "-") == "✅ - is valid\n0 agents, 0 functions\nexports: nothing\n"


def module(name: str, *imports: CheckedModule) -> CheckedModule:
    source = Source("", name)
    program = parse(source).program
    return CheckedModule(
        f"/{name}", source, program, contract(program), {f"./{one.source.name}": one for one in imports}
    )


def test_each_module_appears_once_after_its_imports():
    base = module("base")
    left, right = module("left", base), module("right", base)
    top = module("top", left, right)
    assert execution_order([top, base, left]) == (base, left, right, top)
    assert execution_order([]) == ()
