"""Lists and decides gates from a second process, for `prose gates` and `prose gate …` (openprose.md 5.10, 8).

All functions return data; the command line prints it. A refusal raises `GateRefused` (exit status 1), an ambiguous
request raises `UsageError` (2). A run that waits on this machine is asked over its socket, and its answer counts; its
files are read only to find it, and to list the gates of runs that have ended. If a run is on another machine and its
gates are in a database, the gate is decided in the database, by the same conditional update as in SQL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from prose_kernel.access import peers
from prose_kernel.errors import GateRefused, UsageError
from prose_kernel.runtime.ports import Clock, GateDecision
from prose_kernel.storage import run_paths
from prose_kernel.storage.database.gate_records import DatabaseGates, runs_with_gates
from prose_kernel.storage.database.postgres import PostgresDatabase
from prose_kernel.storage.database.schema import DatabaseError
from prose_kernel.storage.database.sqlite import SqliteDatabase, read_only
from prose_kernel.storage.gates.decision_socket import ask
from prose_kernel.storage.gates.file_records import FileRecords
from prose_kernel.storage.gates.records import (
    AuditEvent,
    GateRecord,
    approval_problem,
    principal_problem,
    record_data,
    record_of,
)

Verb = Literal["approve", "reject"]
_STATUS: Final[Mapping[Verb, Literal["approved", "rejected"]]] = {"approve": "approved", "reject": "rejected"}


class Decidable(Enum):
    """The place where a pending gate can be decided."""

    AT_SOCKET = "prose gate asks the run"
    IN_DATABASE = "prose gate writes to the run's database"
    AT_PROMPT = "answer at the run's own prompt"
    UNREACHABLE = "the run does not answer on its socket: answer at its own prompt"
    ENDED = "the run has ended; this gate no longer waits"

    @property
    def by_command(self) -> bool:
        """Whether `prose gate` can decide the gate."""
        return self in (Decidable.AT_SOCKET, Decidable.IN_DATABASE)


_LONGEST_COMMENT: Final = 10_000


class PendingGate(Struct, frozen=True):
    """One line of `prose gates`. `command` approves the gate, `how` is the place where that works."""

    record: GateRecord
    command: str
    how: Decidable


class Resolution(Struct, frozen=True):
    """The result of `prose gate approve|reject`."""

    run: str
    id: str
    status: Literal["approved", "rejected"]
    principal: str
    comment: str


def pending_gates(
    state_dir: Path, clock: Clock, run: str | None = None, postgres: PostgresDatabase | None = None
) -> list[PendingGate]:
    """Return the pending gates of one run, or of all runs of the workspace, oldest run first.

    `postgres` also has runs of other machines. A gate whose deadline has passed is not listed, because it cannot be
    approved any more. Raises `GateRefused` for an unknown run.
    """
    now = clock.now()
    return [
        PendingGate(record, records.command(record), how)
        for records in _runs(state_dir, clock, run, postgres)
        for record, how in _pending(records)
        if record.timeout_at > now
    ]


def damaged_records(
    state_dir: Path, clock: Clock, run: str | None = None, postgres: PostgresDatabase | None = None
) -> list[tuple[str, str]]:
    """Return the unreadable gate records, each as run and file."""
    runs = _runs(state_dir, clock, run, postgres)
    return [(records.run_id, name) for records in runs for name in records.damaged()]


class Decider(Struct, frozen=True):
    """The person who decides a gate with a command. `environment` is the command's; with a running job's marker
    (`PROSE_JOB`) in it, the decision is refused."""

    environment: Mapping[str, str]
    principal: str = "user"
    comment: str = ""


def resolve_gate(
    state_dir: Path,
    verb: Verb,
    gate: str,
    run: str | None = None,
    *,
    by: Decider,
    clock: Clock,
    postgres: PostgresDatabase | None = None,
) -> Resolution:
    """Approve or reject a pending gate, named by its record id, or by a gate name that only one pending record has.

    The run decides, and checks the process that asks. Raises `GateRefused` and `UsageError`.
    """
    principal, comment = by.principal, by.comment
    if peers.MARK in by.environment:
        raise _inside_error()
    if len(comment) > _LONGEST_COMMENT:
        raise UsageError(f"a comment may have {_LONGEST_COMMENT:,} characters, this one has {len(comment):,}")
    records, record, how = _find_pending(_runs(state_dir, clock, run, postgres, gate), gate)
    if how is Decidable.ENDED:
        raise GateRefused(
            f"run {record.run} has ended: no run waits at gate {record.spelled}",
            hint=f"to open the gate again: prose run --resume {record.run}",
        )
    if how is Decidable.AT_PROMPT:
        raise GateRefused(
            f"gate {record.spelled} of run {record.run} takes no decision from outside",
            hint="this run accepts answers only at its own prompt",
        )
    if how is Decidable.UNREACHABLE:
        _ask(records, {"ask": "list"})  # raises if another program listens in its place
        raise _no_answer_error(records)
    if how is Decidable.IN_DATABASE and isinstance(records, DatabaseGates):
        return _decide(records, record, _STATUS[verb], principal, comment)
    answer = _ask(
        records,
        {
            "ask": "decide",
            "gate": record.id,
            "created_at": record_data(record)["created_at"],
            "attempt": record.request.attempt,
            "decision": _STATUS[verb],
            "principal": principal,
            "comment": comment,
        },
    )
    if answer is not None and answer.get("ok") is True:
        return Resolution(record.run, record.spelled, _STATUS[verb], principal, comment)
    if answer is not None and answer.get("inside"):
        raise _inside_error(str(answer.get("refused")))
    if answer is not None and answer.get("refused"):
        claim = verb == "approve" and principal not in record.request.allow and record.request.allow
        raise GateRefused(str(answer["refused"]), hint="--as NAME names the principal who decides" if claim else None)
    event = records.last_event(record.id)
    if answer is None and (event is None or event.event_type == "created"):
        raise _no_answer_error(records)
    raise _already_decided_error(records, record.id)


def _decide(
    records: DatabaseGates, record: GateRecord, status: Literal["approved", "rejected"], principal: str, comment: str
) -> Resolution:
    """Decide a gate of an unreachable run in its database; check the caller here, because the run cannot."""
    if peers.is_marked() or (record.local and peers.descends_from(record.process)):
        raise _inside_error()
    if why := principal_problem(principal):
        raise GateRefused(why)
    if status == "approved" and (why := approval_problem(record.request, principal)):
        claim = "--as NAME names the principal who decides" if record.request.allow else None
        raise GateRefused(f"gate {record.spelled}: {why}", hint=claim)
    try:
        if records.decide(record, GateDecision(status, principal, comment, source="cli")):
            return Resolution(record.run, record.spelled, status, principal, comment)
    except DatabaseError as error:
        raise GateRefused(f"gate {record.spelled} could not be decided: {error}") from None
    raise _already_decided_error(records, record.id)


def gate_log(
    state_dir: Path, gate: str, run: str | None = None, *, clock: Clock, postgres: PostgresDatabase | None = None
) -> list[AuditEvent]:
    """Return the events of one gate, oldest first; `gate` is a record id, or a gate name, which means all its records.

    Without `run`, only one run may have such a gate.
    """
    found: list[tuple[str, list[AuditEvent]]] = []
    for records in _runs(state_dir, clock, run, postgres, gate):
        events = records.events()
        chosen = [event for event in events if event.gate_id == _record_name(gate)]
        chosen = chosen or [event for event in events if _RECORD_ID.sub("", event.gate_id) == _record_name(gate)]
        if chosen:
            found.append((records.run_id, chosen))
    if not found:
        raise GateRefused(f"no such gate: {gate}")
    if len(found) > 1:
        raise UsageError(f"several runs have a gate {gate}: {', '.join(name for name, _ in found)}", hint=_NAME_RUN)
    return found[0][1]


_RECORD_ID: Final = re.compile(r"(__i?[0-9]+)*(--[0-9]+)?$")
"""The part of a record id after the gate's name: `name[__frame][__i0…][--2]`."""
_NAME_RUN: Final = "name the run too, as in: prose gate log RUN GATE"


def _runs(
    state_dir: Path, clock: Clock, run: str | None, postgres: PostgresDatabase | None, gate: str | None = None
) -> list[FileRecords | DatabaseGates]:
    """Return the runs below the state directory, and the runs in the shared database that have gates to list or the
    `gate`; or only `run`."""
    try:
        local = _local_runs(state_dir, clock, run)
    except GateRefused:
        if postgres is None:
            raise
        local = []
    if postgres is None:
        return local
    try:
        shared = runs_with_gates(postgres, gate, run)
    except DatabaseError as error:
        raise GateRefused(f"PostgreSQL {postgres.place} does not answer: {error}") from None
    if run is not None and not local and not shared:
        raise GateRefused(f"no such run: {run}")
    gates = {name: run_paths.run_paths(state_dir, Path(name).name).gates for name in shared}
    dialect, connect = postgres.dialect, postgres.open
    return [*local, *(DatabaseGates(dialect, gates[name], name, clock, connect, connect) for name in shared)]


def _local_runs(state_dir: Path, clock: Clock, run: str | None) -> list[FileRecords | DatabaseGates]:
    runs = run_paths.runs_directory(state_dir)
    if run is not None:
        if Path(run).name != run or not (runs / run).is_dir():
            raise GateRefused(f"no such run: {run}")
        return [_in_directory(runs / run, clock)]
    found = [runs / entry.name for entry in run_paths.entries(runs) if entry.is_dir()]
    return [
        _in_directory(one, clock) for one in found if (one / "gates").exists() or (one / run_paths.DATABASE).exists()
    ]


def _in_directory(directory: Path, clock: Clock) -> FileRecords | DatabaseGates:
    file, gates = directory / run_paths.DATABASE, directory / "gates"
    if not file.is_file():
        return FileRecords(gates, directory.name, clock)
    database = SqliteDatabase(file, file.name)
    return DatabaseGates(database.dialect, gates, directory.name, clock, lambda: read_only(file), database.connect)


def _ask(records: FileRecords | DatabaseGates, request: Mapping[str, object]) -> dict[str, object] | None:
    try:
        return ask(records.directory, request)
    except peers.PeerRefused as refused:
        raise GateRefused(f"run {records.run_id} cannot be asked: {refused}") from None


def _pending(records: FileRecords | DatabaseGates) -> list[tuple[GateRecord, Decidable]]:
    """Return the pending gates of a run: from the run if it listens, else from its records."""
    kept = records.pending()
    if not kept:
        return []
    near = any(record.outside and record.local for record in kept) and records.directory.is_dir()
    try:
        answer = ask(records.directory, {"ask": "list"}) if near else None
    except peers.PeerRefused:
        return [(record, Decidable.UNREACHABLE) for record in kept]
    gates = answer.get("gates") if answer is not None else None
    if isinstance(gates, list):
        live = (record_of(data, records.run_id) for data in gates if isinstance(data, dict))
        answers = {True: Decidable.AT_SOCKET, False: Decidable.AT_PROMPT}
        return [(record, answers[record.outside]) for record in live if record is not None]
    return [(record, _decidable_place(record, isinstance(records, DatabaseGates))) for record in kept]


def _decidable_place(record: GateRecord, in_database: bool) -> Decidable:
    """Return where a gate can be decided if its run does not listen here."""
    if record.local and not peers.is_alive(record.process):
        return Decidable.ENDED
    if not record.outside:
        return Decidable.AT_PROMPT
    return Decidable.IN_DATABASE if in_database else Decidable.UNREACHABLE


def _find_pending(
    runs: list[FileRecords | DatabaseGates], gate: str
) -> tuple[FileRecords | DatabaseGates, GateRecord, Decidable]:
    pending = [(records, *pair) for records in runs for pair in _pending(records)]
    waiting = [entry for entry in pending if entry[2] != Decidable.ENDED]
    pending = waiting if any(gate in (r.spelled, r.request.name) for _, r, _ in waiting) else pending
    found = [p for p in pending if p[1].spelled == gate] or [p for p in pending if p[1].request.name == gate]
    if not found:
        raise _not_pending(runs, gate)
    if len(found) == 1:
        return found[0]
    if len({record.run for _, record, _ in found}) > 1:
        names = ", ".join(dict.fromkeys(record.run for _, record, _ in found))
        raise UsageError(f"several runs wait at a gate {gate}: {names}", hint="name the run too: RUN GATE")
    names = ", ".join(record.spelled for _, record, _ in found)
    raise UsageError(f"several records of gate {gate} are pending: {names}", hint="name the record")


def _not_pending(runs: list[FileRecords | DatabaseGates], gate: str) -> GateRefused:
    for records in reversed(runs):
        if records.last_event(_record_name(gate)) is not None:
            return _already_decided_error(records, _record_name(gate))
    return GateRefused(f"no such gate is pending: {gate}", hint="prose gates lists those that are")


def _no_answer_error(records: FileRecords | DatabaseGates) -> GateRefused:
    hint = "try again, or answer at the run's own prompt"
    return GateRefused(f"run {records.run_id} does not answer on its socket", hint=hint)


def _already_decided_error(records: FileRecords | DatabaseGates, gate_id: str) -> GateRefused:
    event = records.last_event(gate_id)
    if event is None or event.event_type == "created":
        return GateRefused(f"already resolved: gate {gate_id}")
    if event.event_type == "timeout":
        return GateRefused(f"too late: gate {gate_id} timed out")
    return GateRefused(f"already resolved: gate {gate_id} was {event.event_type} by {event.principal}")


def _inside_error(why: str = "called from inside a run") -> GateRefused:
    hint = "type the command in your own terminal, or answer at the run's own prompt"
    return GateRefused(f"{why}; nothing that a program starts may decide a gate", hint=hint)


def _record_name(gate: str) -> str:
    """Return a gate's name in its records, which is without the module."""
    return gate.rpartition(":")[2]
