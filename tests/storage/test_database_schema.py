"""The tables of a run in a database, and the errors of opening one (openprose.md 7.7, 7.8)."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from prose_kernel.errors import StateError
from prose_kernel.storage.database import schema
from prose_kernel.storage.database.schema import DatabaseError
from prose_kernel.storage.database.sqlite import SqliteDatabase, network_drive, read_only
from prose_kernel.storage.database.statements import Statements

COLUMNS = {
    "run": "id program_path program_source started_at updated_at status state_mode",
    "execution": "id statement_index statement_text status started_at completed_at error_message parent_id metadata",
    "bindings": "name execution_id kind value source_statement created_at updated_at attachment_path",
    "agents": "name scope memory created_at updated_at",
    "agent_segments": "id agent_name segment_number timestamp prompt summary",
    "imports": "alias source_url fetched_at inputs_schema outputs_schema",
    "gates": "id execution_id prompt allow timeout on_reject status created_at resolved_at resolved_by"
    " timeout_at resolution_comment",
    "gate_audit_log": "id gate_id event_type principal timestamp metadata comment",
}


@pytest.fixture
def database(tmp_path: Path) -> SqliteDatabase:
    return SqliteDatabase(tmp_path / "state.db", "state.db")


def test_the_tables_match_the_reference(database: SqliteDatabase) -> None:
    connection = database.connect()
    for table, columns in COLUMNS.items():
        found = {str(row[1]) for row in connection.query(f"PRAGMA table_info({table})")}
        assert found >= set(columns.split()), table
    connection.close()


def test_writing_a_row_again_replaces_it(database: SqliteDatabase) -> None:
    connection, say = database.connect(), Statements(schema.SQLITE, "r")
    for frame in (None, 7):
        for value in ("old", "new"):
            row = ("x", frame, "let", value, "let x = 1", value, value, None, None)
            connection.execute(say.upsert(schema.BINDINGS), say.row(schema.BINDINGS, *row))
    found = connection.query("SELECT execution_id, value, created_at, updated_at FROM bindings ORDER BY execution_id")
    assert found == [(None, "new", "old", "new"), (7, "new", "old", "new")]
    connection.close()


def test_a_gate_that_sql_from_outside_has_opened_is_complete(database: SqliteDatabase) -> None:
    connection = database.connect()
    connection.execute("INSERT INTO gates (id, prompt) VALUES ('ok', 'Go?')")
    row = connection.query("SELECT allow, timeout, on_reject, status, created_at IS NOT NULL FROM gates")[0]
    assert row == ('["user"]', "30m", "throw", "pending", 1)
    connection.close()


def test_a_transaction_is_all_or_nothing(database: SqliteDatabase) -> None:
    connection = database.connect()
    with contextlib.suppress(DatabaseError), connection.transaction():
        connection.execute("INSERT INTO run (id) VALUES ('r')")
        connection.execute("INSERT INTO bindings (name, kind) VALUES (NULL, 'let')")
    assert connection.query("SELECT * FROM run") == []
    connection.close()


@pytest.mark.parametrize(("version", "hint"), [("2", "update prose_kernel"), ("0", "the version of prose_kernel")])
def test_another_version_of_the_schema_is_refused_with_a_message(
    database: SqliteDatabase, version: str, hint: str
) -> None:
    connection = database.connect()
    connection.execute("UPDATE x_meta SET value = ?", (version,))
    connection.close()
    with pytest.raises(StateError, match=f"'state.db' has schema version {version}; .* uses 1") as caught:
        database.connect()
    assert hint in (caught.value.hint or "")


def test_foreign_tables_are_not_changed(database: SqliteDatabase) -> None:
    with sqlite3.connect(database.file) as made:
        made.execute("CREATE TABLE run (id TEXT PRIMARY KEY)")
    made.close()
    with pytest.raises(StateError, match=r"'state\.db' has tables that prose_kernel has not made"):
        database.connect()


def test_a_file_in_the_way_is_one_clear_error(database: SqliteDatabase, tmp_path: Path) -> None:
    database.file.write_bytes(b"no database at all " * 100)
    with pytest.raises(DatabaseError, match=r"^it is not a database$"):
        database.connect()
    elsewhere = SqliteDatabase(database.file / "state.db", "state.db")
    with pytest.raises(DatabaseError, match=r"^(not a directory|file exists)$"):
        elsewhere.connect()
    (tmp_path / "link.db").symlink_to(tmp_path / "target")
    with pytest.raises(DatabaseError, match="it is a link"):
        SqliteDatabase(tmp_path / "link.db", "link.db").connect()
    assert not (tmp_path / "target").exists()


def test_a_read_only_role_can_change_nothing(database: SqliteDatabase) -> None:
    database.connect().close()
    looking = read_only(database.file)
    with pytest.raises(DatabaseError, match="it is read-only"):
        looking.execute("INSERT INTO gates (id, prompt) VALUES ('ok', 'Go?')")
    looking.close()
    with pytest.raises(DatabaseError, match="no such file"):
        read_only(database.file.with_name("missing.db")).query("SELECT 1")


def test_network_drives_are_known_by_their_mount(tmp_path: Path) -> None:
    mounts = "/dev/sda / ext4 rw 0 0\nserver:/x /srv/my\\040share nfs4 rw 0 0\n//s/y /srv/win cifs rw 0 0\ntmpfs /srv/win/l tmpfs rw 0 0\n"
    assert network_drive(Path("/srv/my share/work/.prose"), mounts) == "nfs4"
    assert network_drive(Path("/srv/win/a"), mounts) == "cifs"
    assert network_drive(Path("/srv/win/l/a"), mounts) is None
    assert network_drive(Path("/srv/winter"), mounts) is None
    assert network_drive(tmp_path) is None
