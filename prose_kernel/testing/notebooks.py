"""Test a notebook: run its cells, compare their outputs with the committed ones, check its recordings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from prose_kernel.errors import UsageError
from prose_kernel.runs.languages import Language
from prose_kernel.testing.notebook_run import CellRun, TestedCells
from prose_kernel.testing.notebook_source import CodeCell, NotebookSource, coalesced, read
from prose_kernel.testing.options import SuiteOptions
from prose_kernel.testing.outputs import Output, comparable, compare, failed
from prose_kernel.testing.snapshot_file import replace_tested
from prose_kernel.views.test_results import Outcome, StateDifference, Status, Tested

if TYPE_CHECKING:
    from prose_kernel.cassettes.recordings import Cassettes

NOTEBOOK, RECORDING = "notebook", "recording"


def test_notebook(path: Path, name: str, options: SuiteOptions) -> Tested:
    """Test a notebook, and update it if `options` say so. `name` is its name in messages."""
    try:
        book = read(path, name)
    except UsageError as problem:
        return Tested(name, (Outcome(NOTEBOOK, "failed", (StateDifference.of(problem),)),))
    if book.language is None:
        kernel = f"the kernel {book.kernel}" if book.kernel else "another kernel"
        note = f"it is a notebook of {kernel}, which `prose test` does not run (hint: pytest --nbval {name} runs it)"
        return Tested(name, (Outcome(NOTEBOOK, "failed", (StateDifference(note),)),))
    return _Test(book, book.language, name, options).run()


test_notebook.__test__ = False  # type: ignore[attr-defined]  # tells pytest that it isn't a test


class _Test:
    """A test of a notebook: one run of its cells."""

    def __init__(self, book: NotebookSource, language: Language, name: str, options: SuiteOptions) -> None:
        self.book = book
        self.language = language
        self.name = name
        self.options = options
        self.outcomes: list[Outcome] = []
        self.runs: dict[int, CellRun] = {}
        self.changed: dict[int, Sequence[Output]] = {}
        self.interrupted = False
        self.stale: list[StateDifference] = []
        self.used: frozenset[tuple[str, bytes]] = frozenset()
        self.saved_any = any(cell.count is not None or cell.outputs for cell in book.cells)
        self.to_run = [cell for cell in book.cells if not cell.skip and not cell.empty]

    def run(self) -> Tested:
        try:
            asyncio.run(self._run_cells())
        except UsageError as problem:
            self.outcomes.append(Outcome(NOTEBOOK, "failed", (StateDifference.of(problem),)))
        if not self.interrupted:
            self._check_notebook()
        if self.options.update:
            self._update()
        return Tested(self.name, tuple(self.outcomes), interrupted=self.interrupted, used=self.used)

    async def _run_cells(self) -> None:
        cells = TestedCells(self.book.path, self.language, self.options.overrides)
        try:
            for cell in self.book.cells:
                if cell.skip:
                    self.outcomes.append(Outcome(cell.name, "skipped", why="it is marked to be skipped"))
                elif not cell.empty and not self._add_outcome(cell, await cells.test(cell, self.options.seconds)):
                    break
            services = cells.current.started_services if cells.current is not None else None
            if services is not None:
                self._check_recordings(services.cassettes)
        finally:
            await cells.close()
        self._check_unused_recording()

    # ------------------------------------------------------------ one cell

    def _add_outcome(self, cell: CodeCell, run: CellRun) -> bool:
        """Add the outcome of a cell that has run. Return whether the next cell may run."""
        self.runs[cell.number] = run
        if run.interrupted:
            self.interrupted = True
            return False
        findings = self._findings(cell, run)
        status: Status = "failed" if findings else "passed"
        self.outcomes.append(Outcome(cell.name, status, tuple(findings), seconds=run.seconds))
        if all(finding.saved for finding in findings) and findings:
            self.changed[cell.number] = coalesced(run.outputs)
        return not run.over_time and not (findings and self.options.first)

    def _findings(self, cell: CodeCell, run: CellRun) -> list[StateDifference]:
        if run.over_time:
            finding = (
                f"the cell did not end within {self.options.seconds:g} s and was interrupted; later cells did not run"
            )
            return [StateDifference(finding)]
        rules = self.options.rules
        expected = comparable(cell.outputs, rules)
        actual = comparable(run.outputs, rules, run.origins)
        if run.failed and not cell.fails:
            return [failed(next(one.raw for one in actual if one.kind == "error"))]
        if cell.fails and not run.failed:
            committed = [one for one in expected if one.kind == "error"]
            found = compare(committed, [])
            return found or [StateDifference("the cell is tagged raises-exception and did not fail")]
        if not (cell.check if cell.check is not None else not self.options.lax):
            return []
        if cell.count is None and not cell.outputs:
            finding = "the cell was never run: no outputs are committed that could be compared"
            return [StateDifference(finding, saved=True)] if self.saved_any else []
        return compare(expected, actual)

    # ------------------------------------------------------------ the whole notebook

    def _check_notebook(self) -> None:
        findings: list[StateDifference] = []
        if self.to_run and not self.saved_any and not self.options.lax:
            finding = "no outputs are committed: nothing is compared (prose test --update saves them)"
            findings.append(StateDifference(finding, saved=True))
            failed = {one.name for one in self.outcomes if one.status == "failed"}
            self.changed = {n: coalesced(one.outputs) for n, one in self.runs.items() if f"cell {n}" not in failed}
        counted = [cell for cell in self.to_run if cell.count is not None]
        for one, other in pairwise(counted):
            if (other.count or 0) <= (one.count or 0):
                finding = (
                    f"{other.name} was run before {one.name}: their execution counts are {other.count} and {one.count}"
                )
                findings.append(StateDifference(finding, saved=True))
        if findings:
            self.outcomes.append(Outcome(NOTEBOOK, "failed", tuple(findings)))
        if self.stale:
            self.outcomes.append(Outcome(RECORDING, "failed", tuple(self.stale)))

    def _check_recordings(self, cassettes: Cassettes) -> None:
        """Report unused records of the notebook's own recording; shared recordings are checked after all tests."""
        self.used = cassettes.used()
        if len(self.runs) < len(self.to_run) or self.options.live:
            return
        for entry in cassettes.unused():
            if Path(entry.file).stem == self.book.path.stem:
                note = f"{entry.name} is recorded and never used"
                self.stale.append(StateDifference(f"{note} (prose cassette prune removes it)"))

    def _check_unused_recording(self) -> None:
        """Report the notebook's own recording if no cell used it at all."""
        own = self.book.path.parent / "cassettes" / f"{self.book.path.stem}.jsonl"
        complete = len(self.runs) == len(self.to_run)
        used = any(Path(file).name == own.name for file, _ in self.used)
        if complete and own.is_file() and not used and not self.stale and not self.options.live:
            self.stale.append(StateDifference(f"cassettes/{own.name}: no cell uses any record of it"))

    # ------------------------------------------------------------ updating

    def _update(self) -> None:
        cells = [one for one in self.outcomes if one.name.startswith("cell ")]
        lost = any(not finding.saved for one in cells for finding in one.findings)
        if lost and not self.saved_any:
            return  # a partly saved notebook would look complete
        whole = next((outcome for outcome in self.outcomes if outcome.name == NOTEBOOK), None)
        renumber = whole is not None or any(
            cell.count is None for cell in self.book.cells if cell.number in self.changed
        )
        if not (self.changed or (whole is not None and all(one.saved for one in whole.findings))):
            return
        text = self.book.with_outputs(self.changed, renumber=renumber)
        if text != self.book.text:
            replace_tested(self.book.path, text, self.book.stamp)
        self.outcomes = [_updated(one) for one in self.outcomes]


def _updated(outcome: Outcome) -> Outcome:
    """Return an outcome after its notebook was written: it is `updated` if all of its findings were saved."""
    if outcome.status != "failed" or not all(finding.saved for finding in outcome.findings):
        return outcome
    return Outcome(outcome.name, "updated", outcome.findings, seconds=outcome.seconds)
