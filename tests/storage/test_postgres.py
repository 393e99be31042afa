"""PostgreSQL: its location, errors, tables and roles (openprose.md 7.1, 7.2, 7.8)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString, NoReturn, cast

import psycopg
import pytest
from gate_people import RUN, TestClock, request
from machine.fakes import FakeClock
from postgres import PostgresServer
from waiting import eventually, until

from prose_kernel._version import __version__
from prose_kernel.errors import StateError
from prose_kernel.runs.settings import postgres_urls
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import AgentMemory, GateDecision
from prose_kernel.storage.database import postgres, row_writer, schema
from prose_kernel.storage.database.gate_records import DatabaseRecords
from prose_kernel.storage.database.ownership import Ownership, bytes_at, owner_of
from prose_kernel.storage.database.postgres import PostgresConnection, PostgresDatabase
from prose_kernel.storage.database.row_writer import RowWriter
from prose_kernel.storage.database.schema import Connection, DatabaseError
from prose_kernel.storage.database.sqlite import SqliteDatabase
from prose_kernel.storage.database.statements import Statements
from prose_kernel.storage.gates.records import AuditEvent, RecordsUnavailable, Watcher
from prose_kernel.storage.gates.second_process import Decidable, Decider, gate_log, pending_gates, resolve_gate
from prose_kernel.storage.run_directory import RunDirectory

DOTENV, VARIABLE, OTHER = "postgresql://a/dotenv", "postgresql://a/variable", "postgresql://a/other"


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(cast("LiteralString", statement))
        return found.fetchall() if found.description else []


# ---------------------------------------------------------------- location


@pytest.mark.parametrize(
    ("dotenv", "environment", "url", "place"),
    [
        (DOTENV, {"OPENPROSE_POSTGRES_URL": VARIABLE, "DATABASE_URL": OTHER}, DOTENV, ".prose/.env"),
        ("", {"OPENPROSE_POSTGRES_URL": VARIABLE, "DATABASE_URL": OTHER}, VARIABLE, "OPENPROSE_POSTGRES_URL"),
        ("", {"DATABASE_URL": OTHER}, OTHER, "DATABASE_URL"),
        ("", {"OPENPROSE_TELEMETRY": "1", "USER_ID": "u", "SESSION_ID": "s"}, None, ""),
    ],
)
def test_7_2_sources_of_the_url(
    tmp_path: Path, dotenv: str, environment: dict[str, str], url: str | None, place: str
) -> None:
    if dotenv:
        (tmp_path / ".prose").mkdir()
        retired = "OPENPROSE_TELEMETRY=1\nUSER_ID=u\nSESSION_ID=s\n"
        (tmp_path / ".prose" / ".env").write_text(f"{retired}OPENPROSE_POSTGRES_URL={dotenv}\n")
    found = postgres_urls(tmp_path, ".prose", environment)
    assert (found.url, found.place) == (url, place)
    assert "postgresql" not in repr(found)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://me:geheim@127.0.0.1:1/runs", "connection refused"),
        (
            "postgresql://me:geh%eim@127.0.0.1:1/runs",
            "its URL cannot be read; special characters in it are written as %XX",
        ),
        (
            "postgresql://me:ge@heim@127.0.0.1:1/runs",
            "its URL cannot be read; special characters in it are written as %XX",
        ),
        ("mysql://me:geheim@127.0.0.1/runs", "its URL does not begin with postgresql://"),
        ("postgresql+psycopg://me:geheim@127.0.0.1:1/runs", "connection refused"),
        ("SERVER/nowhere", 'database "nowhere" does not exist'),
        ("nobody@SERVER/postgres", 'role "nobody" does not exist'),
    ],
)
def test_7_1_reasons_for_a_failed_connection(postgres_server: PostgresServer, url: str, reason: str) -> None:
    user, _, database = url.rpartition("SERVER/")
    if "SERVER" in url:
        url = postgres_server.url(database, *filter(None, [user.rstrip("@")]))
    with pytest.raises(DatabaseError) as caught:
        PostgresDatabase(url).connect()
    assert str(caught.value) == reason


def test_no_message_contains_the_password(postgres_server: PostgresServer) -> None:
    database = PostgresDatabase("postgresql://geheim:geheim@127.0.0.1:1/runs")
    assert database.place == "127.0.0.1:1/runs"
    assert "geheim" not in repr(database) + database.location("x", None)
    refused = postgres_server.url("geheim", "prose").replace("prose@", "prose:geheim@")
    with pytest.raises(DatabaseError) as caught:
        PostgresDatabase(refused).connect()
    assert str(caught.value) == 'database "…" does not exist'


def test_a_silent_server_times_out(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_SILENT_SECONDS", 0.2)
    connection = PostgresDatabase(postgres_url).open()
    connection.execute("SET statement_timeout TO 0")
    with pytest.raises(DatabaseError, match="the server does not answer") as caught:
        connection.query("SELECT pg_sleep(60)")
    assert caught.value.lost
    connection.close()


def test_gates_do_not_wait_one_after_the_other_for_a_server_that_is_unreachable(tmp_path: Path) -> None:
    tried, let_go = threading.Semaphore(0), threading.Event()

    class Away(PostgresDatabase):
        attempts = 0

        def connect(self) -> Connection:
            self.attempts += 1
            tried.release()
            let_go.wait()
            raise DatabaseError("connection timeout expired", lost=True)

    database = Away("postgresql://nowhere/x")
    records = DatabaseRecords(database, tmp_path, RUN, SystemClock())
    with ThreadPoolExecutor(3) as threads:
        calls = [threads.submit(records.earlier) for _ in range(3)]
        tried.acquire()
        until(lambda: sum(call.running() for call in calls) == 3)
        let_go.set()
        assert all(isinstance(call.exception(), RecordsUnavailable) for call in calls)
    assert database.attempts == 1


def test_a_lease_that_is_about_to_be_extended_ends_with_its_run(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = RunDirectory(Path(".prose"), RUN, cwd=tmp_path)
    journal = home.directory / "journal.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_bytes(b"one\n")
    owned = Ownership(RUN, journal)
    owned.journal_grew(4)
    beats, threads = list[Callable[[], None]](), list[threading.Thread]()

    class Beats:
        def __init__(self, beat: Callable[[], None]) -> None:
            beats.append(beat)

        def stop(self) -> None:
            """Do nothing: the beat is on its way."""

    release = Ownership.release

    def released(self: Ownership, connection: Connection) -> None:
        threads.append(threading.Thread(target=beats[0]))
        threads[0].start()  # it waits until the connection is closed
        release(self, connection)

    monkeypatch.setattr(row_writer, "Heartbeat", Beats)
    monkeypatch.setattr(Ownership, "release", released)
    writes = RowWriter(PostgresDatabase(postgres_url, RUN), home, SystemClock(), ownership=owned)
    home.keep()
    writes.write()
    owned.journal_grew(8)
    journal.write_bytes(b"one\ntwo\n")
    writes.close()
    threads[0].join()
    with contextlib.closing(PostgresDatabase(postgres_url, RUN).open()) as connection:
        assert owner_of(connection, RUN) is None
    assert len(beats) == 1


def test_a_lease_is_extended_after_an_interrupt_when_the_server_is_back(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook may be idle for long after its last cell was interrupted."""
    home, clock = RunDirectory(Path(".prose"), RUN, cwd=tmp_path), FakeClock()
    journal = home.directory / "journal.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_bytes(b"one\n")
    owned, beats = Ownership(RUN, journal), list[Callable[[], None]]()
    owned.journal_grew(4)

    class Beats:
        def __init__(self, beat: Callable[[], None]) -> None:
            beats.append(beat)

        def stop(self) -> None:
            """Do nothing."""

    def away(*_: object) -> NoReturn:
        raise DatabaseError("the server is away", lost=True)

    monkeypatch.setattr(row_writer, "Heartbeat", Beats)
    database = PostgresDatabase(postgres_url, RUN)
    writes = RowWriter(database, home, clock, ownership=owned)
    home.keep()
    writes.write()
    writes.interrupt()
    owned.journal_grew(8)
    journal.write_bytes(b"one\ntwo\n")
    with monkeypatch.context() as stopped:
        stopped.setattr(PostgresConnection, "query", away)
        stopped.setattr(PostgresDatabase, "connect", away)
        beats[0]()
        beats[0]()
    assert owned.is_due
    clock.time = 10
    beats[0]()
    assert not owned.is_due
    writes.close()


def test_a_journal_that_cannot_be_read_for_a_moment_is_copied_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error would end the thread that extends the lease."""
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(b"one\n")

    def stale(*_: object) -> bytes:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as away:
        away.setattr(os, "pread", stale)
        assert bytes_at(journal, 0, 4) == b""
    assert bytes_at(journal, 0, 4) == b"one\n"


def test_an_interrupt_does_not_wait_for_a_frozen_database_of_the_user(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_SILENT_SECONDS", 1000)
    monkeypatch.setattr(postgres, "_CONNECT_SECONDS", 1000)
    monkeypatch.setattr(postgres, "_HURRIED_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        users = PostgresDatabase(f"postgresql://me@127.0.0.1:{frozen.getsockname()[1]}/mine")
        home = RunDirectory(Path(".prose"), RUN, cwd=tmp_path)
        writes = RowWriter(PostgresDatabase(postgres_url, RUN), home, SystemClock(), users=users)
        home.keep()
        writes.remember(AgentMemory("a", "user", "memory", resume=False), "Hello", "")
        writes.interrupt()
        with pytest.raises(StateError, match="memory of a"):
            writes.write()
        writes.close()


def test_many_runs_of_one_process_add_one_handler_to_the_log_of_the_driver(postgres_url: str) -> None:
    PostgresDatabase(postgres_url).connect().close()
    handlers = list(logging.getLogger("psycopg").handlers)
    PostgresDatabase(postgres_url).connect().close()
    assert logging.getLogger("psycopg").handlers == handlers


def test_a_user_who_may_only_read_cannot_store_a_run(bare_postgres_url: str) -> None:
    PostgresDatabase(bare_postgres_url).test()
    role(bare_postgres_url, "reader")
    execute(bare_postgres_url, "GRANT USAGE ON SCHEMA openprose TO reader")
    execute(bare_postgres_url, "GRANT SELECT ON ALL TABLES IN SCHEMA openprose TO reader")
    with pytest.raises(DatabaseError, match="permission denied for table run"):
        PostgresDatabase(bare_postgres_url.replace("prose@", "reader@")).test()


def test_a_user_without_rights_gets_an_error(postgres_server: PostgresServer, bare_postgres_url: str) -> None:
    role(bare_postgres_url, "guest")
    with pytest.raises(DatabaseError, match="permission denied for database test_") as caught:
        PostgresDatabase(bare_postgres_url.replace("prose@", "guest@")).connect()
    assert not caught.value.lost


@pytest.mark.parametrize(
    ("version", "hint"), [("0", "that made it"), ("3", f"update prose_kernel to {__version__}"), ("x", "that made it")]
)
def test_7_8_a_schema_of_another_version_is_refused(postgres_url: str, version: str, hint: str) -> None:
    PostgresDatabase(postgres_url).connect().close()
    execute(postgres_url, f"UPDATE openprose.x_meta SET value = '{version}' WHERE name = 'schema_version'")
    with pytest.raises(
        StateError, match=f"has schema version {version}; this version of prose_kernel uses 2"
    ) as caught:
        PostgresDatabase(postgres_url).connect()
    assert hint in str(caught.value.hint)


# ---------------------------------------------------------------- the tables


def test_several_runs_may_be_the_first_in_parallel(bare_postgres_url: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        for opened in threads.map(lambda _: PostgresDatabase(bare_postgres_url).connect(), range(8)):
            opened.close()
    assert execute(bare_postgres_url, "SELECT value FROM openprose.x_meta WHERE name = 'schema_version'") == [("2",)]


LOSING = """
import sys
import psycopg
from prose_kernel.storage.database.postgres import PostgresConnection, PostgresDatabase
from prose_kernel.storage.database.schema import DatabaseError

def rows():
    for number in range(20000):
        if number == 3:
            with psycopg.connect(sys.argv[1], autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'prose_kernel'")
        yield (str(number), "x" * 100)

try:
    PostgresDatabase(sys.argv[1]).connect().executemany("INSERT INTO openprose.x_meta VALUES (%s, %s)", rows())
except DatabaseError as error:
    print(error.lost)
"""


def test_a_connection_that_is_lost_prints_nothing_of_the_driver(postgres_url: str) -> None:
    ran = subprocess.run([sys.executable, "-c", LOSING, postgres_url], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("True\n", "")


async def test_a_gate_listens_again_after_its_connection_was_lost(postgres_url: str) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    watcher = Watcher(lambda: PostgresDatabase(postgres_url).open().listen(schema.NOTIFY_CHANNEL))

    def listening() -> set[Any]:
        where = "query LIKE 'LISTEN %' AND datname = current_database()"
        return {pid for (pid,) in execute(postgres_url, f"SELECT pid FROM pg_stat_activity WHERE {where}")}

    async def wait() -> None:
        while True:
            await watcher.pause(SystemClock(), watcher.changes)

    waiting = asyncio.ensure_future(wait())
    (lost,) = await eventually(listening)
    execute(postgres_url, f"SELECT pg_terminate_backend({lost})")
    await eventually(lambda: problems or listening() - {lost})
    heard = watcher.changes
    execute(postgres_url, f"NOTIFY {schema.NOTIFY_CHANNEL}")
    await eventually(lambda: problems or watcher.changes > heard)
    waiting.cancel()
    watcher.stop_waiting()
    assert not problems


def test_7_8_identities_checks_and_cascades(postgres_url: str) -> None:
    connection = PostgresDatabase(postgres_url).connect()
    for run in ("r1", "r2"):
        say = Statements(schema.POSTGRES, run)
        connection.execute(*say.ensure_run())
        for value in ("old", "new"):
            row = ("x", None, "let", value, "let x = 1", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", None, "{}")
            connection.execute(say.upsert(schema.BINDINGS), say.row(schema.BINDINGS, *row))
        connection.execute(
            say.upsert(schema.GATES),
            say.row(schema.GATES, "go", None, "Go?", '["user"]', "1h", "throw", "pending", *[None] * 5),
        )
        connection.execute(
            say.insert(schema.GATE_AUDIT_LOG),
            say.row(schema.GATE_AUDIT_LOG, "go", "created", "system", None, "2026-01-01T00:00:00Z", "{}"),
        )
    assert connection.query("SELECT run_id, value FROM openprose.bindings ORDER BY run_id") == [
        ("r1", "new"),
        ("r2", "new"),
    ]
    for wrong in (
        "UPDATE openprose.gates SET status = 'maybe'",
        "UPDATE openprose.bindings SET kind = 'var'",
        "UPDATE openprose.run SET status = 'lost'",
        "INSERT INTO openprose.execution (run_id, id, status) VALUES ('r1', 1, 'started')",
        "INSERT INTO openprose.agents (name, scope) VALUES ('a', 'galaxy')",
        "INSERT INTO openprose.gates (run_id, id, prompt) VALUES ('nobody', 'go', 'Go?')",
        "INSERT INTO openprose.gates (run_id, id, prompt) VALUES ('r1', 'go', 'Go?')",
    ):
        with pytest.raises(DatabaseError):
            connection.execute(wrong)
    connection.execute("DELETE FROM openprose.run WHERE id = 'r1'")
    for table in ("bindings", "gates", "gate_audit_log"):
        assert connection.query(f"SELECT DISTINCT run_id FROM openprose.{table}") == [("r2",)]
    connection.close()


# ---------------------------------------------------------------- roles and services


def role(url: str, name: str) -> None:
    if not execute(url, f"SELECT 1 FROM pg_roles WHERE rolname = '{name}'"):
        execute(url, f"CREATE ROLE {name} LOGIN")


def documented(beginning: str) -> str:
    """Return a block of SQL from docs/how-to/teams.md by its first line."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "teams.md").read_text()
    blocks: list[str] = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    (found,) = [block for block in blocks if block.startswith(f"-- {beginning}")]
    return found


@dataclass
class Roles:
    """The database of docs/how-to/teams.md, created as the page says."""

    server: PostgresServer

    def url(self, user: str) -> str:
        return self.server.url("runs", user)

    def refused(self, user: str, statement: str) -> bool:
        try:
            execute(self.url(user), statement)
        except psycopg.errors.InsufficientPrivilege:
            return True
        return False


@pytest.fixture(scope="module")
def roles(postgres_server: PostgresServer) -> Roles:
    made = documented("as a superuser, once")
    for statement in re.findall(r"CREATE [^;]*;", made):
        execute(postgres_server.url(), statement)
    world = Roles(postgres_server)
    PostgresDatabase(world.url("prose_run")).connect().close()
    execute(world.url("prose_run"), documented("as prose_run in the database"))
    return world


@pytest.fixture
def gate(roles: Roles, tmp_path: Path) -> DatabaseRecords:
    execute(roles.url("prose_run"), "TRUNCATE openprose.run CASCADE")
    records = DatabaseRecords(PostgresDatabase(roles.url("prose_run")), tmp_path, RUN, TestClock())
    records.open(request(allow=("user", "lead")), outside=True)
    records.stop_waiting()
    return records


def test_5_10_the_role_of_sessions_cannot_write_the_gate_tables(roles: Roles, gate: DatabaseRecords) -> None:
    session = roles.url("prose_session")
    assert execute(session, "SELECT id, status FROM openprose.gates") == [("release_ok", "pending")]
    value = f"INSERT INTO openprose.bindings (run_id, name, kind, value) VALUES ('{RUN}', 'x', 'let', '1')"
    assert not roles.refused("prose_session", value)
    assert not roles.refused("prose_session", "UPDATE openprose.bindings SET value = '2'")
    for statement in (
        "UPDATE openprose.gates SET status = 'approved'",
        "DELETE FROM openprose.gates",
        f"INSERT INTO openprose.gates (run_id, id, prompt, status) VALUES ('{RUN}', 'b', 'x', 'approved')",
        f"INSERT INTO openprose.gate_audit_log (run_id, gate_id, event_type) VALUES ('{RUN}', 'release_ok', 'approved')",
        "UPDATE openprose.gate_audit_log SET principal = 'user'",
        "UPDATE openprose.x_gates SET seen = 1",
        "UPDATE openprose.run SET status = 'failed'",
        "DROP TRIGGER x_notify_gate ON openprose.gates",
        "TRUNCATE openprose.gates",
        documented("approve one gate\n"),
    ):
        assert roles.refused("prose_session", statement), statement
    assert execute(session, "SELECT status FROM openprose.gates") == [("pending",)]
    assert [event.event_type for event in log(roles)] == ["created"]


def test_the_role_of_deciders_can_only_decide(roles: Roles, gate: DatabaseRecords) -> None:
    for statement in (
        "UPDATE openprose.gates SET prompt = 'something else'",
        "UPDATE openprose.gates SET timeout_at = now() + interval '1 year'",
        "UPDATE openprose.gate_audit_log SET principal = 'user'",
        "DELETE FROM openprose.gate_audit_log",
        f"INSERT INTO openprose.bindings (run_id, name, kind, value) VALUES ('{RUN}', 'x', 'let', '1')",
    ):
        assert roles.refused("prose_decide", statement), statement
    decide = roles.url("prose_decide")
    waiting = execute(decide, documented("gates that wait"))
    assert [row[:4] for row in waiting] == [(RUN, "release_ok", "Publish 1.2?", ["user", "lead"])]
    assert execute(decide, documented("approve one gate\n")) == [("release_ok",)]
    assert execute(decide, documented("approve one gate\n")) == []  # another decision was first
    assert gate.find_decision(gate.earlier()[1][0].record, files=False) == GateDecision(
        "approved", "lead", "read the notes", source="dashboard"
    )
    gate.stop_waiting()
    assert [(event.event_type, event.principal) for event in log(roles)] == [
        ("created", "system"),
        ("approved", "lead"),
    ]


def test_the_role_of_deciders_is_enough_for_prose_gate(roles: Roles, gate: DatabaseRecords, tmp_path: Path) -> None:
    postgres = PostgresDatabase(roles.url("prose_decide"))
    execute(roles.url("prose_run"), "UPDATE openprose.x_gates SET host = 'another'")
    (waiting,) = pending_gates(tmp_path, TestClock(), None, postgres)
    assert (waiting.record.id, waiting.how) == ("release_ok", Decidable.IN_DATABASE)
    done = resolve_gate(tmp_path, "reject", "release_ok", clock=TestClock(), by=Decider({}), postgres=postgres)
    assert done.status == "rejected"
    assert log(roles)[-1].metadata == {"source": "cli"}


def test_old_runs_are_deleted_with_all_that_belongs_to_them(roles: Roles, gate: DatabaseRecords) -> None:
    run = roles.url("prose_run")
    execute(run, "UPDATE openprose.run SET status = 'completed', updated_at = now() - interval '91 days'")
    execute(run, documented("runs that ended more than ninety"))
    assert execute(run, "SELECT 1 FROM openprose.gates") == []


def log(roles: Roles) -> list[AuditEvent]:
    postgres = PostgresDatabase(roles.url("prose_run"))
    return gate_log(Path("nowhere"), "release_ok", RUN, clock=TestClock(), postgres=postgres)


def test_the_statement_for_sqlite(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "state.db", "state.db")
    records = DatabaseRecords(database, tmp_path, RUN, SystemClock())
    record = records.open(request(allow=("lead",)), outside=True)
    with contextlib.closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        for _ in range(2):
            connection.executescript(documented("approve one gate in SQLite"))
        assert connection.execute("SELECT count(*) FROM gate_audit_log").fetchall() == [(2,)]
    assert records.find_decision(record, files=False) == GateDecision("approved", "lead", source="script")
    records.stop_waiting()
