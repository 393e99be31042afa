"""`prose test` for contract files of kind `test` (prose-md.md 7)."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from xml.etree import ElementTree

import forked
import pytest
import waiting
from cli.contract_world import ContractWorld, function, parameters, returns, script

ECHO = function("echo", parameters("`word`: w", "`more` (optional): m"), returns("`said`: the word", "`size`: integer"))
HEAD = "---\nname: echo-test\nkind: test\nsubject: {}\n---\n"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> ContractWorld:
    monkeypatch.setenv("PROSE_PROVIDER", "scripted")
    monkeypatch.setenv("PROSE_SCRIPT", str(tmp_path / "answers.yaml"))
    made = ContractWorld(tmp_path, capsys)
    made.write(echo=ECHO)
    answer = '{"said": "hello world", "size": 11}'
    made.put("answers.yaml", json.dumps({"sessions": {"*": answer}, "judge": {"said is kind": "yes", "said is rude": "no", "said is odd": "uncertain"}}))  # fmt: skip
    return made


def write_test(world: ContractWorld, *sections: str, subject: str = "echo", name: str = "t") -> None:
    world.put(f"{name}.prose.md", HEAD.format(subject) + "\n".join(sections) + "\n")


FIXTURE = "### Fixtures\n- `word`: hello\n"


def test_assertions_that_hold_pass(world: ContractWorld) -> None:
    write_test(
        world, FIXTURE, "### Expects", "- `said`: contains `hello`", "- said: is kind", "- `size` is 11",
        "- path: said\n  predicate: is kind", "- `__error.md` does not exist", "",
        "### Expects Not", "- `said`: is rude", "- `said`: is empty", "- `__error.md` exists",
    )  # fmt: skip
    assert world.prose("test", "t.prose.md") == 0
    assert world.out.splitlines()[:10] == [
        "t.prose.md",
        "✓ said: contains `hello`",
        "✓ said: is kind",
        "✓ size: is 11",
        "✓ said: is kind",
        "✓ __error.md: does not exist",
        "✓ not said: is rude",
        "✓ not said: is empty",
        "✓ not __error.md: exists",
        "---test PASS",
    ]


def test_failed_assertions_are_reported(world: ContractWorld) -> None:
    write_test(world, FIXTURE, "### Expects", "- `said`: contains `bye`", "- `said`: is odd", "- `size` is 11")
    assert world.prose("test", "t.prose.md", "--junit-xml", "j.xml") == 1
    assert "✗ said: contains `bye` (said is hello world)" in world.out
    assert "✗ said: is odd (uncertain; said is hello world)" in world.out
    assert "---test FAIL (1/3 assertions)" in world.out
    (case,) = ElementTree.parse("j.xml").iter("testcase")
    assert "line 10" in (case.find("failure").text or "")  # type: ignore[union-attr]


def test_a_condition_that_cannot_be_judged_is_an_error(world: ContractWorld) -> None:
    write_test(world, FIXTURE, "### Expects", "- the moon is out")
    assert world.prose("test", "t.prose.md") == 3
    assert "✗ the moon is out (it could not be judged" in world.out


def test_a_subject_that_exceeds_the_timeout_fails_its_test(world: ContractWorld) -> None:
    world.write(slow=function("slow", "", returns("`d`"), script('let a = exec "sleep 100"', "return 1")))
    write_test(world, "### Expects", "- `__error.md` exists", subject="slow")
    assert world.prose("test", "t.prose.md", "--timeout", "0.3", "--junit-xml", "j.xml") == 1
    (case,) = ElementTree.parse("j.xml").iter("testcase")
    assert "0.3 s" in (case.find("failure").text or "")  # type: ignore[union-attr]
    assert "---test FAIL (0/1 assertions)" in world.out


def test_cases_run_separately(world: ContractWorld) -> None:
    world.write(double=function("double", parameters("`n`"), returns("`d`"), script("return n + n")))
    cases = "### Fixtures\n- fixture: small\n  n: 1\n  expected_result: d is 11\n- fixture: big\n  n: 20\n- fixture: none\n  note: x\n"
    write_test(world, cases, "### Expects", "- `d`: is not empty", subject="double")
    assert world.codes("t.prose.md") == ["W351"]
    assert world.prose("test", "t.prose.md") == 0
    assert world.out.count("---test PASS") == 2
    assert "✓ d is 11" in world.out
    assert "2 passed, 1 skipped" in world.out


@pytest.mark.parametrize(
    ("fixture", "value"),
    [
        ("- `v`: two\n  lines", "two lines"),
        ("- `v`: |\n    kept\n      as it is", "kept\n  as it is"),
        ('- `v`: "quoted"', "quoted"),
        ("- v: [1, 2]", [1, 2]),
        ("- `v`: `in code`", "in code"),
        ("- `v`: {not json}", "{not json}"),
    ],
)
def test_fixtures_may_have_several_forms(world: ContractWorld, fixture: str, value: object) -> None:
    world.write(same=function("same", parameters("`v`"), returns("`w`"), script("if v == expected:", "  return 1", "return v"))
                .replace("expected", json.dumps(value)))  # fmt: skip
    write_test(world, "### Fixtures", fixture, "### Expects", "- `w` is 1", subject="same")
    assert world.prose("test", "t.prose.md") == 0, world.out


def test_an_error_of_the_subject_may_be_expected(world: ContractWorld) -> None:
    world.write(bad=function("bad", returns("`x`"), "### Errors\n- `nope`: always\n", script('throw "nope"')))
    write_test(world, "### Expects", "- `__error.md` exists", subject="bad")
    assert world.prose("test", "t.prose.md") == 0
    write_test(world, "### Expects", "- `__error.md` exists", "- `x`: is empty", subject="bad")
    assert world.prose("test", "t.prose.md") == 1
    assert "the subject failed: nope" in world.out


def test_an_interrupted_test_is_reported_and_the_last_one(world: ContractWorld) -> None:
    body = script('exec "echo > begun; sleep 600"', 'return "a"')
    world.write(slow=function("slow", parameters("`n`: n"), returns("`x`"), body))
    cases = "### Fixtures\n- fixture: one\n  n: 1\n- fixture: two\n  n: 2\n"
    write_test(world, cases, "### Expects", "- `x`: contains `a`", subject="slow")
    with forked.Command("test", "t.prose.md", cwd=Path.cwd()) as running:
        waiting.until(Path("begun").exists)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130, (out, err)
    assert "t.prose.md, one\n✗ x: contains `a` (the subject failed: it was interrupted)" in out
    assert "two" not in out


@pytest.mark.parametrize(
    ("subject", "sections", "code"),
    [
        ("nothing", [FIXTURE, "### Expects\n- x y"], "E351"),
        ("./nothing.prose.md", [FIXTURE, "### Expects\n- x y"], "E351"),
        ("pat", [FIXTURE, "### Expects\n- x y"], "E352"),
        ("broken", ["### Expects\n- x y"], "E215"),
        ("echo", ["### Fixtures\n- wrd: x\n- word: y\n", "### Expects\n- x y"], "E027"),
        ("echo", ["### Expects\n- x y"], "W352"),
        ("echo", [FIXTURE, "### Expects\n- `sad`: is it"], "W350"),
    ],
)
def test_tests_have_static_findings(world: ContractWorld, subject: str, sections: list[str], code: str) -> None:
    world.write(
        pat="---\nname: pat\nkind: pattern\n---\n### Slots\n- `a`\n" + script("return 1", title="Delegation"),
        broken=function("broken", returns("`x`"), script("return nothing")),
    )
    write_test(world, *sections, subject=subject)
    assert world.codes("t.prose.md") == [code]
    if code.startswith("E"):
        assert world.prose("test", "t.prose.md") == 2
    assert world.codes("t.prose.md", "--strict") == ["E026" if code == "W352" else code]


def test_a_subject_is_found_in_directories_above(world: ContractWorld) -> None:
    world.put(".git/HEAD", "")
    world.put("src/deep/down.prose.md", function("down", returns("`x`"), script("return 1")))
    world.put("tests/t.prose.md", HEAD.format("down") + "### Expects\n- `x` is 1\n")
    assert world.prose("test", "tests/t.prose.md") == 0


def test_a_directory_runs_its_tests(world: ContractWorld) -> None:
    write_test(world, FIXTURE, "### Expects", "- `size` is 11", name="suite/a", subject="../echo.prose.md")
    write_test(world, FIXTURE, "### Expects", "- `size` is 11", name="suite/inner/b", subject="../../echo.prose.md")
    assert world.prose("test", "suite") == 0
    assert (world.out.count("PASS"), world.prose("test", "--recursive", "suite")) == (1, 0)
    assert world.out.count("PASS") == 2


def test_a_file_that_is_too_large_is_named_as_typed(world: ContractWorld, tmp_path: Path) -> None:
    write_test(world, FIXTURE, name="suite/large")
    with (tmp_path / "suite/large.prose.md").open("r+b") as file:
        file.truncate(300 * 1024**2)
    assert world.prose("test", "suite/large.prose.md") == 2
    assert world.out.startswith("cannot read suite/large.prose.md: it is larger than")
