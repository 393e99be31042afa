"""A run that is stored: its directory, its bindings, and the listener that writes its trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from prose_kernel.runtime.events import Listener
from prose_kernel.runtime.ports import Store
from prose_kernel.storage.run_directory import RunDirectory

if TYPE_CHECKING:
    from prose_kernel.storage.database.ownership import Ownership
    from prose_kernel.storage.database.schema import Database


class RunStore(Store, Protocol):
    """The store of a whole run, for those who begin, resume and end it.

    The same run may be opened again by its id: `put` of a binding that is there replaces it.
    """

    def start(self, program: str, copies: Mapping[str, str] | None = None) -> None:
        """Keep the text of a program that is about to run; in files as `copies`, by their paths, where these are
        given."""

    def record_source(self, text: str) -> None:
        """Add a cell that is about to run to the text that is kept."""

    def trace_text(self) -> str:
        """Return the trace up to the last flush, as lines of `state.md` (7.3)."""

    def restart(self) -> None:
        """Forget the trace and the text of the program, at the next flush: a run that is resumed writes them again.

        Bindings stay until they are put again. Call it before the trace hears of anything.
        """

    def hold(self, held: bool) -> None:
        """Whether flushes wait until there are some megabytes to write: while a run that is resumed catches up.

        `hold(False)` writes nothing by itself; the next flush writes everything.
        """

    def interrupt(self) -> None:
        """Do not wait for the store any longer. Called from any thread."""

    def close(self) -> None:
        """Release open resources when the run is over. Unflushed data is lost."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run that is stored outside of memory. The directory is always on disk; the bindings may be in a database.

    `copy` is that of the journal in a database of many runs.
    """

    home: RunDirectory
    store: RunStore
    trace: Listener
    database: Database | None = None
    copy: Ownership | None = None
