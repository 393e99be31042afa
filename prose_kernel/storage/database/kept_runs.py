"""Lists, reads and removes runs in databases, for `prose runs` (`storage/runs.py`)."""

from __future__ import annotations

import contextlib
import functools
import platform
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, cast

from prose_kernel.access import atomic
from prose_kernel.errors import UsageError, reason_of
from prose_kernel.runtime.journal_records import Head
from prose_kernel.storage import journal_reading
from prose_kernel.storage.bindings import StoredBinding
from prose_kernel.storage.database import schema
from prose_kernel.storage.database.binding_rows import stored_bindings
from prose_kernel.storage.database.ownership import bytes_at, has_run, is_elsewhere, owner_of
from prose_kernel.storage.database.postgres import PostgresDatabase
from prose_kernel.storage.runs import KeptRun, State

_LEASE_CHECK_SECONDS: Final = 1.0
_ENDS: Final[dict[str, State]] = {"running": "running", "completed": "done", "interrupted": "interrupted"}


class RunDatabaseUnavailable(UsageError):
    """The database of runs does not answer, or refuses this user."""


class PostgresRuns:
    """The runs of a shared database. The runs of this machine also have a directory, with more details. `pause` waits
    for a number of seconds."""

    def __init__(
        self, database: PostgresDatabase, directory: Path, pause: Callable[[float], object] = time.sleep
    ) -> None:
        self._database = database
        self._directory = directory
        self._pause = pause

    def runs(self) -> Iterator[KeptRun]:
        """Yield all runs of the database. Raises `RunDatabaseUnavailable`."""
        with self._opened() as connection:
            there = {str(name) for (name,) in connection.query(schema.POSTGRES.existing)}
            if "run" not in there:
                return
            lease = "x_process, x_expires > clock_timestamp()" if schema.X_JOURNAL.name in there else "NULL, NULL"
            rows = connection.query(f"SELECT id, program_path, status, {lease} FROM openprose.run")
        for name, program, status, process, runs in rows:
            ended = _ENDS.get(str(status), "failed")
            if ended == "running" and not runs:
                ended = "lost"
            directory = self._directory / str(name)
            elsewhere = is_elsewhere(cast("str | None", process), directory / journal_reading.NAME)
            yield KeptRun(str(name), directory, self, ended, str(program or ""), elsewhere)

    def head(self, run: KeptRun) -> Head | None:
        """Return the head of a run's journal in the database; None if it has none there. Raises `UsageError`."""
        with self._opened() as connection:
            for _, lines in _rows(connection, run.id, 1):
                return journal_reading.head_of(run.id, lines)
        return None

    def fetch(self, run: KeptRun) -> Path | None:
        """Return a temporary directory with a copy of the run's journal, if the database has it and this user may read
        it."""
        directory = self._copies / run.id
        with contextlib.suppress(RunDatabaseUnavailable), self._opened() as connection:
            lines = b"".join(lines for _, lines in _rows(connection, run.id))
            if lines:
                directory.mkdir(exist_ok=True)
                (directory / journal_reading.NAME).write_bytes(lines)
                return directory
        return None

    @functools.cached_property
    def _copies(self) -> Path:
        """A temporary directory, which is removed with this object or at the end of the process."""
        made = Path(tempfile.mkdtemp(prefix="prose-"))
        weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)
        return made

    def fetch_journal(self, run_id: str, warn: Callable[[str], None]) -> None:
        """Write the database's copy of a run's journal to this machine, unless the journal here contains all of it.

        If the run has an owner, call `warn`, and wait until its lease has expired. Raises `UsageError` if the owner
        extends its lease, if the run has no journal, or if the journal cannot be written.
        """
        path = self._directory / run_id / journal_reading.NAME
        with self._opened() as connection:
            self._wait_for_lease(connection, run_id, path, warn)
            if _is_complete(connection, run_id, path):
                return
            if path.exists() and journal_reading.is_written(path):
                raise UsageError(f"run {run_id} is being run by another process", hint="wait until that one has ended")
            try:
                atomic.keep_out_of_git(str(self._directory.parent))
                atomic.replace(f"{path}.tmp", path, (lines for _, lines in _rows(connection, run_id)), 0o600)
            except OSError as error:
                raise UsageError(f"the journal of run {run_id} cannot be written here: {reason_of(error)}") from None

    def _wait_for_lease(
        self, connection: schema.Connection, run_id: str, path: Path, warn: Callable[[str], None]
    ) -> None:
        left = 0.0
        while (owner := owner_of(connection, run_id)) is not None and is_elsewhere(owner.process, path):
            if left and owner.seconds > left:
                hint = "wait until that one has ended"
                raise UsageError(f"run {run_id} is being run by another process, on {owner.host}", hint=hint)
            if not left:
                warn(f"Waiting until the lease of run {run_id} on {owner.host} has expired.")
            left = owner.seconds
            self._pause(_LEASE_CHECK_SECONDS)

    def bindings(self, run: KeptRun) -> list[StoredBinding]:
        return stored_bindings(schema.POSTGRES, self._database.open, run.id)

    def remove(self, run: KeptRun) -> None:
        """Remove the run's rows. Raises `UsageError` if another machine has taken it over since it was listed."""
        with self._opened() as connection:
            there = {str(name) for (name,) in connection.query(schema.POSTGRES.existing)}
            lease = "x_expires, x_host" if schema.X_JOURNAL.name in there else "NULL::timestamptz, NULL"
            free = f"SELECT COALESCE(ends < clock_timestamp() OR host = %s, TRUE) FROM (SELECT {lease}) o (ends, host)"
            statement = f"DELETE FROM openprose.run WHERE id = %s AND ({free})"
            if not connection.execute(statement, (run.id, platform.node())) and has_run(connection, run.id):
                raise UsageError(f"run {run.id} is running on another machine", hint="wait until it has ended there")

    @contextlib.contextmanager
    def _opened(self) -> Iterator[schema.Connection]:
        try:
            with contextlib.closing(self._database.open()) as connection:
                yield connection
        except schema.DatabaseError as error:
            raise RunDatabaseUnavailable(f"PostgreSQL {self._database.place}: {error}") from None


def _rows(
    connection: schema.Connection, run_id: str, most: int = 10**9, *, last: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of a run's journal: all of them, or at most `most`, from the first or (`last`) from the last."""
    found, order = -1, "DESC" if last else "ASC"
    condition = f"run_id = %s AND start > %s ORDER BY start {order} LIMIT 100"
    while rows := connection.query(f"SELECT start, lines FROM openprose.x_journal WHERE {condition}", (run_id, found)):
        for start, lines in rows:
            found = int(str(start))
            yield found, bytes(cast("bytes", lines))
            most -= 1
            if not most:
                return


def _is_complete(connection: schema.Connection, run_id: str, path: Path) -> bool:
    """Return whether the file contains the database's whole copy of a journal. Comparing the last row is enough,
    because each line's checksum covers all lines before it. Raises `UsageError` if neither exists."""
    for start, lines in _rows(connection, run_id, 1, last=True):
        return bytes_at(path, start, len(lines)) == lines
    if path.exists():
        return True
    hint = "an earlier version made it, or the setting journal was off"
    raise UsageError(f"run {run_id} has no journal in the database", hint=hint)
