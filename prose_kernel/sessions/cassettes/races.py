"""Who won a race that sessions took part in, so that a replay has the same winner."""

from __future__ import annotations

from prose_kernel.machine.ports import Asker
from prose_kernel.sessions.cassettes.library import Cassettes


class RecordedRaces:
    """The `Races` port: what `parallel ("first")` and `any` are told before they begin, and tell when they end."""

    def __init__(self, cassettes: Cassettes, *, asker: Asker) -> None:
        raise NotImplementedError
