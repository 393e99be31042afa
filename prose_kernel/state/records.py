"""Gate records and their audit log (openprose.md 5.9, 5.11): on disk, and in memory for in-context runs.

A record is decided once. Everything that opens, decides or closes one happens under one lock of the run, and a decision
is created exclusively, so that of several deciders exactly one wins and the others are told.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, Protocol, cast

from prose_kernel.errors import StateError
from prose_kernel.runtime.ports import Clock, GateDecision, GateRequest
from prose_kernel.state.atomic import append, create_exclusively, write_whole
from prose_kernel.state.layout import file_stem, shown
from prose_kernel.state.processes import identity

Status = Literal["approved", "rejected", "timeout"]
EventType = Literal["created", "approved", "rejected", "timeout"]
_PENDING: Final = ".pending.json"
_RESOLVED: Final = ".resolved.json"
_LOCK_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Record:
    """A pending gate as it is kept (5.9). Times are UTC; `process` identifies the process of the run.

    `outside` is false when the run takes no decision from outside (`--gates=ask`, a notebook without the right).
    """

    run: str
    request: GateRequest
    created_at: datetime
    timeout_at: datetime
    process: str = ""
    outside: bool = True

    @property
    def id(self) -> str:
        return self.request.id


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One line of the audit log."""

    gate_id: str
    event_type: EventType
    principal: str
    timestamp: datetime
    comment: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)


class Records(Protocol):
    """Where a run keeps its gate records. `outside` tells whether another process can decide one."""

    @property
    def outside(self) -> bool: ...

    def command(self, record: Record) -> str:
        """What somebody outside would type to approve the record."""
        ...

    def open(self, request: GateRequest, *, outside: bool) -> Record:
        """Write the record as pending, in place of an earlier decision (`retry`), and log `created`."""
        ...

    def resolve(self, record: Record, proposal: GateDecision | None) -> GateDecision | None:
        """The decision that stands: a valid one from outside that came first, else the proposal, which is then kept
        and logged; None when there is neither."""
        ...


class FileRecords:
    """Records as files in `gates/` of one run. Every method raises `StateError` when the disk refuses."""

    outside: Final = True

    def __init__(self, directory: Path, run_id: str, clock: Clock) -> None:
        self.directory = directory
        self.run_id = run_id
        self._clock = clock

    def command(self, record: Record) -> str:
        state_dir = Path(shown(self.directory.absolute().parents[2], Path.cwd()))
        place = "" if state_dir == Path(".prose") else f" --state-dir {shlex.quote(str(state_dir))}"
        return f"prose gate approve {record.run} {record.id}{place}"

    # ------------------------------------------------------------ the run

    def open(self, request: GateRequest, *, outside: bool) -> Record:
        now = self._clock.now()
        record = Record(self.run_id, request, now, now + timedelta(seconds=request.timeout), identity(), outside)
        with self._locked(request.id):
            self._resolved(request.id).unlink(missing_ok=True)
            write_whole(self._pending(request.id), _json(_record_data(record), indent=2), durable=True)
            self._log(AuditEvent(request.id, "created", "system", now, "", _attempt(request)))
        return record

    def resolve(self, record: Record, proposal: GateDecision | None) -> GateDecision | None:
        if proposal is None and not (record.outside and self._resolved(record.id).exists()):
            return None
        with self._locked(record.id):
            while (decision := self._standing(record)) is None:
                if proposal is None:
                    return None
                if self._decide(record, proposal):
                    decision = proposal
                    break
            self._pending(record.id).unlink(missing_ok=True)
            return decision

    def _standing(self, record: Record) -> GateDecision | None:
        """The decision that somebody outside has created. What is no valid decision of this record is removed."""
        place = self._resolved(record.id)
        data = _read(place)
        decision = _outside_decision(data, record) if record.outside else None
        if decision is None:
            place.unlink(missing_ok=True)
            return None
        logged = self.last_event(record.id)
        if logged is not None and logged.event_type == decision.status:
            source = logged.metadata.get("source")
            return replace(decision, source=str(source) if source else None)
        decision = replace(decision, source="file")
        self._log(_event(record, decision, self._clock.now()))
        return decision

    # ------------------------------------------------------------ from outside

    def decide(self, record: Record, decision: GateDecision) -> bool:
        """Decide a pending record from another process. False when somebody else was first."""
        with self._locked(record.id):
            current = self.find(record.id)
            if current is None or current.created_at != record.created_at or self._resolved(record.id).exists():
                return False
            return self._decide(record, decision)

    def pending(self) -> list[Record]:
        """All records that are pending, oldest first; unreadable files are passed over."""
        if not self.directory.is_dir():
            return []
        found = (_record(_read(place), self.run_id) for place in self.directory.glob(f"*{_PENDING}"))
        undecided = (r for r in found if r is not None and not self._resolved(r.id).exists())
        return sorted(undecided, key=lambda record: (record.created_at, record.id))

    def find(self, gate_id: str) -> Record | None:
        return _record(_read(self._pending(gate_id)), self.run_id)

    def events(self) -> list[AuditEvent]:
        """The audit log of the run, oldest first."""
        try:
            text = (self.directory / "audit.jsonl").read_text("utf-8", "replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unkept("audit log", error) from None
        return [event for line in text.split("\n") if (event := _audit_event(line)) is not None]

    def last_event(self, gate_id: str) -> AuditEvent | None:
        return next((event for event in reversed(self.events()) if event.gate_id == gate_id), None)

    # ------------------------------------------------------------ files

    def _pending(self, gate_id: str) -> Path:
        return self.directory / (file_stem(gate_id) + _PENDING)

    def _resolved(self, gate_id: str) -> Path:
        return self.directory / (file_stem(gate_id) + _RESOLVED)

    def _decide(self, record: Record, decision: GateDecision) -> bool:
        """Create the decision and log it; False when there is one by now (from a hand that takes no lock)."""
        now = self._clock.now()
        data = {
            "gate_id": record.id,
            "decision": decision.status,
            "principal": decision.by,
            "timestamp": _time(now),
            "comment": decision.comment,
        }
        if not create_exclusively(self._resolved(record.id), _json(data, indent=2)):
            return False
        self._log(_event(record, decision, now))
        return True

    def _log(self, event: AuditEvent) -> None:
        data = {
            "gate_id": event.gate_id,
            "event_type": event.event_type,
            "principal": event.principal,
            "timestamp": _time(event.timestamp),
            "comment": event.comment,
            "metadata": dict(event.metadata),
        }
        append(self.directory / "audit.jsonl", _json(data).encode(), durable=True)

    @contextlib.contextmanager
    def _locked(self, gate_id: str) -> Iterator[None]:
        from filelock import FileLock, Timeout

        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with FileLock(self.directory / "audit.lock", timeout=_LOCK_SECONDS):
                yield
        except Timeout:
            raise StateError(f"gate '{gate_id}' could not be recorded: another process holds the lock") from None
        except OSError as error:
            raise _unkept(f"gate '{gate_id}'", error) from None


class MemoryRecords:
    """Records of an in-context run: nobody outside can see them."""

    outside: Final = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: list[AuditEvent] = []

    def command(self, record: Record) -> str:
        return f"%gate approve {record.request.name}"

    def open(self, request: GateRequest, *, outside: bool) -> Record:
        now = self._clock.now()
        self._events.append(AuditEvent(request.id, "created", "system", now, "", _attempt(request)))
        return Record("", request, now, now + timedelta(seconds=request.timeout), outside=False)

    def resolve(self, record: Record, proposal: GateDecision | None) -> GateDecision | None:
        if proposal is not None:
            self._events.append(_event(record, proposal, self._clock.now()))
        return proposal

    def events(self) -> list[AuditEvent]:
        """The audit log of the run, oldest first."""
        return list(self._events)


class FallbackRecords:
    """Records as files, or in memory where the directory of the run cannot be created in the first place (E219)."""

    def __init__(self, files: FileRecords, clock: Clock) -> None:
        self._records: FileRecords | MemoryRecords = files
        self._clock = clock

    @property
    def outside(self) -> bool:
        return self._records.outside

    def command(self, record: Record) -> str:
        return self._records.command(record)

    def open(self, request: GateRequest, *, outside: bool) -> Record:
        records = self._records
        try:
            return records.open(request, outside=outside)
        except StateError:
            if not isinstance(records, FileRecords) or records.directory.parent.is_dir():
                raise
            self._records = MemoryRecords(self._clock)
            return self._records.open(request, outside=outside)

    def resolve(self, record: Record, proposal: GateDecision | None) -> GateDecision | None:
        return self._records.resolve(record, proposal)


# ---------------------------------------------------------------- data


def _attempt(request: GateRequest) -> dict[str, object]:
    return {"attempt": request.attempt} if request.attempt > 1 else {}


def _event(record: Record, decision: GateDecision, now: datetime) -> AuditEvent:
    metadata = _attempt(record.request)
    if decision.reason:
        metadata["reason"] = decision.reason
    if decision.source:
        metadata["source"] = decision.source
    return AuditEvent(record.id, decision.status, decision.by, now, decision.comment, metadata)


def _outside_decision(data: dict[str, Any], record: Record) -> GateDecision | None:
    """What a decision file says, if it decides this record in time: an approval by somebody allowed, or a rejection."""
    status, principal, comment = data.get("decision"), data.get("principal"), data.get("comment") or ""
    when = _parsed_time(data.get("timestamp"))
    if data.get("gate_id") != record.id or not isinstance(principal, str) or not isinstance(comment, str):
        return None
    if when is None or not record.created_at - timedelta(milliseconds=1) <= when <= record.timeout_at:
        return None
    if status == "rejected" or (status == "approved" and principal in record.request.allow):
        return GateDecision(cast("Status", status), principal, comment)
    return None


def _record_data(record: Record) -> dict[str, object]:
    request = record.request
    return {
        "id": request.id,
        "name": request.name,
        "execution_id": request.execution_id,
        "prompt": request.prompt,
        "allow": list(request.allow),
        "timeout": request.timeout_text,
        "timeout_seconds": request.timeout,
        "on_reject": request.on_reject,
        "status": "pending",
        "attempt": request.attempt,
        "created_at": _time(record.created_at),
        "timeout_at": _time(record.timeout_at),
        "outside": record.outside,
        "process": record.process,
    }


def _record(data: dict[str, Any], run_id: str) -> Record | None:
    created, deadline = _parsed_time(data.get("created_at")), _parsed_time(data.get("timeout_at"))
    if created is None or deadline is None:
        return None
    try:
        request = GateRequest(
            id=str(data["id"]),
            name=str(data["name"]),
            prompt=str(data["prompt"]),
            allow=tuple(map(str, data["allow"])),
            timeout=float(data["timeout_seconds"]),
            timeout_text=str(data["timeout"]),
            on_reject=str(data["on_reject"]),
            execution_id=data["execution_id"],
            attempt=int(data["attempt"]),
        )
    except (KeyError, TypeError, ValueError):
        return None
    return Record(run_id, request, created, deadline, str(data.get("process", "")), bool(data.get("outside", True)))


def _audit_event(line: str) -> AuditEvent | None:
    data = _object(line)
    when = _parsed_time(data.get("timestamp"))
    metadata = data.get("metadata")
    if when is None or data.get("event_type") not in ("created", "approved", "rejected", "timeout"):
        return None
    return AuditEvent(
        str(data.get("gate_id")),
        data["event_type"],
        str(data.get("principal")),
        when,
        str(data.get("comment") or ""),
        metadata if isinstance(metadata, dict) else {},
    )


def _json(data: object, indent: int | None = None) -> str:
    return json.dumps(data, ensure_ascii=False, indent=indent) + "\n"


def _read(place: Path) -> dict[str, Any]:
    try:
        return _object(place.read_text("utf-8", "replace"))
    except OSError:
        return {}


def _object(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _time(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _parsed_time(text: object) -> datetime | None:
    try:
        when = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return when if when is not None and when.tzinfo is not None else None


def _unkept(what: str, error: OSError) -> StateError:
    return StateError(f"{what} could not be recorded: {(error.strerror or type(error).__name__).lower()}")
