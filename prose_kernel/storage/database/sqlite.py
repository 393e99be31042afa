"""SQLite: a run in the file `state.db` of its directory (openprose.md 7.7)."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from prose_kernel.access import plain_files
from prose_kernel.errors import reason_of
from prose_kernel.storage.bindings import StoredBinding
from prose_kernel.storage.database.binding_rows import stored_bindings
from prose_kernel.storage.database.schema import SQLITE, Connection, DatabaseError, Dialect, Row, prepare
from prose_kernel.storage.run_paths import DATABASE

_BUSY: Final = 0.2
"""Seconds to wait for another process that writes; readers never block (WAL)."""

_NETWORK: Final = re.compile(r"nfs4?|cifs|smb3|smbfs|ncpfs|afs|ceph|lustre|beegfs|gpfs|(fuse\.)?glusterfs|fuse\.sshfs")
_REASONS: Final = {
    "SQLITE_FULL": "no space left on the disk",
    "SQLITE_BUSY": "another program has locked it",
    "SQLITE_LOCKED": "another program has locked it",
    "SQLITE_IOERR": "the disk cannot be read or written",
    "SQLITE_READONLY": "it is read-only",
    "SQLITE_READONLY_DBMOVED": "it was moved or deleted",
    "SQLITE_CANTOPEN": "it cannot be opened",
    "SQLITE_CORRUPT": "it is damaged",
    "SQLITE_NOTADB": "it is not a database",
    "SQLITE_TOOBIG": "the value is too large",
}
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


class SqliteDatabase:
    """The database file of one run, with the permissions of its other files. Only the run and `prose gate` write it.

    It is in WAL mode: readers see the last commit and never wait, and a killed process loses no committed data. `shown`
    is the name of the file for people and sessions.
    """

    dialect: Final[Dialect] = SQLITE
    local: Final = True
    inside: Final = True
    place: Final = DATABASE

    def __init__(self, file: Path, shown: str) -> None:
        self.file = file
        self.shown = shown
        self.hurried = False

    def connect(self) -> Connection:
        connection = SqliteConnection(_open(self.file))
        try:
            prepare(connection, SQLITE, f"'{self.shown}'")
        except BaseException:
            connection.close()
            raise
        return connection

    def location(self, name: str, execution_id: int | None) -> str:
        frame = "NULL" if execution_id is None else execution_id
        return f"{self.shown} (bindings table, name='{name}', execution_id={frame})"


class SqliteConnection:
    """A `Connection`, callable from any thread, one at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    def execute(self, statement: str, parameters: Row = ()) -> int:
        try:
            return self._connection.execute(statement, parameters).rowcount
        except sqlite3.Error as error:
            raise _translated(error) from None

    def executemany(self, statement: str, rows: Iterable[Row]) -> None:
        try:
            self._connection.executemany(statement, rows)
        except sqlite3.Error as error:
            raise _translated(error) from None

    def query(self, statement: str, parameters: Row = ()) -> list[tuple[object, ...]]:
        try:
            return self._connection.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            raise _translated(error) from None

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()


def read_only(file: Path) -> Connection:
    """Open the database of a run for reading only. Raises `DatabaseError`."""
    place = f"{file.absolute().as_uri()}?mode=ro"
    try:  # refuse a pipe, for which SQLite would wait
        plain_files.check(os.lstat(file).st_mode)
    except OSError as error:
        raise DatabaseError(reason_of(error, "it cannot be opened")) from None
    try:
        return SqliteConnection(sqlite3.connect(place, uri=True, isolation_level=None, timeout=_BUSY))
    except sqlite3.Error as error:
        raise _translated(error) from None


def _open(file: Path) -> sqlite3.Connection:
    try:  # don't follow a link in place of the file
        file.parent.mkdir(parents=True, exist_ok=True)
        plain_files.make(file)
        connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=_BUSY)
    except OSError as error:
        raise DatabaseError(reason_of(error, "it cannot be opened")) from None
    except sqlite3.Error as error:
        raise _translated(error) from None
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise _translated(error) from None
        raise
    return connection


def _translated(error: sqlite3.Error) -> DatabaseError:
    name = getattr(error, "sqlite_errorname", "") or ""
    reason = _REASONS.get(name) or _REASONS.get("_".join(name.split("_")[:2])) or str(error).lower()
    busy = name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL"))
    damaged = name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or reason.startswith("no such ")
    return DatabaseError(reason, busy=busy, damaged=damaged)


# ---------------------------------------------------------------- network drives


def network_drive(directory: Path, mounts: str | None = None) -> str | None:
    """Return the type of the network file system of a directory, which may not exist yet; None for a local one.

    Write-ahead logs need memory that all processes share, which no network file system offers: two machines would
    damage the file. `mounts` are the lines of `/proc/self/mounts`; on systems without that file the result is None.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text("utf-8", "replace")
        except OSError:
            return None
    place = os.path.realpath(directory)
    best = kind = ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) > 2:
            mount = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[1])
            if len(mount) >= len(best) and f"{place}/".startswith(f"{mount.rstrip('/')}/"):
                best, kind = mount, fields[2]
    return kind if _NETWORK.fullmatch(kind) else None


def sqlite_bindings(file: Path) -> list[StoredBinding]:
    """Return the root bindings in the database file of a run, as far as they can be read."""
    return stored_bindings(SQLITE, lambda: read_only(file), "")
