"""Keeps gate records on disk, and in memory for in-context runs (docs/reference/openprose.md 5.9, 5.11).

Only the process of a run writes its files, in its event loop, so that no lock is needed: decisions from outside arrive
over the run's socket (`decision_socket.py`). A decision file by another writer counts only with `--gate-files`.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast

from msgspec.structs import asdict

from prose_kernel.access import jsonl, plain_files
from prose_kernel.access.atomic import write_whole
from prose_kernel.access.jsonl import json_object
from prose_kernel.access.peers import identity
from prose_kernel.errors import StateError, reason_of
from prose_kernel.language.structs import replace
from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.ports import Clock, GateDecision, GateRequest
from prose_kernel.storage.gates.records import (
    SYSTEM,
    AuditEvent,
    EarlierRecord,
    GateRecord,
    Records,
    Status,
    attempt_data,
    audit_event,
    decision_event,
    last_event,
    parsed_time,
    record_data,
    record_of,
)
from prose_kernel.storage.run_paths import file_stem

_PENDING: Final = ".pending.json"
_RESOLVED: Final = ".resolved.json"
_HINT: Final = "make room, or check who may write to the state directory, then run the gate again"


class FileRecords(Records):
    """The records of one run as files in its directory `gates/`."""

    outside = True
    remote = False

    def __init__(self, directory: Path, run_id: str, clock: Clock) -> None:
        self.directory: Path = directory
        self.run_id = run_id
        self._clock = clock

    @property
    def lacks_directory(self) -> bool:
        return not self.directory.parent.is_dir()

    def command(self, record: GateRecord) -> str:
        return record.command(self.directory)

    # ------------------------------------------------------------ the run

    def earlier(self) -> tuple[set[str], list[EarlierRecord]]:
        """Return all ids in the log, and the pending records. A decision of an earlier process is in its journal. A
        decision that is only in a file does not count: the gate opens again."""
        pending = self.pending()
        return {file_stem(event.gate_id) for event in self.events()}, [EarlierRecord(record) for record in pending]

    def open(self, request: GateRequest, *, outside: bool) -> GateRecord:
        now = self._clock.now()
        record = GateRecord(self.run_id, request, now, now + timedelta(seconds=request.timeout), identity(), outside)
        self._begin(record, AuditEvent(request.id, "created", SYSTEM, now, "", attempt_data(request)))
        return record

    def take_over(self, record: GateRecord, *, outside: bool) -> tuple[GateRecord, float]:
        now = self._clock.now()
        latest = now + timedelta(seconds=record.request.timeout)  # the file may have been changed
        record = replace(record, timeout_at=min(record.timeout_at, latest), process=identity(), outside=outside)
        self._begin(record, AuditEvent(record.id, "resumed", SYSTEM, now, "", attempt_data(record.request)))
        return record, (record.timeout_at - now).total_seconds()

    def _begin(self, record: GateRecord, event: AuditEvent) -> None:
        try:
            if self.directory.is_symlink():
                raise OSError(errno.ELOOP, "its directory is a link")
            if event.event_type == "created":
                self._resolved(record.id).unlink(missing_ok=True)
            write_whole(self._pending(record.id), _json(record_data(record), indent=2), durable=True)
            self._log(event)
        except OSError as error:
            raise _unkept(f"gate '{record.id}'", error) from None

    def resolve(self, record: GateRecord, decision: GateDecision, *, watched: bool) -> GateDecision:
        now = self._clock.now()
        data = {
            "gate_id": record.id,
            "decision": decision.status,
            "principal": decision.by,
            "timestamp": timestamp(now),
            "comment": decision.comment,
        }
        if decision.source != "file":
            self.find_decision(record, files=False)
        try:
            write_whole(self._resolved(record.id), _json(data, indent=2), durable=True)
            self._log(decision_event(record, decision, now))
            self._pending(record.id).unlink(missing_ok=True)
        except OSError as error:
            raise _unkept(f"gate '{record.id}'", error) from None
        return decision

    def find_decision(self, record: GateRecord, *, files: bool) -> GateDecision | None:
        place = self._resolved(record.id)
        if not os.path.lexists(place):
            return None
        decision = _file_decision(_read(place), record) if files and not place.is_symlink() else None
        if decision is None:
            reason = "it does not decide this gate in time" if files else "this run takes no decisions from files"
            try:
                place.unlink()
                self._log(AuditEvent(record.id, "ignored", SYSTEM, self._clock.now(), "", {"reason": reason}))
            except OSError as error:
                raise _unkept(f"gate '{record.id}'", error) from None
        return decision

    def log(self, events: Sequence[AuditEvent]) -> None:
        try:
            if self.directory.is_symlink():
                raise OSError(errno.ELOOP, "its directory is a link")
            for event in events:
                self._log(event)
        except OSError as error:
            raise _unkept("an approval of an earlier process", error) from None

    # ------------------------------------------------------------ reading, also from another process

    def pending(self) -> list[GateRecord]:
        """Return the pending records, oldest first, without damaged ones (see `damaged`)."""
        found = (record_of(_read(place), self.run_id) for place in self.directory.glob(f"*{_PENDING}"))
        return sorted((r for r in found if r is not None), key=lambda record: (record.created_at, record.id))

    def damaged(self) -> list[str]:
        """Return the file names of unreadable records, and the numbers of unreadable lines of the log."""
        pending = [p for p in self.directory.glob(f"*{_PENDING}") if record_of(_read(p), self.run_id) is None]
        files = sorted(p.name for p in pending if os.path.lexists(p))  # a gate may be decided meanwhile
        lines = [number for number, data in jsonl.objects(self._audit) if _audit_event(data) is None]
        return files + [f"audit.jsonl line {n}" for n in lines]

    def events(self) -> list[AuditEvent]:
        """Return the audit log of the run, oldest event first."""
        return [event for _, data in jsonl.objects(self._audit) if (event := _audit_event(data)) is not None]

    def last_event(self, gate_id: str) -> AuditEvent | None:
        return last_event(self.events(), gate_id)

    # ------------------------------------------------------------ files

    def _pending(self, gate_id: str) -> Path:
        return self.directory / (file_stem(gate_id) + _PENDING)

    def _resolved(self, gate_id: str) -> Path:
        return self.directory / (file_stem(gate_id) + _RESOLVED)

    @property
    def _audit(self) -> Path:
        return self.directory / "audit.jsonl"

    def _log(self, event: AuditEvent) -> None:
        data = asdict(event) | {"timestamp": timestamp(event.timestamp)}
        jsonl.append(self._audit, _json(data).encode("utf-8", "replace"), durable=True)


class MemoryRecords(Records):
    """The records of an in-context run, which other processes cannot see."""

    outside = False
    remote = False
    lacks_directory: Final = False
    directory = None

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: list[AuditEvent] = []

    def command(self, record: GateRecord) -> str:
        return f"%gate approve {shlex.quote(record.request.name)}"

    def earlier(self) -> tuple[set[str], list[EarlierRecord]]:
        return set(), []

    def open(self, request: GateRequest, *, outside: bool) -> GateRecord:
        now = self._clock.now()
        self._events.append(AuditEvent(request.id, "created", SYSTEM, now, "", attempt_data(request)))
        return GateRecord("", request, now, now + timedelta(seconds=request.timeout), outside=False)

    def take_over(self, record: GateRecord, *, outside: bool) -> tuple[GateRecord, float]:
        raise AssertionError("nothing of a run in memory outlives its process")

    def resolve(self, record: GateRecord, decision: GateDecision, *, watched: bool) -> GateDecision:
        self._events.append(decision_event(record, decision, self._clock.now()))
        return decision

    def find_decision(self, record: GateRecord, *, files: bool) -> None:
        return None

    def log(self, events: Sequence[AuditEvent]) -> None:
        self._events.extend(events)

    def events(self) -> list[AuditEvent]:
        """Return the audit log of the run, oldest event first."""
        return list(self._events)


# ---------------------------------------------------------------- data


def _file_decision(data: dict[str, Any], record: GateRecord) -> GateDecision | None:
    """Return the decision in a decision file if it decides this record in time: an approval by an allowed principal, or
    a rejection. Else None."""
    status, principal, comment = data.get("decision"), data.get("principal"), data.get("comment") or ""
    when = parsed_time(data.get("timestamp"))
    if data.get("gate_id") != record.id or not isinstance(principal, str) or not isinstance(comment, str):
        return None
    if principal in ("", SYSTEM):
        return None
    if when is None or not record.created_at - timedelta(milliseconds=1) <= when <= record.timeout_at:
        return None
    if status == "rejected" or (status == "approved" and principal in record.request.allow):
        return GateDecision(cast("Status", status), principal, comment, source="file")
    return None


def _audit_event(data: dict[str, Any]) -> AuditEvent | None:
    gate, kind, principal = data.get("gate_id"), data.get("event_type"), data.get("principal")
    when = parsed_time(data.get("timestamp"))
    return audit_event(gate, kind, principal, when, data.get("comment"), data.get("metadata"))


def _json(data: object, indent: int | None = None) -> str:
    return json.dumps(data, ensure_ascii=False, indent=indent) + "\n"


def _read(place: Path) -> dict[str, Any]:
    """Return the JSON object in a file that any program may have written; empty if it cannot be read."""
    try:
        return json_object(plain_files.read_text(place, errors="replace"))
    except OSError:
        return {}


def _unkept(what: str, error: OSError) -> StateError:
    reason = reason_of(error, type(error).__name__)
    return StateError(f"{what} could not be recorded: {reason}", hint=_HINT)
