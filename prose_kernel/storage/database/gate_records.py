"""Keeps gate records in a database, for the run and for `prose gate` (docs/reference/openprose.md 5.9, 5.10)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar, cast

from prose_kernel.access.peers import identity
from prose_kernel.errors import StoreFailed
from prose_kernel.language.structs import replace
from prose_kernel.runtime.ports import Clock, GateDecision, GateRequest
from prose_kernel.storage.database import schema
from prose_kernel.storage.database.gate_rows import NO_LONGER_THERE, GateRow, GateRows
from prose_kernel.storage.database.postgres import PostgresDatabase, PostgresListening
from prose_kernel.storage.database.statements import Statements
from prose_kernel.storage.gates.records import (
    SYSTEM,
    AuditEvent,
    EarlierRecord,
    GateRecord,
    Records,
    RecordsUnavailable,
    Status,
    attempt_data,
    decision_event,
    last_event,
)
from prose_kernel.storage.run_paths import file_stem

_T = TypeVar("_T")
_BUSY_SECONDS: Final = 10.0
_BUSY_PAUSE: Final = 0.05
_LATEST: Final = 20
_HINT: Final = "look after the database, then start the run again; a gate that was not recorded is not approved"


class DatabaseRecords(Records):
    """The `Records` of a run in a database. Methods wait for the database, and may be called in any thread.

    One connection is open while gates are open; if it is lost, a call tries a new one. In `directory`, the run listens
    for `prose gate` on the same machine.
    """

    outside = True
    remote = True

    def __init__(self, database: schema.Database, directory: Path, run_id: str, clock: Clock) -> None:
        self.directory: Path = directory
        self.run_id = run_id
        self._database = database
        self._statements = Statements(database.dialect, run_id)
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: schema.Connection | None = None
        self._missed_at = 0.0

    @property
    def lacks_directory(self) -> bool:
        return self._database.inside and not self.directory.parent.is_dir()

    def command(self, record: GateRecord) -> str:
        return record.command(None if self._statements.dialect.shared else self.directory)

    def earlier(self) -> tuple[set[str], list[EarlierRecord]]:
        """Return all gates of the run. A rejection that the earlier process did not see takes effect when its record is
        taken over."""
        rows = self._call("gates", lambda rows: rows.all())
        return {file_stem(row.record.id) for row in rows}, [_earlier_record(row) for row in rows]

    def open(self, request: GateRequest, *, outside: bool) -> GateRecord:
        def work(rows: GateRows) -> GateRecord:
            now = rows.now()
            ends = now + timedelta(seconds=request.timeout)
            record = GateRecord(self.run_id, request, now, ends, identity(), outside)
            rows.open(record)
            rows.log(AuditEvent(request.id, "created", SYSTEM, now, "", attempt_data(request)))
            return record

        return self._call(f"gate '{request.id}'", work)

    def take_over(self, record: GateRecord, *, outside: bool) -> tuple[GateRecord, float]:
        def work(rows: GateRows) -> tuple[GateRecord, float]:
            now = rows.now()
            mine = replace(record, process=identity(), outside=outside)
            rows.set_process(mine)
            rows.log(AuditEvent(record.id, "resumed", SYSTEM, now, "", attempt_data(record.request)))
            return mine, (record.timeout_at - now).total_seconds()

        return self._call(f"gate '{record.id}'", work)

    def resolve(self, record: GateRecord, decision: GateDecision, *, watched: bool) -> GateDecision:
        def work(rows: GateRows) -> GateDecision:
            now = rows.now()
            if not watched and any(row.status != "pending" for row in rows.all(record.id, lock=True)):
                reason = {"reason": "this run takes no decisions from outside"}
                rows.log(AuditEvent(record.id, "ignored", SYSTEM, now, "", reason))
            elif watched and not rows.decide(record.id, decision, now):
                made = rows.accept(record)
                if made is not None:
                    return made
            if not rows.decide(record.id, decision, now, pending=False):
                raise schema.DatabaseError(NO_LONGER_THERE)
            rows.log(decision_event(record, decision, now))
            rows.mark_seen(record.id)
            return decision

        return self._call(f"gate '{record.id}'", work)

    def find_decision(self, record: GateRecord, *, files: bool) -> GateDecision | None:
        what = f"gate '{record.id}'"
        if self._call(what, lambda rows: rows.is_pending(record.id), atomic=False):
            return None
        return self._call(what, lambda rows: rows.accept(record))

    def log(self, events: Sequence[AuditEvent]) -> None:
        def work(rows: GateRows) -> None:
            for event in events:
                rows.log(event)

        self._call("an approval of an earlier process", work)

    def listen(self) -> PostgresListening | None:
        if not isinstance(self._database, PostgresDatabase):
            return None
        try:
            return self._database.open().listen(schema.NOTIFY_CHANNEL)
        except schema.DatabaseError:
            return None

    def stop_waiting(self) -> None:
        with self._lock:
            self._drop()

    def _call(self, what: str, work: Callable[[GateRows], _T], *, atomic: bool = True) -> _T:
        """Return the result of `work`, which is one transaction if `atomic`. A call that waited while another call
        found the database unreachable fails immediately; otherwise several gates would wait for it one after the
        other."""
        began = time.monotonic()
        with self._lock:
            if self._missed_at > began:
                raise RecordsUnavailable(f"{what} could not be recorded: the database is unreachable", hint=_HINT)
            fresh = self._connection is None
            while True:
                try:
                    if self._connection is None:
                        self._connection = self._database.connect()
                    with self._connection.transaction() if atomic else contextlib.nullcontext():
                        return work(GateRows(self._connection, self._statements, self._clock))
                except schema.DatabaseError as error:
                    self._drop()
                    if error.lost and not fresh:
                        fresh = True
                        continue
                    if error.lost:
                        self._missed_at = time.monotonic()
                    failure = RecordsUnavailable if error.lost or error.busy else StoreFailed
                    hint = error.hint(self.run_id, _HINT)
                    raise failure(f"{what} could not be recorded: {error}", hint=hint) from None

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class DatabaseGates:
    """The gates of a run in a database, for `prose gate`, which is another process. Each call uses a new connection:
    `look` opens one for reading, `connect` one for writing."""

    def __init__(
        self,
        dialect: schema.Dialect,
        directory: Path,
        run_id: str,
        clock: Clock,
        look: Callable[[], schema.Connection],
        connect: Callable[[], schema.Connection],
    ) -> None:
        self.directory = directory
        self.run_id = run_id
        self._statements = Statements(dialect, run_id)
        self._clock = clock
        self._look = look
        self._connect = connect

    def command(self, record: GateRecord) -> str:
        return record.command(None if self._statements.dialect.shared else self.directory)

    def pending(self) -> list[GateRecord]:
        """Return the pending records, oldest first; none if the database cannot be read (see `damaged`)."""
        return self._read(lambda rows: rows.pending(), [])

    def events(self) -> list[AuditEvent]:
        """Return the audit log of the run, oldest event first."""
        return self._read(lambda rows: rows.events(), [])

    def last_event(self, gate_id: str) -> AuditEvent | None:
        return last_event(self._read(lambda rows: rows.events(gate_id), []), gate_id)

    def damaged(self) -> list[str]:
        """Return the reason if the database cannot be read."""
        try:
            with self._rows() as rows:
                rows.events("")
        except schema.DatabaseError as error:
            return [f"the database ({error})"]
        return []

    def decide(self, record: GateRecord, decision: GateDecision) -> bool:
        """Decide a record if it is pending and in time, and log the decision. Return whether this decision counts.
        Raises `DatabaseError`."""
        end = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                return self._decide(record, decision)
            except schema.DatabaseError as error:
                if not error.busy or time.monotonic() >= end:
                    raise
            time.sleep(_BUSY_PAUSE)

    def _decide(self, record: GateRecord, decision: GateDecision) -> bool:
        with contextlib.closing(self._connect()) as connection, connection.transaction():
            rows = GateRows(connection, self._statements, self._clock)
            now = rows.now()
            found = [row.record for row in rows.all(record.id, lock=True)]
            if [(one.created_at, one.request) for one in found] != [(record.created_at, record.request)]:
                return False  # a `retry` has opened the gate again
            if now > record.timeout_at or not rows.decide(record.id, decision, now):
                return False
            rows.log(decision_event(record, decision, now))
        return True

    @contextlib.contextmanager
    def _rows(self) -> Iterator[GateRows]:
        with contextlib.closing(self._look()) as connection:
            yield GateRows(connection, self._statements, self._clock)

    def _read(self, look: Callable[[GateRows], _T], otherwise: _T) -> _T:
        try:
            with self._rows() as rows:
                return look(rows)
        except schema.DatabaseError:
            return otherwise


def runs_with_gates(database: PostgresDatabase, gate: str | None = None, run: str | None = None) -> list[str]:
    """Return the runs of a shared database that have a pending gate, oldest first; with `gate` also the latest runs
    that have decided a gate of that id or name; with `run` only that run, if it has any gate. Raises
    `DatabaseError`."""
    with contextlib.closing(database.open()) as connection:
        there = {str(name) for (name,) in connection.query(database.dialect.existing)}
        if schema.GATES.name not in there or schema.X_GATES.name not in there:
            return []
        found = (
            "SELECT DISTINCT g.run_id FROM openprose.gates g "
            "LEFT JOIN openprose.x_gates x ON x.run_id = g.run_id AND x.gate_id = g.id "
            "WHERE (%s::text IS NULL OR g.run_id = %s) AND (%s::text IS NULL OR g.id = %s OR x.name = %s)"
        )
        record = gate.rpartition(":")[2] if gate is not None else None  # record ids don't contain the module
        values = (run, run, gate, record, gate)
        waiting = connection.query(f"{found} AND g.status = 'pending'", values)
        decided = connection.query(f"{found} ORDER BY g.run_id DESC LIMIT {_LATEST}", values) if run or gate else []
        return sorted({str(name) for (name,) in (*waiting, *decided)})


def _earlier_record(row: GateRow) -> EarlierRecord:
    if row.status == "pending" or not (row.seen or row.status == "approved"):
        return EarlierRecord(row.record)
    decision = GateDecision(cast("Status", row.status), row.resolved_by or SYSTEM, row.comment)
    return EarlierRecord(row.record, decision, row.seen)
