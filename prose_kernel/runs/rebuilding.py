"""Rebuild the rows of a run in its database from the journal (`prose runs rebuild`, docs/how-to/durability.md).

The run is replayed, so nothing is asked and no command runs. The same store and trace as in a live run write the rows,
in one transaction: a failed rebuild leaves the rows unchanged.
"""

from __future__ import annotations

import asyncio
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import Struct

from prose_kernel.errors import StateError, StoreFailed, UsageError
from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.language.text import escaped
from prose_kernel.runs import languages, run_assembly
from prose_kernel.runs.languages import Language
from prose_kernel.runs.replay import ReplayListener, replay
from prose_kernel.runs.resumption import Resumption
from prose_kernel.runs.settings import DATABASES, Settings
from prose_kernel.runtime import events as ev
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.journal_records import Answered, Asked, Interrupted, Record
from prose_kernel.runtime.ports import GateDecision, GateRequest
from prose_kernel.runtime.requests import describe
from prose_kernel.storage import runs
from prose_kernel.storage.database import schema
from prose_kernel.storage.database.gate_rows import GateRows
from prose_kernel.storage.database.statements import Statements
from prose_kernel.storage.database.store import DatabaseStore
from prose_kernel.storage.gates import records as gates
from prose_kernel.storage.journal_file import JournalFile
from prose_kernel.storage.journal_reading import JournalRead, TextRead
from prose_kernel.storage.run_directory import RunDirectory, StoredRun


class Rebuilt(Struct, frozen=True):
    """The result of a rebuild: the description of the database, and its number of rows of each kind."""

    database: str
    bindings: int
    lines: int
    gates: int


def is_in_database(journal: JournalRead) -> bool:
    """Return whether a run keeps its values in a database."""
    head = journal.head
    return languages.LANGUAGES[head.language].state == "state" and head.settings.get("state") in DATABASES


async def rebuild(journal: JournalRead, settings: Settings, cwd: Path) -> Rebuilt:
    """Rebuild the rows of a run. `cwd` must be the directory in which it was begun.

    Raises `UsageError` if the run is running or kept in files, if its journal is damaged or cannot be replayed, and if
    the database cannot be used; then nothing has changed.
    """
    run = journal.head.run
    journal.require_whole()
    if not is_in_database(journal):
        raise UsageError(
            f"run {run} is not kept in a database", hint="only runs with --state sqlite or --state postgres are"
        )
    hint = f"to rebuild it there: cd {shlex.quote(escaped(journal.head.directory))} && prose runs rebuild {run}"
    runs.check_directory(run, Path(journal.head.directory), [cwd], hint)
    lock = JournalFile(journal.path)
    try:
        lock.take_ownership(journal)
        return await _rebuild(journal, settings.changed(state=journal.head.settings["state"]))
    except run_assembly.DatabaseUnavailable as problem:
        raise UsageError(f"run {run} cannot be rebuilt: {problem} [E219]", hint=problem.hint or None) from None
    except (StateError, schema.DatabaseError, OSError) as problem:
        raise UsageError(f"run {run} cannot be rebuilt: {problem} [E219]", hint=_hint(problem)) from None
    finally:
        lock.close()


def _hint(problem: Exception) -> str:
    """Return the hint for an error of the database."""
    unstored = isinstance(problem, StoreFailed)  # its own hint is about continuing a run
    if isinstance(problem, StateError) and problem.hint and not unstored:
        return problem.hint
    if getattr(problem.__cause__ if unstored else problem, "damaged", False):
        return "nothing was changed; remove the damaged state.db of the run, then rebuild it again"
    return "nothing was changed; rebuild it again when the cause is gone"


async def _rebuild(journal: JournalRead, settings: Settings) -> Rebuilt:
    head, clock = journal.head, _RecordClock()
    home = RunDirectory(Path(Resumption(journal).state_dir or ""), head.run, cwd=Path(head.directory))
    kept = await asyncio.to_thread(run_assembly.in_database, settings, home, clock, lambda event: None)
    assert kept is not None and isinstance(kept.store, DatabaseStore)
    assert kept.database is not None
    store = kept.store
    opened = _Gates(Statements(kept.database.dialect, head.run), clock)
    listener = _Rebuilding(kept, store, opened, clock, head.notebook)
    try:
        await asyncio.to_thread(store.writes.run_row)  # fails early if the database cannot be used
        store.restart()
        if kept.copy is not None:
            kept.copy.journal_grew(journal.size)
        store.writes.rebuild(opened.write)
        replayed = await replay(journal, settings, listener, store)
        if replayed.gap:
            raise UsageError(f"run {head.run} cannot be rebuilt: {replayed.gap}", hint="nothing was changed")
        await asyncio.to_thread(store.writes.write)
        counts = await asyncio.to_thread(store.writes.counts, schema.BINDINGS, schema.EXECUTION, schema.GATES)
    finally:
        store.close()
    return Rebuilt(f"{kept.database.dialect.title} ({kept.database.place})", *counts)


class _RecordClock(SystemClock):
    """A clock that shows the time of the last replayed record of the journal."""

    def __init__(self) -> None:
        self._time = datetime.now(UTC)

    def now(self) -> datetime:
        return self._time

    def pass_record(self, milliseconds: int) -> None:
        """Set the time to that of a replayed record."""
        self._time = datetime.fromtimestamp(milliseconds / 1000, UTC)


class _Gates:
    """The gate records of a run as far as its journal has them: without refused decisions and times of resumption."""

    def __init__(self, statements: Statements, clock: _RecordClock) -> None:
        self._closing = "cancelled"
        self._statements, self._clock = statements, clock
        self._ids = gates.RecordIds()
        self._open: dict[str, gates.GateRecord] = {}
        self._steps: list[tuple[gates.GateRecord, GateDecision | None, datetime]] = []

    def begin(self) -> None:
        """Begin a text: gates that close without a decision were cancelled."""
        self._closing = "cancelled"

    def interrupt(self) -> None:
        """Note an interrupt: gates that close from now on were interrupted."""
        self._closing = "interrupted"

    def open(self, request: GateRequest) -> None:
        gate_id, now = self._ids.take(request, {one.id for one in self._open.values()}), self._clock.now()
        request, key = replace(request, id=gate_id), describe(request).key
        self._open[key] = gates.GateRecord(self._statements.run_id, request, now, now)

    def asked(self, key: str, when: datetime) -> None:
        """Add the record of an open gate, whose request has been replayed."""
        if (record := self._open.get(key)) is not None:
            ends = when + timedelta(seconds=record.request.timeout)
            self._open[key] = record = replace(record, created_at=when, timeout_at=ends)
            self._steps.append((record, None, when))

    def kept(self, key: str) -> None:
        """Remove a gate whose decision was kept from an earlier run: that run has the record."""
        record = self._open.pop(key, None)
        self._steps = [step for step in self._steps if step[0] is not record]

    def decided(self, key: str, decision: GateDecision | None = None) -> None:
        """Close a gate with its decision, or without one."""
        if (record := self._open.pop(key, None)) is not None:
            closed = GateDecision("rejected", gates.SYSTEM, reason=self._closing)
            self._steps.append((record, decision or closed, self._clock.now()))

    def write(self, connection: schema.Connection) -> None:
        """Write the records that the database does not have yet."""
        rows = GateRows(connection, self._statements, self._clock)
        there = {row.record.id for row in rows.all()}
        for record, decision, when in self._steps:
            if record.id in there:
                continue
            if decision is None:
                rows.open(record)
                rows.log(
                    gates.AuditEvent(record.id, "created", gates.SYSTEM, when, "", gates.attempt_data(record.request))
                )
            else:
                rows.decide(record.id, decision, when)
                rows.mark_seen(record.id)
                rows.log(gates.decision_event(record, decision, when))


class _Rebuilding(ReplayListener):
    """Passes the events of a replayed run to its trace, its texts to its store, and its gates to `gates`."""

    def __init__(
        self, kept: StoredRun, store: DatabaseStore, gates: _Gates, clock: _RecordClock, notebook: bool
    ) -> None:
        self._trace, self._store, self._gates, self._clock = kept.trace, store, gates, clock
        self._notebook = notebook

    def __call__(self, event: ev.Event) -> None:
        self._trace(event)
        match event:
            case ev.GateOpened():
                self._gates.open(event.request)
            case ev.GateResolved():
                self._gates.decided(describe(event.request).key, event.decision)
            case _:
                pass

    def begins(self, text: TextRead, source: Source, language: Language) -> None:
        self._gates.begin()
        (self._store.record_source if self._notebook else self._store.start)(source.text)

    def passed(self, record: Record) -> None:
        if milliseconds := getattr(record, "t", 0):
            self._clock.pass_record(milliseconds)
        match record:
            case Asked(kind="gate"):
                self._gates.asked(record.key, self._clock.now())
            case Answered(cancelled=True):
                self._gates.decided(record.key)
            case Answered(kept=earlier) if earlier:
                self._gates.kept(record.key)
            case Interrupted():
                self._gates.interrupt()
            case _:
                pass

    def over(self) -> None:
        self._store.writes.seal()
