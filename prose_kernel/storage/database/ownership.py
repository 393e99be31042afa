"""Owns a run in a shared database, and copies its journal there (docs/how-to/durability.md, amendment A52).

The process that runs a run is its owner. Each of its transactions extends its lease, by the server's clock; a thread
does so while nothing else is written. A process that takes the run over increments `x_epoch`. This ends the former
ownership: the former owner's next transaction finds another epoch and is rolled back.

A run can be taken over when its lease has expired. On the same machine, the lease ends with the owner's process: the
next process that holds the lock of the same journal takes over immediately.

The rows of `x_journal` hold the bytes of the journal's file that were written when the last transaction began.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.errors import StoreFailed
from prose_kernel.storage.database.schema import Connection, Row

LEASE_SECONDS: Final = 30
RENEW_SECONDS: Final = 10
_ROW_BYTES: Final = 4 * 1024 * 1024
_LEASE: Final = f"clock_timestamp() + interval '{LEASE_SECONDS} s'"
_FREE: Final = "kept.x_expires IS NULL OR kept.x_expires < clock_timestamp()"
_CLAIM: Final = f"""INSERT INTO openprose.run AS kept (id, x_epoch, x_host, x_process, x_expires)
VALUES (%s, 1, %s, %s, {_LEASE}) ON CONFLICT (id) DO UPDATE
SET x_epoch = kept.x_epoch + 1, x_host = excluded.x_host, x_process = excluded.x_process, x_expires = excluded.x_expires
WHERE {_FREE} OR kept.x_process = excluded.x_process RETURNING x_epoch"""
_COPY: Final = "INSERT INTO openprose.x_journal (run_id, start, lines)"
_AGAIN: Final = "ON CONFLICT (run_id, start) DO UPDATE SET lines = excluded.lines"
"""Makes a transaction repeatable: if its connection was lost, it may have been committed or not."""


class Owner(Struct, frozen=True):
    """The owner of a run in a database: its machine, its process, and the remaining seconds of its lease."""

    host: str
    process: str
    seconds: float


def owner_of(connection: Connection, run_id: str) -> Owner | None:
    """Return the owner of a run; None if its lease has expired. Raises `DatabaseError`."""
    left = "EXTRACT(EPOCH FROM x_expires - clock_timestamp())::float8"
    condition = "id = %s AND x_expires > clock_timestamp()"
    statement = f"SELECT x_host, x_process, {left} FROM openprose.run WHERE {condition}"
    for host, process, seconds in connection.query(statement, (run_id,)):
        return Owner(str(host), str(process), cast("float", seconds))
    return None


def has_run(connection: Connection, run_id: str) -> bool:
    """Return whether the database has a run. Raises `DatabaseError`."""
    return bool(connection.query("SELECT 1 FROM openprose.run WHERE id = %s", (run_id,)))


class Ownership:
    """Owns a run and copies its journal, inside the transactions of the run (`RowWriter`). Callable from any thread,
    one at a time."""

    def __init__(self, run_id: str, journal: Path) -> None:
        self._run_id = run_id
        self._journal = journal
        self._process = ""
        self._epoch = self._taken = 0
        self._size = self._answered = 0
        self._sent = self._sending = 0
        self._compared = False
        self._begun, self._renewed = 0.0, float("-inf")

    # ------------------------------------------------------------ the journal's file

    def journal_grew(self, size: int, *, answered: bool = True) -> None:
        """Report that the journal's file has `size` bytes of whole records; `answered`: there is a new answer."""
        self._size = size
        if answered:
            self._answered = size

    @property
    def must_flush(self) -> bool:
        """Whether a request must wait for a transaction: the database lacks an answer, or the lease was not extended
        recently."""
        return self._answered > self._sent or _clock() - self._renewed > RENEW_SECONDS

    @property
    def is_due(self) -> bool:
        """Whether a transaction is needed, to copy records or to extend the lease."""
        return self._size > self._sent or self.must_flush

    @property
    def owns(self) -> bool:
        """Whether this process has owned the run since a committed transaction."""
        return self._epoch > 0

    @property
    def is_single_statement(self) -> bool:
        """Whether `update` is a single statement, which needs no transaction around it."""
        return self._epoch > 0 and self._compared and self._size - self._sent <= _ROW_BYTES

    # ------------------------------------------------------------ inside a transaction

    def update(self, connection: Connection, assignments: str, values: Row) -> None:
        """Change the row of the run, extend the lease, and copy the new part of the journal.

        Raises `StoreFailed` if this process does not own the run and cannot take it over; and `DatabaseError`.
        """
        self._begun = _clock()
        epoch = self._epoch or self._claim(connection)
        if not self._compared:
            self._sent = self._check_copy(connection)
        self._sending = self._sent
        lines = self._next()
        changed = f"UPDATE openprose.run SET {assignments}, x_expires = {_LEASE} WHERE id = %s AND x_epoch = %s"
        copied = f", copied AS ({_COPY} SELECT id, %s, %s FROM owned {_AGAIN})" if lines else ""
        statement = f"WITH owned AS ({changed} RETURNING id){copied} SELECT count(*) FROM owned"
        row = (*values, self._run_id, epoch, *((self._sending, lines) if lines else ()))
        if connection.query(statement, row) == [(0,)]:
            raise self._lost(connection)
        self._sending += len(lines)
        while lines := self._next():
            connection.execute(f"{_COPY} VALUES (%s, %s, %s) {_AGAIN}", (self._run_id, self._sending, lines))
            self._sending += len(lines)

    def _next(self) -> bytes:
        return bytes_at(self._journal, self._sending, min(self._size - self._sending, _ROW_BYTES))

    def _claim(self, connection: Connection) -> int:
        self._process = self._process or _process(self._journal)
        row = (self._run_id, platform.node(), self._process)
        taken = connection.query(_CLAIM, row)
        if not taken:
            owner = owner_of(connection, self._run_id)
            where = f", on {owner.host}" if owner is not None else ""
            raise StoreFailed(
                f"run {self._run_id} is being run by another process{where}", hint="wait until that one has ended"
            )
        self._taken = int(str(taken[0][0]))
        return self._taken

    def committed(self) -> None:
        """Report that the transaction was committed."""
        self._epoch, self._sent, self._renewed = self._epoch or self._taken, self._sending, self._begun
        self._compared = True

    def disconnected(self) -> None:
        """Report a lost connection. A killed server may have lost its last commits, so compare the copy again."""
        self._compared = False

    def release(self, connection: Connection) -> None:
        """End the lease. Raises `DatabaseError`."""
        statement = "UPDATE openprose.run SET x_expires = clock_timestamp() WHERE id = %s AND x_epoch = %s"
        connection.execute(statement, (self._run_id, self._epoch))

    def _lost(self, connection: Connection) -> StoreFailed:
        """Return the error for a process that has lost the ownership."""
        found = connection.query("SELECT x_host FROM openprose.run WHERE id = %s", (self._run_id,))
        if not found:
            return StoreFailed(f"run {self._run_id} was removed from the database", hint="nothing more is stored of it")
        return StoreFailed(
            f"run {self._run_id} was taken over by another process, on {found[0][0]}",
            hint="this process had not extended its lease; what it does now is not stored",
        )

    def _check_copy(self, connection: Connection) -> int:
        """Return the length of the copy in the database. Raises `StoreFailed` if it differs from the file here."""
        statement = "SELECT start, lines FROM openprose.x_journal WHERE run_id = %s ORDER BY start DESC LIMIT 1"
        for start, lines in connection.query(statement, (self._run_id,)):
            begin, data = int(str(start)), bytes(cast("bytes", lines))
            if begin + len(data) > self._size or bytes_at(self._journal, begin, len(data)) != data:
                raise StoreFailed(
                    f"run {self._run_id} has continued in another directory or on another machine",
                    hint=f"to continue from what the database has: prose run --resume {self._run_id} --state postgres",
                )
            return begin + len(data)
        return 0


def bytes_at(path: Path, start: int, size: int) -> bytes:
    """Return up to `size` bytes of a file from an offset on; none if it cannot be read."""
    if size <= 0:
        return b""
    try:
        with plain_files.closing(plain_files.descriptor(path)) as descriptor:
            return os.pread(descriptor, size, start)
    except OSError:
        return b""


def is_elsewhere(process: str | None, journal: Path) -> bool:
    """Return whether the owner of a run (its `x_process`) uses another journal file than this one."""
    return process is not None and process != _process(journal)


def _process(journal: Path) -> str:
    """Return the identity of the owner: the journal whose lock it holds, and this boot of this machine."""
    try:
        found = journal.stat()
    except OSError:  # no journal is kept
        return uuid.uuid4().hex
    return f"{_machine()} {found.st_dev}:{found.st_ino}"


def _clock() -> float:
    """Return seconds of a clock that also runs while the machine is suspended, if it has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@functools.cache
def _machine() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"{platform.node()}-{uuid.getnode():x}"


class Heartbeat:
    """Calls `beat` every few seconds, in a separate thread, until `stop`."""

    def __init__(self, beat: Callable[[], None], seconds: float = RENEW_SECONDS / 2) -> None:
        self._beat = beat
        self._seconds = seconds
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="lease of a run", daemon=True).start()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            self._beat()

    def stop(self) -> None:
        self._stopped.set()
