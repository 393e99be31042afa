"""Stores the records of a run's tasks in a small database, or in memory (exec-and-tasks.md 4.3).

A record and its event are written in one transaction, so after a crash either both or neither can be read. One kernel
owns the store, by a lock that ends with its process; other processes may read, and may request the stop of a task.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from prose_kernel.access import plain_files
from prose_kernel.errors import reason_of
from prose_kernel.language.structs import replace
from prose_kernel.processes.tasks import log
from prose_kernel.processes.tasks.records import TaskRecord, follow_up_text, from_row, may_follow
from prose_kernel.runtime.services import TaskFollowUp

if TYPE_CHECKING:
    from filelock import FileLock

DIRECTORY = "tasks"
_FILE = "tasks.sqlite"
_LOCK = "owner.lock"
_LOCK_PATIENCE = 0.1
"""Seconds to wait for the lock, which another process may hold for a moment to check whether there is an owner."""
_SCHEMA = """
create table if not exists tasks (
    task_id text primary key, number integer not null unique, ended integer not null, revision integer not null,
    record text not null);
create table if not exists events (
    event integer primary key autoincrement, task_id text not null, revision integer not null, kind text not null,
    result_id text unique, told integer not null default 0, at text not null, data text not null);
create table if not exists follow_ups (
    result_id text primary key, task_id text not null, session text not null, text text not null,
    taken integer not null default 0);
create table if not exists requests (request integer primary key autoincrement, task_id text not null);
"""
_SELECT = "select task_id, number, record from tasks"


class StoreError(Exception):
    """The records cannot be written or read; the message is the reason, for people."""


class Owned(Exception):
    """Another live kernel owns this run directory."""


class Store:
    """The records of one run. Call all methods in one thread, except where documented."""

    def __init__(self, directory: Path | None, *, mode: Literal["own", "look"] = "own") -> None:
        """`directory` is the run's; None keeps everything in memory. Raises `Owned` and `StoreError`."""
        self.directory = directory / DIRECTORY if directory is not None else None
        self._lock: FileLock | None = None
        self._readonly = mode == "look"
        try:
            if self.directory is not None and mode == "own":
                self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._lock = _owner_lock(self.directory)
            self._connection = self._connect()
        except (OSError, sqlite3.Error) as problem:
            self._unlock()
            raise StoreError(_error_text(problem)) from None

    def _connect(self) -> sqlite3.Connection:
        if self.directory is None:
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        elif self._readonly:
            path = self.directory / _FILE
            plain_files.check(os.lstat(path).st_mode)
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=5
            )
        else:
            path = self.directory / _FILE
            plain_files.make(path, 0o600)
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=2)
        # a damaged text must not hide other rows
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        if not self._readonly:
            connection.execute("pragma journal_mode=wal").fetchone()
            connection.execute("pragma synchronous=normal")
            connection.executescript(_SCHEMA)
        return connection

    def close(self) -> None:
        self._connection.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            self._connection.execute("begin immediate")
            yield self._connection
            self._connection.execute("commit")
        except BaseException as problem:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("rollback")
            if isinstance(problem, sqlite3.Error):
                raise StoreError(_error_text(problem)) from None
            raise

    # ------------------------------------------------------------ writing

    def save(self, record: TaskRecord, event: Literal["TaskStatus", "TaskResult"] | None = None) -> TaskRecord:
        """Store the next revision of a record together with its event; return the stored record. Raises `StoreError`.

        States only move forward, and the first terminal state wins: an update that would break this rule changes
        nothing.
        """
        with self._transaction() as connection:
            row = connection.execute(f"{_SELECT} where task_id = ?", (record.task_id,)).fetchone()
            known = from_row(*row) if row else None
            if known is not None and known.status != record.status and not may_follow(known.status, record.status):
                return known
            if known is not None and known.ended and known.status == record.status:
                return known
            record = replace(record, revision=(known.revision if known is not None else 0) + 1)
            if known is None:
                number = connection.execute("select coalesce(max(number), 0) + 1 from tasks").fetchone()[0]
                record = replace(record, number=number)
            connection.execute(
                "insert into tasks values (?, ?, ?, ?, ?) on conflict (task_id) do update set"
                " ended = excluded.ended, revision = excluded.revision, record = excluded.record",
                (record.task_id, record.number, record.ended, record.revision, record.as_json()),
            )
            if event is not None:
                self._event(connection, record, event)
            if record.ended and record.continue_on_result:
                self._follow_up(connection, record)
        return record

    @staticmethod
    def _event(connection: sqlite3.Connection, record: TaskRecord, event: str) -> None:
        data = {
            "task_id": record.task_id,
            "status": record.status,
            "exit_status": record.exit_status,
            "summary": record.summary,
            "log_ref": record.log_ref,
        }
        result = record.result_id if event == "TaskResult" else None
        connection.execute(
            "insert into events (task_id, revision, kind, result_id, at, data) values (?, ?, ?, ?, ?, ?)",
            (record.task_id, record.revision, event, result, record.updated_at, json.dumps(data, ensure_ascii=False)),
        )

    @staticmethod
    def _follow_up(connection: sqlite3.Connection, record: TaskRecord) -> None:
        connection.execute(
            "insert or ignore into follow_ups (result_id, task_id, session, text) values (?, ?, ?, ?)",
            (record.result_id, record.task_id, record.work_ref or "", follow_up_text(record)),
        )

    def prune(self, kept: int) -> None:
        """Forget the oldest ended tasks beyond `kept`, with their logs and events."""
        old = self._records(f"{_SELECT} where ended order by number desc limit -1 offset ?", (kept,))
        if not old:
            return
        with self._transaction() as connection:
            for record in old:
                connection.execute("delete from tasks where task_id = ?", (record.task_id,))
                connection.execute("delete from events where task_id = ?", (record.task_id,))
        for record in old:
            if self.directory is not None and record.log_ref:
                log.remove(self.directory.parent / record.log_ref)

    # ------------------------------------------------------------ reading

    def _rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query, parameters).fetchall()
        except sqlite3.Error as problem:
            raise StoreError(_error_text(problem)) from None

    def _records(self, query: str, parameters: Sequence[object] = ()) -> list[TaskRecord]:
        """Return records. A damaged one is marked, and does not affect the others. Raises `StoreError`."""
        return [from_row(*row) for row in self._rows(query, parameters)]

    def find(self, name: str, *, number: bool) -> TaskRecord | None:
        """Return the task with this id or, with `number`, with this number in the run. Raises `StoreError`."""
        found = self._records(f"{_SELECT} where task_id = ?", (name,))
        if not found and number and name.isascii() and name.isdigit() and len(name) < 10:
            found = self._records(f"{_SELECT} where number = ?", (int(name),))
        return found[0] if found else None

    def all(self) -> list[TaskRecord]:
        """Return every task of the run, oldest first."""
        return self._records(f"{_SELECT} order by number")

    def active(self) -> list[TaskRecord]:
        """Return the tasks that have not ended, oldest first, without damaged records."""
        return [record for record in self._records(f"{_SELECT} where not ended order by number") if not record.ended]

    # ------------------------------------------------------------ reports, follow-ups, requests

    def unreported(self) -> list[TaskRecord]:
        """Return the ended tasks that were not reported yet, in the order of their ends."""
        query = (
            "select tasks.task_id, tasks.number, tasks.record from events join tasks using (task_id)"
            " where events.kind = 'TaskResult' and events.told = 0 order by events.event"
        )
        return self._records(query)

    def mark_reported(self, records: Sequence[TaskRecord]) -> None:
        """Mark the ends of these tasks as reported to the person."""
        with self._transaction() as connection:
            for record in records:
                connection.execute("update events set told = 1 where result_id = ?", (record.result_id,))

    def follow_ups(self) -> list[TaskFollowUp]:
        query = (
            "select follow_ups.result_id, task_id, tasks.number, follow_ups.session, follow_ups.text"
            " from follow_ups join tasks using (task_id) where taken = 0 order by tasks.number"
        )
        return [TaskFollowUp(*row) for row in self._rows(query)]

    def take_follow_up(self, result_id: str) -> bool:
        with self._transaction() as connection:
            done = connection.execute("update follow_ups set taken = 1 where result_id = ? and taken = 0", (result_id,))
            return done.rowcount == 1

    def request_stop(self, task_id: str) -> None:
        """Request the kernel that owns the run to stop a task. Any process with write access may call this."""
        with self._transaction() as connection:
            connection.execute("insert into requests (task_id) values (?)", (task_id,))

    @property
    def version(self) -> int:
        """A number that changes when another process has written; cheap to read. Raises `StoreError`."""
        return int(self._rows("pragma data_version")[0][0])

    def take_requests(self) -> list[str]:
        """Return and remove the requests of other processes: the ids of tasks to stop."""
        if not (rows := self._rows("select task_id from requests order by request")):
            return []
        with self._transaction() as connection:
            connection.execute("delete from requests")
        return [row[0] for row in rows]


def exists(run_directory: Path) -> bool:
    """Return whether a run has ever had a task."""
    return (run_directory / DIRECTORY / _FILE).is_file()


def _owner_lock(directory: Path) -> FileLock:
    """Take the owner's lock. Raises `Owned` and `OSError`."""
    from filelock import FileLock, Timeout  # slow to import, and most runs have no task

    lock = FileLock(directory / _LOCK, mode=0o600, thread_local=False)
    try:
        lock.acquire(timeout=_LOCK_PATIENCE, poll_interval=0.01)
    except Timeout:
        raise Owned from None
    return lock


def _error_text(problem: Exception) -> str:
    if isinstance(problem, OSError):
        return reason_of(problem, "unknown reason")
    return str(problem).lower() or "unknown reason"
