"""PostgreSQL: many runs in the schema `openprose` of one database (docs/reference/openprose.md 7.1, 7.8).

The first connection imports `psycopg` (the extra `postgres`). URLs contain passwords, so neither URLs nor messages of
the driver that quote them leave this module.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from prose_kernel.storage.database.schema import (
    POSTGRES,
    RUN,
    RUN_TABLES,
    X_META,
    Connection,
    DatabaseError,
    Dialect,
    Row,
    prepare,
)

if TYPE_CHECKING:
    import psycopg

HINT: Final = "set OPENPROSE_POSTGRES_URL=postgresql://USER:PASSWORD@HOST:5432/DATABASE in .prose/.env"
INSTALL: Final = "pip install 'prose_kernel[postgres]'"

_CONNECT_SECONDS: Final = 5
_STATEMENT_SECONDS: Final = 10
_SILENT_SECONDS: Final = 12
"""Seconds after which a silent server counts as lost: more than its limit for a statement, which it reports."""
_HURRIED_SECONDS: Final = 1
"""The same after an interrupt."""
_SCHEMA_LOCK: Final = 5_760_210
"""The number of the advisory lock for creating tables, because several first runs may begin at the same time."""

_URL: Final = re.compile(r"postgres(ql)?(\+\w+)?://")
_NO_LOG: Final = logging.NullHandler()
_UNREADABLE: Final = "its URL cannot be read; special characters in it are written as %XX"


def is_installed() -> bool:
    """Return whether the extra `postgres` is installed, without importing it."""
    return importlib.util.find_spec("psycopg") is not None


class PostgresDatabase:
    """The database at a URL. The constructor opens no connection."""

    dialect: Final[Dialect] = POSTGRES
    local: Final = False
    inside: Final = False

    def __init__(self, url: str, run_id: str = "") -> None:
        self._url = _URL.sub("postgresql://", url, count=1)
        self._run_id = run_id
        self.hurried = False

    @property
    def place(self) -> str:
        """Host, port and database name, for people."""
        parts = self._parts()
        host = parts.get("host") or "localhost"
        if not parts or "@" in host:
            return "an unknown address"
        port = "" if host.startswith("/") else f":{parts.get('port') or 5432}"
        return f"{host}{port}/{parts.get('dbname') or parts.get('user') or ''}"

    def connect(self) -> Connection:
        """Open a connection, and create the tables if there are none. Raises `DatabaseError`, and `StateError` for
        tables of another version."""
        connection = self.open()
        try:
            with connection.exclusive(_SCHEMA_LOCK):
                prepare(connection, POSTGRES, f"the database {self.place}")
        except BaseException:
            connection.close()
            raise
        return connection

    def test(self) -> None:
        """Check that a run can be kept here: the tables exist or can be created, and this user may write them.

        Raises the errors of `connect`.
        """
        with contextlib.closing(self.connect()) as connection:
            for table in (RUN, *RUN_TABLES):
                name = POSTGRES.prefix + table.name
                may = "SELECT has_table_privilege(%s, 'INSERT')"
                if connection.query(may, (name,)) != [(True,)]:
                    raise DatabaseError(f"permission denied for table {table.name}")

    def open(self) -> PostgresConnection:
        """Open a connection without checking the tables. Raises `DatabaseError` if the extra is missing, the URL is
        invalid, or the server does not answer or refuses this user."""
        try:
            import psycopg
        except ImportError:
            raise DatabaseError("the package psycopg is not installed") from None
        if not _URL.match(self._url):
            raise DatabaseError("its URL does not begin with postgresql://")
        if "@" in self._parts().get("host", ""):  # a part of a password, which must not be shown
            raise DatabaseError(_UNREADABLE)
        try:
            connection = self._connections.connect(
                self._url,
                autocommit=True,
                connect_timeout=_CONNECT_SECONDS,
                application_name="prose_kernel",
                tcp_user_timeout=1000 * _STATEMENT_SECONDS,  # notice a network that loses all packets
                prepare_threshold=None,  # poolers may not support prepared statements
            )
        except psycopg.ProgrammingError:
            raise DatabaseError(_UNREADABLE) from None
        except psycopg.Error as error:
            raise DatabaseError(self._reason(error), lost=True) from None
        opened = PostgresConnection(connection, self._reason)
        opened.execute(f"SET statement_timeout TO '{_STATEMENT_SECONDS}s'")
        return opened

    def examine(self) -> tuple[str, str | None]:
        """Return the versions of the server and of the tables; None without tables. Raises `DatabaseError`."""
        with contextlib.closing(self.open()) as connection:
            server = str(connection.query("SHOW server_version")[0][0]).split()[0]
            there = {str(name) for (name,) in connection.query(POSTGRES.existing)}
            if X_META.name not in there:
                return server, None
            found = connection.query("SELECT value FROM openprose.x_meta WHERE name = 'schema_version'")
            return server, str(found[0][0]) if found else None

    def location(self, name: str, execution_id: int | None) -> str:
        frame = "NULL" if execution_id is None else execution_id
        where = f"name='{name}', run_id='{self._run_id}', execution_id={frame}"
        return f"PostgreSQL {self.place} (openprose.bindings, {where})"

    @functools.cached_property
    def _connections(self) -> type[psycopg.Connection[Any]]:
        return _limited_connections(lambda: _HURRIED_SECONDS if self.hurried else _SILENT_SECONDS)

    def _parts(self) -> dict[str, str]:
        try:
            from psycopg.conninfo import conninfo_to_dict

            return {name: str(value) for name, value in conninfo_to_dict(self._url).items() if value}
        except Exception:  # no URL, or no driver
            return {}

    def _reason(self, error: psycopg.Error) -> str:
        """Return the message of the server or driver, on one line and without the password."""
        text = str(error.diag.message_primary or error).split("\n", 1)[0].strip()
        text = re.sub(r"^(connection (failed|is bad): )?connection to server .*? failed: ", "", text)
        text = re.sub(r"^(FATAL|ERROR): +|\[Errno -?\d+\] ", "", text)
        if password := self._parts().get("password"):
            text = text.replace(password, "…")
        return text[:1].lower() + text[1:]


def _limited_connections(patience: Callable[[], float]) -> type[psycopg.Connection[Any]]:
    """Return a class of connections on which no statement waits forever. A frozen server, or a proxy that has lost its
    server, keeps the connection open and answers nothing; no limit of the server or of TCP ends that. `patience`
    returns the seconds after which a silent server counts as lost.

    Errors of a lost connection reach people only as `DatabaseError`, so the driver's log is not printed.
    """
    import psycopg

    logging.getLogger("psycopg").addHandler(_NO_LOG)

    def limited(gen: Generator[Any, Any, Any], finish: Callable[[], object]) -> Generator[Any, Any, Any]:
        """Pass on the exchange with the server; call `finish` and raise if the server is silent for too long."""
        heard = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    heard = now
                elif now - heard > patience():
                    finish()
                    raise psycopg.OperationalError("the server does not answer")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value

    class Limited(psycopg.Connection[Any]):
        def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
            return super().wait(limited(gen, self.pgconn.finish), *args, **options)

        @classmethod
        def _connect_gen(cls, *args: Any, **options: Any) -> Generator[Any, Any, Any]:
            gen = super()._connect_gen(*args, **options)
            return limited(gen, gen.close)

    return Limited


class PostgresConnection:
    """A `Connection`, callable from any thread, one at a time."""

    def __init__(self, connection: psycopg.Connection[Any], reason: Any) -> None:
        self._connection = connection
        self._reason = reason

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with self._translated_errors(), self._connection.transaction():
            yield

    def execute(self, statement: str, parameters: Row = ()) -> int:
        with self._translated_errors():
            changed: int = self._connection.execute(statement, parameters or None).rowcount
        return changed

    def executemany(self, statement: str, rows: Iterable[Row]) -> None:
        with self._translated_errors(), self._connection.cursor() as cursor:
            cursor.executemany(statement, rows)

    def query(self, statement: str, parameters: Row = ()) -> list[tuple[object, ...]]:
        with self._translated_errors():
            rows: list[tuple[object, ...]] = self._connection.execute(statement, parameters or None).fetchall()
        return rows

    @contextlib.contextmanager
    def exclusive(self, number: int) -> Iterator[None]:
        """Hold the advisory lock with this number, which only one connection to this database can hold."""
        self.execute("SELECT pg_advisory_lock(%s)", (number,))
        try:
            yield
        finally:
            with contextlib.suppress(DatabaseError):  # the lock ends with a lost connection
                self.execute("SELECT pg_advisory_unlock(%s)", (number,))

    def listen(self, channel: str) -> PostgresListening:
        """Use this connection only to wait for notifications."""
        self.execute(f"LISTEN {channel}")
        with self._translated_errors():
            return PostgresListening(self._connection)

    def close(self) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            lost = self._connection.closed or isinstance(error, psycopg.OperationalError)
            raise DatabaseError(self._reason(error), lost=bool(lost)) from None


class PostgresListening:
    """Waits for notifications that a record may have changed: `fileno` becomes readable. `drain` consumes them, and
    returns False if the connection is lost."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._file = int(connection.fileno())  # a lost connection no longer tells

    def fileno(self) -> int:
        return self._file

    def drain(self) -> bool:
        import psycopg

        try:
            self._connection.pgconn.consume_input()
            while self._connection.pgconn.notifies() is not None:
                pass
        except psycopg.Error:
            return False
        return True

    def close(self) -> None:
        self._connection.close()
