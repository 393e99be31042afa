"""Writes the records of a journal, with the position of a computing program."""

from __future__ import annotations

from typing import NoReturn, Protocol

from prose_kernel.errors import StoreFailed
from prose_kernel.runtime.clock import milliseconds
from prose_kernel.runtime.journal_codec import encode_error
from prose_kernel.runtime.journal_records import Answered, Record
from prose_kernel.runtime.ports import Clock, Store
from prose_kernel.runtime.scheduler import Scheduler


class Log(Protocol):
    """The destination of records."""

    @property
    def place(self) -> str:
        """The path of the file."""

    def append(self, record: Record) -> None:
        """Write a record, so that it survives the end of the process. May be called from any thread. Never raises: the
        owner reports write errors to the person."""

    def rewind(self, to: int) -> None:
        """Invalidate the record with this number and all later ones."""

    @property
    def must_flush(self) -> bool:
        """Whether the store has to be flushed before the next request is made."""

    @property
    def problem(self) -> str:
        """Why no request may be made, because records cannot be written; "" if requests may be made."""


class Recorder:
    """Writes the records of one run, with times from `clock`."""

    def __init__(self, log: Log, turns: Scheduler, clock: Clock | None) -> None:
        self.log = log
        self.last: Record | None = None
        """The last record that was written or replayed."""
        self.abandoned = False
        """Whether the person has interrupted the replay: no more requests are made, no more records are written."""
        self._flush_first = False
        self._turns = turns
        self._clock = clock
        self._mark = turns.looks

    def now(self) -> int:
        """Return the current time for a record, in milliseconds since 1970; 0 without a clock."""
        return milliseconds(self._clock.now()) if self._clock is not None else 0

    def write(self, record: Record) -> None:
        self.mark()
        if not self.abandoned:
            self.log.append(record)
            self.last = record

    def write_passed_over(self, record: Record) -> None:
        """Write a record that a replay skips. It does not affect the position of a computing program."""
        if not self.abandoned:
            self.log.append(record)

    def passes(self, record: Record | None) -> int:
        """Mark a replayed record, as if it had been written. Returns its position."""
        self.last = record
        return self.mark()

    def require_flush(self) -> None:
        """Flush the store before the next live request, which may read it."""
        self._flush_first = True

    async def flush(self, store: Store, key: str) -> None:
        """Flush the store if required, before the request `key`. A `StoreFailed` is recorded as the answer to the
        request, and raised."""
        if not self._flush_first:
            return
        self._flush_first = False
        try:
            await store.flush()
        except StoreFailed as error:
            self._flush_first = True
            self._fails(key, error)

    def require_room(self, key: str) -> None:
        """Raise `StoreFailed` before a request if records cannot be written. If there is room again, it is recorded, so
        that a resumed run continues before the request."""
        if problem := self.log.problem:
            hint = 'make room, then resume the run; journal = "on" lets a run continue without its journal'
            message = f"the journal cannot be written ({problem}), and the setting journal is durable"
            self._fails(key, StoreFailed(message, hint=hint))

    def _fails(self, key: str, error: StoreFailed) -> NoReturn:
        """Record the error as the answer to the request, and raise it."""
        error.answer = key
        self.write(Answered(key, error=encode_error(error), t=self.now()))
        raise error

    def mark(self) -> int:
        """Set the start of the position count, which is the place of a record. Returns it."""
        self._mark = self._turns.looks
        return self._mark

    @property
    def looks(self) -> int:
        """The position of a computing program, counted from the last record."""
        return self._turns.looks - self._mark
