"""Bindings per second in each store of a run, compared with a bare insert into its file or database.

A flush for each binding, as behind each command of a program, and one flush for a thousand, as behind a loop that only
computes. Turns of store and floor alternate in this process; medians of wall time, and of the CPU time of this process,
which for PostgreSQL is the smaller part: its server does the work.
`python benchmarks/stores.py [--quick] [--json]`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import Binding, Key, Store
from prose_kernel.storage.database.row_writer import RowWriter
from prose_kernel.storage.database.schema import Database
from prose_kernel.storage.database.sqlite import SqliteDatabase
from prose_kernel.storage.database.store import DatabaseStore
from prose_kernel.storage.run_directory import RunDirectory
from prose_kernel.storage.stores import FilesystemStore

VALUE = "a line of a value of the usual kind\n" * 3
SOURCE = 'let name = exec "command"'
NUMBERS = itertools.count()

Turn = Callable[[int, int], None]
"""The number of bindings, and the number in each flush."""


def store_turn(store: Store) -> Turn:
    async def put(count: int, each: int) -> None:
        for n in range(count):
            store.put(Binding(Key(f"v{n}", next(NUMBERS)), "let", VALUE, SOURCE))
            if (n + 1) % each == 0:
                await store.flush()

    return lambda count, each: asyncio.run(put(count, each))


def bare_files(directory: Path) -> Turn:
    """The floor of files: write under another name, rename."""

    def put(count: int, each: int) -> None:
        for _ in range(count):
            name = directory / f"v{next(NUMBERS)}.md"
            descriptor = os.open(f"{name}.tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            os.write(descriptor, f"{SOURCE}\n{VALUE}".encode())
            os.close(descriptor)
            os.replace(f"{name}.tmp", name)  # noqa: PTH105 - what the store does too

    return put


def bare_sqlite(file: Path) -> Turn:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE bindings (name TEXT, frame INTEGER, kind TEXT, value TEXT, source TEXT)")
    connection.execute("CREATE UNIQUE INDEX identity ON bindings (name, frame)")

    def put(count: int, each: int) -> None:
        for _ in range(count // each):
            rows = [("v", next(NUMBERS), "let", VALUE, SOURCE) for _ in range(each)]
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO bindings VALUES (?, ?, ?, ?, ?)", rows)
            connection.execute("COMMIT")

    return put


def bare_postgres(url: str) -> Turn:
    import psycopg

    connection = psycopg.connect(url, autocommit=True)
    connection.execute("CREATE TABLE bare (name TEXT, frame BIGINT, kind TEXT, value TEXT, source TEXT)")
    connection.execute("CREATE UNIQUE INDEX identity ON bare (name, frame)")

    def put(count: int, each: int) -> None:
        for _ in range(count // each):
            rows = [("v", next(NUMBERS), "let", VALUE, SOURCE) for _ in range(each)]
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany("INSERT INTO bare VALUES (%s, %s, %s, %s, %s)", rows)

    return put


def in_database(database: Database, home: RunDirectory) -> Store:
    return DatabaseStore(RowWriter(database, home, SystemClock()))


@contextlib.contextmanager
def postgres_url() -> Iterator[str | None]:
    """Return the URL of a server that the tests start; None if there is none."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    try:
        from postgres import PostgresServer, programs
    except ImportError:
        yield None
        return
    place = programs()
    if place is None:
        yield None
        return
    server = PostgresServer(place)
    try:
        yield server.new_database()
    finally:
        server.remove()


def measured(turns: dict[str, Turn], count: int, each: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return the median CPU and wall seconds of a binding, in alternating turns."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in turns.items():
            cpu, wall = time.process_time(), time.perf_counter()
            turn(count, each)
            found[name].append(((time.process_time() - cpu) / count, (time.perf_counter() - wall) / count))
    return {
        name: {"cpu": statistics.median(c for c, _ in times), "wall": statistics.median(w for _, w in times)}
        for name, times in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rounds = 3 if given.quick else 9
    report: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as place, postgres_url() as url:
        home = lambda number: RunDirectory(Path(".prose"), f"20260101-00000{number}-abcdef", cwd=Path(place))  # noqa: E731
        (Path(place) / "bare").mkdir()
        pairs: dict[str, tuple[Store, Turn]] = {
            "filesystem": (FilesystemStore(home(1)), bare_files(Path(place) / "bare")),
            "sqlite": (
                in_database(SqliteDatabase(home(2).directory / "state.db", "state.db"), home(2)),
                bare_sqlite(Path(place) / "bare.db"),
            ),
        }
        if url is not None:
            from prose_kernel.storage.database.postgres import PostgresDatabase

            pairs["postgres"] = in_database(PostgresDatabase(url, home(3).run_id), home(3)), bare_postgres(url)
        else:
            print("*** PostgreSQL is not installed: it is left out")
        for name, (store, floor) in pairs.items():
            for each, count in ((1, 200 if given.quick else 1000), (1000, 2000 if given.quick else 10_000)):
                found = measured({"store": store_turn(store), "bare": floor}, count, each, rounds)
                report[f"{name}, {each} a flush"] = found
                if not given.json:
                    ours, bare = found["store"], found["bare"]
                    print(
                        f"{name:10}  {each:>5} a flush  {1 / ours['wall']:>9,.0f} bindings/s"
                        f"  bare {1 / bare['wall']:>9,.0f}/s"
                        f"  ratio {ours['wall'] / bare['wall']:5.1f} (CPU {ours['cpu'] / bare['cpu']:5.1f})"
                    )
    if given.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
