"""Writes a run to its database in batches of rows, one transaction each."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct, field

from prose_kernel.errors import StateError
from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.ports import AgentMemory, Binding, Clock
from prose_kernel.storage.database import schema
from prose_kernel.storage.database.agent_rows import AgentRows, Agents, merged
from prose_kernel.storage.database.binding_rows import BindingRows, Problems, RowKey
from prose_kernel.storage.database.ownership import RENEW_SECONDS, Heartbeat, Ownership
from prose_kernel.storage.database.schema import Connection, Database, DatabaseError, Table
from prose_kernel.storage.database.statements import Statements
from prose_kernel.storage.pending_writes import MOST_HELD, storage_error, weight
from prose_kernel.storage.run_directory import RunDirectory

_PER_ROW: Final = 300
_SMALL_BATCH: Final = 64 * 1024
_SPILL: Final = 20_000
_MOST_UNWRITTEN: Final = 200_000
TRACE: Final = (schema.EXECUTION, schema.X_FRAMES, schema.IMPORTS)
_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_SILENT: Final = 1.0
"""Seconds that a flush waits for the database before it notifies the person."""

_ADDED: Final = "added_source"
_HINT: Final = "values that are not stored stay in memory, and are tried again with the next flush"

_USER_DATABASE: Final[RowKey] = ("", -1)
"""The key of the user's database among the rows that could not be stored; no binding has this name."""

Work = Callable[[Connection], None]


class _Batch(Struct):
    """The changes of one transaction. First the run's rows in the tables `emptied` are removed, then `works` run."""

    bindings: dict[RowKey, Binding] = field(default_factory=dict)
    rows: dict[Table, dict[object, tuple[schema.Value, ...]]] = field(default_factory=dict)
    agents: Agents = field(default_factory=dict)
    run: dict[str, schema.Value] = field(default_factory=dict)
    gates: dict[str, int] = field(default_factory=dict)
    emptied: tuple[Table, ...] = ()
    works: tuple[Work, ...] = ()

    def __bool__(self) -> bool:
        rows = self.bindings or any(self.rows.values()) or self.agents or self.run or self.gates
        return bool(rows or self.emptied or self.works)

    def merged_with(self, later: _Batch) -> _Batch:
        """Return the union with a later batch, which wins."""
        rows = {
            table: {**self.rows.get(table, {}), **later.rows.get(table, {})} for table in {**self.rows, **later.rows}
        }
        for table, found in rows.items():
            if len(found) > _MOST_UNWRITTEN:  # the trace must not fill the memory; its end is more useful
                rows[table] = dict(list(found.items())[-_MOST_UNWRITTEN // 2 :])
        run = {**self.run, **later.run}
        if source := f"{self.run.get(_ADDED) or ''}{later.run.get(_ADDED) or ''}":
            run[_ADDED] = source
        return _Batch(
            {**self.bindings, **later.bindings},
            rows,
            merged(self.agents, later.agents),
            run,
            {**self.gates, **later.gates},
            self.emptied or later.emptied,
            (*self.works, *later.works),
        )


class RowWriter:
    """Collects the rows of a run and of the programs it imports, and writes them to the database.

    `put` and `add` only collect; `flush` writes all rows in one transaction, a large batch in a worker thread. Rows
    that cannot be written stay in memory, are tried again with each flush, and are reported once (E219). While the
    database is unreachable, locked or full, a flush waits up to `patience` seconds before it reports an error;
    `on_wait` gets the reason for the wait, and None at its end. There is no fallback to files.

    In a shared database, each transaction checks that this process owns the run, and copies the journal (`ownership`).
    `users` is the database for agents' memories for the user, if it is not the same (7.2).

    Call all methods except `write` in the thread of the event loop.
    """

    def __init__(
        self,
        database: Database,
        home: RunDirectory,
        clock: Clock,
        *,
        patience: float = 10.0,
        on_wait: Callable[[str | None], None] = lambda reason: None,
        users: Database | None = None,
        ownership: Ownership | None = None,
    ) -> None:
        self.database = database
        self._users = users
        self._ownership = ownership
        self._heartbeat: Heartbeat | None = None
        self.home = home
        self._clock = clock
        self._patience = patience
        self._on_wait = on_wait
        self._wait_reason = ""
        self._interrupted = False
        self._unreachable, self._missed_at = "", float("-inf")  # why and when the last attempt to connect has failed
        self.sql: Final = Statements(database.dialect, home.run_id)
        self._upserts: dict[str, str] = {}
        self._connection: Connection | None = None
        self._next = _Batch()
        self._being_written: Mapping[RowKey, Binding] = {}
        self.sources: dict[tuple[str, ...], str] = {}
        """Digests of the texts of imported programs, by their calls."""
        self._rows = BindingRows(self.sql, home, clock)
        self._agents = AgentRows(self.sql, home, clock, users)
        self._unopened: dict[str, int] = {}
        self._run_row_exists = False
        self._held = 0
        self._sealed = self._closed = False
        self._weight = 0
        self._reported: set[RowKey | None] = set()
        self._renewed: set[RowKey | None] = set()
        self._spill_at = _SPILL
        self._swap = threading.Lock()
        self._disk = threading.RLock()

    @property
    def unavailable(self) -> str | None:
        """The reason, for people, why a database file cannot exist: its directory cannot be created."""
        return self.home.unavailable if self.database.inside else None

    # ------------------------------------------------------------ collecting

    def put(self, key: RowKey, binding: Binding) -> None:
        """Set a binding; the last call before a flush wins."""
        if self._sealed:
            return
        with self._swap:
            self._next.bindings[key] = binding
            self._reported.discard(key)
            self._renewed.add(key)
            self._weight += _PER_ROW + weight(binding)
        self.home.keep()

    def get(self, key: RowKey) -> Binding | None:
        """Return a binding if it is not in the database yet, else None."""
        with self._swap:
            return self._next.bindings.get(key) or self._being_written.get(key)

    def add(self, table: Table, key: object, *values: schema.Value) -> None:
        """Set a row of a table; `key` identifies it in the run. Never raises."""
        if self.unavailable is not None:
            return
        row = self.sql.row(table, *values)
        with self._swap:
            rows = self._next.rows.setdefault(table, {})
            rows[key] = row
            self._weight += _PER_ROW
            full = len(rows) > self._spill_at
        if full and self.home.pending.worth_keeping:
            self._spill(table)

    def set_run(self, **values: schema.Value) -> None:
        """Set columns of the row of the run."""
        with self._swap:
            self._next.run.update(values)

    def add_source(self, text: str) -> None:
        """Add a cell to the text of the program."""
        with self._swap:
            self._next.run[_ADDED] = f"{self._next.run.get(_ADDED) or ''}{self.sql.clean(text)}"

    def remember(self, memory: AgentMemory, prompt: str, prefix: str) -> None:
        """Write an agent's memory to the tables at the next flush, because a session has changed its files."""
        with self._swap:
            self._next.agents = merged(self._next.agents, {(prefix, memory.agent): (memory, (prompt,))})

    def gate_opened(self, gate: str, row: int) -> None:
        """Link a gate's record to the trace row that has opened the gate; another writer creates the record."""
        with self._swap:
            self._next.gates[gate] = row

    def restart(self) -> None:
        """Remove the rows of the trace at the next flush."""
        self._empty(TRACE)

    def _empty(self, tables: tuple[Table, ...]) -> None:
        with self._swap:
            for table in tables:
                self._next.rows.pop(table, None)
            self._next.emptied = tables

    def hold(self, held: bool) -> None:
        self._held = MOST_HELD if held else 0
        self.home.pending.hold(held)

    def rebuild(self, *works: Work) -> None:
        """Replace the bindings and the trace of the run, and run `works`, in the transaction of the next `write`.
        Nothing is written before it."""
        self._empty((*TRACE, schema.BINDINGS))
        with self._swap:
            self._next.works = works
        self._held = self._spill_at = sys.maxsize
        self.home.pending.hold(True)

    def seal(self) -> None:
        """Ignore all later calls of `put`."""
        self._sealed = True

    # ------------------------------------------------------------ writing

    async def flush(self) -> None:
        """Write all collected rows. Raises `StateError` (E219), which names a binding that could not be stored."""
        if self._is_due():
            self.home.keep()
        if not self.home.pending.worth_keeping:
            return
        if self._weight < self._held:
            return
        small = self.database.local and self._weight <= _SMALL_BATCH and not (self._being_written or self._reported)
        if not small or not self.write(report=False):
            await self._write_or_wait()

    async def _write_or_wait(self) -> None:
        """Write in a thread. While the database is unreachable, locked or full, retry until the patience ends, or the
        person interrupts. Don't wait if a failure has been reported before."""
        began, pause, waiting = self._clock.monotonic(), _PAUSE, False
        try:
            while True:
                over = self._clock.monotonic() - began >= self._patience
                if await asyncio.to_thread(self.write, report=over or self._interrupted or bool(self._reported)):
                    break
                if not (waiting or self._interrupted) and self._clock.monotonic() - began > _SILENT:
                    waiting = True
                    self._on_wait(self._wait_reason)
                await self._clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
        finally:
            if waiting:
                self._on_wait(None)

    def interrupt(self) -> None:
        """Stop waiting for the database until the next text begins. Callable from any thread."""
        self._set_interrupted(True)

    def text_begins(self) -> None:
        """Wait for the database again, also after an interrupt."""
        self._set_interrupted(False)

    def _set_interrupted(self, interrupted: bool) -> None:
        self._interrupted = self.database.hurried = interrupted
        if self._users is not None:
            self._users.hurried = interrupted

    def write(self, *, report: bool = True) -> bool:
        """Write as `flush` does, but without an event loop and without waiting. If not `report`, return False when the
        database is unreachable, locked or full; then nothing was written or reported."""
        with self._disk:
            if self._closed:  # a cancelled flush in its thread
                return True
            try:
                self.home.pending.write()
            finally:
                written = self.unavailable is not None or self._write_rows(report=report)
        return written

    def _write_rows(self, *, report: bool) -> bool:
        with self._swap:
            batch, self._next, self._weight = self._next, _Batch(), 0
            self._renewed = set()
            self._being_written = batch.bindings
        if not batch and not self._is_due():
            return True
        problems: Problems = {}
        rendered = list(self._rows.of(batch.bindings, problems))
        unwritten = _Batch({key: batch.bindings[key] for key in problems if key is not None})
        cause: DatabaseError | None = None
        try:
            self._commit(batch, rendered)
        except DatabaseError as error:
            unwritten, self._wait_reason, cause = batch, str(error), error
            busy = (error.busy or error.lost) and not report
            for key, binding in batch.bindings.items():
                problems.setdefault(key, (binding.key.name, str(error)))
            if not batch.bindings:
                problems[None] = ("the trace", str(error))
        else:
            busy = False
            unwritten.agents, problem = self._agents.write_of_user(batch.agents)
            if problem is not None:
                problems[_USER_DATABASE] = problem
            unwritten.gates, self._unopened = self._unopened, {}
        with self._swap:
            self._next = unwritten.merged_with(self._next)
            self._being_written = {}
            if busy:
                return False
            new = [problem for key, problem in problems.items() if key not in self._reported]
            self._reported = set(problems) - self._renewed - {_USER_DATABASE}
        if new:
            hint = cause.hint(self.home.run_id, _HINT) if cause is not None else _HINT
            raise storage_error(new, hint) from cause
        return True

    def _is_due(self) -> bool:
        return self._ownership is not None and self._ownership.is_due

    def _spill(self, table: Table) -> None:
        """Write the rows of a table before the next flush, so that they do not fill the memory."""
        if not self._disk.acquire(blocking=False):
            return
        try:
            if self.database.inside and not self.home.pending.is_available():
                return
            with self._swap:
                batch = _Batch(rows={table: self._next.rows.pop(table, {})}, emptied=self._next.emptied)
                self._next.emptied = ()
            try:
                self._commit(batch, [])
                self._spill_at = _SPILL
            except DatabaseError:
                with self._swap:
                    self._next = batch.merged_with(self._next)
                    self._spill_at = len(self._next.rows[table]) + _SPILL  # do not retry with every row
        finally:
            self._disk.release()

    # ------------------------------------------------------------ one transaction

    def _commit(self, batch: _Batch, rendered: list[schema.Row]) -> None:
        """Write a batch in a transaction. Raises `DatabaseError`."""
        short = not batch and self._ownership is not None and self._ownership.is_single_statement
        try:
            connection = self._connect()
            with contextlib.nullcontext() if short else connection.transaction():
                self._execute(connection, batch, rendered)
        except DatabaseError as error:
            if error.lost:
                self._disconnect()
            raise
        self._run_row_exists = True
        if self._ownership is not None:
            self._ownership.committed()
            self._heartbeat = self._heartbeat or Heartbeat(self._renew_lease)

    def _renew_lease(self) -> None:
        """Extend the lease, and copy the journal. A failure will be reported by the next flush."""
        with self._disk, contextlib.suppress(DatabaseError, StateError):
            if self._is_due() and not self._closed:
                self._commit(_Batch(), [])

    def _connect(self) -> Connection:
        if self._connection is None:
            if self._interrupted and self._clock.monotonic() - self._missed_at < RENEW_SECONDS:
                raise DatabaseError(self._unreachable, lost=True)
            try:
                self._connection = self.database.connect()
            except DatabaseError as error:
                if error.lost:
                    self._unreachable, self._missed_at = str(error), self._clock.monotonic()
                raise
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._ownership is not None:
            self._ownership.disconnected()

    def _execute(self, connection: Connection, batch: _Batch, rendered: list[schema.Row]) -> None:
        sql = self.sql
        self._execute_run(connection, batch.run, restarted=bool(batch.emptied))
        for table in batch.emptied:
            connection.execute(f"DELETE FROM {sql.name(table)}{sql.where(table)}", sql.parameters(table))
        for work in batch.works:
            work(connection)
        for table, found in batch.rows.items():
            if found:
                connection.executemany(self._upsert(table), found.values())
        if rendered:
            connection.executemany(self._upsert(schema.BINDINGS), rendered)
        self._agents.write(connection, batch.agents)
        for gate, row in batch.gates.items():
            mark, where = sql.dialect.placeholder, sql.where(schema.GATES, "id = {}")
            statement = f"UPDATE {sql.name(schema.GATES)} SET execution_id = {mark}{where}"
            if connection.execute(statement, sql.parameters(schema.GATES, row, gate)):
                self._unopened.pop(gate, None)
            else:  # the gate's record is written later
                self._unopened[gate] = row

    def _upsert(self, table: Table) -> str:
        found = self._upserts.get(table.name)
        if found is None:
            found = self._upserts[table.name] = self.sql.upsert(table)
        return found

    def _execute_run(self, connection: Connection, run: Mapping[str, schema.Value], *, restarted: bool) -> None:
        sql, mark, owned = self.sql, self.sql.dialect.placeholder, self._ownership
        if owned is None and not self._run_row_exists:
            connection.execute(*sql.ensure_run())
        values = {**run, "updated_at": timestamp(self._clock.now())}
        added = values.pop(_ADDED, None)
        if restarted:
            values["program_source"] = values.get("program_source") or added
        changes = [f"{name} = {mark}" for name in values]
        if added is not None and not restarted:
            changes.append(f"program_source = COALESCE(program_source, '') || {mark}")
            values[_ADDED] = added
        assignments = ", ".join(changes)
        if owned is not None:
            owned.update(connection, assignments, list(values.values()))
            return
        statement = f"UPDATE {sql.name(schema.RUN)} SET {assignments} WHERE id = {mark}"
        connection.execute(statement, (*values.values(), self.home.run_id))

    # ------------------------------------------------------------ reading

    def read(self, key: RowKey) -> str | None:
        """Return the text of a binding in the database; None if there is none. Raises `DatabaseError`, `OSError`."""
        return self._rows.read(self.query, key)

    def query(self, statement: str, *parameters: schema.Value) -> list[tuple[object, ...]]:
        """Return the result of a query; no rows if the database doesn't exist yet. Raises `DatabaseError`."""
        with self._disk:
            if self.database.inside and not self.home.directory.is_dir():
                return []
            try:
                return self._connect().query(statement, parameters)
            except DatabaseError as error:
                if not error.lost:
                    raise
                self._disconnect()
                return self._connect().query(statement, parameters)

    def counts(self, *tables: Table) -> list[int]:
        """Return the number of the run's rows in each table. Raises `DatabaseError`."""
        sql, found = self.sql, list[int]()
        for table in tables:
            statement = f"SELECT count(*) FROM {sql.name(table)}{sql.where(table)}"
            found += [int(str(row[0])) for row in self.query(statement, *sql.parameters(table))]
        return found

    def trace_rows(self) -> list[tuple[object, ...]]:
        """Return the metadata of the trace rows, in order. Raises `DatabaseError`."""
        sql, table = self.sql, schema.EXECUTION
        return self.query(
            f"SELECT metadata FROM {sql.name(table)}{sql.where(table)} ORDER BY id", *sql.parameters(table)
        )

    def run_row(self) -> tuple[object, ...] | None:
        """Return name and status of the program; None if the run is not in the database. Raises `DatabaseError`."""
        mark = self.sql.dialect.placeholder
        statement = f"SELECT program_path, status FROM {self.sql.name(schema.RUN)} WHERE id = {mark}"
        return next(iter(self.query(statement, self.home.run_id)), None)

    def close(self) -> None:
        """Copy the rest of the journal, end the lease, and close the connection."""
        with self._disk:
            self._closed = True
            if self._heartbeat is not None:
                self._heartbeat.stop()
            owned = self._ownership
            if owned is not None and owned.owns and self._connection is not None:
                with contextlib.suppress(DatabaseError, StateError), self._connection.transaction():
                    self._execute(self._connection, _Batch(), [])
                    owned.release(self._connection)
            self._disconnect()
