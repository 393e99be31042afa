"""What a run leaves behind, as one record: its directory, its bindings, and the listener that writes its trace."""

from __future__ import annotations

from dataclasses import dataclass

from prose_kernel.runtime.events import Listener
from prose_kernel.runtime.ports import Store
from prose_kernel.state.home import RunHome


@dataclass(frozen=True, slots=True)
class Kept:
    """A run that is kept outside of memory. The directory is always on disk; the bindings may be in a database."""

    home: RunHome
    store: Store
    trace: Listener
