"""ProseScript: findings in scripts, bare conditions, the reads of a delegation (docs/reference/prose-md.md 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from language.marked import cases, places, unmark

from prose_kernel.language.diagnostics import Profile
from prose_kernel.language.openprose import compile_source
from prose_kernel.language.openprose import tree as t
from prose_kernel.language.openprose.call_targets import (
    CallInput,
    CallOutput,
    CallProblem,
    CallTarget,
    Interface,
    ScriptSource,
)
from prose_kernel.language.openprose.checker import free_inputs
from prose_kernel.language.openprose.formatter import format_program
from prose_kernel.language.openprose.parser import parse
from prose_kernel.language.source import Source

TARGETS = {
    "brief": CallTarget(
        "brief",
        inputs=(CallInput("topic"), CallInput("depth", True, 3), CallInput("tone", True)),
        outputs=(CallOutput("report"), CallOutput("notes", optional=True)),
    ),
    "one": CallTarget("one", outputs=(CallOutput("n"),)),
    "scripted": CallTarget("scripted", has_script=True),
    "odd": CallTarget("odd", inputs=(CallInput("retry", optional=True),)),
    "watch": CallTarget("watch", kind="responsibility"),
    "helper": CallTarget("helper", kind="helper"),
    "slot": CallTarget("any", inputs=(CallInput("draft"),), through_slot=True),
}


class Targets:
    def find(self, name: str, uses: Mapping[str, str], *, path: bool = False) -> CallTarget | CallProblem:
        if path or name in uses:
            return CallTarget(uses.get(name, name))
        if name == "maker":
            return CallProblem("E314", "`maker` is a pattern")
        return TARGETS.get(name) or CallProblem("E313", f"nothing is called `{name}`", near=tuple(TARGETS))

    def texts(self) -> dict[str, str]:
        return {}

    def element(self, value: str) -> CallTarget | None:
        return TARGETS.get(value)


FUNCTION = Interface(
    "function",
    "it",
    fixed=("topic",),
    outputs=(CallOutput("report"), CallOutput("notes", optional=True)),
    stages={"outline": "Write an outline."},
    targets=Targets(),
)


def script(text: str, interface: Interface = FUNCTION) -> ScriptSource:
    return ScriptSource(text, "x.prose.md", interface=interface)


def codes(text: str, **changes: Any) -> list[str]:
    source = script(text, Interface(**changes)) if changes else Source(text)
    return [d.code for d in compile_source(source, profile="prosescript").diagnostics]


@pytest.mark.parametrize("profile", ["prosescript", "prosescript-strict"])
@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in cases("scripts").items()])
def test_scripts(text: str, profile: Profile) -> None:
    source, expected = unmark(text, "strict" if profile.endswith("strict") else "default")
    found = compile_source(script(source.text), profile=profile).diagnostics
    assert places(found) == [place for place in expected if place[0]]


@pytest.mark.parametrize(
    ("header", "reading"),
    [
        ("if x == y:", t.Binary),
        ("if n + 1 > 3:", t.Binary),
        ('if action == "check" and state.found:', t.Logical),
        ("if review.passed:", t.Member),
        ("if not fix.ok:", t.Not),
        ("if count is 3:", t.Binary),
        ('if answer is "yes":', t.Binary),
        ("if ready:", t.AmbiguousCondition),
        ("if draft and polished:", t.AmbiguousCondition),
        ("if (draft is final):", t.AmbiguousCondition),
        ("if attempt.error is present:", t.AmbiguousCondition),
        ("if the draft has open questions:", t.Discretion),
        ("if review accepted:", t.Discretion),
        ("if score is at least 8:", t.Discretion),
        ("if it isn't 100% sure?:  # why", t.Discretion),
        ("if **the tests** or x:", t.Logical),
    ],
)
def test_readings_of_conditions(header: str, reading: type) -> None:
    parsed = parse(Source(f"{header}\n  return\n"), "prosescript")
    assert not parsed.diagnostics
    statement = parsed.program.items[0]
    assert isinstance(statement, t.ExpressionStatement) and isinstance(statement.value, t.If)
    assert type(statement.value.arms[0].condition) is reading


def test_words_and_markers_are_the_same_program() -> None:
    words = 'if the draft is fine:\n  break\nchoice the best:\n  option "a":\n    break\n'
    markers = words.replace("the draft is fine", "**the draft is fine**").replace("the best", "**the best**")
    bare, marked = (parse(Source(text), "prosescript").program for text in (words, markers))
    assert bare == marked
    assert format_program(marked) == words


@pytest.mark.parametrize("count", ["group.size", "sizes[0]"])
def test_a_script_repeats_as_often_as_a_path_says(count: str) -> None:
    program = f"repeat {count} as i:\n  return i\n"
    parsed = parse(Source(program), "prosescript")
    assert (parsed.diagnostics, format_program(parsed.program)) == ((), program)
    assert [d.code for d in parse(Source(program), "default").diagnostics] == ["E004"]
    assert [d.code for d in parse(Source("repeat 1 + n:\n  return\n"), "prosescript").diagnostics] == ["E004"]


def test_decided_options_are_in_the_program() -> None:
    text = "let ready = 1\nif ready:\n  return 1\nloop until polished as i:\n  return 2\n"
    program = compile_source(Source(text), profile="prosescript").program
    (_, first, second) = program.items
    assert isinstance(first, t.ExpressionStatement) and isinstance(first.value, t.If)
    assert first.value.arms[0].condition == t.Name("ready")
    assert isinstance(second, t.ExpressionStatement) and isinstance(second.value, t.Loop)
    assert (second.value.variable, second.value.condition) == (None, t.Discretion(t.Text(("polished as i",))))


def test_names_in_blocks_are_judged_by_the_whole_script() -> None:
    block = "block b():\n  if late and {}:\n    return 1\n"
    assert codes(block.format("later") + "let late = 1\nlet later = 2\n") == []
    assert codes(block.format("never") + "let late = 1\n") == ["W312"]


def test_a_delegation_reads_what_its_instances_give() -> None:
    text = 'let r = call slot\n  draft: seed\nif seed and limit.max:\n  return r\nif rough:\n  let tone = 1\nsession "{note}"\n'
    interface = Interface("delegation", "p", variables=("slot", "config"), targets=Targets())
    found = compile_source(script(text, interface), profile="prosescript")
    assert [d.code for d in found.diagnostics] == ["W162", "W312"]
    assert free_inputs(found.program, script(text, interface)) == {"seed": True, "limit": True, "note": False}


def test_what_a_delegation_reads_before_it_declares_it_is_an_input() -> None:
    text = 'let steps = steps\nsession "{steps}"\nreturn steps\n'
    interface = Interface("delegation", "p", targets=Targets())
    found = compile_source(script(text, interface), profile="prosescript")
    assert [(d.code, d.line) for d in found.diagnostics] == [("W136", 1)]
    assert free_inputs(found.program, script(text, interface)) == {"steps": True}


def test_elements_of_slots_may_be_called() -> None:
    loop = "for each-one in slots:\n  call each-one\nreturn call {}\n"
    changes = {"kind": "delegation", "variables": ("slots",), "targets": Targets()}
    assert codes(loop.format("slot"), **changes) == []
    assert codes(loop.format("nothing"), **changes) == ["E313"]


def test_a_declaration_of_a_variable_of_the_instance_assigns() -> None:
    assert codes("let config = 1\nreturn config\n", kind="delegation", variables=("config",)) == ["W136"]
    assert codes("let truth = 1\nreturn truth\n", kind="responsibility", prior=("truth",)) == []


def test_a_gate_may_throw_a_text() -> None:
    assert codes('gate g:\n  prompt: "Go on?"\n  on_reject: throw "no"\nthrow { error: "x" }\n') == []


def test_cells_have_no_contract() -> None:
    assert codes('input a: "what is it?"\noutput b = a\n') == []
    assert codes("let x = {\n  a: 1\n  b: 2\n}\nreturn x\n") == []


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("append [] to xs", t.Array(())),
        ("append [1] to xs", t.Array((t.Number(1),))),
        ("append -1 to xs", t.Number(-1)),
        ("append **a** to xs", t.Discretion(t.Text(("a",)))),
        ("append (call) to xs", t.Name("call")),
        ("append (not x) to xs", t.Not(t.Name("x"))),
    ],
)
def test_any_value_can_be_appended(statement: str, value: t.Expression) -> None:
    parsed = parse(Source(f"{statement}\n"), "prosescript")
    assert [d.code for d in parsed.diagnostics] == ["W318"]
    assert parsed.program.items == (t.Append(value, t.Name("xs")),)
    assert format_program(parsed.program) == f"{statement}\n"
    old_form = parse(Source(statement.replace("append", "record").replace(" to ", " in ") + "\n"), "prosescript")
    assert old_form.program.items == parsed.program.items


def test_a_variable_named_append_is_indexed_and_called() -> None:
    items = parse(Source("append[1]\nappend[1] + to\nrecord(x: 1)\n"), "prosescript").program.items
    assert [type(item.value) for item in items if isinstance(item, t.ExpressionStatement)] == [
        t.Index,
        t.Binary,
        t.ProgramCall,
    ]


def test_other_profiles_know_none_of_it() -> None:
    for text in (
        "call f\n",
        "loop for each x in y (max: 2):\n  return\n",
        "parallel repeat 2:\n  return\n",
        "throw 1 + 1\n",
    ):
        assert [d.code for d in compile_source(Source(text)).diagnostics if d.severity == "error"] == ["E004"]
    assert not compile_source(Source("let call = 1\nlet record = call\noutput append = record\n")).diagnostics
