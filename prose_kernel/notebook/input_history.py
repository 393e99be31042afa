"""The history of executed cells: one small SQLite file in Jupyter's data directory.

A separate thread writes it, so that cells do not wait. If the file cannot be written, the history of this session is
kept in memory.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from prose_kernel.language.text import encodable

if TYPE_CHECKING:
    import sqlite3

Entry = tuple[int, int, str, str | None]
"""Session, line, input, output."""

_SCHEMA = """
create table if not exists sessions (session integer primary key autoincrement, started text default current_timestamp);
create table if not exists history
    (session integer, line integer, input text, output text, primary key (session, line));
"""


class InputHistory:
    """The history of one kernel. `add` never blocks; reading waits until earlier additions are written."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._queue: queue.Queue[Entry | threading.Event | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._memory: list[Entry] = []
        self._session = 0

    def add(self, line: int, code: str, output: str | None) -> None:
        """Add an executed cell; `line` is its execution count."""
        if self._thread is None:
            thread = threading.Thread(target=self._write, name="history", daemon=True)
            with suppress(RuntimeError):  # no thread can be started: the next cell tries again
                thread.start()
                self._thread = thread
        self._queue.put((0, line, encodable(code), None if output is None else encodable(output)))

    def close(self) -> None:
        """Write everything that was added, and stop the thread."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout=2)
            self._thread = None

    # ------------------------------------------------------------ read

    def tail(self, count: int) -> list[Entry]:
        """Return the last `count` cells, oldest first."""
        rows = self._rows("order by session desc, line desc limit ?", (max(count, 0),))
        return rows[::-1] if rows is not None else self._remembered()[-count:] if count > 0 else []

    def range(self, session: int, start: int, stop: int | None) -> list[Entry]:
        """Return the lines from `start` to before `stop` of a session: 0 is this one, -1 the one before it."""
        self._wait()
        session = session if session > 0 else self._session + session
        last = stop if stop is not None else 1 << 62
        rows = self._rows("where session = ? and line >= ? and line < ? order by line", (session, start, last))
        return rows if rows is not None else [e for e in self._remembered() if start <= e[1] < last]

    def search(self, pattern: str, count: int | None, unique: bool) -> list[Entry]:
        """Return cells that match a glob pattern, oldest first; with `unique` only the newest of equal ones."""
        rows = self._rows("where input glob ? order by session, line", (pattern,))
        if rows is None:
            rows = [e for e in self._remembered() if fnmatchcase(e[2], pattern)]
        if unique:
            rows = list({e[2]: e for e in rows}.values())
            rows.sort(key=lambda e: e[:2])
        return rows[-count:] if count else rows

    def _remembered(self) -> list[Entry]:
        self._wait()
        return list(self._memory)

    def _wait(self) -> None:
        if self._thread is not None:
            done = threading.Event()
            self._queue.put(done)
            done.wait(timeout=2)

    def _rows(self, rest: str, values: Iterable[object]) -> list[Entry] | None:
        """Return rows from the file; None if there is no readable file."""
        import sqlite3

        self._wait()
        if self._path is None or not self._path.exists():
            return None
        try:
            connection = sqlite3.connect(self._path, timeout=1)
            try:
                query = f"select session, line, input, output from history {rest}"  # noqa: S608 - fixed texts only
                return [tuple(row) for row in connection.execute(query, tuple(values))]
            finally:
                connection.close()
        except sqlite3.Error:
            return None

    # ------------------------------------------------------------ write

    def _write(self) -> None:
        connection = self._open()
        while (item := self._queue.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            entry = (self._session or 1, *item[1:])
            self._memory.append(entry)
            if connection is not None:
                with suppress(Exception):  # a full disk must not end the thread
                    connection.execute("insert or replace into history values (?, ?, ?, ?)", entry)
                    connection.commit()
        if connection is not None:
            connection.close()

    def _open(self) -> sqlite3.Connection | None:
        import sqlite3

        if self._path is None:
            return None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self._path, timeout=1)
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = off")
            connection.executescript(_SCHEMA)
            self._session = connection.execute("insert into sessions default values").lastrowid or 1
            connection.commit()
        except (sqlite3.Error, OSError):
            self._path = None
            return None
        return connection
