"""Makes and reads rows of the table `bindings`, and attachments for values too large for a row (openprose.md 7.7)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prose_kernel.access import plain_files
from prose_kernel.access.atomic import write_whole
from prose_kernel.errors import StateError, reason_of
from prose_kernel.language.text import encodable
from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.ports import Binding, Clock, Key
from prose_kernel.runtime.values import ExecText
from prose_kernel.storage import bindings, run_paths
from prose_kernel.storage.bindings import StoredBinding
from prose_kernel.storage.database import schema
from prose_kernel.storage.database.statements import Statements
from prose_kernel.storage.run_directory import RunDirectory

LARGEST: Final = 100 * 1024
"""The most characters of a value in a row; a larger value is an attachment."""

RowKey = tuple[str, int | None]
"""Name and frame of a binding, as in its row."""

Problems = dict[RowKey | None, tuple[str, str]]
"""The rows that could not be stored (None: the trace), each with a name and the reason."""


class BindingRows:
    """Turns bindings into rows, and rows into texts."""

    def __init__(self, sql: Statements, home: RunDirectory, clock: Clock) -> None:
        self._sql = sql
        self._home = home
        self._clock = clock
        self._files = run_paths.FileNames(ignore_case=run_paths.ignores_case(home.state_dir))

    def of(self, found: Mapping[RowKey, Binding], problems: Problems) -> Iterator[schema.Row]:
        """Yield the rows of bindings, and write attachments; add bindings that cannot become rows to `problems`."""
        sql, now = self._sql, timestamp(self._clock.now())
        for key, binding in found.items():
            try:
                value, attachment = self._value(key, binding)
                facts: dict[str, object] = {} if binding.label is None else {"label": binding.label}
                if isinstance(binding.value, ExecText):
                    facts |= bindings.command_facts(binding.value)
                metadata = sql.json(facts) if facts else None  # the header of a binding file
            except RecursionError:
                problems[key] = (binding.key.name, "its value is nested too deeply")
            except StateError as error:
                problems[key] = (binding.key.name, error.message)
            except OSError as error:
                problems[key] = (binding.key.name, reason_of(error, type(error).__name__))
            else:
                kind, source = bindings.kind_of(binding), sql.clean(binding.source)
                yield sql.row(schema.BINDINGS, *key, kind, value, source, now, now, attachment, metadata)

    def _value(self, key: RowKey, binding: Binding) -> tuple[str, str | None]:
        """Return the text for the value's column, and the path of an attachment if the column cannot hold the value."""
        text = encodable(bindings.body(binding.value))
        if len(text) <= LARGEST and self._fits(text):
            return text, None
        attachments = self._home.attachments
        name = self._files(Key(*key))
        write_whole(attachments / name, text)
        path = f"{attachments.name}/{name}"
        return f"({len(text):,} characters, in the file {path} of the run)", path

    def _fits(self, text: str) -> bool:
        if not self._sql.dialect.holds_nul and "\0" in text:
            return False
        return text.isascii() or len(text.encode()) <= LARGEST

    def read(self, query: Callable[..., list[tuple[object, ...]]], key: RowKey) -> str | None:
        """Return the text of a binding in the database; None if there is none. Raises `DatabaseError`, `OSError`."""
        sql, table, (name, frame) = self._sql, schema.BINDINGS, key
        where = sql.where(table, "name = {}", "COALESCE(execution_id, -1) = {}")
        statement = f"SELECT value, attachment_path FROM {sql.name(table)}{where}"
        found = query(statement, *sql.parameters(table, name, -1 if frame is None else frame))
        if not found:
            return None
        value, attachment = found[0]
        if attachment is None:
            return str(value)
        return plain_files.read(self._home.directory / str(attachment), plain_files.HUGE).decode("utf-8", "replace")


def stored_bindings(
    dialect: schema.Dialect, connect: Callable[[], schema.Connection], run_id: str
) -> list[StoredBinding]:
    """Return the root bindings of a run in a database of this dialect, as far as they can be read."""
    where, values = (f" AND run_id = {dialect.placeholder}", (run_id,)) if dialect.shared else ("", ())
    statement = (
        f"SELECT name, kind, value, attachment_path FROM {dialect.prefix}{schema.BINDINGS.name} "
        f"WHERE execution_id IS NULL{where} ORDER BY name"
    )
    try:
        with contextlib.closing(connect()) as connection:
            rows = connection.query(statement, values)
    except schema.DatabaseError:
        return []
    return [
        StoredBinding(str(name), str(kind), str(value) if value is not None else f"(kept in {attachment})")
        for name, kind, value, attachment in rows
        if "." not in str(name)  # a name with a dot belongs to an imported program
    ]
