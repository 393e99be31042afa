"""`prose run NOTEBOOK --only-stale`: restore the last run of a notebook, and run only its stale cells
(docs/how-to/freshness.md).

The new run is a branch of the earlier one, which stays unchanged. A cell runs if it is new or edited, if its inputs,
its imported programs or files read by its commands and sessions have changed, or if it has magics, whose effects a run
does not keep. Unchanged requests of these cells keep their answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from prose_kernel.cli import program_files
from prose_kernel.cli.execution import Cell, ProgramRun, Request
from prose_kernel.cli.notebook_file import NotebookCells
from prose_kernel.errors import UsageError
from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.notebook.cell_scan import cell_language, has_statements, segments
from prose_kernel.runs.earlier_run import earlier_run
from prose_kernel.runs.freshness import Freshness, check_answer_files
from prose_kernel.runs.journal import Range
from prose_kernel.runs.languages import Language
from prose_kernel.runs.provenance import Opening
from prose_kernel.runs.resumption import Resumption, branch
from prose_kernel.runs.settings import original_settings
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.storage import runs
from prose_kernel.storage.journal_reading import JournalRead, TextRead
from prose_kernel.views.document import counted

Program = tuple[str, str, str]
"""The text, language name and profile of a program."""


class LastRun(Struct, frozen=True):
    """Facts of the last run about the notebook's cells, by their names.

    `run` is the id of that run, "" if there is none. `programs` has the number of programs in each unedited cell,
    `records` the records whose answers a cell may use. `failed` are the cells that failed.
    """

    run: str = ""
    programs: Mapping[str, int] = field(default_factory=dict)
    records: Mapping[str, Sequence[Range]] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()

    def cells(self, run: ProgramRun) -> NotebookCells:
        """Return the cells of a run, of which only the stale ones run."""
        return StaleCells(run, self)


def branch_request(request: Request) -> Request:
    """Return the request for a branch of the notebook's last run; without such a run, the request to run all cells.

    Raises `UsageError` if that run can't be used.
    """
    notebook = program_files.real(request.cwd / os.path.expanduser(request.program_file))
    found = _find_last_run(notebook, request)
    if found is None:
        return replace(request, former=LastRun())
    earlier = earlier_run(found.path, request.language, notebook.parent)
    head, texts = earlier.head, earlier.journal.texts
    for name, value in request.supplied.items():
        if head.supplied.get(name) != value:
            began = f"with {name}={head.supplied[name]}" if name in head.supplied else f"without a value for {name}"
            message = f"--input {name}={value}: run {head.run} began {began}"
            raise UsageError(message, hint="leave --only-stale out: all cells run")
    last = next((text for text in reversed(texts) if text.ended and text.ended.status != "interrupted"), None)
    if last is None:
        return replace(request, former=LastRun())
    new = branch(earlier.journal, last.end, SystemClock(), request.settings.state_dir)
    began_with = original_settings(head.settings)
    how = Resumption(new)
    return replace(
        request,
        supplied=dict(head.supplied),
        settings=request.settings.changed(**began_with, state_dir=how.state_dir or request.settings.state_dir),
        resumption=how,
        former=_facts_of(new, request.cells, request.language),
    )


def _find_last_run(notebook: Path, request: Request) -> runs.KeptRun | None:
    for one in reversed(runs.all_runs(runs.places(request.cwd, request.settings.state_dir))):
        head = one.head
        if one.has_journal and head is not None and not one.interactive and head.notebook_path == str(notebook):
            return one
    return None


def _facts_of(journal: JournalRead, cells: Sequence[Cell], language: Language) -> LastRun:
    then: dict[Program, TextRead] = {}
    for text in journal.texts:
        record = text.record
        then[(record.text.strip(), record.language, record.profile)] = text
    now = {cell.name: list(_programs(cell, language)) for cell in cells}
    living = {program for programs in now.values() for program in programs}
    gone = [(text.number, text.end) for program, text in then.items() if program not in living]
    unedited: dict[str, int] = {}
    records: dict[str, Sequence[Range]] = {}
    for name, programs in now.items():
        own = [then[program] for program in programs if program in then]
        if len(own) == len(programs):
            unedited[name] = len(own)
        records[name] = [(text.number, text.end) for text in own] + (gone if len(own) < len(programs) else [])
    failed = {program for program, text in then.items() if text.ended is None or text.ended.status == "failed"}
    names = frozenset(name for name, programs in now.items() if not failed.isdisjoint(programs))
    return LastRun(journal.head.branch_of[-1], unedited, records, names)


def _programs(cell: Cell, default: Language) -> Iterator[Program]:
    language, text = cell_language(cell.text, default)
    for piece in segments(text, language):
        if not piece.magic and has_statements(piece.text):
            yield piece.text.strip(), language.name, language.profile or ""


class StaleCells(NotebookCells):
    """The cells of a notebook whose last run is restored; `feed` runs the stale ones."""

    def __init__(self, run: ProgramRun, former: LastRun) -> None:
        super().__init__(run)
        self.overrides["rerun"] = "keep"
        self._last_run = former
        self._all = {cell.name: cell for cell in run.request.cells}
        self._ready = False
        self._why: dict[str, str] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """The cells that have run, with the reasons."""
        if not self._last_run.run:
            return ("no earlier run of this notebook is kept here: all its cells have run",)
        count = f"ran {len(self._why)} of {counted(len(self._all), 'cell')}"
        return (f"{count} again; run {self._last_run.run} has the rest", *(f"  {a}: {b}" for a, b in self._why.items()))

    async def feed(self, cell: Cell) -> None:
        if not self._ready:
            await self._restore_run()
        why = await self._reason(cell)
        if why is None:
            self._check_names(cell)
            return
        known = cell.name in self._last_run.programs and cell.name in self.provenance.cells
        if not known:
            self.provenance.expect(_opening(cell), list(self._texts(cell)))
            self._check_names(cell)
        for one in Freshness(self.provenance).first(self.provenance.cells[cell.name]):
            self._why.setdefault(one.key, why if one.key == cell.name else f"{cell.name} needs its values")
            await self._run_cell(self._all[one.key])
        self._check_names(cell)

    async def _restore_run(self) -> None:
        self._ready = True
        if not self._last_run.run:
            return
        order = [(cell.name, cell.text) for cell in self._all.values()]
        workspace = self.workspace
        self.provenance.set_cell_order(order)
        await workspace.restore()
        self.provenance.end_outer_text()
        self.provenance.set_cell_order(order)
        journal = workspace.current.journal if workspace.current is not None else None
        for name, records in self._last_run.records.items():
            if journal is not None:
                journal.recall(name, records)

    async def _reason(self, cell: Cell) -> str | None:
        """Return the reason why a cell has to run; None if it is fresh."""
        if not self._last_run.run:
            return "it is new"
        if any(piece.magic for piece in segments(*cell_language(cell.text, self.language)[::-1])):
            return "it has magics"
        known = self.provenance.cells.get(cell.name)
        if cell.name not in self._last_run.programs:
            return "it is new or was edited"
        if known is None:
            return "it is new" if self._last_run.programs[cell.name] else None
        if cell.name in self._last_run.failed and not cell.may_fail:
            return "it failed"
        await check_answer_files(self.provenance, [known])
        stale = next((one for one in Freshness(self.provenance).stale() if one.cell is known and not one.maybe), None)
        return "; ".join(map(str, stale.reasons)) if stale is not None else None

    def _texts(self, cell: Cell) -> Iterator[tuple[Source, Language]]:
        language, text = cell_language(cell.text, self.language)
        for piece in segments(text, language):
            if not piece.magic and self.workspace.compile(piece.text, cell.name, language).ok:
                yield Source.of(piece.text, cell.name), language

    def _check_names(self, cell: Cell) -> None:
        """Raise `UsageError` if the cell uses a name of the earlier run that no cell above it makes any more."""
        found = self.provenance.cells.get(cell.name)
        if found is None:
            return
        above = Freshness(self.provenance).above.get(cell.name, {})
        for name, (_, maker) in found.inputs.items():
            if name not in above and maker is not None and maker is not found and maker.gone:
                message = f"{cell.name} uses {name}, which no cell above it makes any more"
                raise UsageError(message, hint=f"make it in a cell above; without --only-stale, {cell.name} fails")

    async def _run_cell(self, cell: Cell) -> None:
        failed = True
        self.provenance.begin(_opening(cell))
        try:
            await super().feed(cell)
            failed = False
        finally:
            self.provenance.end(failed=failed)


def _opening(cell: Cell) -> Opening:
    return Opening.of(cell.text, cell.name, int(cell.name.removeprefix("cell ")))
