"""Access to the task records of a run: the store, opened when first needed, and records that could not be stored.

A failure to store a record must not affect a running task, so the record is kept in memory and stored later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from prose_kernel.errors import TaskRefused
from prose_kernel.processes.tasks.records import Pointer, TaskRecord, may_follow
from prose_kernel.processes.tasks.recovery import interrupt_all
from prose_kernel.processes.tasks.store import Owned, Store, StoreError, exists
from prose_kernel.runtime.ports import Clock
from prose_kernel.runtime.services import TaskFollowUp


class Ledger:
    """Access to the records. Call all methods in the engine's loop. `directory` is the run's; None means memory."""

    def __init__(self, directory: Path | None, pointer: Pointer | None, clock: Clock) -> None:
        self._clock = clock
        self._directory = directory
        self._pointer = pointer
        self._store: Store | None = None
        self._unsaved: dict[str, TaskRecord] = {}

    @property
    def exists(self) -> bool:
        """Whether the run has, or had, records."""
        return self._store is not None or (self._directory is not None and exists(self._directory))

    def open(self) -> Store:
        """Return the store. Raises `StoreError`."""
        if self._store is None:
            try:
                self._store = Store(self._directory)
            except Owned:
                raise StoreError("another kernel owns this run") from None
            interrupt_all(self._store, self._clock)  # tasks of a killed process, when the run is resumed
            if self._pointer is not None:
                self._pointer.write()
        return self._store

    @contextlib.contextmanager
    def store(self) -> Iterator[Store]:
        """Yield the store, for calls from outside. Raises `TaskRefused`."""
        try:
            yield self.open()
        except StoreError as problem:
            raise TaskRefused("task_store_failed", f"the records of the tasks cannot be used: {problem}") from None

    def keep(self, record: TaskRecord, event: Literal["TaskStatus", "TaskResult"] | None) -> TaskRecord:
        """Store a change of a task and return the record. If storing fails, keep the record in memory."""
        known = self._unsaved.get(record.task_id)
        if known is not None and known.status != record.status and not may_follow(known.status, record.status):
            return known
        try:
            kept = self.open().save(record, event)
        except StoreError:
            self._unsaved[record.task_id] = replace(record, revision=record.revision + 1)
            return self._unsaved[record.task_id]
        self._unsaved.pop(record.task_id, None)
        return kept

    def retry(self) -> bool:
        """Try again to store the records in memory; return whether any are left."""
        for record in tuple(self._unsaved.values()):
            self.keep(record, "TaskResult" if record.ended else None)
        return bool(self._unsaved)

    def news(self) -> list[TaskRecord]:
        """Return the ended tasks that were not reported yet, and mark them as reported. Raises `TaskRefused`."""
        if not self.exists:
            return []
        with self.store() as store:
            ended = store.unreported()
            if ended:
                store.mark_reported(ended)
            return ended

    def follow_ups(self) -> tuple[TaskFollowUp, ...]:
        """Return the unclaimed continuations. Raises `TaskRefused`."""
        with self.store() as store:
            return tuple(store.follow_ups())

    def take_follow_up(self, result_id: str) -> bool:
        """Claim a continuation; return False if it was claimed before. Raises `TaskRefused`."""
        with self.store() as store:
            return store.take_follow_up(result_id)

    def prune(self, kept: int) -> None:
        """Forget the oldest ended tasks beyond `kept`."""
        with contextlib.suppress(StoreError):
            self.open().prune(kept)

    def find(self, name: str, *, number: bool) -> TaskRecord | None:
        """Return a task by its id or, with `number`, by its number. Raises `TaskRefused`."""
        if not self.exists:
            return None
        with self.store() as store:
            record = store.find(name, number=number)
        return self._unsaved.get(record.task_id, record) if record is not None else None

    def all(self) -> list[TaskRecord]:
        """Return every task of the run, oldest first. Raises `TaskRefused`."""
        if not self.exists:
            return []
        with self.store() as store:
            return [self._unsaved.get(record.task_id, record) for record in store.all()]

    def close(self) -> None:
        """Store unsaved records, remove the pointer unless it is still needed, release the run."""
        if self._store is None:
            return
        self.retry()
        with contextlib.suppress(StoreError):
            if self._pointer is not None and not self._store.unreported() and not self._store.follow_ups():
                self._pointer.remove()
        self._store.close()
        self._store = None
