"""The database backend of the `Store` port (openprose.md 7.7, 7.8)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from prose_kernel.errors import StateError, reason_of
from prose_kernel.runtime.ports import Binding, Key
from prose_kernel.storage import bindings, run_paths
from prose_kernel.storage.database.binding_rows import RowKey
from prose_kernel.storage.database.row_writer import RowWriter
from prose_kernel.storage.database.schema import DatabaseError
from prose_kernel.storage.run_directory import RunStore

_LIKE_AN_ITERATION: Final = re.compile(r".*__i\d+")


class DatabaseStore(RunStore):
    """Keeps the bindings of a run, or of one call of an imported program, as rows of a table.

    The name in a row is the variable's name, followed by `__i{index}` for each enclosing parallel iteration (7.4), and
    preceded by the directory names of the imported programs' calls: `local--tidy.report`. The copy of the program,
    memories of agents and large values are files in the directory of the run.
    """

    in_files: Final = False

    def __init__(self, writes: RowWriter, *, chain: tuple[str, ...] = (), user_home: Path | None = None) -> None:
        super().__init__(writes.home, chain, user_home)
        self.writes = writes
        self._prefix = prefix(chain)
        self._calls = run_paths.CallNames(ignore_case=True)

    @property
    def unavailable(self) -> str | None:
        return self.writes.unavailable

    def nested(self, handle: str, slug: str, source: str, number: int = 1) -> DatabaseStore:
        """Return the store of an imported program's call; the program's text is kept as a file (6.5)."""
        chain = (*self.chain, self._calls(handle, slug, number))
        self.home.pending.put(str(self.home.paths_of(chain).program), source)
        self.writes.sources[chain] = hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()
        return DatabaseStore(self.writes, chain=chain, user_home=self._user_home)

    # ------------------------------------------------------------ bindings

    def put(self, binding: Binding) -> None:
        """Store a binding at the next flush. A reference is read immediately, because its binding may change."""
        self.writes.put(self._row(binding.key), bindings.with_value(binding))

    def read(self, key: Key) -> str:
        """Return the stored text of a binding, flushed or not. Raises `StateError` if it cannot be read."""
        row = self._row(key)
        pending = self.writes.get(row)
        if pending is not None:
            return bindings.body(pending.value)
        try:
            found = self.writes.read(row)
            reason = "there is no such binding"
        except (DatabaseError, OSError) as error:
            found, reason = None, reason_of(error, str(error))
        if found is None:
            raise StateError(f"'{key.name}' could not be read: {reason}", details={"binding": key.name})
        return found

    def watch(self, key: Key) -> Callable[[], bool]:
        """Return a function that returns False: sessions reply with their answer, and the run writes it (5.10, 7.2)."""
        return lambda: False

    def target(self, binding: Binding) -> None:
        """Return None: sessions reply with their answer."""

    def location(self, key: Key, within: tuple[str, ...] = ()) -> str:
        name, frame = self._row(key)
        return self.writes.database.location(f"{self._prefix}{prefix(within)}{name.removeprefix(self._prefix)}", frame)

    def _row(self, key: Key) -> RowKey:
        name = key.name
        if "__i" in name and _LIKE_AN_ITERATION.fullmatch(name):
            name += "~"  # `x__i0` itself, and not `x` in iteration 0
        if key.iterations:
            name += "".join(f"__i{index}" for index in key.iterations)
        return f"{self._prefix}{name}", key.execution_id

    # ------------------------------------------------------------ the run

    def start(self, program: str, copies: Mapping[str, str] | None = None) -> None:
        super().start(program, copies)
        self.writes.text_begins()
        self.writes.set_run(program_source=self.writes.sql.clean(program))

    def record_source(self, text: str) -> str:
        added = super().record_source(text)
        self.writes.text_begins()
        self.writes.add_source(added)
        return added

    def trace_text(self) -> str:
        try:
            run, rows = self.writes.run_row(), self.writes.trace_rows()
        except DatabaseError:
            return ""
        if run is None:
            return ""
        lines = [f"# run:{self.home.run_id} {run[0] or ''}".rstrip(), ""]
        for (metadata,) in rows:
            found = json.loads(metadata) if isinstance(metadata, str) else metadata
            if isinstance(found, dict) and "line" in found and not found.get("program"):
                lines.append(str(found["line"]))
        return "\n".join([*lines, ""])

    def restart(self) -> None:
        super().restart()
        self.writes.restart()

    def hold(self, held: bool) -> None:
        self.writes.hold(held)

    async def flush(self) -> None:
        """Write all pending contents in one transaction. Raises `StateError` (E219), which names the binding."""
        await self.writes.flush()

    def interrupt(self) -> None:
        self.writes.interrupt()

    def close(self) -> None:
        self.writes.close()


def prefix(chain: tuple[str, ...]) -> str:
    """Return the prefix of an imported program's names in rows."""
    return "".join(f"{name}." for name in chain)
