"""After a restart, records unfinished tasks of earlier runs as interrupted, and reports them (exec-and-tasks.md 4.9).

A run that may have unfinished tasks leaves a pointer next to the runs, so that a start need not read each of them.
No task is run again or re-attached; the whole command stays in its record.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

from prose_kernel.processes import watchdog_process
from prose_kernel.processes.tasks import records
from prose_kernel.processes.tasks.records import TaskRecord, new_result_id, snapshot_of
from prose_kernel.processes.tasks.store import Owned, Store, StoreError, exists
from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.ports import Clock
from prose_kernel.runtime.services import TaskFollowUp, TaskSnapshot


@dataclass(frozen=True, slots=True)
class Recovered:
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
