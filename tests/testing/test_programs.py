"""`prose test PROGRAM`: the snapshot next to a program, its cases and options, and differences."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import waiting
from hypothesis import given
from hypothesis import strategies as st
from sample_files import png
from testing.books import code, prose, write

from prose_kernel.access import atomic
from prose_kernel.testing import snapshot_file
from prose_kernel.testing.snapshot_file import SUFFIX, CaseOptions, SnapshotCase

SORT = """\
input report: "The report"
gate send:
  prompt: "Send it?"
let seen = exec "echo 'noted' >&2; echo checking"
exec "echo sent"
output line = "Sorted: {report}"
output facts = { words: 2, ok: true }
"""
SORT_CASE = """\
# {name}

A crash on Mondays.

```toml
input.report = "It crashes"
yes = ["send"]
```
"""


def program(text: str, name: str = "p.prose", *heads: str) -> Path:
    Path(name).write_text(text)
    if heads:
        Path(name + SUFFIX).write_text("\n".join(heads))
    return Path(name)


def test_a_snapshot_is_written_read_and_compared(capsys: pytest.CaptureFixture[str]) -> None:
    program(SORT, "sort.prose", SORT_CASE.format(name="Mondays"))
    assert prose("test", "--update", "sort.prose") == 0
    text = Path("sort.prose" + SUFFIX).read_text()
    assert text == SORT_CASE.format(name="Mondays") + (
        "\nExit status: 0\n\n"
        "## Output line\n\n```text\nSorted: It crashes\n```\n\n"
        '## Output facts\n\n```json\n{\n  "words": 2,\n  "ok": true\n}\n```\n\n'
        "## stdout\n\n```text\nsent\n```\n\n"
        "## stderr\n\n```text\ngate send: approved by user\nseen = checking\n```\n"
    )
    assert prose("test") == 0
    assert capsys.readouterr().out.endswith("sort.prose: 1 passed\n1 passed in 1 file\n")
    assert not Path(".prose").exists()


def test_a_snapshot_that_was_changed_while_it_was_tested_is_not_updated(capsys: pytest.CaptureFixture[str]) -> None:
    program(f'exec "echo mine >> p.prose{SUFFIX}"\n')
    assert prose("test", "--update", "p.prose") == 2
    assert f"p.prose{SUFFIX} was changed while it was tested; it is not updated" in capsys.readouterr().err
    assert Path("p.prose" + SUFFIX).read_text() == "mine\n"


def test_a_run_of_another_process_is_kept() -> None:
    program('exec "mkdir -p .prose/runs/20260101-000000-abcdef"\n', "p.prose", "# a\n\nExit status: 0\n")
    assert prose("test") == 0
    assert [path.name for path in Path(".prose/runs").iterdir()] == ["20260101-000000-abcdef"]


def _raise_permission_error(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", str(Path.cwd() / ".1.tmp"))


def test_a_directory_that_cannot_be_written_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program("output x = 1\n")
    write(Path("a.ipynb"), code("let x = 1", count=None))
    monkeypatch.setattr(atomic, "replace", _raise_permission_error)
    for name, file in (("p.prose", "p.prose" + SUFFIX), ("a.ipynb", "a.ipynb")):
        assert prose("test", "--update", name) == 2
        assert capsys.readouterr().err == f"Error: cannot write {file}: permission denied\n"


def test_a_snapshot_without_its_program_fails(capsys: pytest.CaptureFixture[str]) -> None:
    Path("sub").mkdir()
    program("output x = 1\n", "sub/p.prose")
    assert prose("test", "--update", "sub/p.prose") == 0
    Path("sub/p.prose").rename("sub/q.prose")
    for arguments in ((), ("--update",), ("su*",)):
        capsys.readouterr()
        assert prose("test", *arguments) == 1
        assert "FAILED sub/p.prose" in capsys.readouterr().out
    Path("sub/p.prose.expected.md").rename("sub/q.prose.expected.md")
    assert prose("test") == 0


def test_a_program_that_cannot_be_read_is_named_as_typed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("sub").mkdir()
    os.mkfifo("sub/p.prose")
    Path("sub/p.prose" + SUFFIX).write_text("# program\n")
    assert prose("test", "sub/p.prose") == 1
    assert "FAILED sub/p.prose, program\n  cannot read sub/p.prose: it is a pipe\n" in capsys.readouterr().out


def test_images_are_compared_by_their_content(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.png").write_bytes(png())
    program('let drawn = exec "cat a.png"\nexec "true"\n  display: "a.png"\n')
    assert prose("test", "--update", "p.prose") == 0
    assert prose("test", "p.prose") == 0, capsys.readouterr().out
    Path("a.png").write_bytes(png(5))
    assert prose("test", "p.prose") == 1
    assert "+ drawn: PNG image, 5 × 2" in capsys.readouterr().out


def test_a_difference_names_the_statement(capsys: pytest.CaptureFixture[str]) -> None:
    program(SORT, "sort.prose", SORT_CASE.format(name="Mondays"))
    prose("test", "--update", "sort.prose")
    program(SORT.replace("echo sent", "echo SENT").replace("Sorted:", "In order:"), "sort.prose")
    capsys.readouterr()
    assert prose("test") == 1
    assert capsys.readouterr().out.split("\n\n")[1].splitlines() == [
        "FAILED sort.prose, Mondays",
        "  line 6: Output line differs",
        '      output line = "In order: {report}"',
        "      ^",
        "    - Sorted: It crashes",
        "    + In order: It crashes",
        "  line 5: stdout differs",
        '      exec "echo SENT"',
        "      ^",
        "    - sent",
        "    + SENT",
    ]


def test_failures_and_exit_statuses_are_part_of_a_snapshot(capsys: pytest.CaptureFixture[str]) -> None:
    program('let x = 1\nexec "echo no >&2; exit 6"\n')
    assert prose("test", "--update", "p.prose") == 0
    text = Path("p.prose" + SUFFIX).read_text()
    assert "Exit status: 1\n" in text
    assert "ExecError at line 2, column 1 of p.prose: exec failed with exit code 6 [E203]" in text
    assert "/" not in text.replace("```", "")  # no directory, no time, no run id
    assert prose("test") == 0
    program('let x = 1\nexec "echo no >&2; exit 7"\n')
    capsys.readouterr()
    assert prose("test") == 1
    message = capsys.readouterr().out
    assert "line 2: Error differs" in message
    program("let x = 1\n")
    assert prose("test") == 1
    assert "exit status 0 instead of 1" in capsys.readouterr().out
    program("let = 1\n")
    assert prose("test") == 1
    assert "exit status 2 instead of 1" in capsys.readouterr().out


def test_several_cases_have_separate_options(capsys: pytest.CaptureFixture[str]) -> None:
    Path("replies.yaml").write_text('sessions:\n  "Sort": "an answer"\n')
    Path("sub").mkdir()
    text = 'input name: "Who?"\nlet a = session "Sort {name}"\nlet n = 3\nexec "basename $PWD"\noutput line = a\n'
    one = (
        '# one\n\n```toml\ninput.name = "Ada"\nprovider = "scripted"\nscript = "replies.yaml"\nbindings = ["n"]\n```\n'
    )
    two = (
        '# two\n\n```toml\ninput = { name = "Eve" }\nprovider = "scripted"\nscript = "../replies.yaml"\n'
        'directory = "sub"\nignore = ["stderr"]\nseconds = 20\nstrict = false\n```\n'
    )
    program(text, "p.prose", one, two)
    assert prose("test", "--update", "p.prose") == 0
    made = Path("p.prose" + SUFFIX).read_text()
    assert "## Binding n\n\n```text\n3\n```" in made
    assert made.count("Exit status: 0") == 2
    assert "## stdout\n\n```text\nsub\n```" in made
    Path("p.prose" + SUFFIX).write_text(made.replace("## Binding n\n\n```text\n3", "## Binding n\n\n```text\n4"))
    capsys.readouterr()
    assert prose("test", "-v") == 1
    message = capsys.readouterr().out
    assert "  failed   one\n  passed   two\n" in message
    assert "line 3: Binding n differs\n      let n = 3" in message


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("# a\n\n```toml\ninputs = 1\n```\n", "inputs: there is no such option (hint: did you mean `input`?)"),
        ("# a\n\n```toml\nyes = 3\n```\n", "yes: a list of texts, not 3"),
        ("# a\n\n```toml\n= 3\n```\n", "its options are not TOML"),
        ("nothing\n", "has no case"),
        ("# a\n\n# a\n", "two cases named a"),
        ("# a\n\nExit status: none\n", "names no exit status"),
        ('# a\n\n```toml\ndirectory = "gone"\n```\n', "the option directory names no directory: gone"),
        ('# a\n\n```toml\ninput.other = "x"\n```\n\nExit status: 0\n', "the program has no such input"),
        ('# a\n\n```toml\nyes = ["other"]\n```\n\nExit status: 0\n', "the program has no such gate; it has no gates"),
        ('# a\n\n```toml\nbindings = ["gone"]\n```\n\nExit status: 0\n', "names gone, which the program does not bind"),
        ('# a\n\n```toml\nprovider = "gone"\n```\n\nExit status: 0\n', "gone"),
    ],
)
def test_an_invalid_snapshot_is_reported(head: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    program('session "x"\n' if "provider" in head else "let x = 1\n", "p.prose", head)
    assert prose("test") == 1
    shown = capsys.readouterr().out
    assert message in shown
    assert "Traceback" not in shown


def test_a_program_without_a_snapshot_is_a_test_only_if_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    program("let x = 1\n")
    assert prose("test") == 5
    assert prose("test", "p.prose") == 1
    assert "there is no p.prose.expected.md (hint: prose test --update p.prose writes it)" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "typed"), [("a b.prose", "'a b.prose'"), ("-n.prose", "./-n.prose")])
def test_the_command_of_a_hint_can_be_typed(name: str, typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    program("let x = 1\n", name)
    assert prose("test", "--", name) == 1
    assert f"(hint: prose test --update {typed} writes it)" in capsys.readouterr().out


def test_a_missing_answer_is_not_saved(capsys: pytest.CaptureFixture[str]) -> None:
    program('let x = session "hello"\noutput y = x\n')
    assert prose("test", "--update", "p.prose") == 1
    assert "line 1: an answer is missing\n" in capsys.readouterr().out
    assert not Path("p.prose" + SUFFIX).exists()


@pytest.mark.parametrize("text", ['input x: "?"\n', 'gate x:\n  prompt: "?"\n'])
def test_a_missing_input_or_decision_has_a_hint_for_tests(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    program(text)
    assert prose("test", "--update", "p.prose") == 1
    assert "an answer is missing; options in p.prose.expected.md give it" in capsys.readouterr().out


def test_a_program_that_exceeds_the_timeout_is_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    program("let n = 0\nloop (max: 1000000000):\n  n = n + 1\n", "p.prose", "# a\n\nExit status: 0\n")
    assert prose("test", "--timeout", "0.3") == 1
    assert "the program did not end within 0.3 s and was interrupted" in capsys.readouterr().out


def test_a_program_that_ignores_interrupts_is_killed_and_the_next_one_is_tested() -> None:
    program(
        "exec \"trap '' INT TERM; touch begun; sleep 600\"\n",
        "a.prose",
        "# a\n\n```toml\nseconds = 0.3\n```\n\nExit status: 0\n",
    )
    program("output x = 1\n", "b.prose", "# b\n\nExit status: 0\n\n## Output x\n\n```text\n1\n```\n")
    test = (
        "import sys\nfrom prose_kernel.testing import options\noptions.GRACE, options.AGAIN = 0.1, 0\n"
        "from prose_kernel.cli.main import main\nsys.exit(main())"
    )
    command = [sys.executable, "-c", test, "test"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "the program did not end within 0.3 s and was interrupted" in ran.stdout
    assert ran.stdout.endswith("1 failed, 1 passed in 2 files\n")


COMPUTES = """
import sys
from pathlib import Path
from prose_kernel.machine.openprose import expressions
from prose_kernel.runs.workspace import Workspace
from prose_kernel.testing import options
options.GRACE, options.AGAIN = 0.1, 0
interrupt = Workspace.interrupt
def compute(*arguments):
    Path("computes").touch()
    while True:
        pass
def interrupted(self):
    interrupt(self)
    Path("interrupted").touch()
expressions._joined, Workspace.interrupt = compute, interrupted
from prose_kernel.cli.main import main
sys.exit(main())
"""
"""A statement computes without a wait and without end."""


@pytest.mark.parametrize("around", ["{}", 'parallel:\n  do:\n    {}\n  exec "true"'], ids=["program", "branch"])
def test_a_program_that_computes_is_stopped_at_its_time_limit_and_by_a_second_ctrl_c(around: str) -> None:
    program("let n = 1\n" + around.format('let x = "slow {n}"') + "\n", "p.prose", "# p\n\nExit status: 0\n")
    command = [sys.executable, "-c", COMPUTES, "test"]
    ran = subprocess.run([*command, "--timeout", "0.3"], capture_output=True, text=True, timeout=60, check=False)
    assert "the program did not end within 0.3 s and was interrupted" in ran.stdout
    Path("computes").unlink(missing_ok=True)
    Path("interrupted").unlink()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        for shown in ("computes", "interrupted"):
            waiting.until(Path(shown).exists)
            running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (130, "interrupted\n")


def test_snapshots_hide_directories_and_show_results_without_outputs() -> None:
    program('block b:\n  output 3\n\nexec "pwd"\ndo b\n')
    assert prose("test", "--update", "p.prose") == 0
    text = Path("p.prose" + SUFFIX).read_text()
    assert "## Result\n\n```text\n3\n```" in text
    assert "«ws»" in text
    Path("other").mkdir()
    for name in ("p.prose", "p.prose" + SUFFIX):
        shutil.move(name, Path("other", name))
    assert prose("test", "other") == 0


def test_vvm_programs_are_tested(capsys: pytest.CaptureFixture[str]) -> None:
    program("def twice(n):\n  return n + n\nx = twice(4)\nexport x\n", "p.vvm")
    assert prose("test", "--update", "p.vvm") == 0
    program("def twice(n):\n  return n + n + n\nx = twice(4)\nexport x\n", "p.vvm")
    capsys.readouterr()
    assert prose("test", "p.vvm" + SUFFIX) == 1
    assert "Output x differs" in capsys.readouterr().out


TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Cf")) | st.sampled_from("\n`#~ "), max_size=60
)


@given(st.dictionaries(st.sampled_from(["stdout", "stderr", "Output a", "Result"]), TEXTS), st.integers(0, 255))
def test_written_snapshots_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, sections: dict[str, str], status: int
) -> None:
    kept = {name: snapshot_file.shown(text) for name, text in sections.items()}
    cases = [SnapshotCase(name, f"# {name}\n\nwords", CaseOptions(), status, kept) for name in ("one", "two")]
    file = tmp_path_factory.getbasetemp() / "x.md"
    file.write_text(snapshot_file.written(cases), encoding="utf-8")
    assert snapshot_file.read(file) == cases
