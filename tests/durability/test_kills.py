"""`kill -9` loses nothing: a sample of the matrix (`make durability` runs all of it), concurrent resumes, and commands
left by a killed process."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from durability.cases import MATRIX
from durability.killed import Job, counted, journal_of
from durability.matrix import Matrix, Server, errors_of
from postgres import PostgresServer
from waiting import until

from prose_kernel.errors import UsageError
from prose_kernel.runs.resumption import resumption
from prose_kernel.storage.journal_file import JournalFile

NOT_IN_SAMPLE = {"backoff", "exec-throw", "exec-ignore", "judged-choice", "accumulators", "gate-continue", "gate-kept"}
"""One waits for long, the others differ little from programs that are killed: `make durability` kills them, too."""


@pytest.mark.parametrize("case", [name for name in MATRIX if name not in NOT_IN_SAMPLE])
def test_a_killed_run_continues_as_if_nothing_had_happened(case: str, server: Server, tmp_path: Path) -> None:
    row = Matrix(server, tmp_path).row(case, points=1)
    assert not row.problems
    assert row.kills


@pytest.mark.parametrize("case", ["parallel", "gate-retry", "imports", "vvm-pmap", "two-languages"])
def test_a_killed_run_continues_in_a_database(case: str, server: Server, tmp_path: Path) -> None:
    row = Matrix(server, tmp_path, "sqlite").row(case, points=1)
    assert not row.problems


@pytest.mark.parametrize("case", ["sequence", "parallel", "imports"])
def test_a52_a_killed_run_continues_without_its_directory(
    case: str, server: Server, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    row = Matrix(server, tmp_path, "postgres", postgres_server.empty_database).row_without_directory(case, points=1)
    assert not row.problems


AGAIN = 20 if "DURABILITY_EXAMPLES" in os.environ else 5
"""A sample; `make durability` kills more often."""


@pytest.mark.parametrize("case", ["pipelines", "nested-forks"])
def test_a_run_may_be_killed_repeatedly_while_it_resumes(case: str, server: Server, tmp_path: Path) -> None:
    runs = Matrix(server, tmp_path)
    expected, _, _ = runs.unbroken(case)
    assert runs.problem_of_kill(case, 3, "before", expected, again=AGAIN) is None


def test_one_of_two_parallel_resumes_wins_and_the_other_reports_it(server: Server, tmp_path: Path) -> None:
    runs = Matrix(server, tmp_path)
    job = runs.job("held")
    place = Path(job.place)
    died = server.run(Job("held", job.place, kill=2, when="after"))
    assert died["status"] == signal.SIGKILL, errors_of(job)
    other = Server()
    try:
        ended: dict[int, dict[str, object]] = {}
        both = [
            threading.Thread(
                target=lambda n=n, s=s: ended.update({n: s.run(Job("held", job.place, resume=True, mark=str(n)))})
            )
            for n, s in enumerate((server, other))
        ]
        for one in both:
            one.start()
        until(lambda: ended)
        (place / "ran" / "release").touch()
        for one in both:
            one.join()
    finally:
        other.close()
    won, lost = sorted(ended.values(), key=lambda one: one["status"] != 0)
    assert won["status"] == 0 and "released" in str(won["outputs"])
    run = place.glob(".prose/runs/*").__next__().name
    assert lost["raised"] == f"UsageError: run {run} is being run by another process"
    assert counted(place)["held"] == 1


def test_a_run_continued_by_another_process_is_not_overwritten(server: Server, tmp_path: Path) -> None:
    runs = Matrix(server, tmp_path)
    job = runs.job("sequence")
    server.run(Job("sequence", job.place, kill=2, when="after"))
    path = journal_of(Path(job.place))
    assert path is not None
    early = resumption(path)
    assert server.run(Job("sequence", job.place, resume=True))["status"] == 0
    whole = path.read_bytes()
    with pytest.raises(UsageError, match="has gone on in another process meanwhile"):
        JournalFile(path).continue_from(early.journal)
    assert path.read_bytes() == whole


def test_nothing_starts_before_the_commands_of_the_killed_process_have_ended(server: Server, tmp_path: Path) -> None:
    """This includes a command that ignores TERM, and a kill of the watchdog too."""
    for watchdog_too in (False, True):
        job = Matrix(server, tmp_path / str(watchdog_too)).job("stubborn")
        place = Path(job.place)
        first = threading.Thread(target=server.run, args=(job,))
        first.start()
        alive = place / "ran" / "alive"
        until(lambda alive=alive: alive.exists() and alive.read_text().endswith("\n"))
        pid = int((place / ".pid").read_text())
        if watchdog_too:
            for watchdog in _watchdogs_of(pid):
                os.kill(watchdog, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        first.join()
        ended = server.run(Job("stubborn", job.place, resume=True))
        assert ended["status"] == 0, errors_of(job)
        assert ended["outputs"] == {"said": '"gone\\n"'}


def _watchdogs_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(pid).encode() in line and any(word.endswith(b"watchdog_process.py") for word in line):
                found.append(int(entry.name))
    return found
