"""Gate records and their audit log (docs/reference/openprose.md 5.9, 5.11): on disk, and in memory for in-context runs.

Only the process of a run writes its records, in its event loop, so that no lock is needed: a decision from outside
comes over the socket of the run (`decision_socket.py`). A decision file that somebody else puts there is no
decision, unless the person who started the run said so (`--gate-files`).
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, Protocol, cast, get_args

from prose_kernel.errors import StateError
from prose_kernel.runtime.ports import Clock, GateDecision, GateRequest
from prose_kernel.state.atomic import append, write_whole
from prose_kernel.state.gates.peers import identity
from prose_kernel.state.layout import file_stem, shown

Status = Literal["approved", "rejected", "timeout"]
EventType = Literal["created", "resumed", "approved", "rejected", "timeout", "ignored"]
SYSTEM: Final = "system"
"""The principal of what the run does by itself; nobody else can claim it."""

_PENDING: Final = ".pending.json"
_RESOLVED: Final = ".resolved.json"


@dataclass(frozen=True, slots=True)
class Record:
    """A pending gate as it is kept (5.9). Times are UTC; `process` identifies the process of the run.

    `outside` is false when the run takes no decision from outside (`--gates=ask`, a notebook without the right);
    `local` is false when its process is on another machine.
    """

    run: str
    request: GateRequest
    created_at: datetime
    timeout_at: datetime
    process: str = ""
    outside: bool = True
    local: bool = True

    @property
    def id(self) -> str:
        return self.request.id

    def command(self, directory: Path | None) -> str:
        """What somebody would type to approve it; `directory` is the `gates/` of its run, if that matters."""
        state_dir = (
            Path(shown(directory.absolute().parents[2], Path.cwd())) if directory is not None else Path(".prose")
        )
        place = "" if state_dir == Path(".prose") else f" --state-dir {shlex.quote(str(state_dir))}"
        return f"prose gate approve {self.run} {self.id}{place}"


@dataclass(frozen=True, slots=True)
class Left:
    """A record that an earlier process of the same run has left. `decision` is how it ended, as far as that process
    knew; None while it is pending, or decided by somebody since."""

    record: Record
    decision: GateDecision | None = None


class Listening(Protocol):
    """Tells that a record may have changed: `fileno` becomes readable, `drain` makes it silent again. `drain` returns
    False once nothing more will come."""

    def fileno(self) -> int: ...

    def drain(self) -> bool: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One line of the audit log."""

    gate_id: str
    event_type: EventType
    principal: str
    timestamp: datetime
    comment: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)


class RecordsAway(StateError):
    """The database of the records does not answer; later it may."""


class Records(Protocol):
    """Where a run keeps its gate records.

    `outside` tells whether another process can decide one, `directory` where the run listens for that. `remote` tells
    that another process can decide without this one, which is a database: then calls take a while and are made in a
    thread. Calls raise `StateError` when a record cannot be kept.
    """

    @property
    def outside(self) -> bool: ...

    @property
    def directory(self) -> Path | None: ...

    @property
    def remote(self) -> bool: ...

    def command(self, record: Record) -> str:
        """What somebody outside would type to approve the record."""
        ...

    def earlier(self) -> tuple[set[str], list[Left]]:
        """What earlier processes of this run have left: all ids (as file names), and the records to go on with."""
        ...

    def open(self, request: GateRequest, *, outside: bool) -> Record:
        """Write the record as pending, in place of an earlier decision (`retry`), and log `created`."""
        ...

    def take_over(self, record: Record, *, outside: bool) -> tuple[Record, float]:
        """Make a record of an earlier process one of this process, and log `resumed`. Its deadline stays: returned are
        the seconds until then, which may be negative."""
        ...

    def resolve(self, record: Record, decision: GateDecision, *, watched: bool) -> GateDecision:
        """Keep the decision of the run and log it, unless the record is decided already. Returns the decision that
        counts. Unless `watched`, decisions of others never count."""
        ...

    def look(self, record: Record, *, files: bool) -> GateDecision | None:
        """Look for a decision that this run did not make; with `files` that of a decision file counts. One that
        does not count is taken back, and logged as `ignored` with the reason."""
        ...

    def listen(self) -> Listening | None:
        """Return what tells about changes at once; None where only looking does."""
        ...

    def rest(self) -> None:
        """No gate is open any more: release what only waiting needs."""
        ...


class FileRecords:
    """Records as files in `gates/` of one run."""

    outside: Final = True
    remote: Final = False

    def __init__(self, directory: Path, run_id: str, clock: Clock) -> None:
        self.directory = directory
        self.run_id = run_id
        self._clock = clock

    def command(self, record: Record) -> str:
        return record.command(self.directory)

    # ------------------------------------------------------------ the run

    def earlier(self) -> tuple[set[str], list[Left]]:
        """All ids in the log, and the pending records. A decision that an earlier process had made is in its journal;
        one in a file alone is not believed: the gate opens again."""
        pending = self.pending()
        return {file_stem(event.gate_id) for event in self.events()}, [Left(record) for record in pending]

    def open(self, request: GateRequest, *, outside: bool) -> Record:
        now = self._clock.now()
        record = Record(self.run_id, request, now, now + timedelta(seconds=request.timeout), identity(), outside)
        self._begin(record, AuditEvent(request.id, "created", SYSTEM, now, "", attempt_data(request)))
        return record

    def take_over(self, record: Record, *, outside: bool) -> tuple[Record, float]:
        now = self._clock.now()
        latest = now + timedelta(seconds=record.request.timeout)  # whatever its file says
        record = replace(record, timeout_at=min(record.timeout_at, latest), process=identity(), outside=outside)
        self._begin(record, AuditEvent(record.id, "resumed", SYSTEM, now, "", attempt_data(record.request)))
        return record, (record.timeout_at - now).total_seconds()

    def _begin(self, record: Record, event: AuditEvent) -> None:
        try:
            if self.directory.is_symlink():
                raise OSError(errno.ELOOP, "its directory is a link")
            if event.event_type == "created":
                self._resolved(record.id).unlink(missing_ok=True)
            write_whole(self._pending(record.id), _json(record_data(record), indent=2), durable=True)
            self._log(event)
        except OSError as error:
            raise _unkept(f"gate '{record.id}'", error) from None

    def resolve(self, record: Record, decision: GateDecision, *, watched: bool) -> GateDecision:
        now = self._clock.now()
        data = {
            "gate_id": record.id,
            "decision": decision.status,
            "principal": decision.by,
            "timestamp": time_text(now),
            "comment": decision.comment,
        }
        if decision.source != "file":
            self.look(record, files=False)
        try:
            write_whole(self._resolved(record.id), _json(data, indent=2), durable=True)
            self._log(decision_event(record, decision, now))
            self._pending(record.id).unlink(missing_ok=True)
        except OSError as error:
            raise _unkept(f"gate '{record.id}'", error) from None
        return decision

    def look(self, record: Record, *, files: bool) -> GateDecision | None:
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

    def listen(self) -> None:
        return None

    def rest(self) -> None:
        pass

    # ------------------------------------------------------------ reading, also from another process

    def pending(self) -> list[Record]:
        """The records that are pending, oldest first. What is damaged is passed over: `damaged` names it."""
        found = (record_of(_read(place), self.run_id) for place in self.directory.glob(f"*{_PENDING}"))
        return sorted((r for r in found if r is not None), key=lambda record: (record.created_at, record.id))

    def damaged(self) -> list[str]:
        """What cannot be read as a record or as a line of the log, as file names and line numbers."""
        files = sorted(p.name for p in self.directory.glob(f"*{_PENDING}") if record_of(_read(p), self.run_id) is None)
        lines = [n for n, line in enumerate(self._audit(), 1) if line.strip() and _audit_event(line) is None]
        return files + [f"audit.jsonl line {n}" for n in lines]

    def events(self) -> list[AuditEvent]:
        """The audit log of the run, oldest first."""
        return [event for line in self._audit() if (event := _audit_event(line)) is not None]

    def last_event(self, gate_id: str) -> AuditEvent | None:
        decided = (e for e in reversed(self.events()) if e.event_type != "ignored")
        return next((event for event in decided if event.gate_id == gate_id), None)

    # ------------------------------------------------------------ files

    def _pending(self, gate_id: str) -> Path:
        return self.directory / (file_stem(gate_id) + _PENDING)

    def _resolved(self, gate_id: str) -> Path:
        return self.directory / (file_stem(gate_id) + _RESOLVED)

    def _audit(self) -> list[str]:
        return _text(self.directory / "audit.jsonl").split("\n")

    def _log(self, event: AuditEvent) -> None:
        data = {
            "gate_id": event.gate_id,
            "event_type": event.event_type,
            "principal": event.principal,
            "timestamp": time_text(event.timestamp),
            "comment": event.comment,
            "metadata": dict(event.metadata),
        }
        append(self.directory / "audit.jsonl", _json(data).encode("utf-8", "replace"), durable=True)


class MemoryRecords:
    """Records of an in-context run: nobody outside can see them."""

    outside: Final = False
    remote: Final = False
    directory: Final = None

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: list[AuditEvent] = []

    def command(self, record: Record) -> str:
        return f"%gate approve {record.request.name}"

    def earlier(self) -> tuple[set[str], list[Left]]:
        return set(), []

    def open(self, request: GateRequest, *, outside: bool) -> Record:
        now = self._clock.now()
        self._events.append(AuditEvent(request.id, "created", SYSTEM, now, "", attempt_data(request)))
        return Record("", request, now, now + timedelta(seconds=request.timeout), outside=False)

    def take_over(self, record: Record, *, outside: bool) -> tuple[Record, float]:
        raise AssertionError("nothing of a run in memory outlives its process")

    def resolve(self, record: Record, decision: GateDecision, *, watched: bool) -> GateDecision:
        self._events.append(decision_event(record, decision, self._clock.now()))
        return decision

    def look(self, record: Record, *, files: bool) -> None:
        return None

    def listen(self) -> None:
        return None

    def rest(self) -> None:
        pass

    def events(self) -> list[AuditEvent]:
        """The audit log of the run, oldest first."""
        return list(self._events)


class FallbackRecords:
    """Records as files, or in memory where the directory of the run cannot be created in the first place (E219)."""

    remote: Final = False

    def __init__(self, files: FileRecords, clock: Clock) -> None:
        self._records: FileRecords | MemoryRecords = files
        self._clock = clock

    @property
    def outside(self) -> bool:
        return self._records.outside

    @property
    def directory(self) -> Path | None:
        return self._records.directory

    def command(self, record: Record) -> str:
        return self._records.command(record)

    def earlier(self) -> tuple[set[str], list[Left]]:
        return self._records.earlier()

    def open(self, request: GateRequest, *, outside: bool) -> Record:
        records = self._records
        try:
            return records.open(request, outside=outside)
        except StateError:
            if not isinstance(records, FileRecords) or records.directory.parent.is_dir():
                raise
            self._records = MemoryRecords(self._clock)
            return self._records.open(request, outside=outside)

    def take_over(self, record: Record, *, outside: bool) -> tuple[Record, float]:
        return self._records.take_over(record, outside=outside)

    def resolve(self, record: Record, decision: GateDecision, *, watched: bool) -> GateDecision:
        return self._records.resolve(record, decision, watched=watched)

    def look(self, record: Record, *, files: bool) -> GateDecision | None:
        return self._records.look(record, files=files)

    def listen(self) -> None:
        return None

    def rest(self) -> None:
        pass


# ---------------------------------------------------------------- data


def attempt_data(request: GateRequest) -> dict[str, object]:
    return {"attempt": request.attempt} if request.attempt > 1 else {}


def decision_event(record: Record, decision: GateDecision, now: datetime) -> AuditEvent:
    metadata = attempt_data(record.request)
    if decision.reason:
        metadata["reason"] = decision.reason
    if decision.source:
        metadata["source"] = decision.source
    return AuditEvent(record.id, decision.status, decision.by, now, decision.comment, metadata)


def _file_decision(data: dict[str, Any], record: Record) -> GateDecision | None:
    """What a decision file says, if it decides this record in time: an approval by somebody allowed, or a rejection."""
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


def record_data(record: Record) -> dict[str, object]:
    """A record as JSON: in its file, and in the answer to `prose gates`."""
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
        "created_at": time_text(record.created_at),
        "timeout_at": time_text(record.timeout_at),
        "at": request.at,
        "outside": record.outside,
        "process": record.process,
    }


def record_of(data: Mapping[str, Any], run_id: str) -> Record | None:
    created, deadline = parsed_time(data.get("created_at")), parsed_time(data.get("timeout_at"))
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
            at=str(data.get("at", "")),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return Record(run_id, request, created, deadline, str(data.get("process", "")), bool(data.get("outside", True)))


def _audit_event(line: str) -> AuditEvent | None:
    data = json_object(line)
    when = parsed_time(data.get("timestamp"))
    metadata = data.get("metadata")
    if when is None or data.get("event_type") not in get_args(EventType):
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
    return json_object(_text(place))


def _text(place: Path) -> str:
    """A file that anybody may have put there: neither a link nor a pipe that never ends; "" if it cannot be read."""
    try:
        with open(place, encoding="utf-8", errors="replace", opener=_opened) as file:
            return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else ""
    except OSError:
        return ""


def _opened(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def json_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object in a text that anybody may have written; empty if there is none."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def time_text(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parsed_time(text: object) -> datetime | None:
    try:
        when = datetime.fromisoformat(text) if isinstance(text, str) else None
        return when.astimezone(UTC) if when is not None and when.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _unkept(what: str, error: OSError) -> StateError:
    return StateError(f"{what} could not be recorded: {(error.strerror or type(error).__name__).lower()}")


def unclaimable(principal: str) -> str | None:
    """Why no person can decide under this name; None if one can."""
    if not principal:
        return "a decision needs a principal"
    return "system is the run itself, no principal who decides" if principal == SYSTEM else None


def approval(request: GateRequest, principal: str) -> str | None:
    """Why this principal may not approve; None if it may."""
    if principal in request.allow:
        return None
    return f"{principal} may not approve, allowed: {', '.join(request.allow) or 'nobody'}"
