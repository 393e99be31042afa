"""Writes the file of a journal (`journal_reading.py` describes its format).

A record is passed to the operating system before it takes effect, so it survives the end of the process; in a `durable`
journal, requests and answers also survive a power cut.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prose_kernel.access import atomic, jsonl, plain_files
from prose_kernel.errors import UsageError, reason_of
from prose_kernel.runtime.journal_codec import dumps
from prose_kernel.runtime.journal_records import (
    NOTHING,
    Answered,
    Asked,
    Completed,
    Ended,
    Finished,
    Head,
    Record,
    Repeated,
    Rewound,
    Step,
    StepEnded,
    Text,
)
from prose_kernel.runtime.open_request import TOOL
from prose_kernel.storage.journal_reading import JournalRead

if TYPE_CHECKING:
    from prose_kernel.storage.database.ownership import Ownership

_BATCH: Final = 1000
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MOST_WAITING: Final = 1000
"""How many records may wait for room on a full disk; with more of them, the journal ends."""

_PATIENCE: Final = 0.05
"""Seconds to wait for the lock, which another process holds for a moment to check whether the run is running."""

_WITHOUT_ANSWERS: Final = (Head, Text, Asked, Step, Ended, Finished)


def _is_synced(record: Record) -> bool:
    """Return whether a durable journal syncs this record: a request, so that no work starts twice, or an answer."""
    match record:
        case Asked(kind=kind):
            return kind != "wait"
        case Step(kind=kind):
            return kind == TOOL
        case StepEnded(value=value):
            return value != NOTHING
        case _:
            return isinstance(record, (Answered, Completed, Ended, Repeated))


class JournalFile:
    """Appends records. If a record cannot be written, `on_lost` is called once with the reason; a `durable` journal has
    it in `problem`, which stops the run. On a full disk records wait for space; any other failure ends the journal.

    Nothing is written before the first request, unless the run already has a directory: a run without requests and
    without kept values leaves no directory. A `sole` file is the only place that keeps a notebook's names, so it is
    written when a cell has ended. `out_of_git` is a parent directory that is created with a `.gitignore`. With a `copy`
    the file exists as soon as a text begins, because the database lists the run from then on, and its journal must be
    here whenever it is killed.
    """

    def __init__(
        self,
        path: Path,
        *,
        durable: bool = False,
        on_lost: Callable[[str], None] | None = None,
        out_of_git: Path | None = None,
        copy: Ownership | None = None,
        sole: bool = False,
    ) -> None:
        self._out_of_git = out_of_git
        self._copy = copy
        self._sole = sole
        self.path = path
        self.lines = 0
        self._durable = durable
        self._on_lost = on_lost
        self._descriptor: int | None = None
        self._checksum = 0
        self._size = 0
        self._unwritten: list[Record] = []
        self._lock = threading.RLock()  # commands end in another thread
        self._lost = False
        self._problem = ""

    def continue_from(self, read: JournalRead) -> None:
        """Cut off an incomplete last line of a journal that was read, and append to it. Raises as `take_ownership`."""
        self.take_ownership(read)
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, read.size)
        self.lines, self._size, self._checksum = read.lines, read.size, read.checksum
        if self._copy is not None:
            self._copy.journal_grew(self._size, answered=True)

    def take_ownership(self, read: JournalRead) -> None:
        """Keep other processes from running the run of a journal that was read, until `close`. Raises `UsageError` if
        another process runs the run, or has done so or removed it since the journal was read; and `OSError`."""
        try:
            self._open(make=False)
        except FileNotFoundError:
            raise UsageError(f"run {self.path.parent.name} was removed meanwhile") from None
        assert self._descriptor is not None
        now = os.fstat(self._descriptor)
        if (now.st_dev, now.st_ino) != read.file or now.st_size != read.size + read.torn:
            self._release()
            raise UsageError(
                f"run {self.path.parent.name} has gone on in another process meanwhile", hint="resume it once more"
            )

    def append(self, record: Record) -> None:
        """Write a record. Never raises. A head or text waits for the next record; with a copy, a text does not wait."""
        with self._lock:
            if self._lost:
                return
            self._unwritten.append(record)
            if isinstance(record, (Head, Text)) and not (self._copy is not None and isinstance(record, Text)):
                return
            begun = self._descriptor is not None or self._sole
            if not begun and isinstance(record, (Ended, Finished)) and not self.path.parent.is_dir():
                return
            self.flush()

    @property
    def problem(self) -> str:
        """The reason why a durable journal cannot be written; "" if it can, or if the journal is not durable."""
        return self._problem if self._durable else ""

    @property
    def must_flush(self) -> bool:
        """Whether the store must be flushed before the next request is made, so that the copy has all answers, and in
        a durable journal also the request."""
        return self._copy is not None and (self._durable or self._copy.must_flush)

    @property
    def place(self) -> str:
        return str(self.path)

    @property
    def next_number(self) -> int:
        """The number of the next record."""
        with self._lock:  # otherwise records that another thread writes now would not count
            return self.lines + len(self._unwritten)

    def flush(self) -> None:
        """Write the waiting records. Never raises."""
        with self._lock:
            records, self._unwritten = self._unwritten, []
            if self._lost or not records:
                return
            try:
                if self._descriptor is None:
                    self._open()
                self._write(records)
                self._problem = ""
            except OSError as error:
                self._problem = reason_of(error, type(error).__name__)
                if error.errno in _NO_ROOM and len(records) < _MOST_WAITING:
                    self._unwritten = records  # written with the next record, when there is room again
                else:
                    self.close()
                on_lost, self._on_lost = self._on_lost, None
                if on_lost is not None and not self._durable:  # a durable journal stops the run
                    on_lost(self._problem)

    def copy(self, records: Iterable[Record]) -> None:
        """Write many records in one call. Raises `OSError`."""
        if self._descriptor is None:
            self._open()
        coming = iter(records)
        while batch := list(islice(coming, _BATCH)):
            self._write(batch)

    def rewind(self, to: int, then: Sequence[Record] = ()) -> None:
        """Invalidate the record with this number and all later ones, and append the records `then`, both or neither if
        the process is killed. Never raises."""
        with self._lock:
            self._unwritten += [Rewound(to), *then]
            self.flush()

    def _write(self, records: list[Record]) -> None:
        if self._descriptor is None:
            return
        data, checksum = b"", self._checksum
        for record in records:
            body = dumps(record)
            checksum = zlib.crc32(body, checksum)
            data += b"%08x %b\n" % (checksum, body)
        jsonl.add(self._descriptor, data)
        self.lines, self._size, self._checksum = self.lines + len(records), self._size + len(data), checksum
        if self._copy is not None:
            answered = not all(isinstance(record, _WITHOUT_ANSWERS) for record in records)
            self._copy.journal_grew(self._size, answered=answered)
        if isinstance(records[-1], Ended) and not os.fstat(self._descriptor).st_nlink:
            raise OSError(errno.ENOENT, "it was removed")
        if self._durable and any(_is_synced(record) for record in records):
            os.fdatasync(self._descriptor)

    def _open(self, *, make: bool = True) -> None:
        if self._out_of_git is not None:
            atomic.keep_out_of_git(str(self._out_of_git))
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if make else 0)
        self._descriptor = plain_files.descriptor(self.path, flags, 0o600, make=make)
        try:
            plain_files.lock(self._descriptor, _PATIENCE)
        except BlockingIOError:
            self._release()
            raise UsageError(
                f"run {self.path.parent.name} is being run by another process", hint="wait until that one has ended"
            ) from None
        if self._durable:
            atomic.sync_names(self.path)

    def close(self) -> None:
        """Close the file; a second call does nothing, and later records are not written."""
        with self._lock:
            self._lost = True
            self._release()

    def _release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextlib.contextmanager
def changing(path: Path, failure: str) -> Iterator[JournalFile]:
    """Change the journal of a run that no process runs. `failure` begins the `UsageError` for an `OSError`."""
    file = JournalFile(path)
    try:
        yield file
    except OSError as error:
        raise UsageError(f"{failure}: {reason_of(error, 'it did not work')}") from None
    finally:
        file.close()
