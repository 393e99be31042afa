"""A40: a store becomes full, unreachable or damaged during a run. Recorded requests are never repeated."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sqlite3
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from durability.test_bad_journals import first_journal, workspace
from postgres import PostgresServer
from storage.backends import tiny_disk
from waiting import until

from prose_kernel.cli.main import main
from prose_kernel.cli.narrator import Narrator
from prose_kernel.errors import RunError, StoreFailed
from prose_kernel.runs.resumption import resumption
from prose_kernel.runs.run import Run
from prose_kernel.runtime.events import StoreWaits
from prose_kernel.runtime.journal_codec import encode, is_store_failure
from prose_kernel.runtime.journal_records import Answered, Completed
from prose_kernel.runtime.ports import CommandResult
from prose_kernel.storage.database import postgres, row_writer
from prose_kernel.storage.database.gate_records import DatabaseRecords
from prose_kernel.storage.gates.records import RecordsUnavailable
from prose_kernel.storage.journal_file import JournalFile
from prose_kernel.storage.run_directory import RunStore
from prose_kernel.storage.runs import Directories, all_runs

SLOW = """let a = exec "echo a >> ran; echo one"
try:
  let b = exec "echo b >> ran; touch ready; until test -e go; do sleep 0.02; done; echo two"
catch:
  exec "echo caught >> ran"
let c = exec "echo c >> ran; echo three"
output all = "{a} {b} {c}"
"""
FULL = """let a = exec "echo a >> {0}/ran; echo one"
try:
  let b = exec "echo b >> {0}/ran; test -e filled || head -c {2} /dev/zero > fill || true; touch filled; head -c {1} /dev/zero | tr '\\\\0' b"
catch:
  exec "echo caught >> {0}/ran"
let c = exec "echo c >> {0}/ran; head -c 30000 /dev/zero | tr '\\\\0' c"
let d = exec "echo d >> {0}/ran; echo four"
output last = d
"""


@pytest.fixture
def server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_postgres_server: PostgresServer
) -> Iterator[PostgresServer]:
    """A server with a short wait for its answers, and a project that uses it."""
    monkeypatch.chdir(tmp_path)
    for name in ("OPENPROSE_POSTGRES_URL", "OPENPROSE_POSTGRES_USER_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PROSE_STATE_WAIT", "0.2 s")
    monkeypatch.setattr(postgres, "_SILENT_SECONDS", 0.5)
    Path(".prose").mkdir()
    Path(".prose/.env").write_text(f"OPENPROSE_POSTGRES_URL={own_postgres_server.new_database()}\n")
    Path("p.prose").write_text(SLOW)
    return own_postgres_server


Meanwhile = Callable[[Callable[[], None]], None]


@pytest.fixture
def meanwhile() -> Iterator[Meanwhile]:
    """Call a function in a thread as soon as the program's command that waits for `go` is running. The thread lives until
    the test ends, because a server that it starts ends with it."""
    ended = threading.Event()
    threads = list[threading.Thread]()

    def start(action: Callable[[], None]) -> None:
        def act() -> None:
            until(Path("ready").exists)
            action()
            ended.wait()

        threads.append(threading.Thread(target=act))
        threads[-1].start()

    yield start
    ended.set()
    for thread in threads:
        thread.join()


def locked_until(event: threading.Event) -> None:
    """Lock the SQLite file of the only run, and let its command end."""
    (file,) = Path(".prose/runs").glob("*/state.db")
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        Path("go").touch()
        event.wait(30)


def stopped(server: PostgresServer) -> Callable[[], None]:
    server.stop(signal.SIGQUIT)
    return server.start


def silent(server: PostgresServer) -> Callable[[], None]:
    pids = [
        int(pid) for (pid,) in _rows(server, "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'prose%'")
    ]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)

    def restore() -> None:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    return restore


def frozen(server: PostgresServer) -> Callable[[], None]:
    """Stop also the process that accepts connections."""
    ((place,),) = _rows(server, "SHOW data_directory")
    pid = int(Path(place, "postmaster.pid").read_text().split()[0])
    restore = silent(server)
    os.kill(pid, signal.SIGSTOP)

    def continues() -> None:
        os.kill(pid, signal.SIGCONT)
        restore()

    return continues


def without_schema(server: PostgresServer) -> Callable[[], None]:
    _rows(server, "DROP SCHEMA openprose CASCADE")
    return lambda: None


def _rows(server: PostgresServer, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(server.url("test_1"), autocommit=True) as connection:
        found = connection.execute(statement)  # type: ignore[arg-type]
        return found.fetchall() if found.description else []


@pytest.mark.parametrize("lose", [stopped, without_schema])
def test_a40_a_database_lost_while_a_command_runs_repeats_nothing(
    lose: Callable[[PostgresServer], Callable[[], None]], server: PostgresServer, capfd: pytest.CaptureFixture[str]
) -> None:
    restore = list[Callable[[], None]]()

    def lost() -> None:
        until(Path("ready").exists)
        restore.append(lose(server))
        Path("go").touch()

    thread = threading.Thread(target=lost)
    thread.start()
    status = main(["run", "p.prose", "--state=postgres", "--format=json"])
    thread.join()
    restore[0]()
    result = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (status, result["error"]["code"], result["error"]["line"]) == (1, "E219", None)
    assert main(["run", "--resume"]) == 0
    assert capfd.readouterr().out == "all: one two three\n"
    assert Path("ran").read_text().split() == ["a", "b", "c"]
    bound = _rows(server, "SELECT name FROM openprose.bindings ORDER BY name")
    assert [name for (name,) in bound] == ["a", "all", "b", "c"]
    assert _rows(server, "SELECT status FROM openprose.run") == [("completed",)]


def test_a50_a_server_that_answers_too_late_is_asked_over_another_connection(
    server: PostgresServer, capfd: pytest.CaptureFixture[str], meanwhile: Meanwhile
) -> None:
    restore = list[Callable[[], None]]()

    def lost() -> None:
        restore.append(silent(server))
        Path("go").touch()

    meanwhile(lost)
    assert main(["run", "p.prose", "--state=postgres"]) == 0
    restore[0]()
    assert capfd.readouterr().out.endswith("all: one two three\n")
    assert Path("ran").read_text().split() == ["a", "b", "c"]


@pytest.mark.parametrize("damage", ["bindings", "gates", "file"])
def test_a40_the_hint_for_a_damaged_file_names_the_way_to_rebuild_it(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.prose").write_text(
        'let a = exec "echo a >> ran; echo one"\ngate go:\n  prompt: "Go?"\n'
        'exec "echo b >> ran; test -f mended"\ngate on:\n  prompt: "On?"\noutput all = a\n'
    )
    assert main(["run", "p.prose", "--state=sqlite", "--yes=go"]) == 1
    (file,) = Path(".prose/runs").glob("*/state.db")
    if damage == "file":
        file.write_text("not a database")
    else:
        with contextlib.closing(sqlite3.connect(file)) as database:
            database.execute(f"DROP TABLE {damage}")
    Path("mended").touch()
    capfd.readouterr()
    assert main(["run", "--resume", "--yes=go", "--yes=on"]) == 1
    rebuild = ["runs", "rebuild", file.parent.name]
    hint = f"hint: remove the state.db of the run, then type: prose {' '.join(rebuild)}\n"
    assert hint in capfd.readouterr().err
    file.unlink()
    assert main(rebuild) == 0
    capfd.readouterr()
    assert main(["run", "--resume", "--yes=go", "--yes=on"]) == 0
    assert capfd.readouterr().out == "all: one\n"
    assert Path("ran").read_text().split() == ["a", "b", "b"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from tiny_disk(tmp_path, 512)


@pytest.mark.parametrize(("state", "size", "fill"), [("filesystem", 30_000, 420_000), ("sqlite", 1_000, 600_000)])
def test_a40_a_full_disk_ends_a_run_that_continues_when_there_is_room(
    state: str,
    size: int,
    fill: int,
    tmp_path: Path,
    small_disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(small_disk)
    monkeypatch.setenv("PROSE_STATE_WAIT", "0 s")
    Path("p.prose").write_text(FULL.format(tmp_path, size, fill))
    assert main(["run", "p.prose", f"--state={state}", "--format=json"]) == 1
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["error"]["code"] == "E219"
    (run,) = all_runs([Directories(Path(".prose/runs"))])
    assert run.journal is not None
    answered = run.journal.answers()
    ran = (tmp_path / "ran").read_text().split()
    assert "caught" not in ran
    assert main(["run", "--resume"]) == 1  # there is no room yet
    assert (tmp_path / "ran").read_text().split()[:answered] == ran[:answered]
    Path("fill").unlink()
    capfd.readouterr()
    assert main(["run", "--resume"]) == 0
    assert capfd.readouterr().out == "last: four\n"
    ran = (tmp_path / "ran").read_text().split()
    assert [ran.count(name) for name in "abcd"[:answered]] == [1] * answered
    assert ran[-1] == "d"


def test_a40_a_run_killed_after_its_store_has_failed_continues_before_that(
    tmp_path: Path, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The journal has no record of the run's end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROSE_STATE_WAIT", "0 s")
    Path("p.prose").write_text(SLOW)
    failed = threading.Event()

    meanwhile(lambda: locked_until(failed))
    assert main(["run", "p.prose", "--state=sqlite"]) == 1
    failed.set()
    (run,) = all_runs([Directories(Path(".prose/runs"))])
    lines = run.path.read_bytes().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if b'"StoreFailed"' in line)
    assert len(lines) > last + 1
    run.path.write_bytes(b"".join(lines[: last + 1]))
    capfd.readouterr()
    assert main(["run", "--resume"]) == 0
    assert capfd.readouterr().out == "all: one two three\n"
    assert Path("ran").read_text().split() == ["a", "b", "c"]


def run_with_lost_gate(program: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Run a program with a gate that cannot be recorded in the database."""

    def lost(self: DatabaseRecords, *work: object, **options: object) -> None:
        raise RecordsUnavailable("the gate could not be recorded")

    Path("p.prose").write_text(program)
    monkeypatch.setenv("PROSE_STATE_WAIT", "0 s")
    with monkeypatch.context() as patch:
        patch.setattr(DatabaseRecords, "_call", lost)
        assert main(["run", "p.prose", "--state=sqlite", "--yes=go", "--format=json"]) == 1
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["error"]["code"] == "E219"


def test_a40_a_gate_that_the_store_did_not_record_is_asked_by_the_resumed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program = 'exec "echo a >> ran"\ngate go:\n  prompt: "Go?"\nexec "echo b >> ran"\n'
    run_with_lost_gate(program, monkeypatch, capfd)
    assert main(["run", "--resume", "--yes=go"]) == 0
    assert Path("ran").read_text().split() == ["a", "b"]


def test_a40_a_command_that_ends_when_the_store_has_failed_does_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its result came after the failure, and its branch was cancelled."""
    monkeypatch.chdir(tmp_path)
    program = """
    parallel:
      let a = exec "test -e over || sleep 100; echo a >> ran; echo again"
      do:
        gate go:
          prompt: "Go?"
        exec "echo b >> ran"
    output all = "{a}"
    """
    run_with_lost_gate(textwrap.dedent(program), monkeypatch, capfd)
    (run,) = all_runs([Directories(Path(".prose/runs"))])
    assert run.journal is not None
    records = [record for _, record in run.journal.records()]
    cancelled = next(number for number, one in enumerate(records) if isinstance(one, Answered) and one.cancelled)
    assert isinstance(failed := records[cancelled - 1], Answered) and is_store_failure(failed.error)
    records.insert(cancelled, Completed("c1/1/b0/x0", encode(CommandResult("exited", 0, "one\n", stdout_bytes=4))))
    run.path.unlink()
    file = JournalFile(run.path)
    file.copy(records)
    file.close()
    Path("over").touch()
    assert main(["run", "--resume", "--yes=go"]) == 0
    assert capfd.readouterr().out == "all: one\n"
    assert Path("ran").read_text().split() == ["b"]


async def test_a40_a_cell_ended_by_its_store_has_failed(tmp_path: Path, small_disk: Path) -> None:
    run = workspace(small_disk)
    await run.execute(f'let a = exec "echo a >> {tmp_path}/ran; echo one"')
    with pytest.raises(StoreFailed):
        await run.execute(
            f'let f = exec "head -c 600000 /dev/zero > fill || true"\nlet b = exec "echo b >> {tmp_path}/ran; echo two"'
        )
    Path(small_disk, "fill").unlink()
    await run.execute(f'let c = exec "echo {{a}} >> {tmp_path}/ran; echo three"')
    names = run.bindings().keys()
    await run.close()
    again = workspace(small_disk, resumption=resumption(first_journal(small_disk)))
    await again.restore()
    assert again.bindings().keys() == names
    await again.execute(f'let d = exec "echo d >> {tmp_path}/ran"')
    await again.close()
    assert (tmp_path / "ran").read_text().split() == ["a", "one", "d"]


# ---------------------------------------------------------------- waiting for a store

STOP = 'exec "touch ready; until test -e go; do sleep 0.02; done"'
SCRIPTED = ["--provider=scripted", "--script=script.yaml"]
STATEMENTS: dict[str, tuple[str, list[str]]] = {
    "command": (f'let a = {STOP}\nexec "echo b >> ran"\noutput all = "done"\n', []),
    "session": (f'{STOP}\nlet a = session "one"\noutput all = "done"\n', SCRIPTED),
    "gate": (f'gate go:\n  prompt: "Go?"\nlet a = {STOP}\noutput all = "done"\n', ["--yes=go"]),
    "parallel": (f'parallel:\n  a = {STOP}\n  b = exec "echo b"\nlet c = exec "echo c"\noutput all = "done"\n', []),
    "end": (f'let a = {STOP}\noutput all = "done"\n', []),
}
if "DURABILITY_EXAMPLES" in os.environ:  # these wait in the same flush as others
    STATEMENTS |= {
        "condition": (f'let a = {STOP}\nif **good**:\n  exec "echo b"\noutput all = "done"\n', SCRIPTED),
        "input": (f'let a = {STOP}\ninput topic: "What?"\noutput all = "done"\n', ["--input=topic=x"]),
        "program": (f'use "./other.prose"\nlet a = {STOP}\nlet b = other()\noutput all = "done"\n', []),
    }


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event that is set when a run reports that it waits for its store."""
    reported, handler = threading.Event(), Narrator._handlers[StoreWaits]

    def waiting(self: Narrator, event: StoreWaits) -> None:
        handler(self, event)
        reported.set()

    monkeypatch.setitem(Narrator._handlers, StoreWaits, waiting)
    monkeypatch.setattr(row_writer, "_SILENT", 0.0)
    monkeypatch.setenv("PROSE_STATE_WAIT", "20 s")
    return reported


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a50_a_database_that_is_stopped_for_a_while_is_waited_for(
    statement: str,
    server: PostgresServer,
    waits: threading.Event,
    meanwhile: Meanwhile,
    capfd: pytest.CaptureFixture[str],
) -> None:
    program, options = STATEMENTS[statement]
    Path("p.prose").write_text(program)
    Path("other.prose").write_text('let x = exec "echo other"\noutput y = x\n')
    Path("script.yaml").write_text("sessions:\n  one: fine\njudge:\n  good: yes\n")

    def stop() -> None:
        server.stop()
        Path("go").touch()
        waits.wait(30)
        server.start()

    meanwhile(stop)
    status = main(["run", "p.prose", "--state=postgres", *options])
    out, err = capfd.readouterr()
    assert (status, out.splitlines()[-1:]) == (0, ["all: done"]), err
    assert waits.is_set() and "Waiting for PostgreSQL" in err
    assert _rows(server, "SELECT status FROM openprose.run") == [("completed",)]


def test_a50_a_locked_sqlite_file_is_waited_for(
    tmp_path: Path,
    waits: threading.Event,
    meanwhile: Meanwhile,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.prose").write_text(f'let first = exec "echo one"\n{STATEMENTS["command"][0]}')

    meanwhile(lambda: locked_until(waits))
    assert main(["run", "p.prose", "--state=sqlite"]) == 0
    assert waits.is_set()
    assert "all: done" in capfd.readouterr().out


def test_a50_a_full_disk_is_waited_for(
    tmp_path: Path,
    small_disk: Path,
    waits: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(small_disk)
    Path("p.prose").write_text(FULL.format(tmp_path, 1_000, 600_000))

    def empty() -> None:
        waits.wait(30)
        Path("fill").unlink()

    thread = threading.Thread(target=empty)
    thread.start()
    assert main(["run", "p.prose", "--state=sqlite"]) == 0
    thread.join()
    assert waits.is_set()
    assert capfd.readouterr().out == "last: four\n"
    assert (tmp_path / "ran").read_text().split() == ["a", "b", "c", "d"]


def test_a50_an_interrupt_ends_the_wait(server: PostgresServer, waits: threading.Event, meanwhile: Meanwhile) -> None:
    """The command was running when the database failed: its answer is in the journal, and it does not run again."""

    def stop() -> None:
        stopped(server)
        Path("go").touch()
        waits.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    meanwhile(stop)
    status = main(["run", "p.prose", "--state=postgres"])
    assert status == 130
    server.start()
    assert main(["run", "--resume"]) == 0
    assert Path("ran").read_text().split() == ["a", "b", "c"]


def test_a50_an_interrupt_does_not_wait_for_a_frozen_server(
    server: PostgresServer, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_SILENT_SECONDS", 1000)
    monkeypatch.setattr(postgres, "_CONNECT_SECONDS", 1000)
    monkeypatch.setattr(postgres, "_HURRIED_SECONDS", 0.1)
    restore = list[Callable[[], None]]()

    def freeze() -> None:
        restore.append(frozen(server))
        Path("go").touch()
        (run,) = all_runs([Directories(Path(".prose/runs"))])
        until(lambda: run.path.read_bytes().count(b'"k":"answered"') == 2)
        os.kill(os.getpid(), signal.SIGINT)

    meanwhile(freeze)
    try:
        assert main(["run", "p.prose", "--state=postgres"]) == 130
    finally:
        restore[0]()
    assert main(["run", "--resume"]) == 0
    assert Path("ran").read_text().split() == ["a", "b", "c"]


@pytest.mark.parametrize("moment", ["values", "end"])
def test_a50_an_interrupt_of_the_last_wait_ends_the_run(
    moment: str,
    tmp_path: Path,
    waits: threading.Event,
    meanwhile: Meanwhile,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It is followed by no other wait. The resumed run stores the rest, and is done."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROSE_STATE_WAIT", "1000 s")
    Path("p.prose").write_text('let first = exec "echo one"\noutput all = exec "touch ready; echo done"\n')
    released, unlocked, end = threading.Event(), threading.Event(), Run.end

    def lock() -> None:
        locked_until(released)
        unlocked.set()

    if moment == "values":
        Path("p.prose").write_text(f'let first = exec "echo one"\n{STATEMENTS["end"][0]}')
        meanwhile(lock)

    async def locked(run: Run, error: RunError | None) -> None:
        if moment == "end" and not Path("go").exists():
            meanwhile(lock)
            until(Path("go").exists)
        await end(run, error)

    def stop() -> None:
        waits.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Run, "end", locked)
    thread = threading.Thread(target=stop)
    thread.start()
    assert main(["run", "p.prose", "--state=sqlite"]) == 130
    thread.join()
    released.set()
    assert "to resume it" in capfd.readouterr().err
    until(unlocked.is_set)
    assert main(["run", "--resume"]) == 0
    assert main(["runs"]) == 0
    shown = capfd.readouterr().out
    assert "all: done" in shown and " done " in shown and "failed" not in shown


def test_a50_a_durable_journal_that_cannot_be_written_stops_the_run_before_the_next_request(
    tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(small_disk)
    fill = "test -e filled || head -c 600000 /dev/zero > fill || true; touch filled"
    big = "head -c 20000 /dev/zero | tr '\\\\0' b"
    Path("p.prose").write_text(
        f'exec "{fill}"\nexec "echo b >> {tmp_path}/ran; {big}"\nexec "echo c >> {tmp_path}/ran"\n'
    )
    monkeypatch.setenv("PROSE_JOURNAL", "durable")
    assert main(["run", "p.prose", "--format=json"]) == 1
    error = json.loads(capfd.readouterr().out.splitlines()[-1])["error"]
    assert error["code"] == "E219" and "journal" in error["message"]
    assert not (tmp_path / "ran").exists() or "c" not in (tmp_path / "ran").read_text()
    Path("fill").unlink()
    assert main(["run", "--resume"]) == 0
    assert (tmp_path / "ran").read_text().split()[-1] == "c"


def test_other_readers_of_a_sqlite_file_see_the_rows_after_a_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The gate's records have a connection of their own. A reader that ends must not be taken for the last one, which
    removes the write-ahead log."""
    monkeypatch.chdir(tmp_path)
    Path("read.py").write_text(
        "import glob, sqlite3\n"
        "database = sqlite3.connect(*glob.glob('.prose/runs/*/state.db'))\n"
        "print(*[name for (name,) in database.execute('SELECT name FROM bindings ORDER BY name')])\n"
        "database.close()\n"
    )
    reading = f'exec "{sys.executable} read.py"'
    Path("p.prose").write_text(
        f'let a = exec "echo one"\ngate g:\n  prompt: "Go?"\nlet b = {reading}\noutput c = {reading}\n'
    )
    assert main(["run", "p.prose", "--state=sqlite", "--yes=g"]) == 0
    assert capfd.readouterr().out == "c: a b\n"


@pytest.mark.parametrize("flushed", [0, 2])
async def test_a40_branches_of_a_restored_run_end_with_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushed: int
) -> None:
    """One branch notices the failure while others wait for their recorded answers."""
    run = workspace(tmp_path)
    await run.execute('let all = ["a", "b", "c"] | pmap:\n  let one = exec "echo {item}"\n  exec "echo {one}"')
    await run.close()
    flushes, flush = itertools.count(), RunStore.flush

    async def lost(self: RunStore) -> None:
        if next(flushes) >= flushed:
            raise StoreFailed("the store is full")
        await flush(self)

    monkeypatch.setattr(RunStore, "flush", lost)
    again = workspace(tmp_path, resumption=resumption(first_journal(tmp_path)))
    with pytest.raises(StoreFailed):
        await again.restore()
    monkeypatch.undo()
    await again.close()
