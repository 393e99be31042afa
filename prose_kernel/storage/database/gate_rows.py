"""Reads and writes gates in the tables `gates` and `gate_audit_log` (docs/reference/openprose.md 5.11, 7.8).

Any client that may write these tables may decide a gate, in one transaction: set `status`, `resolved_at` and
`resolved_by` where `status = 'pending'`, and add a row to the log. This conditional update makes the decision, also for
the run itself and `prose gate`. So one of any number of deciders wins, and one row is logged.
"""

from __future__ import annotations

import contextlib
import functools
import json
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct

from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.ports import Clock, GateDecision, GateRequest
from prose_kernel.storage.database import schema
from prose_kernel.storage.database.statements import Statements
from prose_kernel.storage.gates.records import (
    SYSTEM,
    AuditEvent,
    GateRecord,
    Status,
    approval_problem,
    audit_event,
    decision_event,
    parsed_time,
    principal_problem,
)

_RESOLUTION: Final = ("status", "resolved_at", "resolved_by", "resolution_comment")
NO_LONGER_THERE: Final = "its row is no longer in the database"


@functools.cache
def this_host() -> str:
    """Return a name of this machine, or of this container on it, in which a process id is unique."""
    with contextlib.suppress(OSError):
        return f"{platform.node()} {Path('/proc/self/ns/pid').readlink()}"
    return platform.node()


class GateRow(Struct, frozen=True):
    """A row of `gates`, with the run's own facts about it (`x_gates`). `status` may be `pending`."""

    record: GateRecord
    status: str
    resolved_at: datetime | None
    resolved_by: str | None
    comment: str
    seen: bool


class GateRows:
    """The gates of one run in a database, over an open connection. Each method raises `DatabaseError`."""

    def __init__(self, connection: schema.Connection, statements: Statements, clock: Clock) -> None:
        self._connection = connection
        self._sql = statements
        self._clock = clock

    def now(self) -> datetime:
        """Return the time for writing and comparing rows: the server's, if many machines share it."""
        if not self._sql.dialect.shared:
            return self._clock.now()
        return _when(self._connection.query("SELECT clock_timestamp()")[0][0]) or self._clock.now()

    # ------------------------------------------------------------ reading

    def all(self, gate_id: str | None = None, *, lock: bool = False) -> list[GateRow]:
        """Return all gates, oldest first, or one; `lock` prevents other writes until the end of the transaction."""
        conditions, values = (("g.id = {}",), (gate_id,)) if gate_id is not None else ((), ())
        where = self._sql.where(schema.GATES, *conditions).replace("run_id", "g.run_id")
        same_run = " AND x.run_id = g.run_id" if self._sql.dialect.shared else ""
        rows = self._connection.query(
            "SELECT g.id, g.prompt, g.allow, g.timeout, g.on_reject, g.status, g.created_at, g.timeout_at, "
            "g.resolved_at, g.resolved_by, g.resolution_comment, "
            "x.name, x.place, x.attempt, x.host, x.process, x.outside, x.seen "
            f"FROM {self._sql.name(schema.GATES)} g "
            f"LEFT JOIN {self._sql.name(schema.X_GATES)} x ON x.gate_id = g.id{same_run}"
            f"{where} ORDER BY g.created_at, g.id{' FOR UPDATE OF g' if lock and self._sql.dialect.shared else ''}",
            self._sql.parameters(schema.GATES, *values),
        )
        return [self._row(row) for row in rows]

    def is_pending(self, gate_id: str) -> bool:
        """Return whether a gate is pending; cheap, and without a lock."""
        where, values = self._sql.where(schema.GATES, "id = {}"), self._sql.parameters(schema.GATES, gate_id)
        found = self._connection.query(f"SELECT status FROM {self._sql.name(schema.GATES)}{where}", values)
        return bool(found) and found[0][0] == "pending"

    def pending(self) -> list[GateRecord]:
        """Return the pending records, oldest first."""
        return [row.record for row in self.all() if row.status == "pending"]

    def events(self, gate_id: str | None = None) -> list[AuditEvent]:
        """Return the log of all gates or of one gate, oldest event first."""
        where, values = ((), ()) if gate_id is None else (("gate_id = {}",), (gate_id,))
        rows = self._connection.query(
            "SELECT gate_id, event_type, principal, timestamp, comment, metadata "
            f"FROM {self._sql.name(schema.GATE_AUDIT_LOG)}{self._sql.where(schema.GATE_AUDIT_LOG, *where)} ORDER BY id",
            self._sql.parameters(schema.GATE_AUDIT_LOG, *values),
        )
        found = (_event(row) for row in rows)
        return [event for event in found if event is not None]

    def _row(self, row: tuple[Any, ...]) -> GateRow:
        gate_id, prompt, allow, timeout, on_reject, status, created, deadline, resolved, by, comment, *noted = row
        name, place, attempt, host, process, outside, seen = noted
        opened = _when(created) or self._clock.now()
        ends = _when(deadline) or opened
        allowed = _json(allow)
        request = GateRequest(
            str(gate_id),
            str(name or gate_id),
            str(prompt),
            tuple(map(str, allowed)) if isinstance(allowed, list) else ("user",),
            (ends - opened).total_seconds(),
            str(timeout),
            str(on_reject),
            attempt=int(attempt or 1),
            at=str(place or ""),
        )
        local = host == this_host()
        record = GateRecord(
            self._sql.run_id, request, opened, ends, str(process or "") if local else "", outside in (None, 1), local
        )
        return GateRow(record, str(status), _when(resolved), by, str(comment or ""), bool(seen))

    # ------------------------------------------------------------ writing, in a transaction

    def open(self, record: GateRecord) -> None:
        """Write a pending record; replace the record of the same gate before `retry`."""
        request = record.request
        if self._sql.dialect.shared:
            self._connection.execute(*self._sql.ensure_run())
        self._connection.execute(
            self._sql.upsert(schema.GATES),
            self._sql.row(
                schema.GATES,
                *(request.id, None, request.prompt, json.dumps(list(request.allow)), request.timeout_text),
                *(request.on_reject, "pending", timestamp(record.created_at), timestamp(record.timeout_at)),
                *(None, None, None),
            ),
        )
        self.set_process(record)

    def set_process(self, record: GateRecord) -> None:
        """Record which process now waits for a decision."""
        request = record.request
        noted = (request.id, request.name, request.at, request.attempt, this_host(), record.process)
        row = self._sql.row(schema.X_GATES, *noted, int(record.outside), 0)
        self._connection.execute(self._sql.upsert(schema.X_GATES), row)

    def decide(self, gate_id: str, decision: GateDecision, now: datetime, *, pending: bool = True) -> bool:
        """Set a decision if the gate is pending, or in any state if not `pending`. Return whether it was set."""
        conditions = ("id = {}", "status = 'pending'") if pending else ("id = {}",)
        values = (decision.status, timestamp(now), decision.by, decision.comment or None)
        return self._set(schema.GATES, _RESOLUTION, values, gate_id, *conditions) == 1

    def reopen(self, gate_id: str) -> None:
        """Take back a decision that does not count."""
        self._set(schema.GATES, _RESOLUTION, ("pending", None, None, None), gate_id, "id = {}")

    def mark_seen(self, gate_id: str) -> None:
        """Record that the run has seen the decision."""
        self._set(schema.X_GATES, ("seen",), (1,), gate_id, "gate_id = {}")

    def _set(
        self, table: schema.Table, columns: Iterable[str], values: schema.Row, gate_id: str, *conditions: str
    ) -> int:
        """Set columns of a gate's row if the conditions hold; return the number of changed rows."""
        settings = ", ".join(f"{column} = {self._sql.dialect.placeholder}" for column in columns)
        statement = f"UPDATE {self._sql.name(table)} SET {settings}{self._sql.where(table, *conditions)}"
        return self._connection.execute(statement, (*values, *self._sql.parameters(table, gate_id)))

    def log(self, event: AuditEvent) -> None:
        values: tuple[schema.Value, ...] = (event.gate_id, event.event_type, event.principal, event.comment or None)
        row = (*values, timestamp(event.timestamp), json.dumps(dict(event.metadata)))
        self._connection.execute(self._sql.insert(schema.GATE_AUDIT_LOG), self._sql.row(schema.GATE_AUDIT_LOG, *row))

    def accept(self, record: GateRecord) -> GateDecision | None:
        """Check and log the decision that was made from outside, and return it; None if the record is pending (again).

        A late decision becomes a timeout. An approval by a principal who may not approve, and a decision in the name of
        the run itself, are undone. A decision without a row in the log gets one, with `source: sql`.
        """
        found = self.all(record.id, lock=True)
        if not found:
            raise schema.DatabaseError(NO_LONGER_THERE)
        row, now = found[0], self.now()
        if row.status == "pending":
            return None
        event = self._logged(row)
        source = str(event.metadata.get("source") or "sql") if event is not None else "sql"
        status, by = cast("Status", row.status), row.resolved_by or "user"
        if row.seen:
            return GateDecision(status, by, row.comment, source=None if by == SYSTEM else source)
        if status == "timeout" or (row.resolved_at or now) > record.timeout_at:
            decision = GateDecision("timeout", SYSTEM)
            self.decide(record.id, decision, now, pending=False)
            self.log(decision_event(record, decision, now))
        elif why := principal_problem(by) or (approval_problem(record.request, by) if status == "approved" else None):
            self.reopen(record.id)
            self.log(AuditEvent(record.id, "ignored", SYSTEM, now, "", {"reason": why, "source": source}))
            return None
        else:
            decision = GateDecision(status, by, row.comment, source=source)
            if event is None:
                self.log(decision_event(record, decision, row.resolved_at or now))
        self.mark_seen(record.id)
        return decision

    def _logged(self, row: GateRow) -> AuditEvent | None:
        """Return the event in the log that belongs to a decision."""
        for event in reversed(self.events(row.record.id)):
            if event.event_type == row.status:
                return event
            if event.event_type in ("created", "ignored"):
                return None
        return None


def _event(row: tuple[Any, ...]) -> AuditEvent | None:
    gate_id, event_type, principal, when, comment, metadata = row
    return audit_event(gate_id, event_type, principal or "user", _when(when), comment, _json(metadata))


def _json(value: object) -> object:
    """Return the value of a JSON column, which SQLite returns as text and PostgreSQL as data."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _when(value: object) -> datetime | None:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    found = parsed_time(value)
    if found is None and isinstance(value, str):  # SQLite's own datetime('now'), which is UTC
        found = parsed_time(f"{value}+00:00")
    return found
