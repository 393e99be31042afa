"""Access to the task records of a run: the store, opened when first needed, and records that could not be stored; and
the records that earlier runs have left unfinished.

A failure to store a record must not affect a running task, so the record is kept in memory and stored later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from prose_kernel.errors import TaskRefused
from prose_kernel.language.structs import replace
from prose_kernel.processes import watchdog_process
from prose_kernel.processes.tasks import records
from prose_kernel.processes.tasks.records import Pointer, TaskRecord, may_follow, new_result_id, snapshot_of
from prose_kernel.processes.tasks.store import Owned, Store, StoreError, exists
from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.ports import Clock
from prose_kernel.runtime.services import TaskFollowUp, TaskSnapshot


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


# ---------------------------------------------------------------- after a restart

# A run that may have unfinished tasks leaves a pointer next to the runs, so that a start need not read each of them. No
# task is run again or re-attached; the whole command stays in its record (exec-and-tasks.md 4.9).


class Recovered(Struct, frozen=True):
    """The ended tasks of earlier runs of this notebook that were not reported yet, and the unclaimed continuations."""

    tasks: tuple[TaskSnapshot, ...] = ()
    follow_ups: tuple[tuple[Path, TaskFollowUp], ...] = ()


def recover(run_directory: Path, clock: Clock) -> list[TaskRecord]:
    """Record the unfinished tasks of a run without a live kernel as interrupted; return the changed records.

    Raises `Owned` if a live kernel owns the run, and `StoreError`.
    """
    with contextlib.closing(Store(run_directory)) as store:
        return interrupt_all(store, clock)


def interrupt_all(store: Store, clock: Clock) -> list[TaskRecord]:
    """Record all unfinished tasks as interrupted; the store's owner must have started none. Raises `StoreError`."""
    now = timestamp(clock.now(), zone="+00:00")
    changed = []
    for record in store.active():
        interrupted = replace(
            record,
            status="interrupted",
            status_before_restart=record.status,
            interrupted_reason="runtime_restarted",
            error={"kind": "runtime_restarted", "message": "the kernel was gone before the command ended"},
            ended_at=now,
            updated_at=now,
            result_id=new_result_id(),
        )
        changed.append(store.save(interrupted, "TaskResult"))
    return changed


def recover_all(
    state_dir: Path, clock: Clock, notebook: str | None, *, private: Path | None = None, notify: bool = True
) -> Recovered:
    """Recover every run that has a pointer and no live owner. Never raises; may take a second.

    With `notify`, the news of runs of this notebook are returned and marked as reported. `private` is the directory of
    process data (1.4).
    """
    tasks: list[TaskSnapshot] = []
    follow_ups: list[tuple[Path, TaskFollowUp]] = []
    changed = False
    for pointer in records.pointers(state_dir):
        run_directory = state_dir / "runs" / pointer.run
        if not exists(run_directory):
            pointer.remove()
            continue
        with contextlib.suppress(Owned, StoreError), contextlib.closing(Store(run_directory)) as store:
            changed = bool(interrupt_all(store, clock)) or changed
            if pointer.notebook == notebook and notify:
                unreported = store.unreported()
                store.mark_reported(unreported)
                tasks += [snapshot_of(record) for record in unreported]
                waiting = store.follow_ups()
                follow_ups += [(run_directory, one) for one in waiting]
                if not waiting:
                    pointer.remove()
    if changed:
        sweep(private)
    return Recovered(tuple(tasks), tuple(follow_ups))


def take_follow_up(run_directory: Path, result_id: str) -> bool:
    """Claim a continuation of an earlier run; return False if it was claimed before. Raises `StoreError`."""
    with contextlib.closing(Store(run_directory, mode="look")) as store:
        return store.take_follow_up(result_id)


def sweep(private: Path | None = None) -> None:
    """End processes of a killed kernel and watchdog, if their process id, start time and boot id all match."""
    from prose_kernel.processes.watchdog import private_directory  # slow to import; lists of tasks don't need it

    directory = str(private or private_directory())
    if Path(directory).is_dir() and watchdog_process.private(directory):
        watchdog_process.sweep(directory)
