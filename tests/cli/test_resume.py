"""`prose run --resume`: killed, interrupted and failed runs continue where they stopped."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import sys
import textwrap
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import forked
import nbformat
import pytest
from waiting import until

from prose_kernel.cli.main import main
from prose_kernel.errors import UsageError
from prose_kernel.runs.replay import times_of
from prose_kernel.runtime import open_request
from prose_kernel.runtime.journal_records import Repeated
from prose_kernel.storage.journal_file import JournalFile
from prose_kernel.storage.journal_reading import NAME, read
from prose_kernel.storage.run_history import cells_of
from prose_kernel.storage.runs import Directories, all_runs, check_directory, is_one_of

PROSE = [sys.executable, "-c", "import sys; from prose_kernel.cli.main import main; sys.exit(main())"]
RUN = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
DIES = 'exec "test -f {0} || {{ touch {0}; kill -9 $PPID; sleep 600; }}; echo {0} >> ran; echo {0}"'
"""A command that kills the process of its run the first time."""


LEFT_ANSWERED = "until grep -q 'out[^.]:.two' .prose/runs/*/journal.jsonl; do sleep 0.02; done; "


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def remarks(self) -> list[str]:
        """The lines of stderr, with run ids replaced."""
        return RUN.sub("RUN", self.err).splitlines()


class Place:
    """A directory in which `prose` runs, in this process or in one that may be killed."""

    def __init__(self, path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self._capfd = capfd

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(textwrap.dedent(text).lstrip("\n"))

    def prose(self, *arguments: str) -> Ran:
        status = main(list(arguments))
        return Ran(status, *self._capfd.readouterr())

    def killed(self, *arguments: str) -> Ran:
        """Run `prose` in a separate process, which the program kills."""
        done = forked.prose(*arguments, cwd=self.path)
        return Ran(done.returncode, done.stdout, done.stderr)

    @property
    def ran(self) -> list[str]:
        """The words that commands have appended to the file `ran`."""
        return (self.path / "ran").read_text().split()

    def runs(self, below: str = ".prose") -> list[Path]:
        """Return the directories of all runs, the latest last."""
        return [run.directory for run in all_runs([Directories(self.path / below / "runs")])]

    def state(self, run: Path) -> list[str]:
        """Return a run's log without ids and times; sorted, because branches log events in the order of time."""
        text = RUN.sub("RUN", (run / "state.md").read_text())
        return sorted(re.sub(r"\d{4}-\d\d-\d\dT\S+", "TIME", text).splitlines())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path, capfd)


# ---------------------------------------------------------------- killed


def test_a_killed_run_continues_and_repeats_nothing(place: Place) -> None:
    place.write(
        "p.prose",
        f"""
        input topic: "What about?"
        let a = exec "echo a >> ran; echo one"
        parallel:
          left = exec "echo left >> ran; echo two"
          right = {DIES.format("right").replace("touch right", LEFT_ANSWERED + "touch right")}
        output all = "{{topic}}: {{a}}{{left}}{{right}}"
        """,
    )
    assert place.killed("run", "p.prose", "--input", "topic=tea").status == -signal.SIGKILL
    seen = place.prose("run", "--resume")
    assert (seen.status, seen.out) == (0, "all: tea: onetworight\n")
    assert seen.remarks[:2] == [
        "Resuming run RUN of p.prose: 2 answers are known.",
        "Was under way and is asked again: command c1/2/b1/x0: "
        f"test -f right || {{ {LEFT_ANSWERED}touch right; kill -9 …",
    ]
    assert place.ran == ["a", "left", "right"]
    (run,) = place.runs()

    for name in ("ran", "right"):
        (place.path / name).unlink()
    (place.path / "right").touch()
    whole = place.prose("run", "p.prose", "--input", "topic=tea")
    assert whole.out == seen.out
    assert place.state(run) == place.state(place.runs()[1])


def test_interrupted_requests_may_fail_instead(place: Place) -> None:
    place.write(
        "p.prose",
        f"""
        try:
          {DIES.format("once")}
        catch as err:
          output what = err.message
        """,
    )
    place.killed("run", "p.prose")
    seen = place.prose("run", "--resume", "--interrupted", "fail")
    assert seen.status == 0, seen.err
    assert seen.remarks[1].startswith("Was under way and fails now: command c1/1/x0: test -f once")
    assert seen.out.startswith("what: exec was lost with the process that ran it")
    assert not (place.path / "ran").exists()


def test_a_complete_run_prints_its_outputs_again(place: Place) -> None:
    place.write("p.prose", 'let a = exec "echo a >> ran; echo one"\noutput a2 = "{a}!"\n')
    first = place.prose("run", "p.prose")
    (run,) = place.runs()
    again = place.prose("run", "--resume", run.name[:8])
    assert (again.status, again.out) == (0, first.out)
    assert again.remarks == ["Run RUN of p.prose is complete: nothing is left to do."]
    assert place.ran == ["a"]
    none = place.prose("run", "--resume")
    assert none.status == 2
    assert none.remarks == [
        "Error: no run is left to resume: all have come to their end",
        "hint: prose runs lists them; name one to see it",
    ]


@pytest.mark.parametrize("last", ["output b = a", 'exec "echo two"', 'throw "no"'])
def test_a48_a_run_killed_between_its_end_and_its_output_gives_its_result(place: Place, last: str) -> None:
    place.write("p.prose", f'let a = exec "echo a >> ran; echo one"\n{last}\n')
    first = place.prose("run", "p.prose")
    (run,) = place.runs()
    journal = run / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))  # as if killed before its output
    place.write("p.prose", 'exec "echo other >> ran"\n')  # the result comes from the text that ran
    for _ in range(2):
        again = place.prose("run", "--resume", run.name)
        assert (again.status, again.out, place.ran) == (first.status, first.out, ["a"])
        assert "Resuming" not in again.err


def test_a48_no_setting_lets_an_ended_run_run_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write("p.prose", 'let a = exec "echo a >> ran; echo one"\noutput b = a\n')
    place.prose("run", "p.prose")
    monkeypatch.setenv("PROSE_JOURNAL", "off")
    again = place.prose("run", "--resume", place.runs()[0].name)
    assert (again.status, again.out, place.ran) == (0, "b: one\n", ["a"])
    assert place.prose("run", "--resume", place.runs()[0].name, "--provider=dry-run").status == 2
    assert place.ran == ["a"]


def test_only_the_json_result_is_on_stdout(place: Place) -> None:
    place.write("p.prose", f"let a = {DIES.format('once')}\noutput a2 = a\n")
    place.killed("run", "p.prose")
    seen = place.prose("run", "--resume", "--format", "json")
    result = json.loads(seen.out)
    assert (result["status"], result["outputs"]) == ("completed", {"a2": "once\n"})
    assert result["run_id"] == place.runs()[0].name


def test_of_two_parallel_resumes_one_is_refused(place: Place) -> None:
    place.write("p.prose", 'exec "test -f died || { touch died; kill -9 $PPID; sleep 600; }; touch on; sleep 600"')
    place.killed("run", "p.prose")
    with forked.Command("run", "--resume", cwd=place.path) as first:
        until((place.path / "on").exists)
        (run,) = place.runs()
        second = place.prose("run", "--resume", run.name)
        assert second.status == 2
        assert second.remarks == [
            "Error: run RUN is being run by another process",
            "hint: wait until that one has ended",
        ]
        removed = place.prose("runs", "rm", run.name, "--yes")
        assert (removed.status, removed.remarks) == (1, ["Error: run RUN is being run by another process"])
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=30)
        assert first.returncode == 130
    assert place.prose("runs", "--format", "json").out.count('"interrupted"') == 1


def test_a_run_is_killed_while_it_resumes(place: Place) -> None:
    place.write("p.prose", "\n".join(f"let {name} = {DIES.format(name)}" for name in ("a", "b")) + "\noutput c = b\n")
    assert place.killed("run", "p.prose").status == -signal.SIGKILL
    assert place.killed("run", "--resume").status == -signal.SIGKILL
    seen = place.prose("run", "--resume")
    assert (seen.status, seen.out) == (0, "c: b\n")
    assert place.ran == ["a", "b"]


def test_a_run_of_vvm_resumes(place: Place) -> None:
    (place.path / "sub").mkdir()
    place.write(
        "sub/p.vvm",
        """
        agent writer(model="sonnet", prompt="Write.")
        plan = @writer `Plan` ()
        review = @writer `Review` (plan)
        export review
        """,
    )
    place.write("one.yaml", 'sessions:\n  "Plan*": plan\n')
    place.write("two.yaml", 'sessions:\n  "Review*": review\n')
    failed = place.prose("run", "sub/p.vvm", "--state=filesystem", "--provider", "scripted", "--script", "one.yaml")
    assert (
        failed.remarks[-1] == "to resume it: prose run --resume sub/.vvm/runs/RUN --provider scripted --script one.yaml"
    )
    command = failed.err.splitlines()[-1].split()[4:]
    seen = place.prose(*command, "--provider", "scripted", "--script", "two.yaml")
    assert (seen.status, seen.out.splitlines()[-1]) == (0, "summary: review"), seen.err
    assert place.prose("run", "sub/p.vvm", "--resume").remarks[0].startswith("Error: no run of sub/p.vvm is left")


def test_a25_the_journal_refers_to_answers_by_digest(place: Place) -> None:
    place.write(
        "p.vvm",
        """
        agent a(model="m")
        x = @a `Say the long word` ()
        y = @a `Say more` (x)
        export pack(x, y)
        """,
    )
    place.write("one.yaml", 'sessions:\n  "Say the*": "a long answer"\n')
    place.write("two.yaml", 'sessions:\n  "Say more": "another answer"\n')
    failed = place.prose("run", "p.vvm", "--state=filesystem", "--provider", "scripted", "--script", "one.yaml")
    (directory,) = (place.path / ".vvm/runs").iterdir()
    journal, text = directory / "journal.jsonl", (place.path / "p.vvm").read_text()
    assert journal.read_text().count("a long answer") == 0
    own = [
        line for line in journal.read_text().splitlines() if json.dumps(text) not in line and '"k":"text"' not in line
    ]
    assert not any("Say the long word" in line or "Say more (" in line for line in own)
    assert "in bindings/b000001.md" in place.prose("runs", "show", directory.name).out
    answer = directory / "bindings" / "b000001.md"
    answer.write_text("somebody else's")
    command = [*failed.err.splitlines()[-1].split()[4:], "--provider", "scripted", "--script", "two.yaml"]
    other = place.prose(*command)
    assert (other.status, "[E222]" in other.err) == (1, True)
    answer.write_text("a long answer")
    seen = place.prose(*command)
    assert (seen.status, answer.read_text()) == (0, "a long answer"), seen.err
    assert (directory / "bindings" / "b000002.md").read_text() == "another answer"
    branch = place.prose(
        "run", "--resume", str(directory), "--from", "c1/2", "--provider", "scripted", "--script", "two.yaml"
    )
    assert branch.status == 0, branch.err


def test_a25_the_journal_refers_to_typed_answers_by_digest(place: Place) -> None:
    place.write(
        "p.vvm",
        """
        agent a(output={score: "number", why: "text or null"})
        x = @a `Judge the long word` ((), retry=1)
        y = @a `Judge more` (x)
        export pack(x, y)
        """,
    )
    fenced = '```json\n{"score": 9091}\n```'
    script = {"sessions": {"Judge the*": ['{"score": "unusable"}', fenced]}}
    place.write("one.yaml", json.dumps(script))
    place.write("two.yaml", json.dumps({"sessions": {"Judge more": '{"score": 2}'}}))
    failed = place.prose("run", "p.vvm", "--state=filesystem", "--provider", "scripted", "--script", "one.yaml")
    (directory,) = (place.path / ".vvm/runs").iterdir()
    journal = (directory / "journal.jsonl").read_text()
    asked = [line for line in journal.splitlines() if '"k":"text"' not in line]
    assert not any(text in line for line in asked for text in ("9091", "Judge the long word"))
    assert "unusable" in journal  # the second attempt was asked to correct it
    answer = directory / "bindings" / "b000001.md"
    kept = answer.read_text()
    index = [line for line in (directory / "state.md").read_text().splitlines() if line.startswith("| x |")]
    command = [*failed.err.splitlines()[-1].split()[4:], "--provider", "scripted", "--script", "two.yaml"]
    answer.write_text('{"score": 1, "why": null}')
    assert "[E222]" in place.prose(*command).err
    answer.write_text(kept)
    seen = place.prose(*command)
    assert (seen.status, answer.read_text()) == (0, kept), seen.err
    assert json.loads(kept) == {"score": 9091, "why": None}
    assert [line for line in (directory / "state.md").read_text().splitlines() if line.startswith("| x |")] == index


# ---------------------------------------------------------------- failed, interrupted


def test_a_failed_run_resumes_before_the_request_that_failed(place: Place) -> None:
    place.write("p.prose", 'exec "echo a >> ran"\nlet b = exec "echo b >> ran; cat there"\noutput c = b\n')
    failed = place.prose("run", "p.prose")
    assert failed.status == 1
    assert failed.remarks[-1] == "to resume it: prose run --resume RUN"
    (place.path / "there").write_text("found\n")
    seen = place.prose(*failed.err.splitlines()[-1].split()[4:])
    assert (seen.status, seen.out) == (0, "c: found\n")
    assert seen.remarks[:2] == [
        "Resuming run RUN of p.prose: 1 answer is known.",
        "It continues before the request that failed: command c1/2/x0: echo b >> ran; cat there",
    ]
    assert place.ran == ["a", "b", "b"]


def test_a_request_that_failed_in_parallel_is_made_again_also_after_a_kill(place: Place) -> None:
    left = """
        echo left >> ran
        case $(wc -l < ran) in
          2) until test -f open; do sleep 0.02; done; exit 1;;
          3) kill -9 $PPID; sleep 600;;
        esac
        """
    (place.path / "left.sh").write_text(left)
    place.write(
        "p.prose",
        """
        exec "echo a >> ran"
        parallel:
          exec ". ./left.sh"
          exec "test -f open || { touch open; sleep 600; }"
        """,
    )
    assert place.prose("run", "p.prose").status == 1
    (run,) = place.runs()
    assert [step.mark for cell in cells_of(read(run / NAME)) for step in cell.steps] == ["✓", "✗", "cancelled"]
    seen = place.killed("run", "--resume")
    assert seen.status == -signal.SIGKILL
    assert seen.remarks[0] == "Resuming run RUN of p.prose: 1 answer is known."
    assert "c1/2/b0/x0" in [asked.key for asked in read(run / NAME).under_way()]
    assert [step.mark for cell in cells_of(read(run / NAME)) for step in cell.steps][:2] == ["✓", "under way"]
    assert place.prose("run", "--resume").status == 0
    assert place.ran == ["a", "left", "left", "left"]


def test_a48_a_run_that_failed_by_itself_fails_again_and_runs_nothing(place: Place) -> None:
    place.write("p.prose", 'exec "echo a >> ran"\nthrow "no use"\n')
    failed = place.prose("run", "p.prose")
    assert "to resume it" not in failed.err
    seen = place.prose("run", "--resume")
    assert (seen.status, place.ran) == (1, ["a"])
    assert seen.remarks[0].startswith("Run RUN of p.prose has ended by an error of the program itself: nothing is run.")
    assert seen.remarks[1:] == failed.remarks
    shown = place.prose("runs", "show", "20").out.splitlines()[-1]
    assert RUN.sub("RUN", shown) == (
        "its program failed by itself; to continue with a corrected text: prose run --resume RUN --changed"
    )
    place.write("p.prose", 'exec "echo a >> ran"\noutput b = "mended"\n')
    mended = place.prose("run", "--resume", "--changed")
    assert (mended.status, mended.out) == (0, "b: mended\n")
    assert place.ran == ["a"]


def test_an_interrupted_run_continues(place: Place) -> None:
    place.write(
        "p.prose",
        """
        try:
          exec "echo a >> ran; test -f on || { touch on; kill -INT $PPID; sleep 600; }"
        finally:
          exec "echo cleaned >> ran"
        output b = 1
        """,
    )
    first = place.killed("run", "p.prose")
    assert first.status == 130
    assert Ran(0, "", first.err).remarks[-3:] == [
        "interrupted",
        "run directory: .prose/runs/RUN",
        "to resume it: prose run --resume RUN",
    ]
    seen = place.prose("run", "--resume")
    assert (seen.status, seen.out) == (0, "b: 1\n")
    assert seen.remarks[0] == "Resuming run RUN of p.prose: 0 answers are known."  # the command of `finally` runs again
    assert place.ran == ["a", "cleaned", "a", "cleaned"]


def test_non_interactive_first_and_then_a_person_decides(place: Place) -> None:
    place.write("p.prose", 'exec "echo a >> ran"\ngate ok:\n  prompt: "Go on?"\noutput b = 1\n')
    assert place.prose("run", "p.prose").status == 3
    seen = place.prose("run", "--resume", "--yes", "ok")
    assert (seen.status, seen.out) == (0, "b: 1\n")
    assert place.ran == ["a"]


def test_a51_a_durable_journal_has_a_request_on_the_disk_before_its_work_begins(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    sync = os.fdatasync

    def watched(descriptor: int) -> None:
        sync(descriptor)
        if Path(f"/proc/self/fd/{descriptor}").resolve().name == "journal.jsonl":
            last = Path(f"/proc/self/fd/{descriptor}").resolve().read_text().splitlines()[-1]
            synced.append((json.loads(last[9:])["k"], (place.path / "ran").exists()))

    monkeypatch.setattr(os, "fdatasync", watched)
    monkeypatch.setenv("PROSE_JOURNAL", "durable")
    place.write("p.prose", 'exec "echo a >> ran"\n')
    assert place.prose("run", "p.prose").status == 0
    assert synced == [("asked", False), ("answered", True), ("ended", True)]


IDENTITY = "echo $PROSE_RUN $PROSE_AT $PROSE_ATTEMPT"
"""A command that prints which request it works for."""


def test_a53_a_command_knows_its_request_and_how_often_it_was_made(place: Place) -> None:
    answered = "until grep -q 'answered[^.],.key.:.c1/2/b0/x0' .prose/runs/*/journal.jsonl; do sleep 0.02; done; "
    place.write(
        "p.prose",
        f"""
        let first = exec "{IDENTITY}"
        parallel:
          let other = exec "{IDENTITY}"
          let twice = exec "{IDENTITY} >> tries; {answered}test $(wc -l < tries) -gt 2 || {{ kill -9 $PPID; sleep 600; }}"
            env: {{ NAME: "x" }}
        output all = "{{first}}{{other}}"
        """,
    )
    assert place.killed("run", "p.prose").status == -signal.SIGKILL
    (run,) = [one.name for one in place.runs()]
    assert place.killed("run", "--resume").status == -signal.SIGKILL
    seen = place.prose("run", "--resume")
    assert seen.status == 0, seen.err
    tries = [line.split() for line in (place.path / "tries").read_text().splitlines()]
    assert tries == [[run, "c1/2/b1/x0", number] for number in "123"]
    assert seen.out == f"all: {run} c1/1/x0 1{run} c1/2/b0/x0 1\n"
    assert place.prose("run", "--resume", run).out == seen.out
    journal = read(place.runs()[0] / "journal.jsonl")
    begun = [record.t for _, record in journal.records() if isinstance(record, Repeated)]
    assert len(begun) == 2 and times_of(journal)["c1/2/b1/x0"].asked == begun[-1] > begun[0], "in a report"


SCRIPTED = ("--provider", "scripted", "--script", "replies.yaml")


@pytest.mark.parametrize(("first", "then"), [(SCRIPTED, ()), ((), SCRIPTED)], ids=["unrecorded", "recorded"])
def test_a_race_is_resumed_with_another_provider(place: Place, first: tuple[str, ...], then: tuple[str, ...]) -> None:
    """Only some providers record races; a resumed run follows its journal."""
    place.write("replies.yaml", '"*": said\n')
    place.write(
        "p.prose",
        """
        parallel ("first"):
          a = exec "echo a >> ran; echo one"
          b = exec "sleep 20; echo b >> ran"
        let done = exec "echo tried >> ran; test -f there"
        output all = "{a}"
        """,
    )
    failed = place.prose("run", "p.prose", *first)
    assert failed.status == 1, failed.err
    (place.path / "there").touch()
    seen = place.prose("run", "--resume", *then)
    assert (seen.status, seen.out) == (0, "all: one\n"), seen.err
    assert place.ran == ["a", "tried", "tried"]


def test_a58_retries_of_a_command_are_in_the_journal_and_counted(place: Place) -> None:
    """The second attempt is killed; the resumed run repeats it, but not the first one."""
    place.write(
        "p.prose",
        f"""
        exec "{IDENTITY} >> tries; n=$(wc -l < tries); test $n -ne 2 || {{ kill -9 $PPID; sleep 600; }}; test $n -gt 3"
          retry: 5
        output all = exec "cat tries"
        """,
    )
    assert place.killed("run", "p.prose").status == -signal.SIGKILL
    seen = place.prose("run", "--resume")
    (run,) = [one.name for one in place.runs()]
    assert (seen.status, seen.out) == (0, "all:\n" + "".join(f"{run} c1/1/x0 {n}\n" for n in "1234")), seen.err
    assert place.prose("run", "--resume", run).out == seen.out, "nothing runs again"
    times = times_of(read(place.runs()[0] / "journal.jsonl"))
    assert [key for key in times if key.startswith("c1/1/x0")] == ["c1/1/x0", "c1/1/x0#1", "c1/1/x0#2"]


@pytest.mark.parametrize("name", open_request.IDENTITY)
def test_a53_a_program_does_not_set_its_identity(place: Place, name: str) -> None:
    place.write("p.prose", f'exec "true"\n  env: {{ {name}: "mine" }}\n')
    seen = place.prose("compile", "p.prose")
    assert seen.status != 0 and "[E004]" in seen.out + seen.err


def test_a53_a_run_without_a_journal_passes_no_identity_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The identity of an outer run is removed too, because nothing in this run can be repeated."""
    for name in ("PROSE_RUN", "PROSE_AT", "PROSE_ATTEMPT"):
        monkeypatch.setenv(name, "outer")
    monkeypatch.setenv("PROSE_JOURNAL", "off")
    place.write("p.prose", f'output all = exec "{IDENTITY}"\n')
    seen = place.prose("run", "p.prose")
    assert (seen.status, seen.out.strip()) == (0, "all:"), seen.err


@pytest.mark.parametrize("option", ["--provider=dry-run", None])
def test_a52_a_dry_run_changes_no_values_of_a_run(
    place: Place, monkeypatch: pytest.MonkeyPatch, option: str | None
) -> None:
    place.write("p.prose", 'let a = exec "echo one"\nlet b = exec "echo two; test -f there"\n')
    place.prose("run", "p.prose")
    (run,) = place.runs()
    kept = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    if option is None:
        monkeypatch.setenv("PROSE_PROVIDER", "dry-run")
    for more in ([], ["--from", "c1/2"]):
        assert place.prose("run", "--resume", *more, *([option] if option else [])).status == 2
        assert place.runs() == [run], "no branch has begun"
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == kept
    monkeypatch.delenv("PROSE_PROVIDER", raising=False)
    (place.path / "there").touch()
    assert place.prose("run", "--resume").status == 0


# ---------------------------------------------------------------- changed programs


def test_a_changed_program_is_refused_with_both_texts(place: Place) -> None:
    program = 'let a = exec "echo a >> ran"\nlet b = exec "echo b >> ran; test -f there"\n'
    place.write("p.prose", program)
    place.prose("run", "p.prose")
    (place.path / "there").touch()
    place.write("p.prose", program + 'output c = "new"\n')
    refused = place.prose("run", "--resume")
    assert refused.status == 2
    assert refused.remarks == [
        "Error: p.prose has changed since run RUN began:",
        "--- run RUN\tas it began",
        "+++ p.prose\tas it is",
        "@@ -1,2 +1,3 @@",
        ' let a = exec "echo a >> ran"',
        ' let b = exec "echo b >> ran; test -f there"',
        '+output c = "new"',
        "hint: restore the file; or --stored continues with the original text; "
        "--changed begins a branch of the run with the new one",
    ]
    changed = place.prose("run", "p.prose", "--resume", "--changed")
    assert (changed.status, changed.out) == (0, "c: new\n")
    assert changed.remarks[0] == "A new run begins with the changed text: 2 answers are known from run RUN."
    assert changed.remarks[-1] == "kept 1 of 2 answers; asked 1 that had failed"
    old, new = place.runs()
    stored = place.prose("run", "--resume", old.name, "--stored")
    assert (stored.status, stored.out) == (0, "")
    assert place.ran == ["a", "b", "b", "b"]
    shown = place.prose("runs", "show", new.name).out
    assert f"kept from  {old.name}" in shown


def test_a_changed_program_asks_again_from_the_first_difference_on(place: Place) -> None:
    place.write("p.prose", "".join(f'exec "echo {name} >> ran"\n' for name in "abc"))
    place.prose("run", "p.prose")
    place.write("p.prose", "".join(f'exec "echo {name} >> ran"\n' for name in "aBc"))
    (run,) = place.runs()
    refused = place.prose("run", "--resume", run.name, "--changed")
    assert refused.status == 2 and refused.remarks[-1].endswith("--yes-rerun")
    assert [line.split(":")[0].strip() for line in refused.remarks[1:-1]] == ["command c1/2/x0", "command c1/3/x0"]
    assert place.ran == ["a", "b", "c"] and place.runs() == [run]
    seen = place.prose("run", "--resume", run.name, "--changed", "--yes-rerun")
    assert seen.status == 0
    assert place.ran == ["a", "b", "c", "B", "c"]
    (place.path / "ran").unlink()
    again = place.prose("run", "--resume", place.runs()[1].name)
    assert "is complete" in again.err
    assert not (place.path / "ran").exists()


def test_a57_a_command_at_the_top_runs_nothing_again_without_agreement(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = "".join(f'exec "echo {name} >> ran"\n' for name in "abc")
    place.write("p.prose", f'let note = session "Write one word"\n{commands}')
    place.write("script.yaml", "sessions:\n  Write one word: word\n  Write two words: words\n")
    scripted = ("--provider", "scripted", "--script", "script.yaml")
    assert place.prose("run", "p.prose", *scripted).status == 0
    place.write("p.prose", f'exec "true"\nlet note = session "Write two words"\n{commands}')
    (run,) = place.runs()
    asked = ("run", "--resume", run.name, "--changed", *scripted)
    refused = place.prose(*asked)
    assert refused.status == 2
    listed = [line.split(":")[0].split()[0] for line in refused.remarks[1:-1]]
    assert listed == ["command"] * 3 + ["session"], "commands first"
    monkeypatch.setattr("prose_kernel.cli.terminal.is_interactive", lambda *streams: True)
    monkeypatch.setattr("click.confirm", lambda *words, **how: False)
    assert place.prose(*asked).status == 2
    assert place.ran == [*"abc"] and place.runs() == [run], "nothing has begun"
    monkeypatch.setattr("click.confirm", lambda *words, **how: True)
    assert place.prose(*asked).status == 0
    assert place.ran == [*"abcabc"]


def test_a57_a_statement_at_the_end_needs_no_agreement(place: Place) -> None:
    commands = "".join(f'exec "echo {name} >> ran"\n' for name in "abc")
    place.write("p.prose", f'{commands}parallel for x in [1, 2]:\n  exec "echo {{x}}"\n')
    place.prose("run", "p.prose")
    place.write("p.prose", f'{commands}parallel for x in [1, 2]:\n  exec "echo {{x}}"\nexec "echo d >> ran"\n')
    assert place.prose("run", "--resume", place.runs()[0].name, "--changed").status == 0
    assert place.ran == [*"abcd"]


def test_a_changed_program_with_an_error_begins_no_branch(place: Place) -> None:
    place.write("p.prose", 'exec "false"\n')
    place.prose("run", "p.prose")
    place.write("p.prose", "let = 1\n")
    seen = place.prose("run", "--resume", "--changed")
    assert seen.status == 2
    assert "E004" in seen.err or "E005" in seen.err
    assert len(place.runs()) == 1


def test_a_missing_program_file_runs_with_its_original_text(place: Place) -> None:
    place.write("p.prose", f"{DIES.format('once')}\noutput a = 1\n")
    place.killed("run", "p.prose")
    (place.path / "p.prose").unlink()
    seen = place.prose("run", "--resume")
    assert (seen.status, seen.out) == (0, "once\na: 1\n")
    assert seen.remarks[0] == "p.prose is missing: the run continues with its original text."


# ---------------------------------------------------------------- branches


def test_a_branch_begins_before_a_request_or_statement(place: Place) -> None:
    place.write("p.prose", "".join(f'let {name} = exec "echo {name} >> ran; echo {name}"\n' for name in "abc"))
    place.prose("run", "p.prose")
    (run,) = place.runs()
    for at, known, repeated in (("c1/3", 2, ["c"]), ("c1/2/x0", 1, ["b", "c"]), ("c1", 0, ["a", "b", "c"])):
        (place.path / "ran").unlink()
        seen = place.prose("run", "--resume", run.name, "--from", at)
        assert seen.status == 0
        answers = "1 answer is" if known == 1 else f"{known} answers are"
        assert seen.remarks[0] == f"Run RUN begins as a branch of run RUN before {at}: {answers} known."
        assert place.ran == repeated
    assert len(place.runs()) == 4
    wrong = place.prose("run", "--resume", run.name, "--from", "c1/9")
    assert wrong.status == 2
    assert wrong.remarks == [
        "Error: run RUN asked nothing at c1/9",
        "hint: it has the cells c1; its requests: c1/1/x0, c1/2/x0, c1/3/x0",
    ]


@pytest.mark.parametrize("at", ["c1/4", "c1/3/u0/2/x0", "c1/3/u0/1/x0"])
def test_after_a_replay_the_first_live_command_can_read_all_values(place: Place, at: str) -> None:
    """This includes the values of the calling program."""
    there = ".prose/runs/$PROSE_RUN"
    place.write(
        "m.prose",
        f"""
        input word: "Which?"
        let inner = exec "echo {{word}}"
        output seen = exec "cat {there}/bindings/*.md {there}/imports/*/bindings/*.md | grep -v '^#'"
        """,
    )
    place.write(
        "p.prose",
        f"""
        use "./m.prose" as m
        let a = exec "echo first"
        let b = a + "second"
        let c = m(word: "third")
        output d = exec "cat {there}/bindings/*.md"
        output e = c.seen
        """,
    )
    first = place.prose("run", "p.prose")
    assert first.status == 0 and first.out.count("second") >= 2 and first.out.count("third") >= 2, first.out
    (run,) = place.runs()
    seen = place.prose("run", "--resume", run.name, "--from", at)
    assert (seen.status, RUN.sub("RUN", seen.out)) == (0, RUN.sub("RUN", first.out))


def test_a_branch_of_a_branch_continues_though_ids_are_in_its_texts(place: Place) -> None:
    place.write("script.yaml", "sessions:\n  Plan: plan\n  Review: review\n  Again: again\n")
    place.write(
        "p.prose",
        """
        let plan = session "Plan"
        let review = session "Review"
          context: plan
        let again = session "Again"
          context: review
        output c = again
        """,
    )
    assert place.prose("run", "p.prose", "--provider", "scripted", "--script", "script.yaml").status == 0
    place.write("two.yaml", "sessions:\n  Again: other\n")
    for _ in range(2):
        options = ("--provider", "scripted", "--script", "two.yaml")
        seen = place.prose("run", "--resume", place.runs()[-1].name, "--from", "c1/3", *options)
        assert (seen.status, seen.out) == (0, "c: other\n"), seen.err


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--input", "x=2"], "--input x=2: run RUN began with x=1"),
        (["--input", "y=2"], "--input y: run RUN began without a value for y"),
        (["--in-context"], "--in-context: run RUN began with filesystem"),
        (["--strict"], "--strict: run RUN began with the profile default"),
        (["--no", "ok"], "--no ok: run RUN began with --yes ok"),
        (["--gate-files"], "--gate-files: run RUN began without it"),
    ],
)
def test_options_that_contradict_the_run_are_errors(place: Place, options: list[str], message: str) -> None:
    place.write("p.prose", 'input x: "?"\nexec "false"\ngate ok:\n  prompt: "ok?"\n')
    place.prose("run", "p.prose", "--input", "x=1", "--yes", "ok")
    seen = place.prose("run", "--resume", *options)
    assert seen.status == 2
    assert seen.remarks == [f"Error: {message}", "hint: leave it out, or run the program again"]


@pytest.mark.parametrize("option", [["--from", "c1"], ["--stored"], ["--changed"], ["--interrupted", "fail"]])
def test_options_about_resuming_need_a_run(place: Place, option: list[str]) -> None:
    place.write("p.prose", "output a = 1\n")
    seen = place.prose("run", "p.prose", *option)
    assert seen.status == 2
    assert seen.remarks[0] == f"Error: {option[0]} is about a run that is resumed"


def test_the_run_that_resume_selects(place: Place) -> None:
    assert place.prose("run", "--resume").remarks[0] == "Error: no run is kept here"
    assert place.prose("run").status == 2
    place.write("p.prose", 'exec "echo p >> ran; test -f there"\n')
    place.write("q.prose", 'exec "echo q >> ran; test -f there"\n')
    place.prose("run", "p.prose")
    place.prose("run", "q.prose")
    (place.path / "there").touch()
    year = place.runs()[0].name[:4]
    many = place.prose("run", "--resume", year)
    assert many.remarks[0].startswith(f"Error: 2 runs begin with {year}: RUN, RUN")
    assert place.prose("run", "--resume", "1999").remarks[0] == "Error: there is no run 1999"
    assert place.prose("run", "--resume", "p.prose").status == 0
    assert place.prose("run", "q.prose", "--resume").status == 0
    assert place.ran == ["p", "q", "p", "q"]


# ---------------------------------------------------------------- next to a branch that computes


@pytest.mark.parametrize(("how", "durable"), [((), True), (("--interrupted", "fail"), False)])
def test_a51_a_command_that_has_ended_next_to_a_computing_branch_is_not_run_again(
    place: Place, how: tuple[str, ...], durable: bool
) -> None:
    """The run is killed when its journal has the answer, but its program does not have it yet."""
    if durable:
        place.write("prose.toml", 'journal = "durable"\n')
    killer = "for i in $(seq 500); do grep -q complete[d] .prose/runs/*/journal.jsonl && break; sleep 0.01; done; "
    text = f"""
        block compute():
          let n = 0
          repeat 50000:
            n = n + 1
          return n
        parallel (on-fail: "ignore"):
          left = exec "echo left >> ran; echo one"
          right = exec "test -f right || {{ {killer}touch right; kill -9 $PPID; sleep 600; }}"
          sum = do compute()
        output all = "{{left}}{{sum}}"
        """
    place.write("p.prose", text)
    assert place.killed("run", "p.prose").status == -signal.SIGKILL
    (run,) = place.runs()
    lines = (run / "journal.jsonl").read_text().splitlines()
    assert ['"k":"completed"' in line for line in lines].count(True) == 1
    assert not any('"k":"answered","key":"c1/1/b0/x0"' in line for line in lines)  # the program did not get the answer
    assert [asked.key for asked in read(run / "journal.jsonl").under_way() if asked.kind == "command"] == ["c1/1/b1/x0"]
    seen = place.prose("run", "--resume", *how)
    assert (seen.status, seen.out) == (0, "all: one50000\n"), seen.err
    assert seen.remarks[0] == "Resuming run RUN of p.prose: 1 answer is known."
    assert place.ran == ["left"]
    if durable:
        again = place.prose("run", "--resume", run.name)  # replays the journal of the resumed run
        assert (again.status, again.out) == (0, seen.out)


# ---------------------------------------------------------------- one run for a key


def test_a52_a_key_has_one_run(place: Place) -> None:
    place.write(
        "p.prose", f'let a = exec "echo a >> ran; echo one"\nlet b = {DIES.format("b")}\noutput c = "{{a}}{{b}}"\n'
    )
    command = ("run", "p.prose", "--id", "order 17")
    assert place.killed(*command).status == -signal.SIGKILL
    assert place.prose(*command).out == "c: oneb\n"
    again = place.prose(*command)
    assert (again.status, again.out) == (0, "c: oneb\n")
    assert place.ran == ["a", "b"]
    (run,) = place.runs()
    assert place.prose("run", "p.prose", "--id", "order 18").out == "c: oneb\n"
    assert place.ran == ["a", "b", "a", "b"]
    assert len(place.runs()) == 2
    assert place.prose("runs", "rm", run.name, "--yes").status == 0
    assert place.prose(*command).out == "c: oneb\n"  # a removed run does not count
    assert place.ran == ["a", "b"] * 3


def test_a52_a_key_has_one_run_of_a_notebook(place: Place) -> None:
    _notebook(
        place.path / "n.ipynb", 'let a = exec "echo a >> ran; echo one"', f"let b = {DIES.format('b')}", "output c = b"
    )
    assert place.killed("run", "n.ipynb", "--id", "k").status == -signal.SIGKILL
    for _ in range(2):
        seen = place.prose("run", "n.ipynb", "--id", "k")
        assert (seen.status, seen.out.splitlines()[-1]) == (0, "c: b"), seen.err
    assert place.ran == ["a", "b"]
    assert len(place.runs()) == 1


def test_a52_a_reset_begins_another_run_than_that_of_the_key(place: Place) -> None:
    _notebook(place.path / "n.ipynb", 'exec "echo a >> ran"', "%reset", 'exec "echo b >> ran"')
    assert place.prose("run", "n.ipynb", "--id", "k").status == 0
    assert place.ran == ["a", "b"]
    assert len(place.runs()) == 2


def test_a52_a_key_of_another_program_is_refused(place: Place) -> None:
    place.write("p.prose", 'output a = exec "echo one"\n')
    place.write("q.prose", 'output a = exec "echo two"\n')
    assert place.prose("run", "p.prose", "--id", "k").status == 0
    seen = place.prose("run", "q.prose", "--id", "k")
    assert (seen.status, seen.out) == (2, "")
    assert seen.remarks[0] == "Error: --id k: run RUN of p.prose has this key"
    place.write("p.prose", 'output a = exec "echo three"\n')
    assert place.prose("run", "p.prose", "--id", "k").out == "a: one\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--id", ""), "a key has 1 to 500 printable characters"),
        (("--id", "a\nb"), "a key has 1 to 500 printable characters"),
        (("--id", "k", "--in-context"), "--id needs a run that keeps a journal"),
        (("--id", "k", "--resume"), "--id and --resume exclude each other"),
    ],
)
def test_a52_a_key_that_cannot_be_used(place: Place, options: tuple[str, ...], says: str) -> None:
    place.write("p.prose", 'exec "touch ran"\n')
    seen = place.prose("run", "p.prose", *options)
    assert (seen.status, says in seen.err, (place.path / "ran").exists()) == (2, True, False)


def test_a52_a_key_in_use_is_refused(place: Place) -> None:
    """The program runs itself with the same key."""
    command = shlex.join([*PROSE, "run", "p.prose", "--id", "k"])
    place.write("again.sh", f"{command} 2> refused; echo $?\n")
    place.write("p.prose", 'output status = exec "sh again.sh"\n')
    seen = place.prose("run", "p.prose", "--id", "k")
    assert (seen.status, seen.out) == (0, "status: 2\n")
    refused = (place.path / "refused").read_text()
    assert refused.startswith("Error: --id k: another process runs the run with this key")


# ---------------------------------------------------------------- several runs


def test_a52_all_killed_runs_are_resumed(place: Place) -> None:
    place.write("failed.prose", 'exec "echo failed >> ran; false"\n')
    for name in ("one", "two", "three"):
        place.write(
            f"{name}.prose", f'let a = exec "echo first-{name} >> ran"\noutput b = exec "{DIES[6:-1].format(name)}"\n'
        )
        assert place.killed("run", f"{name}.prose").status == -signal.SIGKILL
    assert place.prose("run", "failed.prose").status == 1
    named = {read(run / "journal.jsonl").head.program: run.name for run in place.runs()}
    one, two = named["one.prose"], named["two.prose"]
    journal = place.path / ".prose/runs" / two / "journal.jsonl"
    _edit(3, lambda line: line.replace(b"answered", b"ANSWERED"))(journal)
    seen = place.prose("runs", "resume", "--all")
    assert (seen.status, sorted(seen.out.splitlines())) == (2, ["b: one", "b: three"])
    assert [line for line in seen.remarks if "line 4" in line] == [
        "Error: line 4 of the journal of run RUN is damaged, or was changed"
    ]
    assert place.ran[:4] == ["first-one", "first-two", "first-three", "failed"]
    assert sorted(place.ran[4:]) == ["one", "three"]
    assert place.prose("runs", "repair", two, "--yes").status == 0
    assert place.prose("runs", "resume", two, two[:-1]).out == "b: two\n"
    assert place.prose("runs", "resume", "--all").out == "no run here was killed\n"
    assert place.prose("runs", "resume", one).out == "b: one\n"  # the run is complete: its outputs are printed again
    assert place.prose("runs", "resume").status == 2
    assert place.prose("runs", "resume", one, "--all").status == 2


def test_a52_a_run_that_fails_again_does_not_stop_the_others(place: Place) -> None:
    for name in ("one", "two"):
        fails = "; false" if name == "one" else ""
        place.write(f"{name}.prose", f'output b = exec "{DIES[6:-1].format(name)}{fails}"\n')
        assert place.killed("run", f"{name}.prose").status == -signal.SIGKILL
    seen = place.prose("runs", "resume", "--all")
    assert (seen.status, seen.out) == (1, "b: two\n")


# ---------------------------------------------------------------- journals that cannot be used


def _edit(line: int, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def edit(journal: Path) -> None:
        lines = journal.read_bytes().splitlines(keepends=True)
        lines[line] = change(lines[line])
        journal.write_bytes(b"".join(lines))

    return edit


def _written_again(journal: Path, bodies: Iterable[bytes]) -> None:
    """Write a journal of these records: each line begins with the checksum of all records up to it."""
    checksum, lines = 0, []
    for body in bodies:
        checksum = zlib.crc32(body, checksum)
        lines.append(b"%08x %b\n" % (checksum, body))
    journal.write_bytes(b"".join(lines))


def _bodies(journal: Path) -> list[bytes]:
    return [line[9:] for line in journal.read_bytes().splitlines()]


def _other_version(journal: Path) -> None:
    head, *others = _bodies(journal)
    _written_again(journal, [head.replace(b'"k":"head",', b'"k":"head","version":9,'), *others])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_other_version, "the journal of run RUN has version 9"),
        (
            _edit(3, lambda line: line.replace(b"one", b"two")),
            "line 4 of the journal of run RUN is damaged, or was changed",
        ),
        (_edit(2, lambda line: b""), "line 3 of the journal of run RUN is damaged, or was changed"),
        (lambda journal: journal.write_bytes(b""), "the journal of run RUN is empty"),
        (lambda journal: journal.write_bytes(b"\0" * 400), "the journal of run RUN is empty"),
        (lambda journal: journal.unlink(), "run RUN has no journal"),
    ],
)
def test_a_journal_that_cannot_be_used(place: Place, damage: Callable[[Path], None], message: str) -> None:
    place.write("p.prose", 'let a = exec "echo one"\nexec "false"\n')
    place.prose("run", "p.prose")
    (run,) = place.runs()
    damage(run / "journal.jsonl")
    seen = place.prose("run", "--resume", run.name)
    assert seen.status == 2
    assert seen.remarks[0] == f"Error: {message}"
    listed = place.prose("runs")
    assert listed.status == 0
    assert ("failed" if "no journal" in message or "damaged" in message else "unreadable") in listed.out
    shown = place.prose("runs", "show", run.name)
    assert shown.status == 0
    reported = place.prose("report", run.name)
    if "damaged" in message:  # the other records are shown, and the damage is reported
        assert message in shown.out.replace(run.name, "RUN")
        assert reported.status == 0 and any(f"Warning: {message}" in line for line in reported.remarks)
    assert place.prose("runs", "rm", run.name, "--yes").status == 0
    assert place.runs() == []


def test_a_run_whose_journal_could_not_be_written_is_not_offered_for_resuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("prose_kernel.storage.journal_file.jsonl.add", full)
    Path("p.prose").write_text('exec "exit 3"\n')
    assert main(["run", "p.prose"]) == 1
    seen = capsys.readouterr().err
    assert "the journal cannot be written (no space left on device)" in seen and "to resume it" not in seen


FIVE = """
let a = exec "echo a >> ran; echo one"
let b = exec "echo b >> ran; echo two"
let c = exec "echo c >> ran; echo three"
output d = "{a}{b}{c}"
"""


def test_a56_a_repaired_journal_continues_before_its_damage(place: Place) -> None:
    place.write("p.prose", FIVE)
    place.prose("run", "p.prose")
    (run,) = place.runs()
    # On a busy machine, results are also recorded before their branch gets its turn.
    _written_again(run / "journal.jsonl", [b for b in _bodies(run / "journal.jsonl") if b'"k":"completed"' not in b])
    lines = (run / "journal.jsonl").read_bytes().splitlines()
    (damaged,) = (number for number, line in enumerate(lines) if b"two" in line and b"answered" in line)
    _edit(damaged, lambda line: line.replace(b"two", b"owt"))(run / "journal.jsonl")
    whole = (run / "journal.jsonl").read_bytes()

    asked = place.prose("runs", "repair", run.name)
    assert (asked.status, asked.out) == (2, "")
    assert asked.remarks == [
        f"Error: line {damaged + 1} of the journal of run RUN is damaged: the run would continue before it.",
        "1 answer after it would no longer count:",
        "  command c1/3/x0: echo c >> ran; echo three",
        "hint: to repair it without a question: --yes",
    ]
    assert (run / "journal.jsonl").read_bytes() == whole

    assert place.prose("run", "--resume", run.name).remarks[-1] == (
        "hint: prose runs repair RUN lets the run continue before it"
    )
    repaired = place.prose("runs", "repair", run.name, "--yes")
    assert (repaired.status, RUN.sub("RUN", repaired.out)) == (0, f"repaired RUN: 1 answer before line {damaged + 1}\n")
    assert (run / "journal.jsonl").read_bytes().startswith(whole)  # nothing was removed
    assert place.prose("report", run.name).status == 0
    again = place.prose("run", "--resume", run.name)
    assert (again.status, again.out) == (0, "d: onetwothree\n")
    assert place.ran == ["a", "b", "c", "b", "c"]
    assert "has no damage" in place.prose("runs", "repair", run.name).out


def test_a56_a_person_declines_a_repair(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write("p.prose", FIVE)
    place.prose("run", "p.prose")
    (run,) = place.runs()
    _edit(5, lambda line: line.replace(b"k", b"K"))(run / "journal.jsonl")
    monkeypatch.setattr("prose_kernel.cli.terminal.is_interactive", lambda *streams: True)
    monkeypatch.setattr("click.confirm", lambda *words, **options: False)
    before = (run / "journal.jsonl").read_bytes()
    assert place.prose("runs", "repair", run.name).remarks[-1] == "Error: nothing was changed"
    assert (run / "journal.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            _edit(1, lambda line: line.replace(b"one", b"two")),
            "line 2 of the journal of run RUN, its program, is damaged",
        ),
        (
            _edit(0, lambda line: line.replace(b"prose", b"esorp")),
            "the first line of the journal of run RUN is damaged, or was changed",
        ),
        (_other_version, "the journal of run RUN has version 9"),
        (lambda journal: journal.unlink(), "run RUN has no journal here"),
    ],
)
def test_a56_a_journal_that_cannot_be_repaired(place: Place, damage: Callable[[Path], None], message: str) -> None:
    place.write("p.prose", FIVE)
    place.prose("run", "p.prose")
    (run,) = place.runs()
    damage(run / "journal.jsonl")
    seen = place.prose("runs", "repair", run.name, "--yes")
    assert (seen.status, seen.remarks[0]) == (2, f"Error: {message}")


def test_a56_a_running_run_is_not_repaired(place: Place) -> None:
    place.write("p.prose", FIVE)
    place.prose("run", "p.prose")
    (run,) = place.runs()
    file = JournalFile(run / "journal.jsonl")
    file.take_ownership(read(file.path))
    assert (
        place.prose("runs", "repair", run.name, "--yes").remarks[0] == "Error: run RUN is being run by another process"
    )
    file.close()


# ---------------------------------------------------------------- imports whose files are missing


MODULE = """
input word: "Which?"
let said = exec "echo {word} >> ran; echo {word}"
output loud = "{said}!"
"""


@pytest.mark.parametrize("stored", [(), ("--stored",)])
@pytest.mark.parametrize("becomes", [None, "let broken =\n", 'input other: "Else?"\noutput loud = other\n'])
def test_a56_an_import_is_read_from_the_journal(place: Place, stored: tuple[str, ...], becomes: str | None) -> None:
    place.write("m.prose", MODULE)
    place.write(
        "p.prose",
        f"""
        use "./m.prose" as m
        let a = m(word: "tea")
        let b = {DIES.format("b")}
        let c = m(word: "milk")
        output d = "{{a.loud}}{{b}}{{c.loud}}"
        """,
    )
    assert place.killed("run", "p.prose").status == -signal.SIGKILL
    if becomes is None:
        (place.path / "m.prose").unlink()
    else:
        place.write("m.prose", becomes)
    seen = place.prose("run", "--resume", *stored)
    assert (seen.status, seen.out) == (0, "d: tea!bmilk!\n")
    assert place.ran == ["tea", "b", "milk"]
    place.write("m.prose", MODULE.replace("!", "?"))  # a new run reads the file
    (place.path / "b").touch()
    assert place.prose("run", "p.prose").out == "d: tea?bmilk?\n"


def test_a56_a_module_of_vvm_is_read_from_the_journal(place: Place) -> None:
    place.write("m.vvm", 'word = "tea"\nexport word\n')
    place.write("p.vvm", 'from "./m.vvm" import word\nagent a(model="m")\nx = @a `Say it` (word)\nexport x\n')
    place.write("one.yaml", "sessions: {}\n")
    place.write("two.yaml", 'sessions:\n  "Say it": "milk"\n')
    failed = place.prose("run", "p.vvm", "--state=filesystem", "--provider", "scripted", "--script", "one.yaml")
    assert failed.status == 3, failed.err
    (place.path / "m.vvm").unlink()
    seen = place.prose("run", "p.vvm", "--resume", "--provider", "scripted", "--script", "two.yaml")
    assert seen.status == 0, seen.err
    assert "summary: milk" in seen.out


def test_a56_a_changed_program_imports_from_the_journal(place: Place) -> None:
    place.write("m.prose", MODULE)
    text = f"""
        use "./m.prose" as m
        let a = m(word: "tea")
        let b = {DIES.format("b")}
        output d = "{{a.loud}}{{b}}"
        """
    place.write("p.prose", text)
    assert place.killed("run", "p.prose").status == -signal.SIGKILL
    (place.path / "m.prose").unlink()
    place.write("p.prose", text.replace("{a.loud}{b}", "{b}{a.loud}"))
    seen = place.prose("run", "--resume", "--changed")
    assert (seen.status, seen.out) == (0, "d: btea!\n")
    assert place.ran == ["tea", "b"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a52_an_inaccessible_directory_is_not_the_runs_directory(tmp_path: Path) -> None:
    """A colleague's run in PostgreSQL may have been started in their home directory."""
    closed = tmp_path / "home" / "project"
    closed.mkdir(parents=True)
    (tmp_path / "home").chmod(0o700)
    os.seteuid(65534)
    try:
        assert not is_one_of(closed, [Path("/")])
        with pytest.raises(UsageError):
            check_directory("RUN", closed, [Path("/")], "")
    finally:
        os.seteuid(0)
    assert is_one_of(closed, [tmp_path, closed])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_journal_of_another_user_is_refused(place: Place) -> None:
    place.write("p.prose", 'exec "false"\n')
    place.prose("run", "p.prose")
    (run,) = place.runs()
    os.chown(run / "journal.jsonl", 65534, 65534)
    seen = place.prose("run", "--resume", run.name)
    assert (seen.status, seen.remarks) == (
        2,
        ["Error: the journal of run RUN belongs to another user", "hint: only its owner can resume the run"],
    )
    assert "unreadable" in place.prose("runs").out


def test_a_torn_last_line_is_cut_off(place: Place) -> None:
    place.write("p.prose", 'let a = exec "echo a >> ran; echo one"\noutput b = a\n')
    place.prose("run", "p.prose")
    (run,) = place.runs()
    journal = run / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:4]) + b'12345678 {"k":"ans')
    assert place.prose("run", "--resume").out == "b: one\n"
    assert place.ran == ["a"]


# ---------------------------------------------------------------- notebooks


def _notebook(path: Path, *cells: str) -> None:
    book = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "prose", "language": "prose", "display_name": ""}})
    book.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(book, path)


def test_a_notebook_continues_in_its_unfinished_cell(place: Place) -> None:
    cells = [
        'let a = exec "echo a >> ran; echo one"',
        f'%input x=1\nlet b = "{{a}}"\nlet c = {DIES.format("c")}',
        "output d = c",
    ]
    _notebook(place.path / "n.ipynb", *cells)
    assert place.killed("run", "n.ipynb").status == -signal.SIGKILL
    _notebook(place.path / "n.ipynb", "let a = 1", *cells[1:])
    changed = place.prose("run", "--resume")
    assert changed.status == 2
    assert changed.remarks[0] == "Error: n.ipynb has changed since run RUN began:"
    assert changed.remarks[-1] == "hint: restore its cells, or run it again"
    _notebook(place.path / "n.ipynb", *cells)
    seen = place.prose("run", "--resume")
    assert (seen.status, seen.out) == (0, "d: c\n")
    assert place.ran == ["a", "c"]


def test_a_failed_cell_of_a_notebook_continues(place: Place) -> None:
    _notebook(place.path / "n.ipynb", 'exec "echo a >> ran"', 'exec "test -f there"', "output b = 1")
    assert place.prose("run", "n.ipynb").status == 1
    (place.path / "there").touch()
    seen = place.prose("run", "n.ipynb", "--resume")
    assert (seen.status, seen.out) == (0, "b: 1\n")
    assert place.ran == ["a"]


def test_a33_a_decision_for_the_next_gate_is_consumed_by_the_replayed_gate(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = 'gate go:\n  prompt: "Go?"\n'
    _notebook(place.path / "n.ipynb", f"%gate approve go\n{gate}", DIES.format("a"), f'{gate}exec "echo b >> ran"')
    assert place.killed("run", "n.ipynb").status == -signal.SIGKILL
    monkeypatch.setenv("PROSE_GATES_RESUME", "replay")
    assert place.prose("run", "--resume").status == 3
    assert place.ran == ["a"]


def test_a_variable_of_a_cancelled_branch_does_not_replace_the_programs_variable(place: Place) -> None:
    """Both variables use the same file; it keeps the last value of the program, also after a replay."""
    place.write(
        "p.prose",
        """
        let x = "one"
        exec "echo 1"
        parallel ("first"):
          do:
            let x = "inner"
            exec "sleep 20"
          exec "true"
        x = "three"
        let seen = exec "tail -n 1 .prose/runs/$PROSE_RUN/bindings/x.md"
        output all = seen
        """,
    )
    assert place.prose("run", "p.prose").out.endswith("all: three\n")
    (run,) = place.runs()
    assert place.prose("run", "--resume", run.name, "--from", "c1/5").out.endswith("all: three\n")
