"""Gate records and their events, and the interface of the places that keep them (5.9, 5.11)."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast, get_args

from msgspec import Struct, field

from prose_kernel.errors import StoreFailed
from prose_kernel.language.text import clipped, escaped
from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.ports import Clock, GateDecision, GateRequest
from prose_kernel.storage.run_paths import file_stem, shown

if TYPE_CHECKING:
    from prose_kernel.storage.database.postgres import PostgresListening

Status = Literal["approved", "rejected", "timeout"]
EventType = Literal["created", "resumed", "approved", "rejected", "timeout", "ignored"]
SYSTEM: Final = "system"
"""The principal of the run's automatic decisions; no person can decide under this name."""


class GateRecord(Struct, frozen=True):
    """The record of a pending gate (5.9). Times are UTC; `process` identifies the process of the run.

    `outside` is false if the run takes no decision from outside (`--gates=ask`, a notebook without the right); `local`
    is false if its process is on another machine.
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

    @property
    def spelled(self) -> str:
        """The id in the form for people: for an imported program's gate, it begins with the module."""
        module, colon, _ = self.request.name.rpartition(":")
        return f"{module}{colon}{self.id}"

    def command(self, directory: Path | None) -> str:
        """Return the command that approves the gate; `directory` is the `gates/` of its run, if the run is in files."""
        state_dir = (
            Path(shown(directory.absolute().parents[2], Path.cwd())) if directory is not None else Path(".prose")
        )
        place = "" if state_dir == Path(".prose") else f" --state-dir {shlex.quote(str(state_dir))}"
        return f"prose gate approve {self.run} {shlex.quote(self.spelled)}{place}"


class EarlierRecord(Struct, frozen=True):
    """A record that an earlier process of the same run has left. `decision` is None if it is pending, or was rejected
    since. `known` is true if the earlier process has seen the decision."""

    record: GateRecord
    decision: GateDecision | None = None
    known: bool = True


class Approval(Struct, frozen=True):
    """One approval that an earlier process of the run has received. `key` is "" for an approval by `--yes` before the
    run began; `when` is milliseconds since 1970 (0: unknown)."""

    gate: str
    record: str
    prompt: str
    decision: GateDecision
    when: int
    key: str = ""

    @property
    def line(self) -> str:
        """The gate, question, approver and time in one line."""
        asked = "" if not self.prompt or self.prompt == self.gate else f' "{_clip(self.prompt)}"'
        comment = f' "{_clip(self.decision.comment)}"' if self.decision.comment else ""
        by = f"by {_clip(self.decision.decided_by)}" if self.key else "with --yes before the run began"
        when = f", {self.at:%Y-%m-%d %H:%M:%S} UTC" if self.at is not None else ""
        return f"gate {_clip(self.gate)}{asked}: approved {by}{comment}{when}"

    @property
    def at(self) -> datetime | None:
        """The time of the approval."""
        try:
            return datetime.fromtimestamp(self.when / 1000, UTC) if self.when else None
        except (OverflowError, OSError, ValueError):
            return None


def _clip(text: str) -> str:
    return clipped(escaped(" ".join(text.split())), 100)


class AuditEvent(Struct, frozen=True):
    """One line of the audit log."""

    gate_id: str
    event_type: EventType
    principal: str
    timestamp: datetime
    comment: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)


class RecordIds:
    """Assigns ids to a run's gate records. An id gets a number if a program and an imported one use the same gate name,
    or if a gate that ended a run opens again when the run resumes."""

    def __init__(self, used: Iterable[str] = ()) -> None:
        """`used` are the ids that earlier processes of the run have assigned, as file names."""
        self._used = set(used)
        self._of_place: dict[str, str] = {}

    def take(self, request: GateRequest, still_open: Container[str]) -> str:
        """Return the id of a new record: the same gate's id before `retry`, else an unused id."""
        before = self._of_place.get(request.at, request.id)
        if request.attempt > 1 and before not in still_open:
            return self.note(request, before)
        name, _, ordinal = request.id.rpartition("--")
        name, number = (name, int(ordinal)) if name and ordinal.isdigit() else (request.id, 1)
        free = request.id
        while file_stem(free) in self._used:
            number += 1
            free = f"{name}--{number}"
        return self.note(request, free)

    def note(self, request: GateRequest, gate_id: str) -> str:
        """Record the id for the place of this request, and return it."""
        self._used.add(file_stem(gate_id))
        self._of_place[request.at] = gate_id
        return gate_id


class RecordsUnavailable(StoreFailed):
    """The database of the records does not answer; a later attempt may succeed."""


class Records(Protocol):
    """The place that keeps a run's gate records.

    `outside` is true if another process can decide a gate; the run listens for that in `directory`. `remote` is true if
    another process can decide without this one, as in a database; then calls take a while and are made in a thread.
    Methods raise `StateError` if a record cannot be kept.
    """

    outside: bool
    directory: Path | None
    remote: bool

    @property
    def lacks_directory(self) -> bool:
        """Whether records cannot be kept because the run has no directory (E219); then it keeps them in memory."""

    def command(self, record: GateRecord) -> str:
        """Return the command that approves the record from outside."""

    def earlier(self) -> tuple[set[str], list[EarlierRecord]]:
        """Return the ids of records of this run's earlier processes (as file names), and the records to continue."""

    def open(self, request: GateRequest, *, outside: bool) -> GateRecord:
        """Write a pending record, which replaces an earlier decision (`retry`), and log `created`."""

    def take_over(self, record: GateRecord, *, outside: bool) -> tuple[GateRecord, float]:
        """Take over a record of an earlier process, and log `resumed`. Return it with the seconds until its deadline,
        which does not change and may have passed."""

    def resolve(self, record: GateRecord, decision: GateDecision, *, watched: bool) -> GateDecision:
        """Keep and log the decision of the run, unless the record is decided already. Return the decision that counts.
        If not `watched`, decisions of other processes never count."""

    def find_decision(self, record: GateRecord, *, files: bool) -> GateDecision | None:
        """Return a decision by another process, with `files` also from a decision file, or None. An invalid decision is
        undone, and logged as `ignored` with the reason."""

    def log(self, events: Sequence[AuditEvent]) -> None:
        """Add events to the log."""

    def listen(self) -> PostgresListening | None:
        """Return a source of change notifications; None if the records must be polled."""
        return None

    def stop_waiting(self) -> None:
        """Release the resources for waiting, because no gate is open."""
        return  # without a body, mypy would treat the method as abstract


POLL_SECONDS: Final = 1.0


async def end_of(calling: asyncio.Future[Any]) -> None:
    """Wait until a call in a thread has ended, however often this is cancelled."""
    while not calling.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([calling])


class Watcher:
    """Pauses between two checks of a record: for a second, or until the database reports a change (7.8).

    It listens from the first pause until `stop_waiting`. `changes` counts the notifications, so that none is missed
    between a check and the pause after it.
    """

    def __init__(self, listen: Callable[[], PostgresListening | None]) -> None:
        self.changes = 0
        self._listen = listen
        self._listening: PostgresListening | None = None
        self._change = asyncio.Event()
        self._asked = False

    async def pause(self, clock: Clock, seen: int) -> None:
        if not self._asked:
            self._asked = True
            calling = asyncio.ensure_future(asyncio.to_thread(self._listen))
            try:
                self._listening = await asyncio.shield(calling)
            except asyncio.CancelledError:
                await end_of(calling)
                if (unused := calling.result()) is not None:
                    unused.close()
                raise
            if self._listening is not None:
                asyncio.get_running_loop().add_reader(self._listening.fileno(), self._drain)
                return  # a change may have happened before the first notification: check again
        if self.changes != seen:
            return
        tasks = [asyncio.ensure_future(clock.sleep(POLL_SECONDS)), asyncio.ensure_future(self._change.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def _drain(self) -> None:
        if self._listening is not None and not self._listening.drain():
            self.stop_waiting()
        self.changes += 1
        self._change.set()
        self._change = asyncio.Event()

    def stop_waiting(self) -> None:
        self._asked = False
        if self._listening is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                asyncio.get_running_loop().remove_reader(self._listening.fileno())
            self._listening.close()
            self._listening = None


# ---------------------------------------------------------------- data


def attempt_data(request: GateRequest) -> dict[str, object]:
    return {"attempt": request.attempt} if request.attempt > 1 else {}


def decision_event(record: GateRecord, decision: GateDecision, now: datetime) -> AuditEvent:
    metadata = attempt_data(record.request)
    if decision.reason:
        metadata["reason"] = decision.reason
    if decision.source:
        metadata["source"] = decision.source
    return AuditEvent(record.id, decision.status, decision.by, now, decision.comment, metadata)


def record_data(record: GateRecord) -> dict[str, object]:
    """Return a record as JSON data, for its file and for the answer to `prose gates`."""
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
        "created_at": timestamp(record.created_at),
        "timeout_at": timestamp(record.timeout_at),
        "at": request.at,
        "outside": record.outside,
        "process": record.process,
    }


def record_of(data: Mapping[str, Any], run_id: str) -> GateRecord | None:
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
    return GateRecord(run_id, request, created, deadline, str(data.get("process", "")), bool(data.get("outside", True)))


def parsed_time(text: object) -> datetime | None:
    try:
        when = datetime.fromisoformat(text) if isinstance(text, str) else None
        return when.astimezone(UTC) if when is not None and when.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def audit_event(
    gate_id: object, event_type: object, principal: object, when: datetime | None, comment: object, metadata: object
) -> AuditEvent | None:
    """Return an event that was read from a log; None if it is damaged."""
    if when is None or event_type not in get_args(EventType):
        return None
    kind, known = cast("EventType", event_type), metadata if isinstance(metadata, Mapping) else {}
    return AuditEvent(str(gate_id), kind, str(principal), when, str(comment or ""), known)


def last_event(events: Sequence[AuditEvent], gate_id: str) -> AuditEvent | None:
    """Return the last event of a gate, without ignored ones."""
    decided = (event for event in reversed(events) if event.event_type != "ignored")
    return next((event for event in decided if event.gate_id == gate_id), None)


def principal_problem(principal: str) -> str | None:
    """Return the reason why no person can decide under this name; None if it is allowed."""
    if not principal:
        return "a decision needs a principal"
    return "system is the run itself, no principal who decides" if principal == SYSTEM else None


def approval_problem(request: GateRequest, principal: str) -> str | None:
    """Return the reason why this principal may not approve; None if it may."""
    if principal in request.allow:
        return None
    return f"{principal} may not approve, allowed: {', '.join(request.allow) or 'nobody'}"
