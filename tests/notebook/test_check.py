"""`%check` and `prose exercises`: passed checks, messages to the learner, and that nothing of the run is changed."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cli.generated import DOCS
from models.people import ScriptedPerson
from notebook.recording import Recording

from prose_kernel.cli.main import main
from prose_kernel.notebook import exercise_checks, exercises
from prose_kernel.notebook.cells import Cells
from prose_kernel.runs import languages
from prose_kernel.views.bundle import bundle

PAGE = (DOCS / "how-to" / "teaching.md").read_text(encoding="utf-8")
VVM = """\
language: vvm
exercises:
  double:
    task: A function that doubles
    checks:
      - {expects: it doubles, value: "double(4)", is: 8, hints: [add it to itself]}
      - {expects: it is a list, value: "[double(1), true]", is: [2, true]}
    solution: |
      def double(n):
        return n + n
    wrong:
      - answer: |
          def double(n):
            return n
        says: "it is number: \\"4\\""
"""


def wrote(directory: Path, text: str, name: str = "ex") -> Path:
    path = directory / "checks" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def first_steps() -> str:
    found = re.search(r"^`checks/first_steps.yaml`:\n\n```yaml\n(.*?)^```", PAGE, re.M | re.S)
    assert found is not None
    return found[1]


@pytest.fixture
async def cells(tmp_path: Path) -> AsyncIterator[Cells]:
    wrote(tmp_path, first_steps(), "first_steps")
    wrote(tmp_path, VVM, "vvm")
    (tmp_path / "script.yaml").write_text('"Review*": fine\n"Check*": none\n')
    made = Cells(tmp_path, ScriptedPerson(available=False))
    made.overrides = {"provider": "scripted", "script": "script.yaml"}
    yield made
    await made.close()


async def told(cells: Cells, code: str) -> str:
    """The last output of a cell, or the error that it ends with."""
    seen = Recording()
    problem = await cells.run(code, seen, live=False)
    return f"{problem.evalue}" if problem is not None else seen.texts[-1]


async def test_feedback_says_what_is_there_instead_and_gives_one_hint_more_each_time(cells: Cells) -> None:
    nothing = "(no program has run yet)"
    assert await told(cells, "%check greeting") == (
        "greeting: not yet, 0 of 2 requirements are met\n"
        f"  ✗ `greeting` is what the command prints {nothing}\n  ✗ the shell was asked {nothing}"
    )
    assert (await told(cells, 'let greeting = "hullo"\n%check greeting')).splitlines() == [
        "greeting: not yet, 0 of 2 requirements are met",
        '  ✗ `greeting` is what the command prints (it is text: "hullo")',
        "  ✗ the shell was asked (there was no command)",
        "  hint 1: A name keeps what a command prints.",
    ]
    assert (await told(cells, "%check greeting")).endswith('  hint 2: `let greeting = exec "..."`')
    done = (
        "greeting: done, all requirements are met\n  ✓ `greeting` is what the command prints\n  ✓ the shell was asked"
    )
    assert await told(cells, 'greeting = exec "echo hello"\n%check first_steps/greeting') == done
    assert await told(cells, "%check greeting") == done
    assert (await told(cells, "%check")).splitlines()[1:3] == [
        "greeting  ✓     Bind what `echo hello` prints to the name `greeting`.",
        "review          Let two reviewers look at `draft` at the same time.",
    ]


async def test_what_happened_in_parallel(cells: Cells) -> None:
    branches = 'style = session "Review the style: {draft}"\nfacts = session "Check the facts: {draft}"\n'
    in_turn = 'let draft = "A draft."\n' + "".join(f"let {line}\n" for line in branches.splitlines())
    assert "✗ both sessions run side by side (no branch ran side by side)" in await told(
        cells, f"{in_turn}%check review"
    )
    both = "parallel:\n" + "".join(f"  {line}\n" for line in branches.splitlines())
    assert "all requirements are met" in await told(cells, f"{both}%check review")


async def test_a_check_changes_nothing(cells: Cells) -> None:
    await told(cells, 'let greeting = exec "echo hello"\nlet draft = "x"')
    journal = cells.workspace.opened.journal_file
    assert journal is not None
    before = journal.read_bytes(), dict(cells.values()), sorted(p.name for p in cells.cwd.iterdir())
    for _ in range(3):
        await told(cells, "%check greeting\n%check review")
    after = journal.read_bytes(), dict(cells.values()), sorted(p.name for p in cells.cwd.iterdir())
    assert after == before


async def test_functions_of_the_learner_are_called(cells: Cells) -> None:
    assert "✗ it doubles" in await told(cells, "%check double")
    assert 'it is number: "4"' in await told(cells, "%%vvm\ndef double(n):\n  return n\n%check double")
    assert "all requirements" in await told(cells, "%%vvm\ndef double(n):\n  return n + n\n%check double")


async def test_a_graded_check_fails_like_a_cell(cells: Cells) -> None:
    seen = Recording()
    problem = await cells.run("%check greeting --grade", seen, live=False)
    assert problem is not None and problem.evalue == "the answer to greeting is not right yet"
    assert seen.calls[0][1].metadata == {"prose": {"exercise": "greeting", "points": 0, "of": 2}}
    problem = await cells.run('let greeting = exec "echo hello"\n%check greeting --grade', seen, live=False)
    assert problem is None and seen.calls[-1][1].metadata["prose"]["points"] == 2


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("%check greetin", "there is no exercise greetin"),
        ("%check none/greeting", "there are no exercises here"),
        ("%check a b", "%check: b is not understood"),
        ("%check --loud", "%check: --loud is not understood"),
    ],
)
async def test_misuse(cells: Cells, code: str, message: str) -> None:
    assert await told(cells, code) == message


async def test_a_damaged_file_of_another_notebook_does_not_answer_a_misspelt_name(cells: Cells) -> None:
    (cells.cwd / "checks" / "a_damaged.yaml").write_text("exercises: [")
    assert await told(cells, "%check greetin") == "there is no exercise greetin"
    for name in ("a_damaged/greetin", "unlike_any_other"):  # it may be in the damaged file
        assert (await told(cells, f"%check {name}")).startswith("a_damaged.yaml line 1")


async def test_without_exercises(tmp_path: Path) -> None:
    cells = Cells(tmp_path, ScriptedPerson(available=False))
    assert await told(cells, "%check") == "there are no exercises here"
    await cells.close()


CHECK = "exercises: {a: {task: t, solution: s, checks: [%s]}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exercises: [", "ex.yaml line 1, column 13: not YAML: "),
        ("- 1", "ex.yaml: a mapping with `exercises` is needed, not [1]"),
        ("", "ex.yaml: a mapping with `exercises` is needed, not nothing"),
        ("exercises:\n  1: {task: t, checks: []}", "ex.yaml line 2: the name of an exercise must be a text, not 1"),
        ("exercises:\n  a: {task: t}", "ex.yaml line 2: a: `checks` is missing"),
        ("exercises:\n  a:\n    tsk: t\n    checks: []", "ex.yaml line 3: a: there is no key `tsk`"),
        ("exercises:\n  a:\n    task: t\n    checks: x", "ex.yaml line 4: a: `checks` must be a list, not 'x'"),
        (
            "exercises: {a: {task: t, checks: [1]}}",
            "ex.yaml line 1: check 1 of a: a mapping with `expects` is needed, not 1",
        ),
        (
            "exercises:\n  a:\n    task: t\n    checks: []\n    wrong:\n      - answer: 3",
            "ex.yaml line 6: wrong answer 1 of a: `answer` must be a text, not 3",
        ),
        (CHECK % "{expects: x, parallel: y}", "check 1 of a: `parallel` must be a whole number, not 'y'"),
        ("language: cobol\nexercises: {}", "ex.yaml line 1: there is no language cobol"),
        (CHECK % "{expects: x}", "check 1 of a: exactly one of value, output, "),
        (CHECK % "{expects: x, value: y, step: loop}", "not value and step"),
        (CHECK % "{expects: x, value: y, is: 1, contains: z}", "is and contains exclude each other"),
        (CHECK % "{expects: x, output: true}", "output needs is, contains or matches"),
        (CHECK % "{expects: x, commands: 1, is: 1}", "is is for value and output"),
        (CHECK % "{expects: x, value: y, matches: '('}", "matches isn't a regular expression"),
        (CHECK % "{expects: x, value: y, equals: 1}", "check 1 of a: there is no key `equals`"),
    ],
)
def test_a_file_that_makes_no_sense_says_where(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(Exception, match=re.escape(message)):
        exercises.read(wrote(tmp_path, text), languages.default())


def test_a_file_is_called_as_it_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one").mkdir()
    Path("one/ex.yaml").write_text("- 1")
    for name in ("one/ex.yaml", "two/ex.yaml"):
        assert main(["exercises", name]) == 2
        assert capsys.readouterr().err.startswith(f"Error: {name}")


@pytest.mark.parametrize("expression", ["1 +", 'exec "touch ran"', 'session "x"'])
async def test_an_expression_of_a_teacher_runs_nothing(cells: Cells, expression: str) -> None:
    wrote(cells.cwd, f"exercises: {{q: {{task: t, checks: [{{expects: x, value: '{expression}'}}]}}}}", "q")
    await told(cells, "let x = 1")
    assert "✓" not in await told(cells, "%check q")
    assert not (cells.cwd / "ran").exists()


def test_feedback_is_inert() -> None:
    check = exercises.Check(expects="<img src=x onerror=alert(1)> `<b>` $x$", value="x")
    found = exercise_checks.CheckResult(check, False, "<script>")
    shown = bundle(exercise_checks.feedback("a", exercises.Exercise("t", (check,)), (found,), 0))
    assert "<img" not in shown.data["text/markdown"] and "<script" not in shown.data["text/markdown"]


# ---------------------------------------------------------------- proofs for teachers


def test_the_page_and_its_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wrote(tmp_path, first_steps(), "first_steps")
    console = re.search(r"^\$ prose (exercises .*)\n((?:✓.*\n)+)", PAGE, re.M)
    assert console is not None
    assert main(console[1].split()) == 0
    assert capsys.readouterr().out == console[2]
    Path("release.prose").write_text(re.search(r"^`release.prose`:\n\n```prose\n(.*?)^```", PAGE, re.M | re.S)[1])  # type: ignore[index]
    told_in_words = re.search(r"^\$ prose (explain .*)\n((?: *- .*\n)+)", PAGE, re.M)
    assert told_in_words is not None and main(told_in_words[1].split()) == 0
    assert capsys.readouterr().out == told_in_words[2]


def test_checks_that_prove_nothing_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = wrote(
        tmp_path,
        "exercises:\n  a:\n    task: t\n    solution: let x = 2\n    wrong: [{answer: let x = 1}, {answer: let x = 3, says: nonsense}]\n"
        "    checks: [{expects: x, value: 'x == 1'}]\n"
        "  b:\n    task: t\n    starter: let x = 1\n    checks: [{expects: x, value: 'x == 1'}]\n",
    )
    os.mkfifo(tmp_path / "pipe")  # nothing waits for it
    assert main(["exercises", str(path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "✗ ex/a",
        "    the solution does not pass:",
        "    a: not yet, 0 of 1 requirements are met",
        '      ✗ x (it is "false")',
        "    wrong answer 1 passes",
        "    the feedback to wrong answer 2 lacks 'nonsense':",
        "    a: not yet, 0 of 1 requirements are met",
        '      ✗ x (it is "false")',
        "✗ ex/b",
        "    there is no solution: nothing shows that the checks can be passed",
        "    an empty answer passes",
    ]
    assert main(["exercises", str(tmp_path / "none.yaml")]) == 2


def test_the_order_of_a_gate_and_a_command_and_the_answer_to_a_question_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = wrote(
        tmp_path,
        """\
exercises:
  ask:
    task: A gate, then a command.
    solution: |
      %gate approve refund
      gate refund:
        prompt: "Refund?"
      exec "echo refunded"
    wrong:
      - {answer: "exec \\"echo refunded\\"", says: there was no command}
      - answer: |
          %gate approve refund
          exec "echo refunded"
          gate refund:
            prompt: "Refund?"
        says: there was no command
    checks: [{expects: it ran after the gate, command: echo refunded, gate: refund}]
  short:
    task: A question that is answered with yes.
    before: let note = "one two"
    solution: assert **note has at most 2 words**
    wrong:
      - {answer: "assert **note has at most 1 words**", says: "note has at most 1 words → no"}
      - {answer: "%judge only\\nassert **note is pretty**", says: there was no condition}
      - {answer: "assert **note has at most 20 words**", says: "note has at most 20 words → yes"}
    checks: [{expects: a rule agrees, judged: words → yes, matches: '\\b2\\b'}]
""",
    )
    assert main(["exercises", str(file)]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("harm", ["rm -r ../notebook", "echo more >> ../notebook/facts", "mkdir a; echo 1 > a/b"])
def test_an_answer_that_changes_its_directory_leaves_nothing_for_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], harm: str
) -> None:
    (tmp_path / "facts").write_text("one\n")
    path = wrote(
        tmp_path,
        "exercises:\n  a:\n    task: t\n    solution: let x = exec \"cat facts; ls | wc -l\"\n"
        f"    wrong: [{{answer: 'exec \"{harm}\"'}}]\n    checks: [{{expects: x, value: x, is: \"one\\n2\\n\"}}]\n",
    )  # fmt: skip
    path.write_text(path.read_text() + path.read_text().partition("exercises:\n")[2].replace("  a:", "  b:", 1))
    status = main(["exercises", str(path)])
    assert (status, capsys.readouterr().out) == (0, "✓ ex/a\n✓ ex/b\n")
