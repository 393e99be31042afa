"""PostgreSQL: how it is found, what stands in the way, its tables and its roles (openprose.md 7.1, 7.2, 7.8)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, LiteralString, cast

import psycopg
import pytest
from postgres import PostgresServer

from prose_kernel.errors import StateError
from prose_kernel.settings import postgres_urls
from prose_kernel.state.database import schema
from prose_kernel.state.database.postgres import PostgresDatabase
from prose_kernel.state.database.schema import DatabaseError, Statements

DOTENV, VARIABLE, OTHER = "postgresql://a/dotenv", "postgresql://a/variable", "postgresql://a/other"


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(cast("LiteralString", statement))
        return found.fetchall() if found.description else []


# ---------------------------------------------------------------- where it is


@pytest.mark.parametrize(
    ("dotenv", "environment", "url", "place"),
    [
        (DOTENV, {"OPENPROSE_POSTGRES_URL": VARIABLE, "DATABASE_URL": OTHER}, DOTENV, ".prose/.env"),
        ("", {"OPENPROSE_POSTGRES_URL": VARIABLE, "DATABASE_URL": OTHER}, VARIABLE, "OPENPROSE_POSTGRES_URL"),
        ("", {"DATABASE_URL": OTHER}, OTHER, "DATABASE_URL"),
        ("", {"OPENPROSE_TELEMETRY": "1", "USER_ID": "u", "SESSION_ID": "s"}, None, ""),
    ],
)
def test_7_2_where_the_url_is_looked_for(
    tmp_path: Path, dotenv: str, environment: dict[str, str], url: str | None, place: str
) -> None:
    if dotenv:
        (tmp_path / ".prose").mkdir()
        retired = "OPENPROSE_TELEMETRY=1\nUSER_ID=u\nSESSION_ID=s\n"
        (tmp_path / ".prose" / ".env").write_text(f"{retired}OPENPROSE_POSTGRES_URL={dotenv}\n")
    found = postgres_urls(tmp_path, ".prose", environment)
    assert (found.url, found.place) == (url, place)
    assert "postgresql" not in repr(found)


# ---------------------------------------------------------------- what stands in the way


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://me:geheim@127.0.0.1:1/runs", "connection refused"),
        (
            "postgresql://me:geh%eim@127.0.0.1:1/runs",
            "its URL cannot be read; special characters in it are written as %XX",
        ),
        ("mysql://me:geheim@127.0.0.1/runs", "its URL does not begin with postgresql://"),
        ("postgresql+psycopg://me:geheim@127.0.0.1:1/runs", "connection refused"),
        ("SERVER/nowhere", 'database "nowhere" does not exist'),
        ("nobody@SERVER/postgres", 'role "nobody" does not exist'),
    ],
)
def test_7_1_why_it_does_not_answer(postgres_server: PostgresServer, url: str, reason: str) -> None:
    user, _, database = url.rpartition("SERVER/")
    if "SERVER" in url:
        url = postgres_server.url(database, *filter(None, [user.rstrip("@")]))
    with pytest.raises(DatabaseError) as caught:
        PostgresDatabase(url).connect()
    assert str(caught.value) == reason


def test_a_password_is_in_no_message(postgres_server: PostgresServer) -> None:
    database = PostgresDatabase("postgresql://geheim:geheim@127.0.0.1:1/runs")
    assert database.place == "127.0.0.1:1/runs"
    assert "geheim" not in repr(database) + database.location("x", None)
    refused = postgres_server.url("geheim", "prose").replace("prose@", "prose:geheim@")
    with pytest.raises(DatabaseError) as caught:
        PostgresDatabase(refused).connect()
    assert str(caught.value) == 'database "…" does not exist'


def test_a_user_without_rights_is_told_so(postgres_server: PostgresServer, postgres_url: str) -> None:
    role(postgres_url, "guest")
    with pytest.raises(DatabaseError, match="permission denied for database test_") as caught:
        PostgresDatabase(postgres_url.replace("prose@", "guest@")).connect()
    assert not caught.value.lost


@pytest.mark.parametrize(
    ("version", "hint"), [("0", "that made it"), ("2", "update prose_kernel"), ("x", "that made it")]
)
def test_7_8_a_schema_of_another_version_is_refused(postgres_url: str, version: str, hint: str) -> None:
    PostgresDatabase(postgres_url).connect().close()
    execute(postgres_url, f"UPDATE openprose.x_meta SET value = '{version}' WHERE name = 'schema_version'")
    with pytest.raises(
        StateError, match=f"has schema version {version}; this version of prose_kernel uses 1"
    ) as caught:
        PostgresDatabase(postgres_url).connect()
    assert hint in str(caught.value.hint)


# ---------------------------------------------------------------- the tables


def test_several_runs_may_be_the_first_at_once(postgres_url: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        for opened in threads.map(lambda _: PostgresDatabase(postgres_url).connect(), range(8)):
            opened.close()
    assert execute(postgres_url, "SELECT value FROM openprose.x_meta") == [("1",)]


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


# ---------------------------------------------------------------- the role of sessions


def role(url: str, name: str) -> None:
    if not execute(url, f"SELECT 1 FROM pg_roles WHERE rolname = '{name}'"):
        execute(url, f"CREATE ROLE {name} LOGIN")
