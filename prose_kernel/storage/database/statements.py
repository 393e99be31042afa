"""Makes the statements that write to the tables of a run, in its database's dialect, and the values of columns."""

from __future__ import annotations

import json

import msgspec
from msgspec import Struct

from prose_kernel.language.text import encodable
from prose_kernel.storage.database.schema import RUN_TABLES, Dialect, Row, Table, Value, identity_of


class Statements(Struct, frozen=True):
    """The statements of one run on the tables. In a shared database, they name the run."""

    dialect: Dialect
    run_id: str

    def row(self, table: Table, *values: Value, project: bool = False) -> tuple[Value, ...]:
        """Return a row for `insert` and `upsert`, with the run's id if the table has it; NULL with `project`."""
        if not self.dialect.shared or table not in RUN_TABLES:
            return values
        return (None if project else self.run_id, *values)

    def insert(self, table: Table) -> str:
        names = self._names(table)
        marks = ", ".join([self.dialect.placeholder] * len(names))
        return f"INSERT INTO {self.dialect.prefix}{table.name} ({', '.join(names)}) VALUES ({marks})"

    def upsert(self, table: Table) -> str:
        """Return a statement that inserts a row, or updates the row with the same identity, except constant columns."""
        identity = identity_of(table, self.dialect)
        kept = {"run_id", *table.key, *table.constant}
        changed = ", ".join(f"{name} = excluded.{name}" for name in self._names(table) if name not in kept)
        return f"{self.insert(table)} ON CONFLICT ({', '.join(identity)}) DO UPDATE SET {changed}"

    def ensure_run(self) -> tuple[str, Row]:
        """Return a statement with its parameters, which inserts the row of the run if it is missing."""
        statement = f"INSERT INTO {self.dialect.prefix}run (id) VALUES ({self.dialect.placeholder})"
        return f"{statement} ON CONFLICT (id) DO NOTHING", (self.run_id,)

    def where(self, table: Table, *conditions: str) -> str:
        """Return ` WHERE` with the conditions (`{}` is a placeholder) and the run, whose id is the last parameter."""
        parts = [condition.format(self.dialect.placeholder) for condition in conditions]
        if self.dialect.shared and table in RUN_TABLES:
            parts.append(f"run_id = {self.dialect.placeholder}")
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def parameters(self, table: Table, *values: Value) -> tuple[Value, ...]:
        """Return the parameters of a statement with `where(table, ...)`."""
        return (*values, self.run_id) if self.dialect.shared and table in RUN_TABLES else values

    def name(self, table: Table) -> str:
        return self.dialect.prefix + table.name

    def _names(self, table: Table) -> tuple[str, ...]:
        of_run = self.dialect.shared and table in RUN_TABLES
        return ("run_id", *table.names) if of_run else table.names

    def clean(self, text: str) -> str:
        """Return a text that a column can hold: lone surrogates become `?`, as in files; NUL, if necessary, U+FFFD."""
        if not self.dialect.holds_nul:
            text = text.replace("\0", "\ufffd")
        return encodable(text)

    def json(self, data: object) -> str:
        """Return data as JSON text that a column can hold."""
        try:
            text = msgspec.json.encode(data).decode()
        except UnicodeEncodeError:
            text = encodable(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
        return text if self.dialect.holds_nul else text.replace("\\u0000", "\ufffd")
