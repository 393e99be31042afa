"""`prose run`: output, exit status and files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from prose_kernel.cli.examples import bundled
from prose_kernel.cli.execution import ProgramRun
from prose_kernel.cli.main import main
from prose_kernel.runs.workspace import Workspace

PROSE = [sys.executable, "-c", "import sys; from prose_kernel.cli.main import main; sys.exit(main())"]


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, object]:
        """The object of `--format json`: the only line of stdout."""
        assert len(self.out.splitlines()) == 1, self.out
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a program text in this process and a new directory."""
    monkeypatch.chdir(tmp_path)

    def run(text: str, *arguments: str) -> Ran:
        Path("p.prose").write_text(textwrap.dedent(text))
        status = main(["run", "p.prose", *arguments])
        return Ran(status, *capfd.readouterr())

    return run


# ---------------------------------------------------------------- output


def test_results_go_to_stdout_and_remarks_to_stderr(run: Run) -> None:
    seen = run("""
        exec "echo out; echo err >&2"
        let log = exec "printf 'one\\ntwo\\nthree\\n'"
        output first = "value"
        output both = "a\\nb"
    """)
    assert seen.status == 0
    assert seen.out == "out\nfirst: value\nboth:\na\nb\n"
    assert seen.err == "err\nlog = one (+2 lines)\n"


def test_json_is_the_only_line_of_stdout(run: Run) -> None:
    seen = run(
        """
        exec "echo shown"
        let n = 2
        const words = ["a", "b"]
        output log = exec "echo text"
        output data = {n: n, ok: true}
        """,
        "--format",
        "json",
    )
    result = seen.result
    assert seen.status == 0
    assert "shown" in seen.err
    assert result["status"] == "completed"
    assert result["error"] is None
    assert result["outputs"] == {"log": "text\n", "data": {"n": 2, "ok": True}}
    assert result["bindings"] == {"n": 2, "words": ["a", "b"], "log": "text\n", "data": {"n": 2, "ok": True}}
    assert Path(".prose/runs", str(result["run_id"]), "state.md").is_file()


def test_the_value_of_the_last_statement_is_shown_when_there_are_no_outputs(run: Run) -> None:
    assert run('block two():\n  return "2"\ntwo()\n').status == 2
    seen = run('block two():\n  return "2"\ndo two()\n')
    assert (seen.status, seen.out) == (0, "2\n")


def test_branches_print_in_source_order(run: Run) -> None:
    seen = run("""
        parallel:
          exec "sleep 0.2; echo slow"
          exec "echo quick"
        exec "echo after"
    """)
    assert seen.out == "slow\nquick\nafter\n"


def test_named_branches_report_their_values_and_failures(run: Run) -> None:
    seen = run("""
        parallel (on-fail: "continue"):
          a = exec "sleep 0.2; echo first; echo more"
          b = exec "exit 3"
    """)
    assert seen.status == 0
    assert seen.err == "a = first (+1 line)\nb failed: exec failed with exit code 3\n"


def test_a_failed_branch_holds_nothing_back(run: Run) -> None:
    seen = run("""
        try:
          parallel:
            exec "sleep 5; echo never"
            exec "echo quick; exit 3"
        catch as e:
          exec "echo caught"
        exec "echo after"
    """)
    assert seen.out == "quick\ncaught\nafter\n"


def test_a_failure_that_is_not_an_error_is_remarked(run: Run) -> None:
    seen = run('exec "exit 4"\n  on-fail: "continue"\n')
    assert (seen.status, seen.err) == (0, "exit 4: exit status 4\n")


def test_warnings_are_shown_and_do_not_stop(run: Run) -> None:
    seen = run('agent a:\n  model: sonnet\n  colour: "red"\noutput x = "y"\n')
    assert seen.status == 0
    assert "Warning at line 3, column 3" in seen.err
    assert "[W005]" in seen.err


# ---------------------------------------------------------------- exit status


def test_a_variable_with_nearly_the_name_of_a_setting_is_a_warning(
    run: Run, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROSE_BUGDET", "1 usd")
    warning = "Warning: PROSE_BUGDET is not a setting; did you mean `PROSE_BUDGET`?\n"
    seen = run("output x = 1\n")
    assert (seen.status, seen.out) == (0, "x: 1\n")
    assert seen.err == warning
    assert run('exec "test -e there"\n').status == 1
    Path("there").touch()
    assert main(["run", "--resume"]) == 0
    assert capfd.readouterr().err.startswith(warning)


def test_errors_before_the_start_run_nothing(run: Run) -> None:
    text = 'exec "touch ran"\nlet r = session: writr\n'
    seen = run(text)
    assert seen.status == 2
    assert seen.out == ""
    assert seen.err.startswith("Error at line 2, column 18: ")
    assert "  let r = session: writr\n                   ^" in seen.err
    result = run(text, "--format", "json").result
    assert result["status"] == "failed"
    error = result["error"]
    assert isinstance(error, dict)
    assert (error["code"], error["line"], error["column"]) == ("E007", 2, 18)
    assert [d["code"] for d in error["diagnostics"]] == ["E007"]
    assert not Path("ran").exists()
    assert not Path(".prose").exists()


def test_an_uncaught_error_shows_line_caret_and_run_directory(run: Run) -> None:
    seen = run("""
        block build():
          let log = exec "echo building; echo broken >&2; exit 3"
        do build()
    """)
    assert seen.status == 1
    head, *rest = seen.err.splitlines()
    assert head.startswith("ExecError at line 3, column 13 of ")
    assert head.endswith("[E203]")
    assert rest[0] == '    let log = exec "echo building; echo broken >&2; exit 3"'
    assert rest[1].strip() == "^"
    assert "build" in rest[2]
    assert "  broken" in rest
    assert rest[-2].startswith("run directory: .prose/runs/")
    assert rest[-1] == f"to resume it: prose run --resume {Path(rest[-2]).name}"
    assert Path(rest[-2].partition(": ")[2]).is_dir()


def test_an_uncaught_error_without_a_message(run: Run) -> None:
    head = next(line for line in run("throw\n").err.splitlines() if line.startswith("ThrowError"))
    assert head.startswith("ThrowError at line 1, column 1 of ") and head.endswith("p.prose [E207]"), head


@pytest.mark.parametrize(("array", "says"), [("[7]", "has 1 element [E209]"), ("[7, 8]", "has 2 elements [E209]")])
def test_an_index_that_is_too_large_reports_the_number_of_items(array: str, says: str, run: Run) -> None:
    assert says in run(f"let xs = {array}\noutput r = xs[3]\n").err


def test_stderr_that_was_passed_through_is_not_repeated(run: Run) -> None:
    seen = run('exec "echo broken >&2; exit 3"\n')
    assert seen.status == 1
    assert seen.err.count("broken\n") == 1


def test_a_deep_recursion_shows_both_ends_of_its_stack(run: Run) -> None:
    seen = run('block f(n):\n  if n > 0:\n    do f(n - 1)\n  else:\n    exec "exit 3"\ndo f(60)\n')
    assert seen.status == 1
    assert "  ... 41 more ..." in seen.err.splitlines()
    assert len(seen.err.splitlines()) < 30


def test_results_begin_on_their_own_line(run: Run) -> None:
    assert run('exec "printf open"\noutput x = "y"\n').out == "open\nx: y\n"
    assert run('exec "printf open"\n').out == "open"


def test_a_message_of_several_lines_is_shown_on_one(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    text = 'parallel (on-fail: "ignore"):\n  throw "in a\\nbranch"\n  exec "true"\nthrow "a\\n  b  c\\n"\n'
    seen = run(text)
    assert "1 failed: in a branch\n" in seen.err
    assert "ThrowError at line 4, column 1 of p.prose: a b  c [E207]\n  throw " in seen.err
    assert main(["runs", "show", Path(seen.err.rpartition("run directory: ")[2].strip()).name]) == 0
    assert "c1  p.prose, failed: a b  c\n" in capfd.readouterr().out
    assert run(text, "--format", "json").result["error"]["message"] == "a\n  b  c\n"


def test_an_error_as_json(run: Run) -> None:
    seen = run('output a = "1"\nlet b = exec "exit 3"\n', "--format", "json")
    result = seen.result
    error = result["error"]
    assert seen.status == 1
    assert isinstance(error, dict)
    assert (error["type"], error["code"], error["line"]) == ("ExecError", "E203", 2)
    assert error["exit_code"] == 3
    assert result["outputs"] == {"a": "1"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('input name: "Who?"\noutput x = name\n', "E212"),
        ('session "say hello"\n', "E201"),
        ('if **the article is good**:\n  exec "true"\n', "E211"),
        ('gate go:\n  prompt: "Go?"\n', "E213"),
    ],
)
def test_a_missing_answer_is_status_three(text: str, code: str, run: Run) -> None:
    seen = run(text, "--format", "json")
    error = seen.result["error"]
    assert seen.status == 3
    assert isinstance(error, dict)
    assert error["code"] == code


def test_the_hint_for_a_missing_model_says_what_to_type(run: Run) -> None:
    [hint] = [line for line in run('session "say hello"\n').err.splitlines() if line.startswith("hint: ")]
    for words in ("pip install 'prose_kernel[llm]'", "ANTHROPIC_API_KEY", "`prose doctor`"):
        assert words in hint


def test_a_caught_error_of_an_undecided_gate_is_not_a_failure(run: Run) -> None:
    assert run('try:\n  gate go:\n    prompt: "Go?"\ncatch:\n  exec "echo no"\n').status == 0


# ---------------------------------------------------------------- options


def test_options_supply_inputs(run: Run) -> None:
    text = 'input name: "Who?"\noutput hello = "hello {name}"\n'
    assert run(text, "--input", "name=A=b").out == "hello: hello A=b\n"
    assert run(text, "--input", "nmae=x").status == 2
    assert run(text, "--input", "name=x", "--input", "name=y").status == 2


def test_options_decide_gates(run: Run) -> None:
    text = 'gate go:\n  prompt: "Go?"\nexec "echo gone"\n'
    assert run(text, "--yes", "go").out == "gone\n"
    assert run(text, "--input", "go=approve").out == "gone\n"
    rejected = run(text, "--no", "go")
    assert (rejected.status, rejected.out) == (1, "")
    assert run(text, "--yes", "go", "--no", "go").status == 2


def test_in_context_leaves_no_files(run: Run) -> None:
    seen = run('output x = exec "echo y"\n', "--in-context", "--format", "json")
    assert seen.result["run_id"] is None
    assert seen.result["outputs"] == {"x": "y\n"}
    assert [p.name for p in Path().iterdir()] == ["p.prose"]
    assert run('exec "true"\n', "--in-context", "--gates", "wait").status == 2
    assert run('exec "true"\n', "--in-context", "--state", "filesystem").status == 2


def test_without_a_writable_directory_the_run_continues_in_memory(run: Run) -> None:
    Path("blocked").write_text("in the way")
    seen = run(
        """
        let x = exec "printf 'kept'"
        gate ok:
          prompt: "go?"
        parallel for n in [1, 2]:
          let part = exec "echo {n}"
        output y = x
        """,
        *("--state-dir", "blocked", "--yes", "ok"),
    )
    assert (seen.status, seen.out) == (0, "y: kept\n")
    warning = "the state directory 'blocked' cannot be written (not a directory); this run is kept in memory [E219]"
    assert seen.err.count("E219") == 1
    assert warning in seen.err
    assert Path("blocked").read_text() == "in the way"


def test_another_state_directory(run: Run) -> None:
    seen = run('output x = "y"\n', "--state-dir", "kept/here", "--format", "json")
    assert Path("kept/here/runs", str(seen.result["run_id"])).is_dir()
    assert not Path(".prose").exists()


@pytest.mark.parametrize("backend", ["sqlite", "sqlite+"])
def test_a_run_in_a_database(backend: str, run: Run) -> None:
    seen = run('output x = "y"\n', "--backend", backend, "--format", "json")
    assert (seen.status, seen.err, seen.result["outputs"]) == (0, "", {"x": "y"})
    directory = Path(".prose/runs", str(seen.result["run_id"]))
    assert sorted(path.name for path in directory.iterdir()) == ["journal.jsonl", "program.prose", "state.db"]


def test_a50_an_unreachable_database_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    seen = run('exec "touch ran"\n', "--state", "postgres")
    assert (seen.status, seen.out) == (1, "")
    assert "there is no URL of a PostgreSQL database" in seen.err and "hint: " in seen.err
    assert not Path("ran").exists() and not Path(".prose/runs").exists()


@pytest.mark.parametrize("option", [("--state", "floppy"), ("--gates", "perhaps"), ("--provider", "oracle")])
def test_an_invalid_setting_is_a_usage_error(option: tuple[str, str], run: Run) -> None:
    seen = run('session "x"\n', *option)
    assert seen.status == 2
    assert seen.err.startswith(("Error: ", "ImportError: "))


def test_strict_refuses_undeclared_names(run: Run) -> None:
    text = 'x = "undeclared"\n'
    assert run(text).status == 0
    assert run(text, "--strict").status == 2


def test_sessions_from_a_script(run: Run) -> None:
    Path("answers.yaml").write_text("sessions:\n  hello: hello yourself\n")
    seen = run('session "say hello"\n', "--provider", "scripted", "--script", "answers.yaml")
    assert (seen.status, seen.out) == (0, "hello yourself\n")


def test_imports_are_relative_to_the_file(run: Run) -> None:
    Path("lib").mkdir()
    Path("lib/leaf.prose").write_text('output v = "leaf"\n')
    Path("lib/main.prose").write_text('use "./leaf.prose" as leaf\nlet r = leaf()\noutput v = r.v\n')
    assert main(["run", "lib/main.prose", "--format", "json"]) == 0


@pytest.mark.parametrize("target", ["https://example.org/x.prose", "@dana/outline", "dana/outline", "nonsense", "lib"])
def test_a_file_that_is_not_a_program_is_a_usage_error(
    target: str, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("lib").mkdir()
    assert main(["run", target]) == 2
    assert capfd.readouterr().err.startswith(("Error: ", "ImportError: "))


def test_a_bare_name_is_a_file_before_it_is_an_example(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    Path("hello").write_text('exec "echo mine"\n')
    assert main(["run", "hello"]) == 0
    assert capfd.readouterr().out == "mine\n"


def test_a_tilde_is_the_home_directory(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd()))
    Path("x.prose").write_text('exec "true"\n')
    assert main(["run", "~/x.prose"]) == 0


# ---------------------------------------------------------------- as a process


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def nothing_outlives_its_test() -> Iterator[None]:
    yield
    while STARTED:
        running = STARTED.pop()
        running.kill()
        running.wait()


def process(cwd: Path, *arguments: str, **options: object) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    STARTED.append(subprocess.Popen([*PROSE, *arguments], cwd=cwd, text=True, **pipes))  # type: ignore[call-overload]
    return STARTED[-1]


def alive_in_group(group: int) -> list[str]:
    """Return the processes of a group, except dead ones that init has not reaped yet."""
    states = (stat.read_text().rpartition(")")[2].split() for stat in Path("/proc").glob("[0-9]*/stat"))
    return [state for state, _, pgrp, *_ in states if int(pgrp) == group and state != "Z"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_commands_runs_finally_and_leaves_no_process(number: int, status: int, tmp_path: Path) -> None:
    (tmp_path / "p.prose").write_text(
        'try:\n  exec "echo $$; sleep 600 & wait"\nfinally:\n  exec "echo cleaned"\nexec "echo never"\n'
    )
    running = process(tmp_path, "run", "p.prose")
    assert running.stdout is not None
    shell = int(running.stdout.readline())
    running.send_signal(number)
    out, err = running.communicate(timeout=30)
    assert running.returncode == status
    assert out == "cleaned\n"
    assert err.startswith("interrupted\nrun directory: .prose/runs/")
    assert alive_in_group(shell) == []


def test_a_signal_after_the_end_of_the_program_does_not_hide_its_outputs(
    run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    reading = Workspace.outputs

    def interrupted(self: Workspace) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return reading(self)

    monkeypatch.setattr(Workspace, "outputs", interrupted)
    Path("p.prose").write_text("output a = 1\n")
    assert main(["run", "p.prose"]) == 0
    assert capfd.readouterr() == ("a: 1\n", "")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("name", ["p.prose", "p.ipynb"])
def test_a_signal_before_the_program_runs_is_not_lost(
    name: str, number: int, status: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling = ProgramRun.compile

    def interrupted(self: ProgramRun, *given: Any, **options: Any) -> Any:
        compiled = compiling(self, *given, **options)
        os.kill(os.getpid(), number)
        return compiled

    monkeypatch.setattr(ProgramRun, "compile", interrupted)
    Path("p.prose").write_text('exec "touch ran"\n')
    assert main(["notebook", "p.prose"]) == 0
    assert main(["run", name]) == status
    assert not Path("ran").exists()


def test_a_busy_program_can_be_interrupted(tmp_path: Path) -> None:
    (tmp_path / "p.prose").write_text('exec "echo ready"\nlet n = 0\nloop while true:\n  n = n + 1\n')
    running = process(tmp_path, "run", "p.prose")
    assert running.stdout is not None
    running.stdout.readline()
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)
    assert running.returncode == 130


COMPUTES = """
import time
from pathlib import Path
from prose_kernel.machine.openprose import expressions
from prose_kernel.runs.workspace import Workspace
joined, interrupt = expressions._joined, Workspace.interrupt
def compute(*arguments):
    Path("computes").touch()
    while True:
        time.sleep(0.01)
def interrupted(self):
    interrupt(self)
    Path("interrupted").touch()
expressions._joined = lambda *arguments: (compute if "slow" in str(arguments) else joined)(*arguments)
Workspace.interrupt = interrupted
"""
"""A statement computes without a wait and without end."""


@pytest.mark.parametrize(
    ("around", "finally_ran"),
    [
        ("{}", ""),
        ('parallel:\n  do:\n    {}\n  exec "true"', ""),
        ('try:\n  {}\nfinally:\n  exec "echo f >> ran"', "f\n"),
    ],
    ids=["in the program", "in a branch", "before finally"],
)
def test_a_second_ctrl_c_stops_a_statement_that_computes(around: str, finally_ran: str, tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages/sitecustomize.py").write_text(COMPUTES)
    (tmp_path / "p.prose").write_text(
        'let a = exec "echo a >> ran"\n' + around.format('let t = "slow {a}"') + '\nexec "echo b >> ran"\n'
    )
    path = os.pathsep.join(filter(None, (str(tmp_path / "packages"), os.environ.get("PYTHONPATH"))))
    running = process(tmp_path, "run", "p.prose", env={**os.environ, "PYTHONPATH": path})
    until((tmp_path / "computes").exists)
    running.send_signal(signal.SIGINT)
    until((tmp_path / "interrupted").exists)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "\ninterrupted\nrun directory: .prose/runs/" in err
    assert (tmp_path / "ran").read_text() == f"a\n{finally_ran}"
    running = process(tmp_path, "run", "--resume")
    _, err = running.communicate(timeout=30)
    assert running.returncode == 0, err
    assert (tmp_path / "ran").read_text() == f"a\n{2 * finally_ran}b\n"


def test_a_program_that_fails_after_it_has_removed_its_directory(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone/p.prose").write_text('exec "rm -rf ../gone"\nthrow "mine"\n')
    running = process(tmp_path / "gone", "run", "p.prose")
    _, err = running.communicate(timeout=30)
    assert (running.returncode, "ThrowError at line 2, column 1 of p.prose: mine" in err) == (1, True), err


def test_a_closed_output_pipe_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "p.prose").write_text('exec "echo one; exec sleep 600"\nexec "touch done"\noutput x = "y"\n')
    read, write = os.pipe()
    os.close(read)
    running = process(tmp_path, "run", "p.prose", stdout=write)
    os.close(write)
    _, err = running.communicate(timeout=30)
    assert not (tmp_path / "done").exists()
    assert err.splitlines()[-1] == "Error: standard output could not be written: broken pipe"
    assert running.returncode == 1


def test_an_output_reader_ended_by_the_same_ctrl_c_leaves_time_to_clean_up(tmp_path: Path) -> None:
    (tmp_path / "p.prose").write_text(
        'exec """trap \'touch told; until [ -e closed ]; do sleep 0.01; done; echo bye; sleep 0.5; touch cleaned; exit\' INT\n'
        'echo ready; while :; do sleep 0.02; done"""\n'
    )
    running = process(tmp_path, "run", "p.prose")
    assert running.stdout is not None
    running.stdout.readline()
    running.send_signal(signal.SIGINT)
    until((tmp_path / "told").exists)
    running.stdout.close()
    (tmp_path / "closed").touch()
    assert running.wait(timeout=30) == 130
    assert (tmp_path / "cleaned").exists()
    assert running.stderr is not None
    running.stderr.close()


def test_a_program_on_standard_input(tmp_path: Path) -> None:
    seen = subprocess.run(
        [*PROSE, "run", "-"], input='exec "cat; echo x"\n', cwd=tmp_path, capture_output=True, text=True
    )
    assert (seen.returncode, seen.stdout) == (0, "x\n")


# ---------------------------------------------------------------- bundled examples

GIVEN = {"inputs": ["--input", "name=Ada"], "gate": ["--yes", "publish"], "review": ["--provider", "dry-run"]}
SCRIPTED = ["--provider", "scripted", "--script", str(Path(__file__).with_name("examples.yaml"))]
RESULTS = {
    "hello-vvm": {"greeting": "Hello, world!", "length": 13},
    "lists": {"long": ["lighthouse", "harbour"], "letters": 25},
    "haiku": {"poem": "the last ferry leaves"},
    "triage": {"team": "workshop", "priority": 1, "answer": "We are sorry, Ines. The workshop will call today."},
    "headline": {"headline": "Ice closes the harbour for a week", "status": "ready"},
    "council": {
        "opinions": ["Good for the air.", "Bad for the shops.", "Good for football."],
        "verdict": "Two for it, one against.",
    },
    "memory": {"monday": "One flat white with oat milk.", "tuesday": "A flat white with oat milk, as always."},
    "research": {"report": "Lenses gather the light. Horns carry farther.", "status": "ready"},
}
"""The results of the examples in VVM with the answers of `examples.yaml`."""


def test_every_expected_result_belongs_to_an_example() -> None:
    assert set(RESULTS) <= {example.name for example in bundled()}


@pytest.mark.parametrize("example", bundled(), ids=lambda e: e.name)
def test_every_example_runs(example, run: Run) -> None:
    """The next test runs the examples with results."""
    if example.name not in RESULTS:
        assert main(["run", example.name, *GIVEN.get(example.name, [])]) == 0
    assert main(["compile", "--format", "json", str(example.path)]) == 0


@pytest.mark.parametrize("name", RESULTS)
def test_an_example_in_vvm_returns_the_expected_result(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", name, *SCRIPTED, "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["outputs"] == RESULTS[name]
    assert not (tmp_path / ".vvm/bindings").exists()
    assert not (bundled()[0].path.parent / ".vvm").exists()


def test_examples_are_found_by_number_name_part_and_keyword(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for name in ("3", "03", "parallel", "paral", "joined"):
        assert main(["examples", name]) == 0
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1
    assert "parallel:" in texts[0]
    assert main(["examples", "nonsense"]) == 2


def test_examples_are_listed_by_category(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples"]) == 0
    listed = capsys.readouterr().out
    assert listed.startswith("first steps\n  01  hello")
    headings = [line for line in listed.splitlines() if not line.startswith(" ")]
    assert len(headings) == len(set(headings))
    assert [e.name for e in bundled() if e.name not in listed or not e.about] == []


def test_no_example_has_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", *(str(example.path) for example in bundled())]) == 0
    assert capsys.readouterr().err == ""


def test_an_example_runs_from_the_list(tmp_path: Path, monkeypatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["examples", "countdown", "--run"]) == 2
    assert main(["examples", "blocks", "--run"]) == 0
    assert capfd.readouterr().out.endswith("3\n2\n1\nlift-off\n")


HIDDEN = """
    let tests = exec "sh -c 'echo 3 FAILED; exit 1' 2>&1 | tail -20"
      on-fail: "continue"
    if **the tests passed**:
      exec "echo released"
"""


def test_a30_a_hidden_exit_code_decides_nothing(run: Run) -> None:
    seen = run(HIDDEN)
    assert seen.status == 3
    assert "[W052]" in seen.err and "[E211]" in seen.err
    assert "released" not in seen.out


def test_a30_with_pipefail_the_exit_code_decides(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with_property = run(HIDDEN.replace('"continue"\n', '"continue"\n      pipefail: true\n'))
    monkeypatch.setenv("PROSE_EXEC_PIPEFAIL", "1")
    with_setting = run(HIDDEN)
    for seen in (with_property, with_setting):
        assert seen.status == 0
        assert "W052" not in seen.err and "exit code is 1" in seen.err
        assert "released" not in seen.out
