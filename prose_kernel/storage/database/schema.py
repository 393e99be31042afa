"""Defines the tables of a run in a database, and the interface of a database (openprose.md 7.7, 7.8).

How to add another database
---------------------------
Write a module next to this one, with a class that has the members of `Database`: its `dialect`, and `connect`, which
opens a `Connection`. `create(dialect)` returns the statements that create the tables, `Statements(dialect)` makes those
that write to them; stores, traces and gate keepers contain no SQL that works in only one database.

- `execute`, `executemany`, `query` and `transaction` turn exceptions of the driver into `DatabaseError`. Its `lost` is
  true if the connection is lost and a new one may help, its `busy` if waiting may help. The store waits, not the
  connection: a call returns within a second.
- A dialect that is `shared` has many runs in one database. There each table except `run` begins with the column
  `run_id`, which is the first part of each identity, and the first value of each written row (`Statements.row`).
- Text is passed as `str`, JSON as text, times as ISO 8601 text in UTC, the journal as `bytes`.
- A connection is used by one thread at a time, not always the same thread.
- `connect` ends with `prepare`, which creates the tables or checks their version.

The run numbers the rows of `execution`, from 1, so that they can be written in batches and refer to each other. The
trace sets `gates.execution_id` when it writes the row of the opened gate. The gate's row may be older, so this isn't an
enforced foreign key. The first flush of the store writes the row of the run; an earlier writer executes
`Statements.ensure_run` first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Literal, Protocol

from msgspec import Struct, field

from prose_kernel._version import __version__
from prose_kernel.errors import StateError

Value = str | int | None
Row = Sequence[Value | bytes]


class DatabaseError(Exception):
    """An operation of the database has failed; the message is the reason, for people, in lower case.

    `lost`: the connection is lost, uncommitted changes are not stored, and a new connection may help. `busy`: another
    process has locked the database, or its disk is full, and the same operation may work later. `damaged`: the file of
    the run is damaged, lacks a table, or is not a database.
    """

    def __init__(self, reason: str, *, lost: bool = False, busy: bool = False, damaged: bool = False) -> None:
        super().__init__(reason)
        self.lost = lost
        self.busy = busy
        self.damaged = damaged

    def hint(self, run_id: str, otherwise: str) -> str:
        """Return how to repair a damaged file of a run; `otherwise` for other errors."""
        return f"remove the state.db of the run, then type: prose runs rebuild {run_id}" if self.damaged else otherwise


class Connection(Protocol):
    """One open connection. Outside `transaction` each statement is committed immediately."""

    def transaction(self) -> AbstractContextManager[None]:
        """Commit the statements inside; roll them back if an exception leaves the block. Do not nest."""

    def execute(self, statement: str, parameters: Row = ()) -> int:
        """Execute one statement; return the number of changed rows."""

    def executemany(self, statement: str, rows: Iterable[Row]) -> None: ...

    def query(self, statement: str, parameters: Row = ()) -> list[tuple[object, ...]]: ...

    def close(self) -> None: ...


class Database(Protocol):
    """A database that can be connected to.

    `local`: a small transaction takes less time than a change of threads, so it runs in the calling thread. `inside`:
    the database is a file in the directory of the run. `hurried`: a person has interrupted the run, and a server that
    does not answer counts as lost after a second.
    """

    hurried: bool

    @property
    def dialect(self) -> Dialect: ...

    @property
    def place(self) -> str:
        """The database's name for people: a file name, or host and database, without password and run id."""

    @property
    def local(self) -> bool: ...

    @property
    def inside(self) -> bool: ...

    def connect(self) -> Connection:
        """Open a connection, and create the tables if there are none.

        Raises `DatabaseError`, and `StateError` for a schema of another version.
        """

    def location(self, name: str, execution_id: int | None) -> str:
        """Return the place of a binding in the form for sessions (4.3)."""


# ---------------------------------------------------------------- tables


class Column(Struct, frozen=True):
    """A column. `rest` follows the type in SQL. `choices` are the allowed values, if the database checks them (7.8)."""

    name: str
    type: Literal["text", "integer", "json", "time", "bytes"] = "text"
    rest: str = ""
    choices: tuple[str, ...] = ()


class Table(Struct, frozen=True):
    """A table.

    - `key`: the expressions that identify a row inside its run; `constant`: the columns that an upsert does not change.
    - `serial`: a column that the database numbers; `indexed`: the columns by which readers search.
    - `may_lack_run`: a row may belong to no run (agents of the project).
    - `shared_only`: only a database of many runs has the table.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()
    serial: str = ""
    may_lack_run: bool = False
    indexed: tuple[str, ...] = ()
    shared_only: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the written columns, in order."""
        return tuple(column.name for column in self.columns)


def _text(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name) for name in names)


_NOT_NULL: Final = "NOT NULL"
_METADATA: Final = Column("metadata", "json")

RUN: Final = Table(
    "run",
    (
        Column("id"),
        *_text("program_path", "program_source"),
        Column("started_at", "time", "DEFAULT {now}"),
        Column("updated_at", "time", "DEFAULT {now}"),
        Column("status", "text", "NOT NULL DEFAULT 'running'", ("running", "completed", "failed", "interrupted")),
        Column("state_mode"),
    ),
    key=("id",),
    constant=("started_at",),
)
EXECUTION: Final = Table(
    "execution",
    (
        Column("id", "integer"),
        Column("statement_index", "integer"),
        Column("statement_text"),
        Column("status", "text", _NOT_NULL, ("pending", "executing", "completed", "failed", "skipped")),
        Column("started_at", "time", "DEFAULT {now}"),
        Column("completed_at", "time"),
        Column("error_message"),
        Column("parent_id", "integer"),
        _METADATA,
    ),
    key=("id",),
    indexed=("status", "parent_id"),
)
BINDINGS: Final = Table(
    "bindings",
    (
        Column("name", "text", _NOT_NULL),
        Column("execution_id", "integer"),
        Column("kind", "text", _NOT_NULL, ("input", "output", "let", "const")),
        *_text("value", "source_statement"),
        Column("created_at", "time", "DEFAULT {now}"),
        Column("updated_at", "time", "DEFAULT {now}"),
        Column("attachment_path"),
        _METADATA,
    ),
    key=("name", "COALESCE(execution_id, -1)"),
    constant=("execution_id", "created_at"),
    indexed=("execution_id",),
)
AGENTS: Final = Table(
    "agents",
    (
        Column("name", "text", _NOT_NULL),
        Column("scope", "text", _NOT_NULL, ("execution", "project", "user", "custom")),
        Column("memory"),
        Column("created_at", "time", "DEFAULT {now}"),
        Column("updated_at", "time", "DEFAULT {now}"),
    ),
    key=("name",),
    constant=("created_at",),
    may_lack_run=True,
)
AGENT_SEGMENTS: Final = Table(
    "agent_segments",
    (
        Column("agent_name", "text", _NOT_NULL),
        Column("segment_number", "integer", _NOT_NULL),
        Column("timestamp", "time", "DEFAULT {now}"),
        *_text("prompt", "summary"),
    ),
    key=("agent_name", "segment_number"),
    serial="id",
    may_lack_run=True,
)
IMPORTS: Final = Table(
    "imports",
    (
        Column("alias", "text", _NOT_NULL),
        Column("source_url"),
        Column("fetched_at", "time", "DEFAULT {now}"),
        Column("inputs_schema", "json"),
        Column("outputs_schema", "json"),
        Column("content_hash"),
    ),
    key=("alias",),
)
GATES: Final = Table(
    "gates",
    (
        Column("id", "text", _NOT_NULL),
        Column("execution_id", "integer"),
        Column("prompt", "text", _NOT_NULL),
        Column("allow", "json", "NOT NULL DEFAULT '[\"user\"]'"),
        Column("timeout", "text", "NOT NULL DEFAULT '30m'"),
        Column("on_reject", "text", "NOT NULL DEFAULT 'throw'"),
        Column("status", "text", "NOT NULL DEFAULT 'pending'", ("pending", "approved", "rejected", "timeout")),
        Column("created_at", "time", "DEFAULT {now}"),
        Column("timeout_at", "time"),
        Column("resolved_at", "time"),
        *_text("resolved_by", "resolution_comment"),
    ),
    key=("id",),
    constant=("execution_id",),
    indexed=("status",),
)
GATE_AUDIT_LOG: Final = Table(
    "gate_audit_log",
    (
        Column("gate_id", "text", _NOT_NULL),
        Column("event_type", "text", _NOT_NULL),
        *_text("principal", "comment"),
        Column("timestamp", "time", "DEFAULT {now}"),
        _METADATA,
    ),
    serial="id",
    indexed=("gate_id",),
)
X_GATES: Final = Table(
    "x_gates",
    (
        Column("gate_id", "text", _NOT_NULL),
        *_text("name", "place"),
        Column("attempt", "integer", "NOT NULL DEFAULT 1"),
        *_text("host", "process"),
        Column("outside", "integer", "NOT NULL DEFAULT 1"),
        Column("seen", "integer", "NOT NULL DEFAULT 0"),
    ),
    key=("gate_id",),
)
"""The run's facts about a gate: its name, its place in the program, the waiting process, whether a decision from
outside counts, and whether the run has seen the decision."""

X_FRAMES: Final = Table(
    "x_frames",
    (
        Column("program", "text", "NOT NULL DEFAULT ''"),
        Column("execution_id", "integer", _NOT_NULL),
        Column("parent_execution_id", "integer"),
        Column("block"),
        Column("depth", "integer"),
    ),
    key=("program", "execution_id"),
)
X_JOURNAL: Final = Table(
    "x_journal",
    (Column("start", "integer", _NOT_NULL), Column("lines", "bytes", _NOT_NULL)),
    key=("start",),
    shared_only=True,
)
"""The bytes of the run's journal file: `lines` begin at the offset `start` (`ownership.py`)."""

X_META: Final = Table("x_meta", (Column("name", "text", _NOT_NULL), Column("value")), key=("name",))

RUN_TABLES: Final = (
    EXECUTION,
    BINDINGS,
    AGENTS,
    AGENT_SEGMENTS,
    IMPORTS,
    GATES,
    GATE_AUDIT_LOG,
    X_GATES,
    X_FRAMES,
    X_JOURNAL,
)
"""The tables whose rows belong to a run, in the order of their creation."""

ALL_TABLES: Final = (X_META, RUN, *RUN_TABLES)


# ---------------------------------------------------------------- dialects


class Dialect(Struct, frozen=True):
    """The SQL of one kind of database.

    - `existing`: selects the names of the existing tables; `prefix`: begins the name of each table in statements.
    - `extras`: statements that create parts that only this database has.
    - `shared`: one database has many runs.
    - `statuses`: maps statuses of `execution` to the accepted ones (the exact one is in `metadata.event`).
    - `holds_nul`: a text column can hold NUL characters.
    - `migrations`: the statements from each version of the schema to the next, from version 1; each change adds one.
    """

    name: str
    title: str
    placeholder: str
    types: Mapping[str, str]
    now: str
    serial: str
    existing: str
    prefix: str = ""
    extras: tuple[str, ...] = ()
    shared: bool = False
    statuses: Mapping[str, str] = field(default_factory=dict)
    holds_nul: bool = True
    migrations: tuple[tuple[str, ...], ...] = ()

    @property
    def version(self) -> int:
        """The schema version that this version of the package reads and writes."""
        return 1 + len(self.migrations)

    def reads(self, version: str) -> bool:
        """Return whether tables of this version can be used; a run migrates older tables when it opens them."""
        return version.isdecimal() and 1 <= int(version) <= self.version


SQLITE: Final = Dialect(
    "sqlite",
    "SQLite",
    "?",
    {"text": "TEXT", "integer": "INTEGER", "json": "TEXT", "time": "TEXT", "bytes": "BLOB"},
    "(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
    "INTEGER PRIMARY KEY AUTOINCREMENT",
    "SELECT name FROM sqlite_master WHERE type = 'table'",
)
NOTIFY_CHANNEL: Final = "openprose_gates"
_NOTIFY: Final = (
    f"""CREATE OR REPLACE FUNCTION openprose.x_notify_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_notify('{NOTIFY_CHANNEL}', NEW.run_id || ' ' || NEW.id); RETURN NULL; END $$""",
    "CREATE TRIGGER x_notify_gate AFTER INSERT OR UPDATE OF status ON openprose.gates "
    "FOR EACH ROW EXECUTE FUNCTION openprose.x_notify_gate()",
)
"""Notifies waiting runs and services immediately when any client opens or decides a gate (7.8)."""

_OWNER: Final = (
    "ALTER TABLE openprose.run ADD COLUMN IF NOT EXISTS x_epoch BIGINT NOT NULL DEFAULT 0, "
    "ADD COLUMN IF NOT EXISTS x_host TEXT, ADD COLUMN IF NOT EXISTS x_process TEXT, "
    "ADD COLUMN IF NOT EXISTS x_expires TIMESTAMPTZ",
    """CREATE OR REPLACE VIEW openprose.x_runs AS SELECT id, program_path, started_at, updated_at,
  CASE WHEN status = 'running' AND COALESCE(x_expires < clock_timestamp(), TRUE) THEN 'lost' ELSE status END AS status,
  x_host AS host FROM openprose.run""",
)
"""Columns for the owner of a run and its lease (`ownership.py`), and a view that shows runs without a lease as lost."""

_JOURNAL: Final = """CREATE TABLE openprose.x_journal (
  run_id TEXT NOT NULL REFERENCES openprose.run (id) ON DELETE CASCADE, start BIGINT NOT NULL, lines BYTEA NOT NULL,
  metadata JSONB, PRIMARY KEY (run_id, start)
)"""

POSTGRES: Final = Dialect(
    "postgres",
    "PostgreSQL",
    "%s",
    {"text": "TEXT", "integer": "BIGINT", "json": "JSONB", "time": "TIMESTAMPTZ", "bytes": "BYTEA"},
    "now()",
    "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    "SELECT tablename FROM pg_tables WHERE schemaname = 'openprose'",  # even tables that this user may not read
    prefix="openprose.",
    extras=(*_NOTIFY, *_OWNER),
    migrations=((_JOURNAL, *_OWNER),),
    shared=True,
    holds_nul=False,
    statuses={
        **dict.fromkeys(("started", "iteration", "retry"), "executing"),
        **dict.fromkeys(("joined", "exited"), "completed"),
    },
)


def create(dialect: Dialect) -> tuple[str, ...]:
    """Return the statements that create all missing tables and write the version."""
    tables = [table for table in ALL_TABLES if dialect.shared or not table.shared_only]
    made = [statement for table in tables for statement in _create(table, dialect)]
    if dialect.prefix:
        # not `IF NOT EXISTS`, which needs the right to create a schema even if the schema exists
        name = dialect.prefix.rstrip(".")
        there = f"SELECT FROM pg_namespace WHERE nspname = '{name}'"
        made.insert(0, f"DO $$ BEGIN IF NOT EXISTS ({there}) THEN CREATE SCHEMA {name}; END IF; END $$")
    return (*made, *dialect.extras, _versions(dialect))


def _versions(dialect: Dialect) -> str:
    """Return the statement that writes the versions of the schema and of the package that created it."""
    rows = f"('schema_version', '{dialect.version}'), ('package', '{__version__}')"
    insert = f"INSERT INTO {dialect.prefix}x_meta (name, value) VALUES {rows}"
    return f"{insert} ON CONFLICT (name) DO UPDATE SET value = excluded.value"


def _create(table: Table, dialect: Dialect) -> Iterator[str]:
    of_run = dialect.shared and table in RUN_TABLES
    lines = [_column(column, dialect) for column in table.columns]
    if table.serial:
        lines.insert(0, f"{table.serial} {dialect.serial}")
    elif table is EXECUTION and not dialect.shared:
        lines[0] = f"id {dialect.serial}"
    if of_run:
        lines.insert(0, _run_id(table, dialect))
        if _METADATA not in table.columns:
            lines.append(_column(_METADATA, dialect))
    elif dialect.shared and table is RUN:
        lines.append(_column(_METADATA, dialect))
    identity = identity_of(table, dialect)
    plain = all(part.isidentifier() for part in identity)
    if identity and plain and not table.serial and not (table is EXECUTION and not dialect.shared):
        lines.append(f"PRIMARY KEY ({', '.join(identity)})")
    name = dialect.prefix + table.name
    yield f"CREATE TABLE IF NOT EXISTS {name} (\n  " + ",\n  ".join(lines) + "\n)"
    if identity and not (plain and not table.serial):
        yield f"CREATE UNIQUE INDEX IF NOT EXISTS {table.name}_identity ON {name} ({', '.join(identity)})"
    if not dialect.shared:
        return
    for column in (*table.indexed, *(("run_id",) if table.may_lack_run else ())):
        yield f"CREATE INDEX IF NOT EXISTS {table.name}_{column} ON {name} ({column})"
    if _METADATA in table.columns:
        yield f"CREATE INDEX IF NOT EXISTS {table.name}_metadata ON {name} USING GIN (metadata)"


def _run_id(table: Table, dialect: Dialect) -> str:
    required = "" if table.may_lack_run else f" {_NOT_NULL}"
    return f"run_id {dialect.types['text']}{required} REFERENCES {dialect.prefix}run (id) ON DELETE CASCADE"


def _column(column: Column, dialect: Dialect) -> str:
    text = f"{column.name} {dialect.types[column.type]} {column.rest.format(now=dialect.now)}".rstrip()
    if column.choices and dialect.shared:
        choices = ", ".join(f"'{choice}'" for choice in column.choices)
        text += f" CHECK ({column.name} IN ({choices}))"
    return text


def identity_of(table: Table, dialect: Dialect) -> tuple[str, ...]:
    """Return the expressions that identify a row of a table, for `ON CONFLICT` in an upsert."""
    if not dialect.shared or table not in RUN_TABLES or not table.key:
        return table.key
    return (*table.key, "COALESCE(run_id, '__project__')") if table.may_lack_run else ("run_id", *table.key)


# ---------------------------------------------------------------- opening


def prepare(connection: Connection, dialect: Dialect, place: str) -> None:
    """Create the tables in an empty database; otherwise check their version, and migrate older tables.

    Raises `StateError` for tables that a newer version or another program has created, or that this user may not
    migrate. `place` is the database's name for people.
    """
    there = {str(name) for (name,) in connection.query(dialect.existing)}
    if not there & {table.name for table in ALL_TABLES}:
        with connection.transaction():
            for statement in create(dialect):
                connection.execute(statement)
        return
    found = connection.query(f"SELECT name, value FROM {dialect.prefix}x_meta") if X_META.name in there else []
    known = {str(name): str(value) for name, value in found}
    version, package = known.get("schema_version", ""), known.get("package", "")
    if version == str(dialect.version):
        return
    if not version:
        raise StateError(
            f"{place} has tables that prose_kernel has not made",
            hint="choose another place for the run with --state-dir",
        )
    if dialect.reads(version):
        _migrate(connection, dialect, place, int(version))
        return
    newer = version.isdecimal() and int(version) > dialect.version
    update = f"update prose_kernel to {package}" if package else "update prose_kernel"
    raise StateError(
        f"{place} has schema version {version}; this version of prose_kernel uses {dialect.version}",
        hint=update if newer else "open it with the version of prose_kernel that made it",
    )


def _migrate(connection: Connection, dialect: Dialect, place: str, version: int) -> None:
    try:
        with connection.transaction():
            for statements in dialect.migrations[version - 1 :]:
                for statement in statements:
                    connection.execute(statement)
            connection.execute(_versions(dialect))
    except DatabaseError as error:
        if error.lost or error.busy:
            raise
        raise StateError(
            f"{place} has schema version {version}, and cannot be migrated to version {dialect.version}: {error}",
            hint="a run by the user who owns the tables migrates them",
        ) from None
