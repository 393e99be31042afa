"""`prose runs`: listing, showing, comparing and removing runs."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from prose_kernel.access import plain_files
from prose_kernel.cli.main import main
from prose_kernel.errors import UsageError
from prose_kernel.runs.resumption import branch
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.journal_records import Answered, Asked, Ended, Finished
from prose_kernel.storage import file_history, journal_reading
from prose_kernel.storage.journal_file import JournalFile
from prose_kernel.storage.journal_reading import NAME, read
from prose_kernel.storage.runs import Directories, find, places

RUN = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
PROGRAM = 'let a = exec "cat word"\noutput b = "{a}!"\nlet c = exec "test -f there"\n'


class Prose:
    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: str, status: int = 0) -> str:
        """Run a command and return its output, with ids, times and sizes replaced."""
        assert main(list(arguments)) == status
        out, err = self._capfd.readouterr()
        text = RUN.sub("RUN", out + err)
        return re.sub(r"\d+ k?B\b", "SIZE", re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text))

    def data(self, *arguments: str) -> list[dict[str, object]]:
        assert main([*arguments, "--format", "json"]) == 0
        found: list[dict[str, object]] = json.loads(self._capfd.readouterr().out)
        return found


@pytest.fixture
def prose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Prose:
    monkeypatch.chdir(tmp_path)
    Path("p.prose").write_text(PROGRAM)
    Path("word").write_text("one\n")
    return Prose(capfd)


@pytest.fixture
def ids(prose: Prose) -> list[str]:
    """Make a failed run and a completed one, and return their ids."""
    prose("run", "p.prose", status=1)
    Path("there").touch()
    Path("word").write_text("two\n")
    prose("run", "p.prose")
    return [str(run["run"]) for run in prose.data("runs")]


def test_runs_are_listed(prose: Prose, ids: list[str]) -> None:
    old = Path(".prose/runs/20200101-000000-abcdef")
    old.mkdir()
    (old / "state.md").write_text("# run:20200101-000000-abcdef old.prose\n\n1→ ✓\n---end 2020-01-01T00:00:01Z\n")
    (old.parent / "20200101-000001-abcdef").mkdir()
    (old.parent / "notes").mkdir()
    lines = [" ".join(line.split()) for line in prose("runs").splitlines()]
    assert lines == [
        "run state program language begun cells answers size",
        "RUN done old.prose TIME - - SIZE",
        "RUN unknown TIME - - SIZE",
        "RUN failed p.prose openprose TIME 1 2 SIZE",
        "RUN done p.prose openprose TIME 1 2 SIZE",
    ]
    assert prose("runs", "list") == prose("runs")
    assert prose.data("runs")[2]["run"] == ids[0]


def test_a_name_with_a_line_feed_is_shown_on_one_line(prose: Prose) -> None:
    Path("a\nb.prose").write_text(PROGRAM)
    failed = prose("run", "a\nb.prose", status=1)
    assert "ExecError at line 3, column 9 of a\\nb.prose:" in failed
    assert [line.split()[2] for line in prose("runs").splitlines()] == ["program", "a\\nb.prose"]
    (run,) = prose.data("runs")
    assert run["program"] == "a\nb.prose"
    shown = prose("runs", "show", str(run["run"]))
    assert "  program    a\\nb.prose (openprose)\n" in shown
    assert "c1  a\\nb.prose, failed: exec failed with exit code 1\n" in shown
    assert "Resuming run RUN of a\\nb.prose: 1 answer is known.\n" in prose("run", "--resume", status=1)


def test_the_last_run_is_the_last_one_also_after_the_clock_was_set_back(
    prose: Prose, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("q.prose").write_text(PROGRAM)
    with monkeypatch.context() as patch:
        patch.setattr(SystemClock, "now", lambda clock: datetime.now(UTC) + timedelta(hours=1))
        prose("run", "p.prose", status=1)
    prose("run", "q.prose", status=1)
    first, last = prose.data("runs")
    assert [first["program"], last["program"]] == ["p.prose", "q.prose"]
    assert "Resuming run RUN of q.prose: 1 answer is known." in prose("run", "--resume", status=1)
    prose("runs", "fork", str(last["run"]), "c1/3")
    assert [run["state"] for run in prose.data("runs")] == ["failed", "failed", "killed"]
    assert "q-" in prose("report")


@pytest.mark.parametrize("command", [("runs", "fork", "RUN", "c1"), ("run", "--resume", "RUN", "--from", "c1")])
def test_a_branch_of_a_vvm_run_is_the_last_one_in_a_state_directory_too(
    prose: Prose, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    Path("prose.toml").write_text('state_dir = "kept"\n')
    Path("p.vvm").write_text("agent a()\nx = @a `Say`(())\nexport x\n")
    Path("s.yaml").write_text("sessions: {}\n")
    prose("run", "p.vvm", "--state=filesystem", "--provider=scripted", "--script=s.yaml", status=3)
    (first,) = prose.data("runs")
    with monkeypatch.context() as patch:
        patch.setattr(SystemClock, "now", lambda clock: datetime.now(UTC) + timedelta(hours=1))
        prose("run", "p.prose", status=1)
    words = [str(first["run"]) if word == "RUN" else word for word in command]
    prose(*words, status=3 if command[0] == "run" else 0)
    assert [Path(str(run["program"])).name for run in prose.data("runs")] == ["p.vvm", "p.prose", "p.vvm"]


@pytest.mark.parametrize("command", ["runs", "gates"])
def test_an_unreadable_directory_of_runs_is_an_error(prose: Prose, command: str) -> None:
    Path(".prose").mkdir()
    Path(".prose/runs").symlink_to("runs")
    assert prose(command, status=2).startswith("Error: .prose/runs cannot be read: ")


def test_one_run_is_shown(prose: Prose, ids: list[str]) -> None:
    assert (
        prose("runs", "show", ids[0])
        == """\
run RUN: failed
  program    p.prose (openprose)
  begun      TIME UTC
  kept in    .prose/runs/RUN, SIZE
  directory  """
        + f"""{Path.cwd()}
  answers    2

c1  p.prose, failed: exec failed with exit code 1
  | let a = exec "cat word"
  | output b = "{{a}}!"
  | let c = exec "test -f there"
  ✓ c1/1/x0  command cat word → one
  ✗ c1/3/x0  command test -f there → exit code 1

bindings
  a (let) = one
  b (output) = one!

to resume it: prose run --resume RUN
"""
    )
    assert main(["runs", "show", ids[1], "--format", "json"]) == 0


def test_two_runs_are_compared(prose: Prose, ids: list[str]) -> None:
    assert prose("runs", "diff", ids[0], ids[0]) == "no differences\n"
    Path("p.prose").write_text(PROGRAM + "output d = 1\n")
    prose("run", "p.prose")
    newest = str(prose.data("runs")[-1]["run"])
    assert (
        prose("runs", "diff", ids[0], newest, status=1)
        == """\
--- run RUN
+++ run RUN

text c1
   let c = exec "test -f there"
  +output d = 1

answer c1/1/x0
   command cat word
  -✓ one
  +✓ two

answer c1/3/x0
   command test -f there
  -✗ exit code 1
  +✓

binding a
  -one
  +two

binding b
  -one!
  +two!

binding c
  +(empty)

binding d
  +1
"""
    )


def test_runs_are_removed(prose: Prose, ids: list[str]) -> None:
    runs = Path(".prose/runs")
    assert prose("runs", "rm", status=2).endswith("Error: name the runs, or give --older or --all-finished\n")
    assert prose("runs", "rm", ids[0], status=2) == (
        "Error: 1 run would be removed; confirmation needs a terminal\nhint: add --yes\n"
    )
    assert prose("runs", "rm", "--older", "1h", "--yes") == "nothing to remove\n"
    assert "'soon' isn't an age such as 12h, 30d or 8w" in prose("runs", "rm", "--older", "soon", status=2)
    (runs / "20200101-000000-abcdef").mkdir()
    assert prose("runs", "rm", "--older", "1h", "--yes") == (
        "nothing to remove\n1 run of which it is not known to have ended stay; name one to remove it\n"
    )
    assert prose("runs", "rm", "2020", "--yes") == "removed RUN\n"
    assert prose("runs", "rm", "--all-finished", "--yes") == "removed RUN\n"
    assert [path.name for path in runs.iterdir()] == [ids[0]]
    assert prose("runs", "rm", ids[0], "--yes") == "removed RUN\n"
    assert list(runs.iterdir()) == []
    assert prose("runs") == "no run is kept here\n"


def test_a_run_that_is_removed_while_it_is_listed_is_left_out(
    prose: Prose, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_facts = journal_reading.read_facts

    def remove_and_read(path: Path) -> object:
        if ids[0] in str(path):
            shutil.rmtree(path.parent)
        return read_facts(path)

    monkeypatch.setattr(journal_reading, "read_facts", remove_and_read)
    assert [run["run"] for run in prose.data("runs")] == ids[1:]


def test_a_run_that_is_removed_before_it_is_continued_stays_removed(ids: list[str]) -> None:
    """Two processes remove it, or one resumes it while the other removes it."""
    place = Directories(Path(".prose/runs"))
    journal = place.run(ids[0]).kept_journal()
    place.remove(place.run(ids[0]))
    with pytest.raises(UsageError, match=f"run {ids[0]} was removed meanwhile"):
        JournalFile(journal.path).continue_from(journal)
    assert not journal.path.parent.exists()


def test_the_next_removal_completes_an_interrupted_one(ids: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(shutil, "rmtree", interrupt)
        assert main(["runs", "rm", "--yes", ids[0]]) == 130
    assert len(list(Path(".prose/runs").iterdir())) == 2
    assert main(["runs", "rm", "--yes", ids[1]]) == 0
    assert list(Path(".prose/runs").iterdir()) == []


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), asyncio.CancelledError()])
def test_a_branch_that_cannot_be_written_leaves_nothing(
    ids: list[str], monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    place = Directories(Path(".prose/runs"))
    before = sorted(run.id for run in place.runs())

    def fails(run: Path, new: Path, *_: object) -> None:
        (new / "files").mkdir(parents=True)
        raise failure

    monkeypatch.setattr(file_history, "copy", fails)
    with pytest.raises((UsageError, asyncio.CancelledError)):
        branch(place.run(ids[0]).kept_journal(), 3, SystemClock())
    assert sorted(run.id for run in place.runs()) == before


def test_runs_in_sqlite(prose: Prose) -> None:
    prose("run", "p.prose", "--state=sqlite", status=1)
    shown = prose("runs", "show", "20")
    assert "bindings\n  a (let) = one\n  b (output) = one!\n" in shown
    Path("there").touch()
    assert "b: one!" in prose("run", "--resume")
    assert "c (let) = " in prose("runs", "show", "20")
    assert prose("runs", "rm", "20", "--yes") == "removed RUN\n"


def test_runs_in_postgres(prose: Prose, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENPROSE_POSTGRES_URL", postgres_url)
    prose("run", "p.prose", "--state=postgres", status=1)
    Path("there").touch()
    Path("word").write_text("two\n")
    prose("run", "p.prose", "--state=postgres")
    assert "bindings\n  a (let) = one\n  b (output) = one!\n" in prose(
        "runs", "show", str(prose.data("runs")[0]["run"])
    )
    assert "b: one!" in prose("run", "--resume")
    shutil.rmtree(".prose")  # as on another machine
    seen = prose.data("runs")
    assert [(run["state"], run["program"], run["cells"]) for run in seen] == [("done", "p.prose", None)] * 2
    first, last = (str(run["run"]) for run in seen)
    shown = prose("runs", "show", last)
    assert "c (let) = " in shown and "✓ c1/3/x0  command " in shown
    assert prose("runs", "diff", first, last, status=1).count("answer c1/") == 1
    assert prose("report", first, "-o", "-").startswith("<!doctype html>")
    assert not Path(".prose").exists()
    assert "begins as a branch of run RUN before c1/3, with 1 answer." in prose("runs", "fork", last, "c1/3")
    shutil.rmtree(".prose")
    assert prose("runs", "rm", "--all-finished", "--yes") == "removed RUN\n" * 2
    assert prose("runs") == "no run is kept here\n"


# ---------------------------------------------------------------- many runs


def _many(count: int, records: int = 0) -> None:
    """Copy the only run; add `records` requests to the journal of the first copy."""
    (run,) = Path(".prose/runs").iterdir()
    for number in range(count):
        shutil.copytree(run, run.with_name(f"20260101-000000-{number:06x}"))
    if records:
        journal = JournalFile(run.with_name("20260101-000000-000000") / NAME)
        journal.continue_from(found := read(run.with_name("20260101-000000-000000") / NAME))
        for number in range(records):
            journal.append(Asked(f"c2/{number}/x0", "command", "digest", "x" * 100))
            journal.append(Answered(f"c2/{number}/x0"))
        status = found.finished.status if found.finished is not None else "done"
        journal.append(Ended(1, status))
        journal.append(Finished(status))
        journal.close()


def test_a49_a_list_reads_only_the_ends_of_journals(
    prose: Prose, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("there").touch()
    prose("run", "p.prose")
    _many(3, records=5000)
    opened: list[int] = []

    class Counted(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            found = super().read(-1 if size is None else size) or b""
            opened[-1] += len(found)
            return found

    def reading(path: Path, most: int | None) -> io.FileIO:
        opened.append(0)
        return Counted(path)

    monkeypatch.setattr(plain_files, "reading", reading)
    listed = prose.data("runs")
    assert len(opened) == len(listed) == 4 and max(opened) <= 2 * 65536
    assert [run["state"] for run in listed] == ["done"] * 4
    long, *others = listed
    assert (long["cells"], long["answers"]) == (None, None)
    assert {(run["cells"], run["answers"]) for run in others} == {(1, 2)}
    opened.clear()
    find(places(Path(), ".prose"), "20260101-000000-000001")
    assert opened == []  # a complete id needs no search


@pytest.mark.parametrize("forged", [b'00000000 {"k":"finished"}\n', b'{"k":"finished"}\n', b"no record\n"])
@pytest.mark.parametrize("records", [0, 2000])
def test_a49_a_forged_last_line_ends_no_run(prose: Prose, forged: bytes, records: int) -> None:
    prose("run", "p.prose", status=1)
    _many(1, records=records)
    with (Path(".prose/runs/20260101-000000-000000") / NAME).open("ab") as file:
        file.write(forged)
    before = prose.data("runs")
    assert [run["state"] for run in before] == [before[1]["state"]] * 2 and before[1]["state"] == "failed"
