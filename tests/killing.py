"""Programs in processes that are killed at a chosen instant (SIGKILL), and the same run resumed afterwards.

A child is forked, so that nothing has to be imported again. Its instants are everything it does to the file system
below one directory (Python's audit events: files opened, renamed, removed) and what comes right before and right after
each record of the journal.
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
    """Do the work in a separate process; returns how many instants it had, or None when it was killed: at the instant
    with the number `at`, or before it writes down a record for which `before` is true.

    Any other end is an error of the test.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        gc.freeze()  # to look through what the tests have would copy all of it
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
    with os.fdopen(reader) as told:
        said = told.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return None
    assert os.waitstatus_to_exitcode(status) == 0, said
    number, *names = said.split()
    for name in names:  # or every later child would load them too: most of its processor time
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
    """The journal of the one run below a directory; None when it was killed before it wrote anything down."""
    found = sorted(path for path in directory.glob(f"**/{journal_reading.NAME}") if path.stat().st_size)
    assert len(found) <= 1
    return found[0] if found else None


def how_to_resume(directory: Path, under_way: UnderWay = "rerun") -> Any:
    """None for a run that was killed before anything was asked: it begins again."""
    journal = journal_in(directory)
    return resumption(journal, under_way) if journal is not None else None


def answer(key: str) -> Callable[[Record], bool]:
    """Tells the record of the answer to the request with this key."""
    return lambda record: isinstance(record, Answered) and record.key == key
