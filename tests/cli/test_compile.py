"""`prose compile`, `prose fmt` and `prose check`: output and exit status."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from prose_kernel.cli import program_files
from prose_kernel.cli.main import main
from prose_kernel.language.source import Source
from prose_kernel.runs import languages

GOOD = 'let x = "a"\noutput y = x\n'
BAD = "let r = session: writr\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.prose").write_text(GOOD)
    Path("bad.prose").write_text(BAD)


def objects(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def test_one_object_for_each_file_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "--format", "json", "bad.prose", "good.prose"]) == 1
    seen = capsys.readouterr()
    bad, good = objects(seen.out)
    assert seen.err == ""
    contract = {"inputs": {}, "outputs": ["y"]}
    assert good == {"file": "good.prose", "language": "openprose", "ok": True, "contract": contract, "diagnostics": []}
    assert "contract" not in bad
    assert (bad["file"], bad["ok"]) == ("bad.prose", False)
    (found,) = bad["diagnostics"]  # type: ignore[misc]
    assert {k: found[k] for k in ("code", "severity", "line", "column")} == {
        "code": "E007",
        "severity": "error",
        "line": 1,
        "column": 18,
    }
    assert found["message"]


def test_warnings_are_not_errors(capsys: pytest.CaptureFixture[str]) -> None:
    Path("w.prose").write_text('session ""\n')
    assert main(["compile", "--format", "json", "w.prose"]) == 0
    (seen,) = objects(capsys.readouterr().out)
    assert seen["ok"] is True
    assert [d["severity"] for d in seen["diagnostics"]] == ["warning"]  # type: ignore[attr-defined]


def test_the_canonical_form_goes_to_stdout_findings_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    Path("c.prose").write_text('# a comment\nlet   x = "a"   # more\n\noutput y = x\n')
    assert main(["compile", "c.prose"]) == 0
    assert capsys.readouterr().out == GOOD
    assert main(["compile", "bad.prose"]) == 1
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.startswith("Error at line 1, column 18: ")


@pytest.mark.parametrize("name", ["missing.prose", ".", "/dev/null", "book.ipynb"])
def test_an_unreadable_file_is_a_usage_error_and_still_an_object(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "--format", "json", "good.prose", name]) == 2
    good, unread = objects(capsys.readouterr().out)
    assert good["ok"] is True
    assert (unread["file"], unread["ok"]) == (name, False)
    assert unread["diagnostics"]
    assert main(["compile", name]) == 2
    message = capsys.readouterr().err
    assert message.startswith("Error: ")
    assert not re.search(r": [A-Z]", message.removeprefix("Error: "))


def test_only_an_existing_notebook_has_a_hint_with_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("book.ipynb").write_text("{}")
    for name, is_there in (("book.ipynb", True), ("missing.ipynb", False)):
        assert main(["compile", name]) == 2
        assert (f"prose run {name}" in capsys.readouterr().err) is is_there


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b'let x = "\x80"\n', bytes(range(256)) * 40])
def test_bytes_that_are_not_text_are_a_diagnostic(data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    Path("b.prose").write_bytes(data)
    assert main(["compile", "--format", "json", "b.prose"]) == 1
    (seen,) = objects(capsys.readouterr().out)
    assert [d["code"] for d in seen["diagnostics"]] == ["E109"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "code"), [("p.prose", "E004"), ("p.vvm", "V001"), ("p.prose.md", "E004")])
@pytest.mark.parametrize("command", [["compile"], ["run"]])
def test_a_merge_conflict_is_one_error(
    name: str, code: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    conflict = "<<<<<<< HEAD\nlet b = x\n||||||| base\n=======\nlet b = 2\n>>>>>>> other\nlet b = \u201cc\u201d\n"
    head = "---\nname: p\nkind: function\n---\n### Returns\n- `y`: z\n### Execution\n```prose\n"
    Path(name).write_text(f"{head}{conflict}```\n" if name.endswith(".md") else conflict)
    assert main([*command, name]) == (2 if command == ["run"] else 1)
    found = "".join(capsys.readouterr())
    line = 9 if name.endswith(".md") else 1
    assert found.count(f"rror at line {line}, column 1") == found.count(" at line ") == 1
    assert f"this is a conflict marker of git [{code}]\n  <<<<<<< HEAD\n  ^\nhint: keep the lines" in found


@pytest.mark.parametrize("name", ["p.prose", "p.vvm"])
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a = """\n<<<<<<< HEAD\nb"""\n=======\nc"""\n>>>>>>> other\nd =\n', 4),
        ('<<<<<<< HEAD\na = """b\n=======\na = """c\n>>>>>>> other\nd"""\ne =\n', 1),
        ('a = """\nb\n<<<<<<< HEAD\n=======\nc"""\n>>>>>>> other\nd =\n', 6),
    ],
)
def test_a_merge_conflict_that_cuts_a_string_is_one_error(
    name: str, text: str, line: int, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_text(text)
    assert main(["compile", name]) == 1
    found = "".join(capsys.readouterr())
    assert found.count(" at line ") == found.count(f"at line {line}, column 1: this is a conflict marker of git") == 1


@pytest.mark.parametrize("name", ["p.prose", "p.vvm"])
@pytest.mark.parametrize("line", ["=======", "||||||| base"])
def test_a_line_below_a_heading_is_not_called_a_merge_conflict(
    name: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_text(f"Title\n{line}\nb =\n")
    assert main(["compile", name]) == 1
    found = "".join(capsys.readouterr())
    assert "conflict" not in found
    assert "at line 2, column 1: " in found
    assert "at line 3, column " in found


@pytest.mark.parametrize("name", ["p.prose", "p.vvm"])
@pytest.mark.parametrize("heading", [0, 1])
def test_a_conflict_in_a_string_is_not_one_of_the_program(
    name: str, heading: int, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = ['x = """\n<<<<<<< HEAD\n=======\n>>>>>>> other\n"""\n']
    parts.insert(heading, "Title\n=======\n")
    Path(name).write_text("".join(parts))
    assert main(["compile", name]) == 1
    assert "conflict" not in "".join(capsys.readouterr())


def test_a_program_can_come_from_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    read, write = os.pipe()
    os.write(write, GOOD.encode())
    os.close(write)
    assert main(["compile", f"/dev/fd/{read}"]) == 0
    os.close(read)
    assert capsys.readouterr().out == GOOD


def test_strict_refuses_undeclared_names() -> None:
    Path("s.prose").write_text('x = "undeclared"\n')
    assert main(["compile", "s.prose"]) == 0
    assert main(["compile", "--strict", "s.prose"]) == 1


def test_imports_are_relative_to_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("lib").mkdir()
    Path("lib/leaf.prose").write_text('output v = "leaf"\n')
    Path("lib/main.prose").write_text('use "./leaf.prose" as leaf\nlet r = leaf()\noutput v = r.nope\n')
    assert main(["compile", "--format", "json", "lib/main.prose"]) == 1
    (seen,) = objects(capsys.readouterr().out)
    assert [d["code"] for d in seen["diagnostics"]] == ["E028"]  # type: ignore[attr-defined]


# ---------------------------------------------------------------- fmt


def test_fmt_prints_and_checks(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ugly.prose").write_text('let  x="a"\noutput y=x\n')
    assert main(["fmt", "ugly.prose"]) == 0
    assert capsys.readouterr().out == GOOD
    assert main(["fmt", "--check", "good.prose"]) == 0
    assert main(["fmt", "--check", "good.prose", "ugly.prose"]) == 1
    assert capsys.readouterr().err == "ugly.prose is not in canonical form\n"


def test_fmt_write_replaces_but_never_loses_comments(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ugly.prose").write_text('let  x="a # b"\n')
    Path("ugly.prose").chmod(0o640)
    assert main(["fmt", "--write", "ugly.prose"]) == 0
    assert Path("ugly.prose").read_text() == 'let x = "a # b"\n'
    assert Path("ugly.prose").stat().st_mode & 0o777 == 0o640
    commented = 'let  x="a" # why\n'
    Path("commented.prose").write_text(commented)
    assert main(["fmt", "--write", "commented.prose"]) == 1
    assert Path("commented.prose").read_text() == commented
    assert "comments" in capsys.readouterr().err
    assert main(["fmt", "--write", "--drop-comments", "commented.prose"]) == 0
    assert Path("commented.prose").read_text() == 'let x = "a"\n'


def test_fmt_does_not_replace_a_file_that_was_changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compile_text = languages.compile_with_settings

    def compile_and_save(*arguments: Any, **options: Any) -> Any:
        Path("ugly.prose").write_text("let  x=2\n")
        return compile_text(*arguments, **options)

    Path("ugly.prose").write_text("let  x=1\n")
    monkeypatch.setattr(languages, "compile_with_settings", compile_and_save)
    assert main(["fmt", "--write", "ugly.prose"]) == 2
    assert "Error: ugly.prose was changed meanwhile; it is not rewritten\n" in capsys.readouterr().err
    assert Path("ugly.prose").read_text() == "let  x=2\n"


def test_fmt_of_vvm_keeps_comments() -> None:
    Path("notes.vvm").write_text("# notes\nx=[1, # one\n2]\n\nexport x #\u0020all\n")
    assert main(["fmt", "--write", "notes.vvm"]) == 0
    assert Path("notes.vvm").read_text() == "# notes\nx = [\n  1,  # one\n  2,\n]\n\nexport x  # all\n"
    assert main(["fmt", "--check", "notes.vvm"]) == 0


def test_fmt_of_a_broken_program_changes_nothing() -> None:
    assert main(["fmt", "--write", "bad.prose"]) == 1
    assert Path("bad.prose").read_text() == BAD
    assert main(["fmt", "--write", "missing.prose"]) == 2
    assert main(["fmt", "--write", "--check", "good.prose"]) == 2


# ---------------------------------------------------------------- check


def test_check_separates_rules_from_judgement(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.prose").write_text('let score = 1\nif **score >= 85**:\n  exec "true"\n')
    assert main(["check", "r.prose"]) == 0
    assert (
        capsys.readouterr().out == "rule  line 2: **score >= 85** (number)\n1 of 1 conditions can be decided by rules\n"
    )
    Path("j.prose").write_text('if **the article meets our standards**:\n  exec "true"\n')
    assert main(["check", "j.prose"]) == 1
    assert capsys.readouterr().out.startswith("ask   line 1: **the article meets our standards** (no rule reads it)\n")
    Path("w.prose").write_text(
        'let mode = "x"\nif **mode is query**:\n  exec "true"\n'
        'choice **the mode**:\n  option "a":\n    exec "true"\n  option "b":\n    exec "true"\n'
    )
    assert main(["check", "w.prose"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "ask   line 2: **mode is query** (a rule could only say yes to it)",
        "ask   line 4: **the mode** (a choice: a rule picks only what a binding it names is)",
        "0 of 2 conditions can be decided by rules",
    ]
    assert main(["check", "bad.prose"]) == 1


# ---------------------------------------------------------------- VVM


def test_a_vvm_program_is_reported_in_the_format_of_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    Path("team.vvm").write_text("agent lead()\nexport @lead\nunread = 1\n")
    Path("main.vvm").write_text('from "./team.vvm" import @lead\nx = @lead `hi`()\nexport x\n')
    assert main(["compile", "main.vvm"]) == 0
    seen = capsys.readouterr()
    assert seen.out == "⚠ main.vvm has 1 warning\n0 agents, 0 functions\nexports: x\n"
    assert seen.err.startswith(
        "Warning at line 3, column 1 of team.vvm: `unread` is assigned but never read [V530]\n  unread = 1\n"
    )
    assert main(["compile", "--format", "json", "main.vvm"]) == 0
    (found,) = objects(capsys.readouterr().out)
    assert (found["language"], found["ok"]) == ("vvm", True)
    assert found["contract"] == {
        "agents": [],
        "functions": {},
        "exports": ["x"],
        "exported_agents": [],
        "imports": ["./team.vvm"],
        "skills": {},
    }
    assert [(d["file"], d["code"], d["severity"]) for d in found["diagnostics"]] == [  # type: ignore[attr-defined]
        ("team.vvm", "V530", "warning")
    ]


def test_a_vvm_program_with_errors_in_a_module_fails(capsys: pytest.CaptureFixture[str]) -> None:
    Path("team.vvm").write_text("x = @nobody `hi`()\nexport x\n")
    Path("main.vvm").write_text('from "./team.vvm" import x\nfrom "./gone.vvm" import y\nexport x\nexport y\n')
    assert main(["compile", "main.vvm"]) == 1
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.startswith(
        "❌ Validation failed\n"
        "Error at line 2, column 6: Module not found: gone.vvm [V090]\n"
        '  from "./gone.vvm" import y\n       ^\n\n'
        "Error at line 1, column 5 of team.vvm: there is no agent `nobody` [V040]\n"
    )


def test_check_lists_the_criteria_of_vvm(capsys: pytest.CaptureFixture[str]) -> None:
    Path("c.vvm").write_text(
        "score = 90\nif ?`score >= 85`(score):\n  pass\nmatch score:\n  case ?`high`:\n    pass\n"
        'choose score by ?`which\nway, {score}?` as way:\n  option "a":\n    pass\n'
        "constrain score():\n  require ?`fair`\n"
    )
    assert main(["check", "c.vvm"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "ask   line 2: ?`score >= 85` (rules decide criteria only with [vvm] rules = true)",
        "ask   line 5: ?`high` (rules decide criteria only with [vvm] rules = true)",
        "ask   line 7: ?`which way, {score}?` (a choice: the judge picks a label)",
        "ask   line 12: ?`fair` (rules decide criteria only with [vvm] rules = true)",
        "0 of 4 conditions can be decided by rules",
    ]
    Path("prose.toml").write_text("[vvm]\nrules = true\n")
    assert main(["check", "c.vvm"]) == 1
    assert capsys.readouterr().out.splitlines()[:2] == [
        "rule  line 2: ?`score >= 85` (number)",
        "ask   line 5: ?`high` (no rule reads it)",
    ]
    Path("n.vvm").write_text("x = 1\nexport x\n")
    assert main(["check", "n.vvm"]) == 0


def test_a49_an_internal_error_in_one_file_does_not_end_the_batch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = program_files.read_source

    def broken(name: str, typed: str = "") -> Source:
        if name == "bad.prose":
            raise IndexError("a defect")
        return read(name, typed)

    monkeypatch.setattr(program_files, "read_source", broken)
    assert main(["compile", "--format", "json", "bad.prose", "good.prose"]) == 2
    bad, good = objects(capsys.readouterr().out)
    assert (bad["ok"], good["ok"]) == (False, True)
