"""`prose runs rebuild` restores the rows of a run in a database from its journal.

Not compared, because they change (`durability.killed.UNSTEADY` and `OWNERS`): all times, serial numbers, and the table `x_gates`,
which names the process that waits at a gate.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import psycopg
import pytest
from durability.cases import CASES, MATRIX
from durability.killed import Job, journal_of, rows_of
from durability.matrix import Matrix, Server, difference, errors_of

from prose_kernel.cli.main import main
from prose_kernel.storage.database.schema import DatabaseError
from prose_kernel.storage.database.sqlite import SqliteConnection
from prose_kernel.storage.journal_file import JournalFile
from prose_kernel.storage.journal_reading import read

AS_OTHERS = {
    *("sequence", "parallel", "any", "retry", "judged-choice", "accumulators", "exec-throw", "exec-continue"),
    *("exec-ignore", "nested-forks", "gate-kept-all", "notebook", "failing-cells"),
}
"""Programs whose rows and records are of the kinds that those of the others are: `make durability` rebuilds them, too."""
LEFT_OUT = set() if "DURABILITY_EXAMPLES" in os.environ else AS_OTHERS
IN_DATABASES = [name for name in MATRIX if CASES[name].cells[0][0] == "openprose" and name not in LEFT_OUT]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENPROSE_POSTGRES_URL", "OPENPROSE_POSTGRES_USER_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def begun(job: Job, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use the environment of a job that has begun a run, and return the directory of the run."""
    path = journal_of(Path(job.place))
    assert path is not None, errors_of(job)
    monkeypatch.chdir(job.place)
    monkeypatch.setenv("HOME", str(Path(job.place, "home")))
    if job.url:
        monkeypatch.setenv("OPENPROSE_POSTGRES_URL", job.url)
    return path.parent


def drop_tables(directory: Path, job: Job) -> None:
    if job.backend == "sqlite":
        with contextlib.closing(sqlite3.connect(directory / "state.db")) as lite:
            names = [name for (name,) in lite.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for name in names:
                if name != "sqlite_sequence":
                    lite.execute(f"DROP TABLE {name}")
    else:
        with psycopg.connect(job.url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA openprose CASCADE")


def rebuilt(directory: Path, job: Job) -> dict[str, list[str]]:
    drop_tables(directory, job)
    assert main(["runs", "rebuild", directory.name]) == 0
    return rows_of(directory, job)


@pytest.mark.parametrize("case", IN_DATABASES)
def test_a_run_without_tables_gets_its_rows_back(
    case: str, server: Server, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Matrix(server, place, "sqlite").job(case)
    then = server.run(job)["rows"]
    directory = begun(job, monkeypatch)
    now = rebuilt(directory, job)
    assert then["execution"]
    assert now == then, difference(then, now)


@pytest.mark.parametrize("case", ["gate-retry", "imports", "two-languages"])
def test_a_run_in_postgres_gets_its_rows_back(
    case: str, server: Server, place: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    job = Matrix(server, place, "postgres", lambda: postgres_url).job(case)
    then = server.run(job)["rows"]
    now = rebuilt(begun(job, monkeypatch), job)
    assert now == then, difference(then, now)


@pytest.mark.parametrize("case", ["sequence", "parallel", "imports"])
def test_a_killed_run_gets_its_stored_rows_back(
    case: str, server: Server, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal may have more than the database had, because it is written first."""
    job = Matrix(server, place, "sqlite").job(case, kill=4, when="after")
    assert server.run(job)["status"] == 9
    directory = begun(job, monkeypatch)
    then = rows_of(directory, job)
    now = rebuilt(directory, job)
    for table in then.keys() - {"run"}:
        assert set(then[table]) <= set(now[table])
    assert "'running'" in now["run"][0]


@pytest.fixture
def finished(server: Server, place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a finished run."""
    job = Matrix(server, place, "sqlite").job("sequence")
    server.run(job)
    return begun(job, monkeypatch)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["runs", "rebuild", *arguments]) == 2
    return capsys.readouterr().err


def test_without_a_name_the_last_run_in_a_database_is_rebuilt(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", "rebuild"]) == 0
    assert capsys.readouterr().out.startswith(f"rebuilt {finished.name} in SQLite (state.db): ")


def test_existing_gate_records_are_kept(server: Server, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Matrix(server, place, "sqlite").job("gate-retry")
    server.run(job)
    directory = begun(job, monkeypatch)
    with contextlib.closing(sqlite3.connect(directory / "state.db")) as lite:
        lite.execute("UPDATE gates SET resolution_comment = 'kept'")
        lite.commit()
        before = lite.execute("SELECT * FROM gate_audit_log").fetchall()
        assert main(["runs", "rebuild"]) == 0
        assert lite.execute("SELECT DISTINCT resolution_comment FROM gates").fetchall() == [("kept",)]
        assert lite.execute("SELECT * FROM gate_audit_log").fetchall() == before


def test_a_running_run_is_refused(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = JournalFile(finished / "journal.jsonl")
    file.take_ownership(read(file.path))
    assert "is being run by another process" in refused(capsys, finished.name)
    file.close()


def test_a_damaged_journal_is_reported_with_its_line(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = finished / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:3], lines[3].replace(b"c1/", b"c2/"), *lines[4:]]))
    before = (finished / "state.db").read_bytes()
    assert f"line 4 of the journal of run {finished.name} is damaged" in refused(capsys, finished.name)
    assert (finished / "state.db").read_bytes() == before


def test_a_journal_of_another_version_is_refused(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = finished / "journal.jsonl"
    head, *rest = journal.read_bytes().splitlines(keepends=True)
    body = head[9:-1].replace(b'{"k":"head"', b'{"k":"head","version":9', 1)
    journal.write_bytes(b"%08x %b\n" % (zlib.crc32(body), body) + b"".join(rest))
    assert f"the journal of run {finished.name} has version 9" in refused(capsys, finished.name)


def test_a_refusal_gives_its_reason(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is no run 2020" in refused(capsys, "2020")
    assert "the name of a run is empty" in refused(capsys, "")
    state = finished / "state.db"
    with contextlib.closing(sqlite3.connect(state)) as lite:
        lite.execute("UPDATE x_meta SET value = '99'")
        lite.commit()
    assert "has schema version 99" in refused(capsys, finished.name)
    for file in finished.glob("state.db*"):
        file.unlink()
    state.write_bytes(b"no database" * 100)
    seen = refused(capsys, finished.name)
    assert "[E219]" in seen and "remove the damaged state.db of the run" in seen
    (finished.parents[2] / "elsewhere").mkdir()
    monkeypatch.chdir(finished.parents[2] / "elsewhere")
    assert "was begun in another directory" in refused(capsys, str(finished))
    (finished / "journal.jsonl").unlink()
    assert "has no journal here" in refused(capsys, str(finished))


def test_the_hint_fits_the_state_of_the_database(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    again, remove = "rebuild it again when the cause is gone", "remove the damaged state.db of the run"
    for error, hint in (
        (DatabaseError("no space left on the disk", busy=True), again),
        (DatabaseError("it is damaged", damaged=True), remove),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(SqliteConnection, "executemany", Mock(side_effect=error))
            seen = refused(capsys, finished.name)
        assert str(error) in seen and f"nothing was changed; {hint}" in seen
    for file in finished.glob("state.db*"):
        file.unlink()
    (finished / "state.db").mkdir()
    seen = refused(capsys, finished.name)
    assert again in seen and remove not in seen


def test_a_run_in_files_has_no_rows(
    server: Server, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Matrix(server, place).job("sequence")
    server.run(job)
    directory = begun(job, monkeypatch)
    assert "is not kept in a database" in refused(capsys, directory.name)
    assert "no run here is kept in a database" in refused(capsys)
