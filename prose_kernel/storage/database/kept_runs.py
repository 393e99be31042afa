"""Runs in a database as people look at them: what `prose runs` needs of one (`storage/runs.py`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from prose_kernel.errors import UsageError
from prose_kernel.storage.database.postgres import PostgresDatabase
from prose_kernel.storage.database.schema import BINDINGS, POSTGRES, SQLITE, Connection, DatabaseError, Dialect
from prose_kernel.storage.database.sqlite import FILE, read_only
from prose_kernel.storage.runs import KeptRun, State, StoredBinding

_ENDS: Final[dict[str, State]] = {"running": "running", "completed": "done", "interrupted": "interrupted"}


class SqliteRuns:
    """The files with the names of runs, in the directories of these."""

    def runs(self) -> tuple[KeptRun, ...]:
        """None: each has its directory."""
        return ()

    def bindings(self, run: KeptRun) -> list[StoredBinding]:
        """The names at its root, as far as they can be read."""
        file = run.directory / FILE
        return _bindings(SQLITE, lambda: read_only(file), "") if file.is_file() else []

    def remove(self, run: KeptRun) -> None:
        """The file goes with the directory."""


def _bindings(dialect: Dialect, connect: Callable[[], Connection], run_id: str) -> list[StoredBinding]:
    where, values = (f" AND run_id = {dialect.placeholder}", (run_id,)) if dialect.shared else ("", ())
    statement = (
        f"SELECT name, kind, value, attachment_path FROM {dialect.prefix}{BINDINGS.name} "
        f"WHERE execution_id IS NULL{where} ORDER BY name"
    )
    try:
        with contextlib.closing(connect()) as connection:
            rows = connection.query(statement, values)
    except DatabaseError:
        return []
    return [
        StoredBinding(str(name), str(kind), str(value) if value is not None else f"(kept in {attachment})")
        for name, kind, value, attachment in rows
        if "." not in str(name)  # that of an imported program
    ]


class PostgresRuns:
    """The runs of a shared database. Those of this machine have a directory too, which tells more."""

    def __init__(self, database: PostgresDatabase, directory: Path) -> None:
        self._database = database
        self._directory = directory

    def runs(self) -> Iterator[KeptRun]:
        """Raises `UsageError` when the database does not answer."""
        with self._opened() as connection:
            if "run" not in {str(name) for (name,) in connection.query(POSTGRES.existing)}:
                return
            rows = connection.query("SELECT id, program_path, status FROM openprose.run")
        for name, program, status in rows:
            ended = _ENDS.get(str(status), "failed")
            yield KeptRun(str(name), self._directory / str(name), self, ended=ended, about=str(program or ""))

    def bindings(self, run: KeptRun) -> list[StoredBinding]:
        return _bindings(POSTGRES, self._database.open, run.id)

    def remove(self, run: KeptRun) -> None:
        """Remove the rows. A run of another machine that is running, or was killed there, stays."""
        if run.place is self and run.state == "running":
            raise UsageError(
                f"run {run.id} is running on another machine, or was killed there", hint="remove it on that machine"
            )
        with self._opened() as connection:
            connection.execute("DELETE FROM openprose.run WHERE id = %s", (run.id,))

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Connection]:
        try:
            with contextlib.closing(self._database.open()) as connection:
                yield connection
        except DatabaseError as error:
            raise UsageError(f"PostgreSQL {self._database.place}: {error}") from None
