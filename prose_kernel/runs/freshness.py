"""Find stale cells: cells that used something that has changed since they ran (docs/how-to/freshness.md).

A cell uses the values of the cells above it. So if a cell below binds `x` again, the cells in between are not stale,
and a notebook that has run from top to bottom is fresh.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.runs.provenance import Cell, Provenance, digest
from prose_kernel.runtime.answer_facts import NOT_COMPARED, AnsweredFiles

Kind = Literal[
    "changed",  # the cell above has made another value since
    "other",  # the value that the cell found was made by another cell than the one above
    "replaced",  # a cell above has bound a name of this cell again
    "file",  # an imported program, or a file on which an answer depends, has changed
    "unknown",  # such files cannot be compared
    "python",  # a Python variable that the cell reads has changed
    "unfinished",  # another cell ran it again, and it did not reach its end
    "above",  # nothing has changed yet, but the cell above is stale
]

_WORDS: Final[Mapping[Kind, str]] = {
    "changed": "{name} was changed by {cell}",
    "other": "{name} was not what {cell} makes",
    "replaced": "{name}, which it binds, was bound again by {cell}",
    "file": "{name} has changed",
    "unknown": NOT_COMPARED,
    "python": "the Python variable {name} has changed",
    "unfinished": "when it ran again, it did not come to its end",
    "above": "{name} may change: {cell} is stale",
}


class Reason(Struct, frozen=True):
    """A reason why a cell is stale: the name or file, and the cell that it comes from."""

    kind: Kind
    name: str
    cell: Cell | None = None

    def __str__(self) -> str:
        return _WORDS[self.kind].format(name=self.name, cell=self.cell.label if self.cell is not None else "")


class Stale(Struct, frozen=True):
    """A stale cell. `maybe`: it may turn out to be fresh once the stale cells above have run."""

    cell: Cell
    reasons: tuple[Reason, ...]

    @property
    def maybe(self) -> bool:
        return all(reason.kind == "above" for reason in self.reasons)


class Freshness:
    """The cells of a run in the notebook's order. `stale` finds the stale ones.

    `outside` returns whether a Python variable still has the value that a cell got.
    """

    def __init__(self, provenance: Provenance, outside: Callable[[Cell, str], bool] = lambda cell, name: True) -> None:
        provenance.read()
        self._outside = outside
        self._provenance = provenance
        place = {key: at for at, key in enumerate(provenance.order)}
        living = [cell for cell in provenance.cells.values() if not cell.gone]
        # a cell that the front end's order omits comes after the cell whose first run preceded its own; without an
        # order from the front end, the cells are in the order of their first runs
        at, known = -1, list[tuple[int, int, Cell]]()
        for cell in sorted(living, key=lambda cell: cell.first):
            at = place.get(cell.key, at)
            known.append((at, cell.first, cell))
        self.cells = [cell for *_, cell in sorted(known, key=lambda one: one[:2])]
        self.place = {cell.key: at for at, cell in enumerate(self.cells)}
        """The place of each cell, by its key."""
        self.above: dict[str, dict[str, Cell]] = {}
        """For each cell, by the name of each input, the cell above (or else elsewhere) that makes it."""
        self._makers()

    def _makers(self) -> None:
        makers: dict[str, Cell] = {}
        for cell in self.cells:
            found = {}
            for name, (_, maker) in cell.inputs.items():
                if name in makers:
                    found[name] = makers[name]
                elif maker is not None and maker is not cell and maker.key in self.place:
                    found[name] = maker
            self.above[cell.key] = found
            makers.update((name, cell) for name in cell.made)
        self._last = makers

    def stale(self) -> list[Stale]:
        """Return the stale cells, in the notebook's order, with reasons."""
        found: dict[str, Stale] = {}
        for cell in self.cells:
            reasons = (*self._changed(cell, found), *self._replaced(cell), *self._other_reasons(cell))
            if reasons:
                found[cell.key] = Stale(cell, reasons)
        return list(found.values())

    def _changed(self, cell: Cell, stale: Mapping[str, Stale]) -> list[Reason]:
        reasons = []
        for name, source in self.above[cell.key].items():
            content, maker = cell.inputs[name]
            if maker is cell:
                continue  # the cell found its own value
            if source.made.get(name, content) != content:
                since = maker is source or source.ran > cell.ran
                reasons.append(Reason("changed" if since else "other", name, source))
            elif source.key in stale:
                reasons.append(Reason("above", name, source))
        return sorted(reasons, key=lambda reason: reason.kind == "above")

    def _replaced(self, cell: Cell) -> list[Reason]:
        """Return a reason for each name that this cell is the last to bind and a cell above has bound again since."""
        reasons = []
        for name, content in cell.made.items():
            now = self._provenance.current(name)
            if now is None or self._last[name] is not cell or now.cell is cell or now.run < cell.ran:
                continue
            if self._provenance.content(name, now) != content and now.cell.key in self.place:
                reasons.append(Reason("replaced", name, now.cell))
        return reasons

    def _other_reasons(self, cell: Cell) -> list[Reason]:
        files = [
            Reason("file", Path(path).name) for path, digest in cell.files.items() if not _is_unchanged(path, digest)
        ]
        if cell.moved is not None:
            files.append(Reason("file", cell.moved) if cell.moved else Reason("unknown", ""))
        given = [Reason("python", name) for name in cell.opening.given if not self._outside(cell, name)]
        return files + given + ([Reason("unfinished", "")] if cell.unfinished else [])

    def first(self, cell: Cell) -> list[Cell]:
        """Return the cells to run so that a cell runs again with the right inputs: cells above whose names have other
        values now, then the cell itself."""
        order: dict[str, Cell] = {}
        agenda, seen = [(cell, False)], set[str]()
        while agenda:
            one, ready = agenda.pop()
            if ready:
                order[one.key] = one
                continue
            if one.key in seen:
                continue
            seen.add(one.key)
            agenda.append((one, True))
            for name, source in self.above[one.key].items():
                now = self._provenance.current(name)
                differs = now is not None and self._provenance.content(name, now) != source.made.get(name)
                if differs and one.inputs[name][1] is not one:
                    agenda.append((source, False))
        return list(order.values())


async def check_answer_files(provenance: Provenance, cells: Collection[Cell] | None = None) -> None:
    """Check whether files on which the answers of these cells (None: all) depend have changed, and set `Cell.moved`.
    Without a journal, these files are not known."""
    answered, workspace = _answered_files(provenance), provenance.workspace
    if not answered or workspace is None or (files := workspace.opened.machine.host.ports.files) is None:
        return
    freshness = Freshness(provenance)
    places = {
        text: place for text, cell in provenance.cell_of.items() if (place := freshness.place.get(cell.key)) is not None
    }
    ran = [(cell, cell.ran) for cell in (freshness.cells if cells is None else cells)]
    provenance.looks += 1
    look = provenance.looks
    moved = await asyncio.to_thread(answered.changes, [[*cell.texts] for cell, _ in ran], places, files)
    for (cell, then), file in zip(ran, moved, strict=True):
        if cell.ran == then and cell.looked < look:  # else it has run again, or a later check was faster
            cell.moved, cell.looked = file, look


def depends_on_files(provenance: Provenance) -> bool:
    """Return whether an answer of the run depends on files, which `check_answer_files` can check."""
    return bool(_answered_files(provenance))


def _answered_files(provenance: Provenance) -> AnsweredFiles | None:
    run = provenance.workspace.current if provenance.workspace is not None else None
    return run.journal.answered_files if run is not None and run.journal is not None else None


def stale_facts(stale: Sequence[Stale]) -> list[dict[str, object]]:
    """Return stale cells as JSON data, for an output's metadata and for front ends."""
    return [
        {
            "cell": one.cell.key if not one.cell.key.startswith("text:") else None,
            "label": one.cell.label,
            "maybe": one.maybe,
            "why": [str(reason) for reason in one.reasons],
        }
        for one in stale
    ]


def _is_unchanged(path: str, expected: str) -> bool:
    """Return whether a file still has the text with this digest; true for addresses that are not local files."""
    file = Path(path)
    if not file.is_absolute():
        return True
    try:
        return digest(plain_files.read_text(file)) == expected
    except (OSError, ValueError):
        return False
