"""Gates decided from a second process: what `prose gates` and `prose gate …` do (openprose.md 5.10, 8).

Everything here returns data; the command line prints it. What is refused raises `GateRefused` (exit status 1), what was
asked in a way that has no single meaning raises `UsageError` (2).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from prose_kernel.errors import GateRefused, UsageError
from prose_kernel.runtime.ports import Clock, GateDecision
from prose_kernel.state import layout, processes
from prose_kernel.state.records import AuditEvent, FileRecords, Record

Verb = Literal["approve", "reject"]
_STATUS: Final[Mapping[Verb, Literal["approved", "rejected"]]] = {"approve": "approved", "reject": "rejected"}


@dataclass(frozen=True, slots=True)
class PendingGate:
    """One line of `prose gates`: times in UTC, `command` approves it. `decidable` is false under `--gates=ask`."""

    run: str
    id: str
    name: str
    prompt: str
    allow: tuple[str, ...]
    opened: datetime
    deadline: datetime
    command: str
    decidable: bool = True


@dataclass(frozen=True, slots=True)
class Resolution:
    """What `prose gate approve|reject` did."""

    run: str
    id: str
    status: Literal["approved", "rejected"]
    principal: str
    comment: str


def pending_gates(state_dir: Path, clock: Clock, run: str | None = None) -> list[PendingGate]:
    """The pending gates of one run, or of all runs of the workspace that have any, oldest run first.

    A gate whose deadline has passed is not listed: nobody can approve it any more. Raises `GateRefused` for an unknown
    run.
    """
    now = clock.now()
    return [
        PendingGate(
            record.run,
            record.id,
            record.request.name,
            record.request.prompt,
            record.request.allow,
            record.created_at,
            record.timeout_at,
            records.command(record),
            record.outside,
        )
        for records in _runs(state_dir, clock, run)
        for record in records.pending()
        if record.timeout_at > now
    ]


def resolve_gate(
    state_dir: Path,
    verb: Verb,
    gate: str,
    run: str | None = None,
    *,
    clock: Clock,
    environment: Mapping[str, str],
    principal: str = "user",
    comment: str = "",
) -> Resolution:
    """Approve or reject a pending gate, named by its record id, or by the gate name when one pending record has it.

    `environment` is that of the command: with the mark of a running job (`PROSE_JOB`) in it, or with the process of the
    run among this one's ancestors, nothing is decided. Raises `GateRefused` and `UsageError`.
    """
    if "PROSE_JOB" in environment:
        raise _from_inside()
    records, record = _find_pending(state_dir, clock, gate, run)
    if record.process and record.process in processes.ancestors():
        raise _from_inside()
    if not record.outside:
        raise GateRefused(
            f"gate {record.id} of run {record.run} takes no decision from outside",
            hint="answer where the run asks; it was started so that nobody else can",
        )
    if clock.now() >= record.timeout_at:
        raise GateRefused(f"too late: gate {record.id} timed out after {record.request.timeout_text}")
    if verb == "approve" and principal not in record.request.allow:
        allowed = ", ".join(record.request.allow) or "nobody"
        hint = "--as NAME names the principal who decides" if record.request.allow else None
        raise GateRefused(f"{principal} may not approve gate {record.id}, allowed: {allowed}", hint=hint)
    decision = GateDecision(_STATUS[verb], principal, comment, source="cli")
    if not records.decide(record, decision):
        raise _already(records, record.id)
    return Resolution(record.run, record.id, _STATUS[verb], principal, comment)


def gate_log(state_dir: Path, gate: str, run: str | None = None, *, clock: Clock) -> list[AuditEvent]:
    """The events of one gate, oldest first, named as for `resolve_gate`.

    A gate name stands for all its records. Without `run` exactly one run may have such a gate.
    """
    found: list[tuple[str, list[AuditEvent]]] = []
    for records in _runs(state_dir, clock, run):
        events = records.events()
        chosen = [event for event in events if event.gate_id == gate]
        chosen = chosen or [event for event in events if _gate_name(event.gate_id) == gate]
        if chosen:
            found.append((records.run_id, chosen))
    if not found:
        raise GateRefused(f"no such gate: {gate}")
    if len(found) > 1:
        raise UsageError(f"several runs have a gate {gate}: {', '.join(name for name, _ in found)}", hint=_NAME_RUN)
    return found[0][1]


_RECORD_ID: Final = re.compile(r"(__i?[0-9]+)*(--[0-9]+)?$")
_NAME_RUN: Final = "name the run too, as in: prose gate log RUN GATE"


def _runs(state_dir: Path, clock: Clock, run: str | None) -> list[FileRecords]:
    runs = layout.runs_directory(state_dir)
    if run is not None:
        if Path(run).name != run or not (runs / run).is_dir():
            raise GateRefused(f"no such run: {run}")
        return [FileRecords(runs / run / "gates", run, clock)]
    found = sorted(place.parent for place in runs.glob("*/gates") if place.is_dir())
    return [FileRecords(place / "gates", place.name, clock) for place in found]


def _find_pending(state_dir: Path, clock: Clock, gate: str, run: str | None) -> tuple[FileRecords, Record]:
    runs = _runs(state_dir, clock, run)
    pending = [(records, record) for records in runs for record in records.pending()]
    found = [pair for pair in pending if pair[1].id == gate] or [p for p in pending if p[1].request.name == gate]
    if not found:
        raise _not_pending(runs, gate)
    if len(found) == 1:
        return found[0]
    if len({record.run for _, record in found}) > 1:
        names = ", ".join(dict.fromkeys(record.run for _, record in found))
        raise UsageError(f"several runs wait at a gate {gate}: {names}", hint="name the run too: RUN GATE")
    names = ", ".join(record.id for _, record in found)
    raise UsageError(f"several records of gate {gate} are pending: {names}", hint="name the record")


def _not_pending(runs: list[FileRecords], gate: str) -> GateRefused:
    for records in reversed(runs):
        if records.last_event(gate) is not None:
            return _already(records, gate)
    return GateRefused(f"no such gate is pending: {gate}", hint="prose gates lists those that are")


def _already(records: FileRecords, gate_id: str) -> GateRefused:
    event = records.last_event(gate_id)
    if event is None or event.event_type == "created":
        return GateRefused(f"already resolved: gate {gate_id}")
    if event.event_type == "timeout":
        return GateRefused(f"too late: gate {gate_id} timed out")
    return GateRefused(f"already resolved: gate {gate_id} was {event.event_type} by {event.principal}")


def _from_inside() -> GateRefused:
    hint = "a gate is decided from outside its run: in your own terminal, or where the run asks"
    return GateRefused("called from inside a run: nothing that a program starts may decide a gate", hint=hint)


def _gate_name(gate_id: str) -> str:
    """The gate name in a record id: `name[__frame][__i0…][--2]`."""
    return _RECORD_ID.sub("", gate_id)
