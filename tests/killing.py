"""Programs in processes that are killed (SIGKILL) at a chosen instant, and then resumed.

A child is forked, so that it imports nothing. Its instants are its accesses to files below one directory (audit events of
Python: files opened, renamed, removed), and the instants just before and after each record of the journal.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from prose_kernel.runs.resumption import resumption
from prose_kernel.runtime.journal_records import Answered, Record
from prose_kernel.runtime.journal_replay import UnderWay
from prose_kernel.storage import journal_reading
from prose_kernel.storage.journal_file import JournalFile

SEEN = ("open", "os.rename", "os.remove", "os.truncate")
Work = Callable[[], Awaitable[object]]


def in_a_child(
    directory: Path, work: Work, at: int | None = None, *, before: Callable[[Record], bool] | None = None
) -> int | None:
    """Do the work in a child process. Return the number of its instants, or None if it was killed: at the instant with the
    number `at`, or before it writes a record for which `before` is true.

    Any other end is an error of the test.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        gc.freeze()  # a garbage collection would copy the memory of the tests
        status = 1
        try:
            count = _count(str(directory), at, before)
            asyncio.run(_all(work))
            os.write(writer, " ".join([str(count[0]), *_loaded()]).encode())
            status = 0
        except BaseException:
            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        report = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return None
    assert os.waitstatus_to_exitcode(status) == 0, report
    number, *names = report.split()
    for name in names:  # otherwise all later children load them, which is most of their processor time
        importlib.import_module(name)
    return int(number)


def _loaded() -> list[str]:
    return [name for name in sys.modules if name.startswith("prose_kernel.")]


async def _all(work: Work) -> None:
    await work()


def _count(directory: str, at: int | None, before: Callable[[Record], bool] | None) -> list[int]:
    count = [0]

    def instant() -> None:
        count[0] += 1
        if count[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def seen(event: str, arguments: tuple[Any, ...]) -> None:
        if event in SEEN and arguments and "journal.jsonl" not in str(arguments[0]):
            place = str(arguments[0])
            if place.startswith(directory) or not place.startswith("/"):
                instant()

    write = JournalFile._write

    def writes(self: JournalFile, records: list[Record]) -> None:
        if before is not None and any(before(record) for record in records):
            os.kill(os.getpid(), signal.SIGKILL)
        instant()
        write(self, records)
        instant()

    JournalFile._write = writes  # type: ignore[method-assign]
    sys.addaudithook(seen)
    return count


def journal_in(directory: Path) -> Path | None:
    """Return the journal of the only run below a directory; None if it was killed before its first record."""
    found = sorted(path for path in directory.glob(f"**/{journal_reading.NAME}") if path.stat().st_size)
    assert len(found) <= 1
    return found[0] if found else None


def how_to_resume(directory: Path, under_way: UnderWay = "rerun") -> Any:
    """Return the resumption of the run below a directory. None if it was killed before its first request: it begins again."""
    journal = journal_in(directory)
    return resumption(journal, under_way) if journal is not None else None


def answer(key: str) -> Callable[[Record], bool]:
    """Return a predicate for the record of the answer to the request with a key."""
    return lambda record: isinstance(record, Answered) and record.key == key
