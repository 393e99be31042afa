"""Finds the record that answers a request (sessions.md 4.2): that of its cell, else of the same key and path, else the
next unused one of the key, else the last one."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from prose_kernel.cassettes.cassette_files import CassetteFile, PlacedRecord, Take
from prose_kernel.runtime.requests import EqualAnswers
from prose_kernel.runtime.session_options import Repeats

_CELL = re.compile(r"(?:(?<=/)|\A)c\d+(?=/|\Z)")
_SCOPE = re.compile(r"case=[^/]*/variant=[^/]*/r\d+/")


def tail(at: str) -> str:
    """Return an execution path without its cell: it does not change when cells are renumbered."""
    return _CELL.sub("", at, count=1)


def scope(at: str) -> str:
    """Return the run of an evaluation that a path belongs to; "" for a path of an ordinary run."""
    found = _SCOPE.match(at)
    return found[0] if found is not None else ""


class CassetteIndex:
    """The takes of all cassettes, in order of preference.

    A run of an evaluation uses the records made for it, and else (in its first repetition) those of ordinary runs,
    which stay available to all other runs: so no answer depends on which run is faster.
    """

    def __init__(self, repeats: Repeats) -> None:
        self._repeats = repeats
        self.exact: dict[tuple[str, str], Take] = {}
        """The takes by key and path."""
        self._by_tail: dict[tuple[str, str], EqualAnswers[Take]] = defaultdict(EqualAnswers)
        self._by_key: dict[str, list[Take]] = defaultdict(list)
        self._by_scope: dict[tuple[str, str], EqualAnswers[Take]] = defaultdict(EqualAnswers)
        self._by_cell: dict[tuple[str, str, str], Take] = {}
        # Requests that cells have made in this process, each with the take that was replayed; None: the answer is new.
        self._requested_by_cells: dict[tuple[str, str, str], Take | None] = {}
        self._borrowed: Counter[tuple[str, str]] = Counter()
        self._bound: dict[tuple[str, str], Take] = {}

    def add(self, takes: Iterable[Take]) -> None:
        """Add the answers of one file. Files are added in order of preference."""
        of_cells: dict[tuple[str, str, str], Take] = {}
        for take in takes:
            if not take.attempts:  # all of them were damaged
                continue
            self.exact.setdefault((take.key, take.at), take)
            self._by_tail[take.key, tail(take.at)].answers.append(take)
            self._by_key[take.key].append(take)
            self._by_scope[take.key, scope(take.at)].answers.append(take)
            for entry in take.attempts.values():
                take.is_free = take.is_free and not entry.used
                if cell := entry.record.cell:
                    of_cells[take.key, tail(take.at), cell] = take
        self._by_cell = of_cells | self._by_cell

    def renewed(self, files: Iterable[CassetteFile]) -> CassetteIndex:
        """Return an index of the files now on disk that remembers which takes this run has used."""
        fresh = CassetteIndex(self._repeats)
        for file in files:
            fresh.add(file.takes.values())
        for (_, at), take in self._bound.items():
            if (same := fresh._same(take)) is not None:
                fresh.use(same, at)
        fresh._requested_by_cells = {
            place: fresh._same(take) if take is not None else None for place, take in self._requested_by_cells.items()
        }
        return fresh

    def _same(self, take: Take) -> Take | None:
        return next((t for t in self._by_key[take.key] if (t.file, t.at) == (take.file, take.at)), None)

    def place(self, key: str, at: str, cell: str) -> str:
        """Return the path under which the answer to a request is recorded. A cell that is run again replaces its own
        record, so that a run from the top returns its latest answer."""
        own = self._by_cell.get((key, tail(at), cell)) if cell else None
        return own.at if own is not None else at

    def record(self, take: Take, entry: PlacedRecord, at: str) -> None:
        """Add a record that this run has just written, and its take, for a request at this path."""
        if self.exact.get((take.key, take.at)) is not take:
            self.exact[take.key, take.at] = take
            self._by_key[take.key].append(take)
        entry.used = True
        self.use(take, at)
        if cell := entry.record.cell:
            self._by_cell[take.key, tail(at), cell] = take
            self._requested_by_cells[take.key, tail(at), cell] = None

    def find(self, key: str, at: str, cell: str = "", *, again: bool = False) -> Take | None:
        """Return the take that answers a request, without using it up. A cell gets only answers that it has recorded,
        each once in a process: a cell that is run again makes a new request. With `again` it gets a replayed answer
        again."""
        if (bound := self._bound.get((key, at))) is not None:
            return bound
        place, own, reuses = (key, tail(at), cell), scope(at), self._repeats == "reuse"
        if again and (take := self._requested_by_cells.get(place)) is not None:
            return take
        if cell and (take := self._by_cell.get(place)) is not None:
            return take if reuses or place not in self._requested_by_cells else None
        if (take := self.exact.get((key, at))) is not None:
            return take
        take = self._by_tail[key, tail(at)].free() or self._by_scope[key, own].free() or self._next_borrowed(key, own)
        return next(self._reusable(key, own), None) if take is None and reuses else take

    def _reusable(self, key: str, own: str) -> Iterator[Take]:
        """Yield the takes that may answer again, the last one first; for an ordinary run, none of an evaluation."""
        return (take for take in reversed(self._by_key[key]) if own or not scope(take.at))

    def _next_borrowed(self, key: str, own: str) -> Take | None:
        """Return the next record of ordinary runs for this run of an evaluation; None if there is none. Only the first
        repetition may use them: further ones would get the same answers and not be repetitions."""
        lent, number = self._by_scope[key, ""].answers if own.endswith("/r1/") else [], self._borrowed[key, own]
        return lent[number] if number < len(lent) else None

    def count(self, key: str, own: str = "") -> int:
        """Return the number of takes of a key for a run of this scope."""
        return sum(1 for _ in self._reusable(key, own))

    def use(self, take: Take, at: str, cell: str = "") -> None:
        """Use the take for a request at this path, and for its further attempts."""
        take.is_free = False
        if cell:
            self._requested_by_cells[take.key, tail(at), cell] = take
        own = scope(at)
        if own and not scope(take.at) and (take.key, at) not in self._bound:
            self._borrowed[take.key, own] += 1
        self._bound[take.key, at] = take
