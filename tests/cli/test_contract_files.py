"""Contract files at the command line: compile, fmt, graph, paths and refusals (prose-md.md 2, 3.5, 6, 8, 9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.contract_world import ContractWorld, function, parameters, returns, script

DRAFTER = function("drafter", parameters("`topic`: what"), returns("`draft`: the draft"))
PAIR = function("pair", returns("`a`: one", "`b`: two"))


# ---------------------------------------------------------------- many files


def test_many_files_are_compiled_as_one_by_one(world: ContractWorld) -> None:
    def calls(name: str, *called: str, more: str = "") -> str:
        lines = [f"let x{n} = call {one}" for n, one in enumerate(called)]
        return function(name, more, returns("`x0`"), script(*lines, "return x0"))

    world.write(
        a=calls("a", "b", "c"), b=calls("b", "c", more="### Ensures\n"), c=calls("c", "noted"),
        noted=calls("noted", "leaf", more="### Parameter\n"), leaf=function("leaf", returns("`x`")),
        round=calls("round", "trip"), trip=calls("trip", "round"), lost=calls("lost", "leav"),
        user=calls("user", '"./one.prose"'), used=function("used", returns("`x`")),
        there=calls("there", '"./back.prose"'), below__leaf=calls("leaf", '"../c"', '"../b"'),
    )  # fmt: skip
    world.put("one.prose", 'use "./used.prose.md" as used\noutput x = session "x"\n')
    world.put("back.prose", 'use "./there.prose.md" as there\noutput x = session "x"\n')
    names = [str(path.relative_to(world.directory)) for path in sorted(world.directory.rglob("*.md"))]
    alone: dict[str, str] = {}
    for name in names:
        world.prose("compile", "--format", "json", name)
        alone[name] = world.out
    failing = {name for name, found in alone.items() if not json.loads(found)["ok"]}
    assert failing == {"a.prose.md", "b.prose.md", "below/leaf.prose.md", "lost.prose.md", "there.prose.md"}
    for order in (names, names[::-1], names * 2):
        assert world.prose("compile", "--format", "json", *order) == 1
        assert world.out == "".join(alone[name] for name in order)


def test_a_file_that_many_call_is_checked_once(world: ContractWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    from prose_kernel.language.contracts import compile as contract_compiler

    check, checked = contract_compiler.check_file, list[str]()

    def counted(file: Any) -> Any:
        checked.append(file.source.name)
        return check(file)

    monkeypatch.setattr(contract_compiler, "check_file", counted)
    names = [f"part{n}" for n in range(10)]
    for name, following in zip(names, [*names[1:], ""], strict=True):
        lines = [f"let x = call {following}", "return x"] if following else ['return session "x"']
        world.write(**{name: function(name, returns("`x`"), script(*lines))})
    assert world.prose("compile", *(f"{name}.prose.md" for name in names)) == 0
    assert sorted(checked) == [f"{name}.prose.md" for name in names]


def test_a_changed_file_is_checked_again(world: ContractWorld) -> None:
    caller = function("f", returns("`x`"), script("let x = call part", "return x"))
    world.write(f=caller, part=function("part", returns("`x`")))
    assert world.prose("compile", "f.prose.md") == 0
    world.write(part=function("part", parameters("`topic`: what"), returns("`x`")))
    assert world.codes("f.prose.md") == ["E026"]


# ---------------------------------------------------------------- the contract


def test_compile_prints_the_contract(world: ContractWorld) -> None:
    world.write(
        drafter=DRAFTER,
        f=function(
            "f", parameters("`topic`: what", "`n` (default 3): how many", "`old`: run[] - those before", "..."),
            returns("`text`", "`ok`: boolean (optional)"), script("let d = call drafter", "  topic: topic", "return { text: d, ok: true }"),
        ),
    )  # fmt: skip
    assert world.prose("compile", "f.prose.md") == 0
    assert world.out == (
        "function f\n  input   topic\n  input   n = 3\n  input   old (completed runs)\n  input   ...\n"
        "  output  text\n  output  ok: boolean (optional)\n  call    drafter\n"
    )
    assert world.prose("compile", "--format", "json", "f.prose.md") == 0
    contract = json.loads(world.out)["contract"]
    assert (contract["inputs"], contract["defaults"]) == ({"topic": True, "n": False, "old": True}, {"n": 3})
    assert (contract["outputs"], contract["calls"], contract["kind"]) == (["text", "ok"], ["drafter"], "function")


def test_names_of_files(world: ContractWorld) -> None:
    world.write(
        drafter=DRAFTER, pack__index=DRAFTER, outer=function("outer", returns("`x`"), "## inner\n", returns("`y`"))
    )
    for name in ("drafter", "pack", "outer.prose.md#inner", "./drafter.prose.md"):
        assert world.prose("compile", name) == 0, name
    assert world.prose("compile", "outer.prose.md#inner") == 0
    assert world.out == "function inner\n  output  y\n"
    assert world.codes("outer.prose.md#nothing") == ["E313"]
    assert world.prose("compile", "nothing") == 2


def test_fmt_changes_only_the_scripts(world: ContractWorld) -> None:
    text = function(
        "f", "*  odd   `markdown` \n\n", returns("`x`"), script("let   x = 1", "return   x"), "| a |  b |\n"
    )
    world.write(f=text + "\n\n\n")
    assert world.prose("fmt", "--check", "f.prose.md") == 1
    assert world.prose("fmt", "--write", "f.prose.md") == 0
    assert Path("f.prose.md").read_text() == (text + "\n\n\n").replace("let   x", "let x").replace(
        "return   x", "return x"
    )
    assert world.prose("fmt", "--check", "f.prose.md") == 0


def test_fmt_keeps_line_ends_and_a_byte_order_mark(world: ContractWorld) -> None:
    text = function("f", returns("`x`"), script("let   x = 1", "return x"))
    world.directory.joinpath("f.prose.md").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert world.prose("fmt", "--write", "f.prose.md") == 0
    expected = text.replace("let   x", "let x").replace("\n", "\r\n").encode()
    assert world.directory.joinpath("f.prose.md").read_bytes() == b"\xef\xbb\xbf" + expected


def test_graph_check_and_explain_read_the_script(world: ContractWorld) -> None:
    world.write(drafter=DRAFTER, f=function("f", returns("`x`"), script("let d = call drafter", '  topic: "t"', "if d is good:", "  return 1", "return 2"), "## more\n", returns("`y`"), script("if it rains:", "  return 1", "return 2")))  # fmt: skip
    assert world.prose("graph", "f.prose.md") == 0
    assert "drafter" in world.out
    assert world.prose("check", "f.prose.md") == 1
    assert "line 15: **d is good**" in world.out
    assert "line 29: **it rains**" in world.out
    assert world.prose("explain", "f.prose.md") == 0


# ---------------------------------------------------------------- findings


@pytest.mark.parametrize(
    ("sections", "found"),
    [
        ([parameters("`a`: x", "`b`", "a: again")], ("E021", 10, 3)),
        (["### Execution\n\nDo it well.\n"], ("W316", 6, 1)),
        (["### Execution\n\n```prosescript\nx\n```\n"], ("W320", 8, 1)),
        (["### Execution\n\n``` Prose\nx\n```\n"], ("W320", 8, 1)),
        ([script("input a: \"b\"", "return 1")], ("E310", 9, 1)),
        ([script("let x = nothing", "return 1")], ("E131", 9, 9)),
        ([script("let x = call helper", "return x")], ("E313", 9, 14)),
        ([script("return call f2")], ("E026", 9, 13)),
        (["### Tools\n- jq\n"], ("E335", 7, 3)),
        (["### Tools\n- `cli:a/b`\n"], ("E335", 7, 3)),
        (["### Tools\n- `npm:jq`\n"], ("E336", 7, 3)),
        (["### Tools\n- `cli:no-such-tool-here`: for x\n"], ("W330", 7, 3)),
        (["### Skills\n- `pdf:no-such-skill`\n"], ("W331", 7, 3)),
        (["### Skills\n- pdf\n"], ("W332", 7, 3)),
        (["### Patterns\n```yaml\n- name: x\n```\n"], ("E340", 7, 1)),
        (["### Patterns\n```yaml\n- name: 5\n  pattern: pat\n```\n"], ("E340", 8, 1)),
        (["### Patterns\n```yaml\n- &x\n  name: x\n  pattern: pat\n  with: { worker: *x }\n```\n"], ("E340", 8, 1)),
        (["### Patterns\n```yaml\n- name: x\n  pattern: pat\n  with: { worker: [[f2]] }\n```\n"], ("E340", 8, 1)),
        (["### Patterns\n```yaml\n- name: x\n  pattern: pat\n  with: { worker: { name: y, pattern: pat } }\n```\n"],
         ("E340", 8, 1)),
        (["### Patterns\n```yaml\n- name: x\n  pattern: nix\n```\n"], ("E330", 8, 1)),
        (["### Patterns\n```yaml\n- name: x\n  pattern: f2\n```\n"], ("E341", 8, 1)),
        (["### Notes\n```yaml\n- name: x\n  pattern: pat\n```\n"], ("E342", 8, 1)),
        (["### Patterns\n```yaml\n- name: x\n  pattern: pat\n  with: { worker: f2, b: f2 }\n```\n"], ("E343", 8, 1)),
        (["### Patterns\n```yaml\n- name: x\n  pattern: pat\n  with: { worker: nix }\n```\n"], ("E313", 8, 1)),
        (["### Patterns\n```yaml\n- name: x\n  pattern: pat\n  with: { worker: f2 }\n  config: { c: 1 }\n```\n"], ("E344", 8, 1)),
        (["### Patterns\n```yaml\n- name: x\n  pattern: pat\n  with: { worker: f2 }\n  more: 1\n```\n"], ("E340", 8, 1)),
    ],
)  # fmt: skip
def test_findings_of_a_function(world: ContractWorld, sections: list[str], found: tuple[str, int, int]) -> None:
    pattern = "---\nname: pat\nkind: pattern\n---\n### Slots\n- `worker`\n### Config\n- `n`: 2\n"
    world.write(
        f2=function("f2", parameters("`needed`: x"), returns("`x`")),
        pat=pattern + script("return call worker", title="Delegation"),
        f=function("f", *sections, returns("`x`")),
    )
    errors = [one for one in world.findings("f.prose.md") if one[0] not in ("W313", "W316") or one[0] == found[0]]
    assert errors == [found]


def test_a_fence_of_another_word_is_one_finding(world: ContractWorld) -> None:
    world.write(f=function("f", returns("`x`"), "### Execution\n\n```prosescript\nreturn 1\n```\n"))
    assert world.codes("f.prose.md") == ["W320"]


@pytest.mark.parametrize("called", ["drafte", "wrter"])
def test_near_names_include_those_of_neighbouring_files(world: ContractWorld, called: str) -> None:
    world.write(
        drafter=function("writer", returns("`x`")), f=function("f", returns("`x`"), script(f"return call {called}"))
    )
    world.prose("compile", "--format", "json", "f.prose.md")
    (found,) = json.loads(world.out)["diagnostics"]
    assert (found["code"], "`drafter`" in found["hint"] or "`writer`" in found["hint"]) == ("E313", True)


def test_an_alias_that_is_not_a_name_is_one_finding(world: ContractWorld) -> None:
    world.write(g=function("g", returns("`x`")), f=function("f", returns("`x`"), script('use "./g" as 3x', "return 1")))
    assert world.codes("f.prose.md") == ["E111"]


def test_a_pattern_needs_a_script(world: ContractWorld) -> None:
    world.write(p="---\nname: p\nkind: pattern\n---\n### Slots\n- `a`\n### Delegation\n\nIn words.\n")
    assert world.findings("p.prose.md") == [("E345", 7, 1)]


def test_a_pattern_that_contains_itself(world: ContractWorld) -> None:
    pattern = "## pat\n\n### Slots\n- `worker`\n\n" + script("return call worker", title="Delegation")
    nested = "### Patterns\n```yaml\n- name: x\n  pattern: pat\n  with: { worker: { pattern: pat, with: { worker: g } } }\n```\n"
    world.write(f=function("f", returns("`x`"), nested, pattern, "## g\n", returns("`y`")))
    assert world.codes("f.prose.md") == ["E112"]


@pytest.mark.parametrize(
    ("called", "code"),
    [("pat", "E314"), ("resp", "E315"), ("gate", "E315"), ("both", "E316"), ("old", "E215"), ("bad", "E215"),
     ('"./nix.prose.md"', "E330"), ('"alice/tool"', "E330"), ('"std/roles/nix"', "E330"), ('"github.com/a/b/../c"', "E330")],
)  # fmt: skip
def test_calls_that_the_compiler_refuses(world: ContractWorld, called: str, code: str) -> None:
    identity = "id: 01ARZ3NDEKTSV4RRFFQ69G5FAV\n"
    world.write(
        pat="---\nname: pat\nkind: pattern\n---\n### Slots\n- `a`\n" + script("return 1", title="Delegation"),
        resp=f"---\nname: resp\nkind: responsibility\n{identity}---\n### Maintains\n- `a`: b\n",
        gate="---\nname: gate\nkind: gateway\n---\n### Continuity: external-driven\n",
        one=function("both", returns("`x`")),
        two=function("both", returns("`x`")),
        old="---\nname: old\nkind: service\n---\n",
        bad=function("bad", returns("`x`"), script("return nothing")),
        f=function("f", returns("`x`"), script(f"return call {called}")),
    )
    assert world.codes("f.prose.md") == [code]


def test_errors_are_passed_on_to_the_callers_of_callers(world: ContractWorld) -> None:
    world.write(
        a=function("a", returns("`x`"), script("return call b")),
        b=function("b", returns("`x`"), script("return call c")),
        c=function("c", returns("`x`"), script("return nothing")),
    )
    assert world.findings("a.prose.md") == [("E215", 13, 13)]


def test_circular_calls_compile(world: ContractWorld) -> None:
    world.write(
        a=function("a", returns("`x`"), script("return call b")),
        b=function("b", returns("`x`"), script("return call a")),
    )
    assert world.codes("a.prose.md") == []


def test_an_inline_responsibility_is_called_with_a_warning(world: ContractWorld) -> None:
    world.write(f=function("f", returns("`x`"), script("return call state"), "## state\n\n### Maintains\n- `y`: z\n"))
    assert world.codes("f.prose.md") == ["W321"]
    assert world.codes("f.prose.md", "--strict") == ["E315"]


# ---------------------------------------------------------------- dependencies


def test_dependencies_are_found_below_the_root(world: ContractWorld) -> None:
    place = "deps/github.com/openprose/prose/packages/std/roles/writer.prose.md"
    world.put(place, function("writer", returns("`x`")))
    world.put("prose.lock", "# pins\ngithub.com/openprose/prose 0123456789abcdef\n")
    calls = ['"std/roles/writer"', '"github.com/openprose/prose/packages/std/roles/writer.prose.md"',
             '"std/roles/writer@0123456"']  # fmt: skip
    for at, called in enumerate(calls):
        world.put(f"src/f{at}.prose.md", function(f"f{at}", returns("`x`"), script(f"return call {called}")))
        assert world.codes(f"src/f{at}.prose.md") == [], called
    world.put("src/g.prose.md", function("g", returns("`x`"), script('return call "std/roles/writer@999999999"')))
    assert world.codes("src/g.prose.md") == ["E330"]
    assert world.prose("compile", "std/roles/writer") == 0
    assert world.prose("compile", "std/roles/nothing") == 2


def test_links_do_not_lead_out_of_a_dependency(world: ContractWorld) -> None:
    world.put("elsewhere/tool.prose.md", function("tool", returns("`x`")))
    inside = world.directory / "deps/github.com/a/b"
    inside.mkdir(parents=True)
    inside.joinpath("link").symlink_to(world.directory / "elsewhere")
    inside.joinpath("file.prose.md").symlink_to(world.directory / "elsewhere/tool.prose.md")
    for path in ("link/tool", "file"):
        world.write(f=function("f", returns("`x`"), script(f'return call "github.com/a/b/{path}"')))
        assert world.codes("f.prose.md") == ["E330"], path
    world.directory.joinpath("near.prose.md").symlink_to(world.directory / "elsewhere/tool.prose.md")
    world.write(f=function("f", returns("`x`"), script("return call near")))
    assert world.codes("f.prose.md") == ["E330"]


# ---------------------------------------------------------------- other programs


def test_programs_and_contract_files_call_each_other(world: ContractWorld) -> None:
    world.put("tidy.prose", 'input text: "what"\noutput clean = text\n')
    world.write(drafter=DRAFTER, f=function("f", returns("`x`"), script('use "./tidy.prose"', 'return call tidy', '  text: "a"')))  # fmt: skip
    assert world.codes("f.prose.md") == []
    world.put("p.prose", 'use "./drafter.prose.md"\nlet d = drafter(topic: "x")\noutput y = d.draft\n')
    assert world.codes("p.prose") == []
    world.put("q.prose", 'use "./drafter.prose.md"\nlet d = drafter(tpic: "x")\n')
    assert world.codes("q.prose") == ["E026", "E027"]


# ---------------------------------------------------------------- files that are not run


@pytest.mark.parametrize("words", [["serve"], ["react", "x"], ["compile", "files"]])
def test_kinds_that_need_a_host_are_refused(world: ContractWorld, words: list[str]) -> None:
    world.write(files__a=DRAFTER)
    assert world.prose(*words) == 2
    assert "[E362]" in world.err


def test_a_function_gives_all_its_outputs(world: ContractWorld) -> None:
    world.write(f=function("f", parameters("`retry`"), returns("`x`", "`y`"), script("return { x: 1 }")),
                g=function("g", returns("`x`"), script("call f", '  retry: 3')))  # fmt: skip
    assert world.codes("f.prose.md") == ["E318"]
    world.write(f=function("f", parameters("`retry`"), returns("`x`")))
    assert world.codes("g.prose.md") == ["W313", "E317"]
    world.write(f=function("f", returns("`x`", "`y`"), script("return { x: 1, y: 2, z: 3 }")))
    assert world.codes("f.prose.md") == ["W315"]


def test_hints_for_kinds_that_are_not_run_quote_the_name(world: ContractWorld) -> None:
    world.write(**{"a x": "---\nname: g\nkind: gateway\n---\n### Continuity: external-driven\n"})
    assert world.prose("run", "a x.prose.md") == 2
    assert "prose run 'a x.prose.md' --input " in world.err


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("---\nname: p\nkind: pattern\n---\n### Slots\n- `a`\n" + script("return 1", title="Delegation"), "E360"),
        ("---\nname: t\nkind: test\nsubject: ./drafter.prose.md\n---\n### Expects\n- `draft`: is good\n", "E360"),
        ("---\nname: g\nkind: gateway\n---\n### Continuity: external-driven\n", "E361"),
        ("---\nname: s\nkind: service\n---\n", "E301"),
        ("kind: function\n", "E302"),
    ],
)
def test_kinds_that_are_not_run(world: ContractWorld, text: str, code: str) -> None:
    world.write(drafter=DRAFTER, x=text)
    assert world.prose("run", "x.prose.md") == 2
    assert f"[{code}]" in world.err
    assert not Path(".prose").exists()
