"""The pending writes of a run to its database: batches of rows, one transaction each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from prose_kernel.access import plain_files
from prose_kernel.access.atomic import write_whole
from prose_kernel.errors import StateError, reason_of
from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.ports import AgentMemory, Binding, Clock, Key
from prose_kernel.runtime.text import encodable
from prose_kernel.runtime.values import ExecText
from prose_kernel.storage import bindings, layout
from prose_kernel.storage.database import schema
from prose_kernel.storage.database.ownership import Heartbeat, Ownership
from prose_kernel.storage.database.schema import Connection, Database, DatabaseError, Statements, Table
from prose_kernel.storage.home import RunHome
from prose_kernel.storage.pending import MOST_HELD, storage_error, weight

LARGEST: Final = 100 * 1024
"""Characters of a value in a row; a larger one is an attachment."""

_PER_ROW: Final = 300
_SMALL_BATCH: Final = 64 * 1024
_SPILL: Final = 20_000
_MOST_UNWRITTEN: Final = 200_000
TRACE: Final = (schema.EXECUTION, schema.X_FRAMES, schema.IMPORTS)
_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_SILENT: Final = 1.0
"""Seconds that a flush waits for the database before the person hears of it."""

_ADDED: Final = "added_source"
_HINT: Final = "values that are not stored stay in memory, and are tried again with the next flush"

RowKey = tuple[str, int | None]
"""Name and frame of a binding, as in its row."""


_OF_THE_USER: Final[RowKey] = ("", -1)
"""Stands for the rows of the user's database among what could not be stored; no binding has this name."""

_Agents = dict[tuple[str, str], tuple[AgentMemory, tuple[str, ...]]]
"""By the program's place and the agent: its memory, and the prompts of the sessions that have written it."""

Work = Callable[[Connection], None]


@dataclass(slots=True)
class _Batch:
    """The rows of one transaction. First the earlier rows of the tables `emptied` are removed, then `works` are run."""

    bindings: dict[RowKey, Binding] = field(default_factory=dict)
    rows: dict[Table, dict[object, tuple[schema.Value, ...]]] = field(default_factory=dict)
    agents: _Agents = field(default_factory=dict)
    run: dict[str, schema.Value] = field(default_factory=dict)
    gates: dict[str, int] = field(default_factory=dict)
    emptied: tuple[Table, ...] = ()
    works: tuple[Work, ...] = ()

    def __bool__(self) -> bool:
        rows = self.bindings or any(self.rows.values()) or self.agents or self.run or self.gates
        return bool(rows or self.emptied or self.works)

    def before(self, later: _Batch) -> _Batch:
        """This batch and a later one, which wins."""
        rows = {
            table: {**self.rows.get(table, {}), **later.rows.get(table, {})} for table in {**self.rows, **later.rows}
        }
        for table, found in rows.items():
            if len(found) > _MOST_UNWRITTEN:  # the trace must not fill the memory; its end says more
                rows[table] = dict(list(found.items())[-_MOST_UNWRITTEN // 2 :])
        run = {**self.run, **later.run}
        if source := f"{self.run.get(_ADDED) or ''}{later.run.get(_ADDED) or ''}":
            run[_ADDED] = source
        return _Batch(
            {**self.bindings, **later.bindings},
            rows,
            _both(self.agents, later.agents),
            run,
            {**self.gates, **later.gates},
            self.emptied or later.emptied,
            (*self.works, *later.works),
        )


def _both(earlier: _Agents, later: _Agents) -> _Agents:
    known = {key: (memory, (*earlier[key][1], *prompts)) for key, (memory, prompts) in later.items() if key in earlier}
    return {**earlier, **later, **known}


class DatabaseWrites:
    """The rows of a run and of the programs it imports, which are not in the database yet.

    `put` and `add` only remember; `flush` writes everything in one transaction, a large batch in a worker thread. What
    cannot be written stays in memory and is tried again with each flush; it is reported once (E219). While the database
    is unreachable, locked or full, a flush waits up to `patience` seconds before it reports anything; `on_wait` hears
    of it. Nothing falls back to files.

    In a shared database, each transaction checks that this process owns the run, and copies the journal (`ownership`).
    `users` is where rows about what agents remember for the user go, if not to the same database (7.2).

    Call everything but `write` in the thread of the event loop.
    """

    def __init__(
        self,
        database: Database,
        home: RunHome,
        clock: Clock,
        *,
        patience: float = 10.0,
        on_wait: Callable[[str | None], None] = lambda reason: None,
        users: Database | None = None,
        ownership: Ownership | None = None,
    ) -> None:
        self.database = database
        self._ownership = ownership
        self._heartbeat: Heartbeat | None = None
        self._users = users
        self._users_reported = False
        self.home = home
        self._clock = clock
        self._patience = patience
        self._on_wait = on_wait
        self._why_not = ""
        self._hurried = False
        self._say = Statements(database.dialect, home.run_id)
        self._upserts: dict[str, str] = {}
        self._connection: Connection | None = None
        self._next = _Batch()
        self._being_written: Mapping[RowKey, Binding] = {}
        self.sources: dict[tuple[str, ...], str] = {}
        """Digests of the texts of imported programs, by their calls."""
        self._files = layout.FileNames(ignore_case=layout.ignores_case(home.state_dir))
        self._unopened: dict[str, int] = {}
        self._row_of_run = False
        self._held = 0
        self._sealed = False
        self._weight = 0
        self._reported: set[RowKey | None] = set()
        self._renewed: set[RowKey | None] = set()
        self._spill_at = _SPILL
        self._swap = threading.Lock()
        self._disk = threading.RLock()

    @property
    def unavailable(self) -> str | None:
        """Why the database has no place to be, in a sentence for people: it is a file, and its directory cannot be
        made."""
        return self.home.unavailable if self.database.inside else None

    # ------------------------------------------------------------ remembering

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
        """Return a binding that is not in the database yet."""
        with self._swap:
            return self._next.bindings.get(key) or self._being_written.get(key)

    def add(self, table: Table, key: object, *values: schema.Value) -> None:
        """Set a row of a table, by what identifies it in the run. Never raises."""
        if self.unavailable is not None:
            return
        row = self._say.row(table, *values)
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
            self._next.run[_ADDED] = f"{self._next.run.get(_ADDED) or ''}{self.clean(text)}"

    def remember(self, memory: AgentMemory, prompt: str, prefix: str) -> None:
        """A session has written an agent's memory: what its files say then goes into the tables of agents."""
        with self._swap:
            self._next.agents = _both(self._next.agents, {(prefix, memory.agent): (memory, (prompt,))})

    def gate_opened(self, gate: str, row: int) -> None:
        """Name the row of the trace that has opened a gate in the record of the gate, which others write."""
        with self._swap:
            self._next.gates[gate] = row

    def restart(self) -> None:
        """Remove what the trace has written, with the next flush."""
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
        """Replace the bindings and the trace of the run, and run `works`, in the transaction of the next `write`. Until
        then nothing is written."""
        self._empty((*TRACE, schema.BINDINGS))
        with self._swap:
            self._next.works = works
        self._held = self._spill_at = sys.maxsize
        self.home.pending.hold(True)

    def seal(self) -> None:
        """Ignore all bindings that are put from now on."""
        self._sealed = True

    # ------------------------------------------------------------ writing

    async def flush(self) -> None:
        """Write everything put so far. Raises `StateError` (E219) naming a binding that could not be stored."""
        if self._is_due():
            self.home.keep()
        if not self.home.pending.worth_keeping:
            return
        if self._weight < self._held:
            return
        small = self.database.local and self._weight <= _SMALL_BATCH and not (self._being_written or self._reported)
        if not small or not self.write(report=False):
            await self._write_or_wait()
        self._hurried = False

    async def _write_or_wait(self) -> None:
        """Write in a thread. While the database is unreachable, locked or full, retry until the patience ends, or the
        person interrupts. What has been reported already is not waited for again."""
        began, pause, waiting = self._clock.monotonic(), _PAUSE, False
        try:
            while True:
                over = self._clock.monotonic() - began >= self._patience
                if await asyncio.to_thread(self.write, report=over or self._hurried or bool(self._reported)):
                    break
                if not waiting and self._clock.monotonic() - began > _SILENT:
                    waiting = True
                    self._on_wait(self._why_not)
                await self._clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
        finally:
            self._hurried = False  # nor does the next flush hurry
            if waiting:
                self._on_wait(None)

    def interrupt(self) -> None:
        """Do not wait for the database any longer. Called from any thread."""
        self._hurried = True

    def write(self, *, report: bool = True) -> bool:
        """`flush` for callers without an event loop, which does not wait. Unless it shall `report`, it returns False
        when the database is unreachable, locked or full: then nothing was written or reported."""
        with self._disk:
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
        problems: dict[RowKey | None, tuple[str, str]] = {}
        rendered = list(self._rendered(batch.bindings, problems))
        unwritten = _Batch({key: batch.bindings[key] for key in problems if key is not None})
        try:
            self._commit(batch, rendered)
        except DatabaseError as error:
            unwritten, self._why_not = batch, str(error)
            busy = (error.busy or error.lost) and not report
            for key, binding in batch.bindings.items():
                problems.setdefault(key, (binding.key.name, str(error)))
            if not batch.bindings:
                problems[None] = ("the trace", str(error))
        else:
            busy = False
            unwritten.agents = self._write_users(batch, problems)
            unwritten.gates, self._unopened = self._unopened, {}
        with self._swap:
            self._next = unwritten.before(self._next)
            self._being_written = {}
            if busy:
                return False
            new = [problem for key, problem in problems.items() if key not in self._reported]
            self._reported = set(problems) - self._renewed - {_OF_THE_USER}
        if new:
            raise storage_error(new, _HINT)
        return True

    def _write_users(self, batch: _Batch, problems: dict[RowKey | None, tuple[str, str]]) -> _Agents:
        """Write what agents remember for the user to the database of the user, if that is another one; returns what
        could not be written. It is in files anyway, so that it is not waited for, and reported once."""
        mine = {key: found for key, found in batch.agents.items() if self._is_elsewhere(found[0])}
        if self._users is None or not mine:
            return {}
        try:
            with contextlib.closing(self._users.connect()) as connection, connection.transaction():
                for (prefix, _), (memory, prompts) in mine.items():
                    self._execute_agent(connection, memory, prompts, prefix)
        except (DatabaseError, StateError) as error:
            if not self._users_reported:
                problems[_OF_THE_USER] = (f"memory of {next(iter(mine.values()))[0].agent}", str(error))
            self._users_reported = True
            return mine
        self._users_reported = False
        return {}

    def _is_due(self) -> bool:
        return self._ownership is not None and self._ownership.is_due

    def _is_elsewhere(self, memory: AgentMemory) -> bool:
        return self._users is not None and memory.scope == "user"

    def _spill(self, table: Table) -> None:
        """Write the rows of a table between two flushes, so that they do not fill the memory."""
        if not self._disk.acquire(blocking=False):
            return
        try:
            if self.database.inside and not self.home.pending.is_available():
                return
            with self._swap:
                batch = _Batch(rows={table: self._next.rows.pop(table)}, emptied=self._next.emptied)
                self._next.emptied = ()
            try:
                self._commit(batch, [])
                self._spill_at = _SPILL
            except DatabaseError:
                with self._swap:
                    self._next = batch.before(self._next)
                    self._spill_at = len(self._next.rows[table]) + _SPILL  # do not try with every row
        finally:
            self._disk.release()

    # ------------------------------------------------------------ one transaction

    def _commit(self, batch: _Batch, rendered: list[tuple[schema.Value, ...]]) -> None:
        """Write a batch in a transaction. Raises `DatabaseError`."""
        short = not batch and self._ownership is not None and self._ownership.is_short
        try:
            connection = self._connect()
            with contextlib.nullcontext() if short else connection.transaction():
                self._execute(connection, batch, rendered)
        except DatabaseError as error:
            if error.lost:
                self._disconnect()
            raise
        self._row_of_run = True
        if self._ownership is not None:
            self._ownership.committed()
            self._heartbeat = self._heartbeat or Heartbeat(self._beat)

    def _beat(self) -> None:
        """Extend the lease, and copy the journal. A failure is one of the next flush."""
        with self._disk, contextlib.suppress(DatabaseError, StateError):
            if self._is_due():
                self._commit(_Batch(), [])

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self.database.connect()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._ownership is not None:
            self._ownership.disconnected()

    def _execute(self, connection: Connection, batch: _Batch, rendered: list[tuple[schema.Value, ...]]) -> None:
        say = self._say
        self._execute_run(connection, batch.run, restarted=bool(batch.emptied))
        for table in batch.emptied:
            connection.execute(f"DELETE FROM {say.name(table)}{say.where(table)}", say.parameters(table))
        for work in batch.works:
            work(connection)
        for table, found in batch.rows.items():
            if found:
                connection.executemany(self._upsert(table), found.values())
        if rendered:
            connection.executemany(self._upsert(schema.BINDINGS), rendered)
        for (prefix, _), (memory, prompts) in batch.agents.items():
            if not self._is_elsewhere(memory):
                self._execute_agent(connection, memory, prompts, prefix)
        for gate, row in batch.gates.items():
            mark, where = say.dialect.placeholder, say.where(schema.GATES, "id = {}")
            statement = f"UPDATE {say.name(schema.GATES)} SET execution_id = {mark}{where}"
            if connection.execute(statement, say.parameters(schema.GATES, row, gate)):
                self._unopened.pop(gate, None)
            else:  # its record is written after this
                self._unopened[gate] = row

    def _upsert(self, table: Table) -> str:
        found = self._upserts.get(table.name)
        if found is None:
            found = self._upserts[table.name] = self._say.upsert(table)
        return found

    def _execute_run(self, connection: Connection, run: Mapping[str, schema.Value], *, restarted: bool) -> None:
        say, mark, owned = self._say, self._say.dialect.placeholder, self._ownership
        if owned is None and not self._row_of_run:
            connection.execute(*say.ensure_run())
        values = {**run, "updated_at": self._now()}
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
        statement = f"UPDATE {say.name(schema.RUN)} SET {assignments} WHERE id = {mark}"
        connection.execute(statement, (*values.values(), self.home.run_id))

    def _execute_agent(self, connection: Connection, memory: AgentMemory, prompts: Sequence[str], prefix: str) -> None:
        """Write the memory of an agent as its files hold it now, and the segments of its last sessions."""
        scope = memory.scope if memory.scope in ("project", "user") else "execution" if memory.scope == "true" else ""
        project = scope in ("project", "user", "")
        name = f"{prefix}{memory.agent}"
        if self._is_elsewhere(memory):
            name = memory.agent
        elif scope == "user" and self._say.dialect.shared:
            name = f"__user__{memory.agent}"
        place, now = self.home.cwd / memory.directory, self._now()
        text = self._text_of(place / "memory.md")
        row = self._say.row(schema.AGENTS, name, scope or "custom", text, now, now, project=project)
        connection.execute(self._say.upsert(schema.AGENTS), row)
        last = _last_segment(place, memory.agent)
        for newest, prompt in enumerate(prompts[-last:] if last else (), max(1, last - len(prompts) + 1)):
            number, segment = self._segment_of(place, memory.agent, prompt, newest)
            values = (name, number, now, self.clean(prompt), segment)
            row = self._say.row(schema.AGENT_SEGMENTS, *values, project=project)
            connection.execute(self._say.upsert(schema.AGENT_SEGMENTS), row)

    def _segment_of(self, place: Path, agent: str, prompt: str, newest: int) -> tuple[int, str | None]:
        """The segment that a session with this prompt has added, with its number: `newest`, unless that names another
        prompt. In a replay the memory may have segments of later sessions, whose answers are lost."""
        text = last = self._text_of(place / f"{agent}-{newest:03}.md")
        for number in range(newest, 0, -1):
            if _may_be_of(text, prompt):
                return number, text
            text = self._text_of(place / f"{agent}-{number - 1:03}.md")
        return newest, last

    def _text_of(self, file: Path) -> str | None:
        try:
            return self.clean(plain_files.read(file).decode("utf-8", "replace"))
        except OSError:
            return None

    # ------------------------------------------------------------ rendering

    def _rendered(
        self, batch: Mapping[RowKey, Binding], problems: dict[RowKey | None, tuple[str, str]]
    ) -> Iterator[tuple[schema.Value, ...]]:
        """The rows of bindings, and their attachments on disk; what cannot be a row goes to `problems`."""
        now, table = self._now(), schema.BINDINGS
        for key, binding in batch.items():
            try:
                value, attachment = self._value(key, binding)
                facts: dict[str, object] = {} if binding.label is None else {"label": binding.label}
                if isinstance(binding.value, ExecText):
                    facts |= bindings.outcome(binding.value)
                metadata = self.json(facts) if facts else None  # the header of a binding file
            except RecursionError:
                problems[key] = (binding.key.name, "its value is nested too deeply")
            except StateError as error:
                problems[key] = (binding.key.name, error.message)
            except OSError as error:
                problems[key] = (binding.key.name, reason_of(error, type(error).__name__))
            else:
                kind, source = bindings.kind_of(binding), self.clean(binding.source)
                yield self._say.row(table, *key, kind, value, source, now, now, attachment, metadata)

    def _value(self, key: RowKey, binding: Binding) -> tuple[str, str | None]:
        """The text of the value's column, and the path of the attachment that holds the value if the column cannot."""
        text = encodable(bindings.body(binding.value))
        if len(text) <= LARGEST and self._fits(text):
            return text, None
        name = self._files(Key(*key))
        write_whole(self.home.attachments / name, text)
        path = f"{self.home.attachments.name}/{name}"
        return f"({len(text):,} characters, in the file {path} of the run)", path

    def _fits(self, text: str) -> bool:
        if not self._say.dialect.holds_nul and "\0" in text:
            return False
        return text.isascii() or len(text.encode()) <= LARGEST

    def clean(self, text: str) -> str:
        """Text as a column can hold it. Lone surrogates become `?`, as in files; NUL, where it cannot be, U+FFFD."""
        if not self._say.dialect.holds_nul:
            text = text.replace("\0", "\ufffd")
        return encodable(text)

    def json(self, data: object) -> str:
        """Data as a JSON column can hold it."""
        try:
            text = msgspec.json.encode(data).decode()
        except UnicodeEncodeError:
            text = encodable(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
        return text if self._say.dialect.holds_nul else text.replace("\\u0000", "\ufffd")

    def _now(self) -> str:
        return timestamp(self._clock.now())

    # ------------------------------------------------------------ reading

    def read(self, key: RowKey) -> str | None:
        """Return the text of a binding in the database; None if there is none. Raises `DatabaseError`, `OSError`."""
        say, table = self._say, schema.BINDINGS
        name, frame = key
        where = say.where(table, "name = {}", "COALESCE(execution_id, -1) = {}")
        statement = f"SELECT value, attachment_path FROM {say.name(table)}{where}"
        found = self.query(statement, *say.parameters(table, name, -1 if frame is None else frame))
        if not found:
            return None
        value, attachment = found[0]
        if attachment is None:
            return str(value)
        return plain_files.read(self.home.directory / str(attachment), plain_files.HUGE).decode("utf-8", "replace")

    def query(self, statement: str, *parameters: schema.Value) -> list[tuple[object, ...]]:
        """Return the rows of a query; none if the database doesn't exist yet. Raises `DatabaseError`."""
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
        """The number of rows that the run has in each table. Raises `DatabaseError`."""
        say, found = self._say, list[int]()
        for table in tables:
            statement = f"SELECT count(*) FROM {say.name(table)}{say.where(table)}"
            found += [int(str(row[0])) for row in self.query(statement, *say.parameters(table))]
        return found

    def trace_rows(self) -> list[tuple[object, ...]]:
        """The metadata of the rows of the trace, in their order. Raises `DatabaseError`."""
        say, table = self._say, schema.EXECUTION
        return self.query(
            f"SELECT metadata FROM {say.name(table)}{say.where(table)} ORDER BY id", *say.parameters(table)
        )

    def run_row(self) -> tuple[object, ...] | None:
        """Name and status of the program; None before the run is in the database. Raises `DatabaseError`."""
        mark = self._say.dialect.placeholder
        statement = f"SELECT program_path, status FROM {self._say.name(schema.RUN)} WHERE id = {mark}"
        return next(iter(self.query(statement, self.home.run_id)), None)

    def close(self) -> None:
        """Close the connection, after the rest of the journal was copied, and end the lease."""
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            heartbeat.stop()
        with self._disk:
            owned = self._ownership
            if owned is not None and owned.owns and self._connection is not None:
                with contextlib.suppress(DatabaseError, StateError), self._connection.transaction():
                    self._execute(self._connection, _Batch(), [])
                    owned.release(self._connection)
            self._disconnect()


_PROMPT: Final = re.compile(r'^prompt: (".*")$', re.MULTILINE)


def _may_be_of(segment: str | None, prompt: str) -> bool:
    """Whether a segment names no other prompt: it is cut there if it is long, and a session may write its own form."""
    found = _PROMPT.search(segment or "")
    try:
        return found is None or prompt.startswith(str(json.loads(found[1])).removesuffix("…"))
    except ValueError:
        return True


def _last_segment(directory: Path, agent: str) -> int:
    """The number of the newest segment file of an agent; 0 without one."""
    numbered = re.compile(re.escape(agent) + r"-(\d{3,})\.md")
    try:
        names = [path.name for path in directory.iterdir()]
    except OSError:
        return 0
    return max((int(match[1]) for name in names if (match := numbered.fullmatch(name))), default=0)
