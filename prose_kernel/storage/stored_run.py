"""The parts of a stored run: its directory, its bindings, and the listener that writes its trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prose_kernel.runtime.events import Listener
from prose_kernel.storage.run_directory import RunDirectory, RunStore

if TYPE_CHECKING:
    from prose_kernel.storage.database.ownership import Ownership
    from prose_kernel.storage.database.schema import Database


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run that is stored outside of memory. The directory is always on disk; the bindings may be in a database.

    `copy` writes the copy of the journal in a database of many runs.
    """

    home: RunDirectory
    store: RunStore
    trace: Listener
    database: Database | None = None
    copy: Ownership | None = None
