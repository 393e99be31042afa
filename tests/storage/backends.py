"""The stores of runs, each made as a workspace makes it, for tests that apply to all of them."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from prose_kernel.runtime.events import Listener
from prose_kernel.runtime.ports import Store
from prose_kernel.storage.database.execution_rows import DatabaseTrace
from prose_kernel.storage.database.row_writer import RowWriter
from prose_kernel.storage.database.schema import Database
from prose_kernel.storage.database.sqlite import SqliteDatabase
from prose_kernel.storage.database.store import DatabaseStore
from prose_kernel.storage.run_directory import RunDirectory, StoredRun
from prose_kernel.storage.state_log import Trace
from prose_kernel.storage.stores import FilesystemStore, MemoryStore

RUN = "20260301-101500-k3x9qa"


@dataclass
class FixedClock:
    time: datetime = datetime(2026, 3, 1, 10, 21, 7, 5000, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits here")


class PassingClock(FixedClock):
    """A clock that advances only during waits, and calls `pause` then."""

    def __init__(self, pause: Callable[[float], object]) -> None:
        self._time = 0.0
        self._pause = pause

    def monotonic(self) -> float:
        return self._time

    async def sleep(self, seconds: float) -> None:
        self._time += seconds
        self._pause(seconds)


@dataclass
class Backend:
    """A place for runs. `open` may be called again for the same run, as a resumed run does."""

    kind: str
    cwd: Path
    url: str = ""
    opened: list[StoredRun] = field(default_factory=list)

    @property
    def lasts(self) -> bool:
        return self.kind != "memory"

    def store(self, run: str = RUN) -> Store:
        return self.open(run).store if self.lasts else MemoryStore(cwd=self.cwd)

    def home(self, run: str = RUN) -> RunDirectory:
        return RunDirectory(Path(".prose"), run, cwd=self.cwd)

    def open(self, run: str = RUN, **options: Any) -> StoredRun:
        home = self.home(run)
        if self.kind == "filesystem":
            kept = StoredRun(home, FilesystemStore(home), Trace(home, FixedClock()))
        else:
            kept = in_database(self.database(home), home, **options)
        self.opened.append(kept)
        return kept

    def database(self, home: RunDirectory) -> Database:
        if self.kind == "sqlite":
            return SqliteDatabase(home.directory / "state.db", f".prose/runs/{home.run_id}/state.db")
        from prose_kernel.storage.database.postgres import PostgresDatabase

        return PostgresDatabase(self.url, home.run_id)

    def rows(self, statement: str, run: str = RUN) -> list[tuple[Any, ...]]:
        """Return the rows that another reader of the database sees, over a separate connection."""
        if self.kind == "sqlite":
            with contextlib.closing(sqlite3.connect(self.home(run).directory / "state.db")) as lite:
                return lite.execute(statement).fetchall()
        import psycopg

        with psycopg.connect(self.url, options="-c search_path=openprose") as server:
            return server.execute(statement).fetchall()

    def change(self, statement: str) -> None:
        """Execute a statement on the server as another user."""
        import psycopg

        with psycopg.connect(self.url) as server:
            server.execute(statement)

    def rows_of_only_run(self) -> list[tuple[Any, ...]]:
        """Return the id and the status of the only run of this place."""
        (directory,) = (self.cwd / ".prose" / "runs").iterdir()
        return self.rows("SELECT id, status FROM run", directory.name)

    def close(self) -> None:
        for kept in self.opened:
            kept.store.close()


def in_database(
    database: Database, home: RunDirectory, pause: Callable[[float], object] | None = None, **options: Any
) -> StoredRun:
    writes = RowWriter(database, home, PassingClock(pause) if pause is not None else FixedClock(), **options)
    return StoredRun(home, DatabaseStore(writes), DatabaseTrace(writes, FixedClock()), database)


def backends(kind: str, cwd: Path, url: Callable[[], str]) -> Iterator[Backend]:
    backend = Backend(kind, cwd, url() if kind == "postgres" else "")
    yield backend
    backend.close()


def notify(listener: Listener, *events: Any) -> None:
    for event in events:
        listener(event)


def tiny_disk(tmp_path: Path, size: int = 256) -> Iterator[Path]:
    """Mount a file system of `size` KB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no right to mount a file system here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
