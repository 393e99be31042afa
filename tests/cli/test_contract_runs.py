"""Running contract files: sessions, scripts, calls, instances, promises (prose-md.md 2, 4, 5, 6, 8)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from cli.contract_world import ContractWorld, function, parameters, returns, script

DRAFTER = function("drafter", parameters("`topic`: what"), returns("`draft`: the draft"))
PATTERN = """## maker

### Slots
- `worker`
- `critics`

### Config
- rounds (integer, default: 3): how often

### Delegation

```prose
let w = call worker
  topic: task
let all = parallel for c in critics:
  call c
    topic: w
return { w: w, all: all, n: rounds, who: worker, style: style }
```
"""


def run_directory() -> Path:
    (directory,) = Path(".prose/runs").iterdir()
    return directory


# ---------------------------------------------------------------- one session


def test_the_task_of_a_session_is_the_nodes_own_text(world: ContractWorld) -> None:
    text = function("f", "# F\n", parameters("`a`: x", "`b` (optional): y"), returns("`x`"), "### Notes\n\n{a}")
    world.write(f=text + "\n## other\n\nThis is not sent.\n")
    task = (
        "/^Render the function f.\n\n"
        + text.partition("---\n\n")[2].strip().replace("(", r"\(").replace(")", r"\)")
        + "$/"
    )
    found = world.run("f.prose.md", "--input", "a=1", answers={task: "done"})
    assert (world.status, found["outputs"]) == (0, {"x": "done"})


def test_the_memory_of_a_node_stays_in_its_directory(world: ContractWorld) -> None:
    text = function("../../../out", returns("`x`"), "### Runtime\n\n- `persist`: true\n")
    world.write(f=text)
    assert world.run("f.prose.md", answers={"*": "done"})["outputs"] == {"x": "done"}
    made = [path.relative_to(run_directory()).as_posix() for path in Path(".prose").rglob("*out*")]
    assert sorted(made) == ["agents/__.._.._out", "agents/__.._.._out/__.._.._out-001.md"]


def test_cells_with_magics_are_not_sent(world: ContractWorld) -> None:
    cell = "```prose-notebook\n%call f a=1\n```\n\n"
    world.write(f=function("f", cell + "Say hello.\n", cell + "Say it twice.\n", cell))
    task = "/^Render the function f.\n\nSay hello.\n\nSay it twice.$/"
    assert world.run("f.prose.md", answers={task: "done"})["outputs"] == {"result": "done"}


@pytest.mark.parametrize(
    ("items", "answer", "outputs"),
    [
        ([], "hello", {"result": "hello"}),
        (["`x`: text"], "hello", {"x": "hello"}),
        (["`x`: boolean, whether"], '{"x": true}', {"x": True}),
        (["`x`", "`y`: integer (optional)"], '{"x": "a", "y": null}', {"x": "a", "y": None}),
        (["`x`", "`y`: number", "`x.title`: a field"], '{"x": "a", "y": 1.5}', {"x": "a", "y": 1.5}),
    ],
)
def test_answers_are_typed_by_the_bullets(
    world: ContractWorld, items: list[str], answer: str, outputs: dict[str, Any]
) -> None:
    world.write(f=function("f", returns(*items) if items else "Say hello."))
    assert world.run("f.prose.md", answers={"*": answer})["outputs"] == outputs


def test_an_answer_that_lacks_a_bullet_is_a_failed_session(world: ContractWorld) -> None:
    world.write(f=function("f", returns("`x`", "`y`")))
    found = world.run("f.prose.md", answers={"*": '{"x": "a"}'})
    assert (world.status, found["error"]["code"]) == (1, "E201")


@pytest.mark.parametrize(
    "reply", ["# Error: no-luck\n\nnothing\nfound", '{"error": "no-luck", "message": "nothing found", "tried": 3}']
)
def test_declared_errors_are_raised(world: ContractWorld, reply: str) -> None:
    world.write(
        f=function("f", returns("`x`"), "### Errors\n\n- `no-luck`: when there is none\n"),
        g=function("g", returns("`y`"), script("try:", "  let x = call f", "catch as e:", "  return [e.name, e.message]", "return 1")),
    )  # fmt: skip
    found = world.run("f.prose.md", answers={"*": reply})
    assert (found["error"]["type"], found["error"]["message"], found["error"]["name"]) == ("ThrowError", "nothing found", "no-luck")  # fmt: skip
    assert world.run("g.prose.md", answers={"*": reply})["outputs"] == {"y": ["no-luck", "nothing found"]}
    other = world.run("f.prose.md", answers={"*": "# Error: other\n\nwords"})
    assert other["outputs"] == {"x": "# Error: other\n\nwords"}


def test_inputs_have_defaults_and_are_asked_for(world: ContractWorld) -> None:
    world.write(f=function("f", parameters("`a`", "`n` (default 3)", "`o` (optional)"), returns("`x`"), script("return [a, n, o]")))  # fmt: skip
    assert world.run("f.prose.md", "--input", "a=1")["outputs"] == {"x": ["1", 3, None]}
    assert world.run("f.prose.md")["error"]["code"] == "E212"
    assert world.status == 3
    world.run("f.prose.md", "--input", "b=1")
    assert world.status == 2


# ---------------------------------------------------------------- scripts


@pytest.mark.parametrize(
    ("outputs", "returned", "found"),
    [
        (["`x`"], "return 1", {"x": 1}),
        (["`x`"], "return { x: 1 }", {"x": 1}),
        (["`x`", "`y`"], "return { y: 2, x: 1, z: 3 }", {"x": 1, "y": 2}),
        (["`x`", "`y` (optional)"], "return { x: 1 }", {"x": 1, "y": None}),
        ([], "return { a: 1 }", {"result": {"a": 1}}),
    ],
)
def test_results_of_a_script(world: ContractWorld, outputs: list[str], returned: str, found: dict[str, Any]) -> None:
    world.write(f=function("f", returns(*outputs) if outputs else "", script("let v = 1", returned)))
    result = world.run("f.prose.md")
    assert (world.status, result["outputs"]) == (0, found)
    assert result["bindings"]["v"] == 1


def test_a_result_that_lacks_an_output(world: ContractWorld) -> None:
    world.write(f=function("f", returns("`x`", "`y`"), script("let v = { x: 1 }", "return v")))
    assert world.run("f.prose.md")["error"]["code"] == "E230"
    assert world.status == 1


def test_calls_have_their_own_directories(world: ContractWorld) -> None:
    world.write(
        drafter=DRAFTER,
        lib__index=function("lib", parameters("`topic`"), returns("`y`"), script("return call inner", "  topic: topic"), "## inner\n", parameters("`topic`"), returns("`z`")),
        f=function("f", parameters("`topic`"), returns("`x`"), script("let a = call drafter", "  topic: topic", "let b = call lib", "  topic: a", "return [a, b]")),
    )  # fmt: skip
    answers = {"/^Render the function drafter/": "a draft", "/^Render the function inner/": "inside"}
    assert world.run("f.prose.md", "--input", "topic=tea", answers=answers)["outputs"] == {"x": ["a draft", "inside"]}
    directory = run_directory()
    assert directory.joinpath("root.prose.md").read_text() == Path("f.prose.md").read_text()
    assert sorted(path.name for path in directory.joinpath("sources").iterdir()) == [
        "drafter.prose.md",
        "index.prose.md",
    ]
    assert directory.joinpath("imports/local--drafter/bindings/topic.md").is_file()
    assert directory.joinpath("imports/local--lib/imports/inline--inner/bindings").is_dir()
    assert not directory.joinpath("program.prose").exists()


def test_modifiers_of_a_call(world: ContractWorld) -> None:
    world.write(
        drafter=DRAFTER,
        f=function("f", returns("`x`"), script("let more = { note: 7 }", "return call drafter", '  topic: "t"', '  prompt: "Be brief."', "  context: more", "  retry: 1")),
    )  # fmt: skip
    found = world.run("f.prose.md", answers={"/Be brief.$/": [{"error": "busy"}, "short"]})  # type: ignore[dict-item]
    assert found["outputs"] == {"x": "short"}


def test_helpers_are_sessions_with_their_line(world: ContractWorld) -> None:
    shape = "### Shape\n\n- `delegates`:\n  - `counter`: count the words\n"
    world.write(f=function("f", shape, returns("`x`"), script("return call counter", '  text: "a b"')))
    assert world.run("f.prose.md", answers={"/^`counter`: count the words$/": "2"})["outputs"] == {"x": "2"}


def test_recursion_is_bounded(world: ContractWorld) -> None:
    world.write(f=function("f", returns("`x`"), script("return call f")))
    found = world.run("f.prose.md")
    assert (found["error"]["code"], found["error"]["type"]) == ("E206", "RecursionLimitExceeded")


def test_mutual_recursion_is_bounded_too(world: ContractWorld) -> None:
    world.write(
        a=function("a", returns("`x`"), script("return call b")),
        b=function("b", returns("`x`"), script("return call a")),
    )
    assert world.run("a.prose.md")["error"]["code"] == "E206"


def test_programs_and_contract_files_run_each_other(world: ContractWorld) -> None:
    world.put("tidy.prose", 'input text: "what"\noutput clean = text\n')
    world.write(
        f=function("f", parameters("`a`", "`b` (default 2)"), returns("`x`", "`y`"), script('use "./tidy.prose"', "let t = call tidy", "  text: a", "return { x: t.clean, y: b }")),
    )  # fmt: skip
    world.put("p.prose", 'use "./f.prose.md"\nlet d = f(a: "x")\noutput z = "{d.x} {d.y}"\n')
    assert world.run("f.prose.md", "--input", "a=1")["outputs"] == {"x": "1", "y": 2}
    assert world.run("p.prose")["outputs"] == {"z": "x 2"}


# ---------------------------------------------------------------- instances


def test_an_instance_runs_its_pattern(world: ContractWorld) -> None:
    declared = "### Patterns\n\n```yaml\n- name: made\n  pattern: maker\n  with: { worker: drafter, critics: [short, drafter] }\n```\n"  # fmt: skip
    called = script("return call made", '  task: "t"', "  rounds: 5")
    world.write(
        drafter=DRAFTER,
        f=function("f", declared, returns("`x`"), called, PATTERN, "## short\n", parameters("`topic`"), returns("`y`")),
    )
    answers = {"/^Render the function drafter/": "long", "/^Render the function short/": "s"}
    found = world.run("f.prose.md", answers=answers)["outputs"]["x"]
    assert found == {"w": "long", "all": ["s", "long"], "n": 5, "who": "drafter", "style": None}
    assert run_directory().joinpath("imports/inline--made/imports/local--drafter").is_dir()


def test_instances_inside_each_other(world: ContractWorld) -> None:
    echo = "## echo\n\n### Slots\n- `one`\n\n" + script(
        "let v = call one", "  topic: topic", 'return "({v})"', title="Delegation"
    )
    declared = "### Patterns\n\n```yaml\n- name: made\n  pattern: echo\n  with: { one: { pattern: again, with: { one: drafter } } }\n```\n"
    world.write(
        drafter=DRAFTER,
        f=function("f", declared, returns("`x`"), script("return call made", '  topic: "t"'), echo, echo.replace("## echo", "## again")),
    )  # fmt: skip
    assert world.run("f.prose.md", answers={"*": "d"})["outputs"] == {"x": "((d))"}


# ---------------------------------------------------------------- responsibilities, gateways

RESPONSIBILITY = """---
name: risk
kind: responsibility
id: 01ARZ3NDEKTSV4RRFFQ69G5FAV
---
### Requires
- `accounts`: those that count
- news of the market

### Maintains
#### `level`
#### `notes`
"""


def test_a_responsibility_renders_once(world: ContractWorld) -> None:
    world.write(r=RESPONSIBILITY + "\n## collector\n\n### Returns\n- `accounts`: x\n")
    found = world.run("r.prose.md", "--input", "accounts=3", answers={"*": '{"level": "high", "notes": "n"}'})
    assert found["outputs"] == {"level": "high", "notes": "n"}
    assert "one render" in world.err
    assert "line 8" in world.err
    assert world.run("r.prose.md")["error"]["code"] == "E212"
    assert "r.prose.md#collector" in world.err


def test_a_responsibility_gets_its_prior_truth(world: ContractWorld) -> None:
    world.write(r=RESPONSIBILITY + "\n" + script("return { level: accounts, notes: [level, notes] }"))
    found = world.run("r.prose.md", "--input", "accounts=3", "--prior", "level=low")
    assert found["outputs"] == {"level": "3", "notes": ["low", None]}


@pytest.mark.parametrize("read", ["level.part", '"see {level.part}"'])
def test_a_field_of_a_prior_truth_that_was_not_given(world: ContractWorld, read: str) -> None:
    world.write(r=RESPONSIBILITY + "\n" + script(f"let before = {read}", "return { level: accounts, notes: before }"))
    error = world.run("r.prose.md", "--input", "accounts=3")["error"]
    assert (error["code"], error["message"]) == ("E209", "null has no field 'part'")
    assert "--prior level=" in error["hint"]
    found = world.run("r.prose.md", "--input", "accounts=3", "--prior", 'level={"part": "low"}')
    assert "low" in found["outputs"]["notes"]


def test_a_dry_run_of_a_script_that_ends_with_the_answer_of_a_session(world: ContractWorld) -> None:
    world.write(
        two=function("two", returns("`a`", "`b`"), script('return session "Give a and b."')),
        caller=function("caller", returns("`x`"), script("let { b } = call two", 'return "{b} and more"')),
    )
    for name, ends in (("two", "b: ⟦dry-run c1/1/s0⟧"), ("caller", "⟧ and more")):
        assert world.prose("run", f"{name}.prose.md", "--provider", "dry-run") == 0, world.err
        assert world.out.rstrip().endswith(ends)
    assert world.run("two.prose.md", answers={"*": "not an object"})["error"]["code"] == "E230"


def test_an_error_of_a_called_node_has_its_own_line(world: ContractWorld) -> None:
    inner = "## deep\n### Returns\n- `x`\n" + script("let nothing = null", "return nothing.field")
    world.write(
        outer=function("outer", returns("`x`"), script("let a = call near", "return a")),
        near=function("near", returns("`x`"), script("let b = call deep", "return b"), inner),
    )
    error = world.run("outer.prose.md")["error"]
    assert (error["source"], error["line"]) == ("outer.prose.md", 13)
    assert error["call_stack"] == [
        "in program deep at line 24 of near.prose.md, called at line 13 of near.prose.md",
        "in program near, called at line 13 of outer.prose.md",
    ]
    assert f"\n  {error['call_stack'][0]}\n" in world.err


def test_a_gateway_renders_an_event(world: ContractWorld) -> None:
    world.write(g="---\nname: g\nkind: gateway\n---\n### Continuity: external-driven\n\n### Maintains\n- `last`: x\n")
    assert world.run("g.prose.md", "--input", "event=ping", answers={"*": "seen"})["outputs"] == {"last": "seen"}


# ---------------------------------------------------------------- the machine, promises


def test_missing_tools_and_variables_are_errors(world: ContractWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_VARIABLE", raising=False)
    world.write(
        tool=function("tool", returns("`x`"), "### Tools\n- `cli:no-such-tool-here`\n", script("return 1")),
        env=function("env", returns("`x`"), "### Environment\n- NO_SUCH_VARIABLE: a key\n- OTHER_VARIABLE: (optional) x\n", script("return 1")),
    )  # fmt: skip
    for name, code in (("tool", "E233"), ("env", "E234")):
        assert world.prose("run", f"{name}.prose.md", "--provider", "human") == 1
        assert f"[{code}]" in world.err
        assert world.run(f"{name}.prose.md")["outputs"] == {"x": 1}
    monkeypatch.setitem(os.environ, "NO_SUCH_VARIABLE", "secret-value")
    assert world.prose("run", "env.prose.md", "--provider", "human") == 0
    assert "secret-value" not in world.out + world.err


@pytest.mark.parametrize(
    ("section", "value", "mode", "status"),
    [
        ("### Returns\n- `x`: is not empty\n", '""', "rules", 1),
        ("### Returns\n- `x`: is not empty\n", '""', "off", 0),
        ("### Returns\n- `x`: is not empty\n", '"a"', "rules", 0),
        ("### Returns\n- `x`: is a good poem\n", '"a"', "rules", 0),
        ("### Returns\n- `x`: is a good poem\n", '"a"', "judge", 1),
        ("### Returns\n- `x`: if it rains: is not empty\n", '""', "rules", 0),
        ("### Returns\n- `x`\n\n### Invariants\n- x is not empty\n", '""', "rules", 0),
    ],
)
def test_promises_are_checked(world: ContractWorld, section: str, value: str, mode: str, status: int) -> None:
    world.put("prose.toml", f'contracts = "{mode}"\n')
    world.write(f=function("f", section, script(f"return {value}")))
    world.put("judge.yaml", 'judge:\n  "x is a good poem": "no"\n')
    found = world.prose("run", "f.prose.md", "--provider", "scripted", "--script", "judge.yaml")
    assert found == status
    broken = status == 1 or "Invariants" in section
    assert ("[E231]" in world.err) == broken


# ---------------------------------------------------------------- resume


def test_a_failed_run_is_resumed_with_the_files_that_it_read(world: ContractWorld) -> None:
    world.write(
        drafter=DRAFTER,
        f=function("f", returns("`x`"), script("let a = call drafter", '  topic: "t"', "let b = call other", "return [a, b]"), "## other\n", returns("`z`")),
    )  # fmt: skip
    world.run("f.prose.md", answers={"/^Render the function drafter/": "first"})
    assert world.status == 3
    Path("drafter.prose.md").unlink()
    world.put("answers.yaml", '{"sessions": {"/^Render the function other/": "second"}}')
    status = world.prose("run", "--resume", "--provider", "scripted", "--script", "answers.yaml", "--format", "json")
    assert (status, '"x": ["first", "second"]' in world.out) == (0, True)


def test_a_program_resumes_in_the_middle_of_a_call_of_a_file_that_was_edited(world: ContractWorld) -> None:
    steps = ['exec "echo a >> ran"', 'let d = session "Go on"', "return d"]
    world.write(made=function("made", returns("`x`"), script(*steps)))
    world.put("p.prose", "let d = call made\noutput x = d\n")
    world.run("p.prose", "--profile", "prosescript")
    assert world.status == 3
    world.write(made=function("made", returns("`x`"), script('exec "echo b >> ran"', "return 2")))
    world.put("answers.yaml", '{"sessions": {"Go on": "there"}}')
    assert world.prose("run", "--resume", "--provider", "scripted", "--script", "answers.yaml") == 0
    assert (world.out, Path("ran").read_text()) == ("x: there\n", "a\n")


# ---------------------------------------------------------------- runs as inputs


def test_a_completed_run_is_an_input(world: ContractWorld) -> None:
    world.write(
        made=function("made", returns("`x`"), script("return 1")),
        look=function("look", parameters("`before`: run - the one to look at"), returns("`y`"), script("return before")),
        both=function("both", parameters("`old`: run[]"), returns("`y`"), script("return old.length")),
    )  # fmt: skip
    run = world.run("made.prose.md")["run_id"]
    value = {"run": run, "path": f".prose/runs/{run}", "root": "made.prose.md", "status": "completed"}
    assert world.run("look.prose.md", "--input", f"before={run}")["outputs"] == {"y": value}
    assert world.run("look.prose.md", "--input", f"before=.prose/runs/{run}")["outputs"] == {"y": value}
    assert world.run("both.prose.md", "--input", f"old={run}, {run}")["outputs"] == {"y": 2}
    world.put("made.prose.md", function("made", returns("`x`"), script("return 2")))
    world.run("look.prose.md", "--input", f"before={run}")
    assert "has changed" in world.err
    world.run("look.prose.md", "--input", "before=20200101-000000-abcdef")
    assert (world.status, "[E232]" in world.err) == (2, True)


def test_an_evaluation_takes_a_function(world: ContractWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write(
        drafter=DRAFTER,
        f=function("f", parameters("`topic`"), returns("`x`"), script("return call drafter", "  topic: topic")),
    )
    world.put(
        "f.eval.toml", 'program = "f.prose.md"\ndataset = "cases.jsonl"\n[[assert]]\nexpression = "x == expected"\n'
    )
    world.put("cases.jsonl", '{"topic": "tea", "expected": "d"}\n{"topic": "pie", "expected": "e"}\n')
    world.put("answers.yaml", '{"sessions": {"*": "d"}}')
    monkeypatch.setenv("PROSE_PROVIDER", "scripted")
    monkeypatch.setenv("PROSE_SCRIPT", "answers.yaml")
    assert world.prose("eval", "--fresh", "f.eval.toml") == 0
    assert "50 %" in world.out


def test_programs_in_prosescript_call_the_files_next_to_them(world: ContractWorld) -> None:
    world.write(drafter=DRAFTER, bad=function("bad", returns("`x`"), script("return nothing")))
    world.put("p.prose", 'let d = call drafter\n  topic: "tea"\noutput x = d\n')
    assert world.run("p.prose", "--profile", "prosescript", answers={"*": "a draft"})["outputs"] == {"x": "a draft"}
    world.put("p.prose", "let d = call draftr\n")
    assert world.prose("run", "--profile", "prosescript", "p.prose") == 2
    assert "[E313]" in world.err
    world.put("p.prose", "let d = call bad\n")
    assert world.run("p.prose", "--profile", "prosescript")["error"]["code"] == "E215"


def test_an_inline_node_runs_and_is_resumed_from_another_directory(world: ContractWorld) -> None:
    world.put("lib/drafter.prose.md", DRAFTER)
    inner = "## inner\n\n" + parameters("`t`") + returns("`y`") + script("return call drafter", "  topic: t")
    world.put("lib/f.prose.md", function("f", returns("`x`"), inner))
    world.run("lib/f.prose.md#inner", "--input", "t=tea")
    assert world.status == 3
    world.put("answers.yaml", '{"sessions": {"*": "a draft"}}')
    assert world.prose("run", "--resume", "--provider", "scripted", "--script", "answers.yaml") == 0
    assert "y: a draft" in world.out
    assert world.run("lib/f.prose.md#inner", "--input", "t=tea", answers={"*": "d"})["outputs"] == {"y": "d"}


def test_a_budget_of_money_counts_the_models_of_what_is_called(world: ContractWorld) -> None:
    world.put(
        "prose.toml",
        'provider = "gateway"\n[providers.gateway]\nkind = "openai"\nbase_url = "http://127.0.0.1:9/v1"\nkey = ""\n'
        'model = "base"\n[models.gateway.base]\nmodel = "base"\nprice = { input = 1.0, output = 2.0 }\n',
    )
    body = 'exec "touch ran"\nreturn call inner\n{more}'
    own = function("outer", returns("`t`"), script(*body.format(more="").splitlines()))
    given = function("giving", returns("`t`"), script(*body.format(more="  model: costly\n").splitlines()))
    asks = function("asking", returns("`t`"), script('return session "x"', "  model: costly"))
    through = function("through", returns("`t`"), script('exec "touch ran"', "return call asking"))
    world.write(outer=own, giving=given, asking=asks, through=through)
    world.write(inner=function("inner", returns("`t`"), "### Runtime\n\n- `model`: costly\n"))
    for name in ("outer", "giving", "through"):
        assert world.prose("run", f"{name}.prose.md", "--budget", "1 usd") == 2
        assert "costly" in world.err
    world.write(inner=function("inner", returns("`t`"), "### Runtime\n\n- `model`: base\n"))
    assert not Path("ran").exists()
    world.prose("run", "outer.prose.md", "--budget", "1 usd")
    assert Path("ran").exists()


LIB = 'let a = call notes\n  topic: "tea"\noutput r = a\n'


def test_contracts_that_an_imported_script_calls_are_journaled(world: ContractWorld) -> None:
    world.write(notes=function("notes", parameters("`topic`"), returns("`text`")))
    world.put("lib.prose", LIB)
    world.put("main.prose", 'use "./lib.prose" as lib\nlet x = call lib\nexec "test -e go"\noutput y = x.r\n')
    world.run("main.prose", "--profile", "prosescript", answers={"Render": "about tea"})
    assert world.status == 1
    (run,) = Path(".prose/runs").iterdir()
    world.put("go", "")
    world.write(notes=function("notes", parameters("`other`"), returns("`text`")))
    world.put("answers.yaml", "{}")  # no request is made again
    assert world.prose("run", "--resume", run.name, "--provider", "scripted", "--script", "answers.yaml") == 0
    assert "about tea" in world.out


def test_an_imported_script_that_calls_its_caller_is_a_cycle(world: ContractWorld) -> None:
    world.put("lib.prose", LIB)
    world.write(notes=function("notes", parameters("`topic`"), returns("`text`"), script('return call "./lib.prose"')))
    world.put("main.prose", 'use "./lib.prose" as lib\nlet x = call lib\noutput y = x.r\n')
    assert world.prose("run", "main.prose", "--profile", "prosescript") == 2
    assert "Import cycle: lib.prose -> lib.prose" in world.err
