"""Who won a race that sessions took part in, so that a replay has the same winner."""

from __future__ import annotations

from prose_kernel.recordings.library import Cassettes
from prose_kernel.runtime.services import Asker


class RecordedRaces:
    """The `Races` port: what `parallel ("first")` and `any` are told before they begin, and tell when they end."""

    def __init__(self, cassettes: Cassettes, *, asker: Asker) -> None:
        self._cassettes = cassettes
        self._asker = asker

    def recorded(self, at: str, text: str) -> tuple[int, ...] | None:
        """The recorded order, where recordings answer at all. A race without sessions has none."""
        if self._cassettes.mode(self._asker) in ("off", "record"):
            return None
        from prose_kernel.recordings import records
        from prose_kernel.recordings.keys import key_of

        shelf = self._cassettes.shelf
        found = shelf.lookup(key_of(shelf.identity.race(text)), at)
        if found is None:
            return None
        take, how, entry = found
        try:
            order = records.part(entry.record.out, records.Order).ended
        except records.BadLine as bad:
            shelf.warn(f"{entry.file}, line {entry.line} is left out: {bad}")
            return None
        shelf.use(take, how, at, entry)
        return order

    async def ended(self, at: str, text: str, branches: tuple[int, ...]) -> None:
        """Write down how the race ended, if sessions or judgements took part in it and nothing is recorded for it."""
        mode = self._cassettes.mode(self._asker)
        if mode not in ("auto", "record"):
            return
        shelf = self._cassettes.shelf
        if not shelf.asked_in(at):
            return
        from prose_kernel.recordings.keys import key_of

        req = shelf.identity.race(text)
        if mode == "auto" and shelf.lookup(key_of(req), at) is not None:
            return
        await shelf.add("race", at, req, {"ended": list(branches)}, shelf.meta())
