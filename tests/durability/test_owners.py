"""A52: a run in PostgreSQL keeps its journal there and has one owner; another machine can continue it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forked
import psycopg
import pytest
from postgres import PostgresServer
from waiting import until

from prose_kernel.cli.main import main
from prose_kernel.storage.database.kept_runs import PostgresRuns
from prose_kernel.storage.runs import KeptRun

PROGRAM = """let a = exec "echo a >> $RAN; mkdir -p sub; cd sub; echo one"
let b = exec "echo b >> $RAN; pwd | sed 's,.*/,,'"
let c = exec "echo c >> $RAN; touch $RAN.ready; until test -e $RAN.go; do sleep 0.02; done; echo three"
let d = exec "echo d >> $RAN; pwd | sed 's,.*/,,'"
output all = "{a} {b} {c} {d}"
"""


class Project:
    """A project with a database, and its running programs. The file `ran` lists the executed commands in order."""

    def __init__(self, place: Path, url: str) -> None:
        self.place, self.url = place, url
        self.ran = place / "ran"
        self.started: list[forked.Command] = []

    def directory(self, name: str, user: str = "prose") -> Path:
        """Make a directory with the program and a database user. It shares no files with others, like another machine."""
        made = self.place / name
        (made / ".prose").mkdir(parents=True)
        url = self.url.replace("prose@", f"{user}@")
        (made / ".prose/.env").write_text(f"OPENPROSE_POSTGRES_URL={url}\n")
        (made / "p.prose").write_text(PROGRAM)
        return made

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "RAN": str(self.ran), "HOME": str(self.place)}

    def start(self, directory: Path, *arguments: str) -> forked.Command:
        started = forked.Command(*arguments, cwd=directory, env=self.environment)
        self.started.append(started)
        return started

    def run(self, directory: Path, *arguments: str) -> tuple[int, str, str]:
        ran = forked.prose(*arguments, cwd=directory, env=self.environment)
        return ran.returncode, ran.stdout, ran.stderr

    def started_until_c(self, directory: Path) -> tuple[forked.Command, str]:
        """Start a run, wait until its third command runs, and return it with its id. Its lease is from its last transaction."""
        started = self.start(directory, "run", "p.prose", "--state=postgres")
        until(Path(f"{self.ran}.ready").exists)
        ((run_id,),) = self.rows("SELECT id FROM openprose.run")
        return started, run_id

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = connection.execute(statement)  # type: ignore[arg-type]
            return found.fetchall() if found.description else []

    def colleague(self) -> str:
        """Create another database user who may run programs, and return its name."""
        if not self.rows("SELECT 1 FROM pg_roles WHERE rolname = 'colleague'"):
            self.rows("CREATE ROLE colleague LOGIN")
        self.rows("GRANT USAGE ON SCHEMA openprose TO colleague")
        self.rows("GRANT ALL ON ALL TABLES IN SCHEMA openprose TO colleague")
        return "colleague"

    def expire(self) -> None:
        """Let the lease expire."""
        self.rows("UPDATE openprose.run SET x_expires = clock_timestamp() - interval '1 s'")

    def renew(self) -> None:
        """Extend the lease by an hour, because a busy machine may be slow."""
        self.rows("UPDATE openprose.run SET x_expires = clock_timestamp() + interval '1 h'")

    def go(self) -> None:
        Path(f"{self.ran}.go").touch()

    def commands(self) -> list[str]:
        return self.ran.read_text().split()


@pytest.fixture
def project(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    for name in ("OPENPROSE_POSTGRES_URL", "OPENPROSE_POSTGRES_USER_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    project = Project(tmp_path, postgres_url)
    yield project
    project.go()
    for started in project.started:
        with started:
            pass


def test_a52_a_killed_run_continues_on_another_machine(project: Project) -> None:
    """Its directory is gone, and a colleague continues it. Answered commands do not run again, and `cd` starts from the new
    directory."""
    first = project.directory("first")
    started, run_id = project.started_until_c(first)
    started.kill()
    started.wait()
    shutil.rmtree(first)
    project.expire()
    project.go()
    other = project.directory("other", project.colleague())
    (other / "sub").mkdir()
    assert project.run(other, "run", "--resume", run_id, "--state=postgres")[0] == 2  # without a question
    status, out, err = project.run(other, "run", "--resume", run_id, "--state=postgres", "--cwd", ".")
    assert (status, out) == (0, "all: one sub three sub\n"), err
    assert project.commands() == ["a", "b", "c", "c", "d"]
    assert project.rows("SELECT status, x_epoch FROM openprose.run") == [("completed", 2)]
    third = project.directory("third")  # complete: its outputs are printed again
    assert project.run(third, "run", "--resume", run_id[:15], "--state=postgres", "--cwd", str(third))[1] == out
    assert project.commands() == ["a", "b", "c", "c", "d"]
    fourth = project.directory("fourth")
    (fourth / "sub").mkdir()
    branch = ["run", "--resume", run_id, "--state=postgres", "--cwd", ".", "--from", "c1/4"]
    assert project.run(fourth, *branch)[:2] == (0, out)
    assert project.commands() == ["a", "b", "c", "c", "d", "d"]


def test_a52_a_run_that_another_machine_has_continued_meanwhile_is_not_removed(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A person may take a long time to confirm the removal."""
    started, run_id = project.started_until_c(project.directory("first"))
    started.kill()
    started.wait()
    project.expire()
    monkeypatch.chdir(project.directory("other"))
    remove = PostgresRuns.remove

    def continued_first(self: PostgresRuns, run: KeptRun) -> None:
        project.rows("UPDATE openprose.run SET x_epoch = x_epoch + 1, x_host = 'another', x_process = 'another'")
        project.renew()
        remove(self, run)

    monkeypatch.setattr(PostgresRuns, "remove", continued_first)
    assert main(["runs", "rm", run_id, "--yes"]) == 1
    assert f"run {run_id} is running on another machine" in capfd.readouterr().err
    assert project.rows("SELECT id FROM openprose.run") == [(run_id,)]


def test_a52_a_durable_request_is_in_the_database_before_its_work_begins(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Therefore another machine does not start it a second time."""
    monkeypatch.setenv("PROSE_JOURNAL", "durable")
    started, run_id = project.started_until_c(project.directory("first"))
    started.kill()
    started.wait()
    project.expire()
    project.go()
    resume = ["run", "--resume", run_id, "--state=postgres", "--cwd", ".", "--interrupted", "fail"]
    status, _, err = project.run(project.directory("other"), *resume)
    assert status == 1 and "was lost with the process" in err
    assert project.commands() == ["a", "b", "c"]


def test_a52_all_lost_runs_of_another_machine_are_resumed(project: Project) -> None:
    started, run_id = project.started_until_c(project.directory("first"))
    started.kill()
    started.wait()
    project.expire()
    project.go()
    other = project.directory("other")
    (other / "sub").mkdir()
    status, out, err = project.run(other, "runs", "resume", "--all")
    assert (status, out) == (0, "no run here was killed\n") and run_id in err
    status, out, err = project.run(other, "runs", "resume", "--all", "--cwd", ".")
    assert (status, out) == (0, "all: one sub three sub\n"), err


def test_a52_a_copy_of_the_directory_cannot_run_next_to_the_first(project: Project) -> None:
    first = project.directory("first")
    _, run_id = project.started_until_c(first)
    shutil.copytree(first / ".prose", first / "copy")
    before = (first / f"copy/runs/{run_id}/journal.jsonl").read_bytes()
    status, _, err = project.run(first, "run", "--resume", f"copy/runs/{run_id}")
    assert status == 2 and "is being run by another process" in err
    assert (first / f"copy/runs/{run_id}/journal.jsonl").read_bytes() == before
    assert project.commands() == ["a", "b", "c"]


@pytest.mark.parametrize("taken_over", [True, False])
def test_a52_a_stopped_owner_that_wakes_up_is_refused_if_it_was_taken_over(taken_over: bool, project: Project) -> None:
    first = project.directory("first")
    started, run_id = project.started_until_c(first)
    started.send_signal(signal.SIGSTOP)
    project.expire()
    project.go()
    if taken_over:
        other = project.directory("other")
        (other / "sub").mkdir()
        assert project.run(other, "run", "--resume", run_id, "--state=postgres", "--cwd", ".")[0] == 0
    started.send_signal(signal.SIGCONT)
    out, err = started.communicate(timeout=60)
    if not taken_over:
        assert (started.returncode, out) == (0, "all: one sub three sub\n")
        return
    assert started.returncode == 1
    assert "was taken over" in err and "E219" in err
    assert project.commands() == ["a", "b", "c", "c", "d"]  # it has not begun the next one
    kept = project.rows("SELECT string_agg(lines, '' ORDER BY start) FROM openprose.x_journal")[0][0]
    assert kept == (other / f".prose/runs/{run_id}/journal.jsonl").read_bytes()
    status, out, err = project.run(first, "run", "--resume", run_id, "--cwd", ".")  # the database has the later journal
    assert (status, out) == (0, "all: one sub three sub\n"), err


def test_a52_the_clock_of_the_owner_does_not_matter(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import datetime, timedelta

    from prose_kernel.runtime.clock import SystemClock

    here = SystemClock.now

    def late(self: SystemClock) -> datetime:
        return here(self) - timedelta(hours=1)

    monkeypatch.setattr(SystemClock, "now", late)
    monkeypatch.setenv("RAN", str(project.ran))
    directory = project.directory("first")
    monkeypatch.chdir(directory)
    (directory / "p.prose").write_text('let a = exec "echo one"\n')
    seen: list[Any] = []
    from prose_kernel.storage.database.row_writer import RowWriter

    close = RowWriter.close

    def closing(self: RowWriter) -> None:
        seen.extend(project.rows("SELECT x_expires - clock_timestamp() FROM openprose.run"))
        close(self)

    monkeypatch.setattr(RowWriter, "close", closing)
    assert main(["run", "p.prose", "--state=postgres"]) == 0
    ((left,),) = seen
    assert timedelta() < left <= timedelta(seconds=30)


@pytest.mark.parametrize(("change", "state"), [(Project.renew, "running"), (Project.expire, "lost")])
def test_a50_a_run_without_its_process_is_not_listed_as_running_for_ever(
    change: Callable[[Project], None], state: str, project: Project, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    started, run_id = project.started_until_c(project.directory("first"))
    started.kill()
    started.wait()
    change(project)
    monkeypatch.chdir(project.directory("other"))
    assert main(["runs"]) == 0
    assert f"{run_id}  {state} " in capsys.readouterr().out
    if state == "running":
        assert main(["runs", "rm", run_id, "--yes"]) == 1
    assert project.rows("SELECT id, status FROM openprose.x_runs") == [(run_id, state)]


def test_a56_tables_of_version_1_are_migrated(project: Project, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    directory = project.directory("first")
    (directory / "p.prose").write_text('output a = "one"\n')
    monkeypatch.chdir(directory)
    assert main(["run", "p.prose", "--state=postgres"]) == 0
    columns = ", ".join(f"DROP COLUMN {name}" for name in ("x_epoch", "x_host", "x_process", "x_expires"))
    project.rows(f"DROP VIEW openprose.x_runs; DROP TABLE openprose.x_journal; ALTER TABLE openprose.run {columns}")
    project.rows("UPDATE openprose.x_meta SET value = '1' WHERE name = 'schema_version'")
    capsys.readouterr()
    assert main(["runs"]) == 0
    assert " done " in capsys.readouterr().out
    assert main(["run", "p.prose", "--state=postgres"]) == 0
    assert project.rows("SELECT value FROM openprose.x_meta WHERE name = 'schema_version'") == [("2",)]
    assert project.rows("SELECT status, x_epoch FROM openprose.run ORDER BY x_epoch") == [
        ("completed", 0),
        ("completed", 1),
    ]


def test_a_run_of_another_database_is_refused(
    project: Project, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    directory = project.directory("first")
    (directory / "p.prose").write_text('exec "echo a >> $RAN"\nexec "test -e $RAN.go"\n')
    monkeypatch.chdir(directory)
    monkeypatch.setenv("RAN", str(project.ran))
    assert main(["run", "p.prose", "--state=postgres"]) == 1
    project.go()
    (directory / ".prose/.env").write_text(f"OPENPROSE_POSTGRES_URL={postgres_server.new_database()}\n")
    capsys.readouterr()
    assert main(["run", "--resume"]) == 1
    assert "E219" in (err := capsys.readouterr().err) and "prose runs rebuild" in err
    assert main(["runs", "rebuild"]) == 0
    assert main(["run", "--resume"]) == 0
    assert project.commands() == ["a"]
