"""The journal of a workspace's run: begun with its first text, replayed when resumed (docs/how-to/durability.md)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from prose_kernel.errors import ResumeMismatch, RunError
from prose_kernel.language.structs import replace
from prose_kernel.runs.earlier_approvals import approved_in_process
from prose_kernel.runs.resumption import Resumption, attempts_after, repetitions
from prose_kernel.runtime import open_request
from prose_kernel.runtime.clock import milliseconds
from prose_kernel.runtime.earlier_answers import EarlierAnswers, OnUse, Rules
from prose_kernel.runtime.journal import NO_KEYS, Journal, is_same
from prose_kernel.runtime.journal_records import Ended, Finished, Head, Record, Text
from prose_kernel.runtime.journal_replay import KnownRecords
from prose_kernel.runtime.requests import Keys
from prose_kernel.storage.journal_file import JournalFile
from prose_kernel.storage.journal_reading import read

if TYPE_CHECKING:
    from prose_kernel.runtime.host import Host

Range = tuple[int, int]
"""A range of records: the number of the first one, and of the one after the last."""


class _CellRecords(Struct, eq=False):
    """The place of a cell's last run in the journal: the `records` of each of its texts. `former` are the records of
    earlier runs whose answers it may keep; `complete`: none of its texts has failed or was interrupted."""

    run: open_request.CellRun | None
    former: list[list[Range]]
    records: list[Range] = field(default_factory=list)
    complete: bool = True
    answers: EarlierAnswers | None = None

    @property
    def runs(self) -> list[list[Range]]:
        """The records whose answers the next run may keep; after an incomplete run, those of earlier runs, too."""
        return [self.records] if self.complete else [*self.former, self.records]


class RunJournal(Journal):
    """Records one run. A new journal begins with a `head`; a resumed one continues after its records.

    `earlier` are the answers of a run of an earlier text. `run` is the id of a run that continues here, None for a run
    that is only replayed: its records keep their times and approvals.
    """

    def __init__(
        self,
        file: JournalFile,
        host: Host,
        keys: Keys = NO_KEYS,
        *,
        known: KnownRecords | None = None,
        earlier: EarlierAnswers | None = None,
        run: str | None = None,
    ) -> None:
        clock, approved = (host.ports.clock, approved_in_process(run)) if run is not None else (None, None)
        super().__init__(file, host.scheduler, keys, known=known, clock=clock, approved=approved, earlier=earlier)
        host.journal = self
        self._host = host
        self.file = file
        self.earlier = earlier
        self.resumed: Resumption | None = None
        self._texts = 0
        self._is_finished = False
        self._supplied: dict[str, str] = {}
        self._cells: dict[str, _CellRecords] = {}

    @classmethod
    def begin(
        cls, file: JournalFile, host: Host, head: Head, keys: Keys, earlier: EarlierAnswers | None = None
    ) -> RunJournal:
        """Begin the journal of a new run, which may keep answers of an earlier one."""
        file.append(head)
        approved_in_process(head.run).update(
            ("", name, "", b"") for name, approves in head.decisions.items() if approves
        )
        return cls(file, host, keys, earlier=earlier, run=head.run)

    @classmethod
    def resume(
        cls,
        file: JournalFile,
        host: Host,
        how: Resumption,
        known: KnownRecords,
        keys: Keys,
        earlier: EarlierAnswers | None = None,
    ) -> RunJournal:
        """Open the journal of a resumed run; `known` has no records yet. Raises `UsageError` if another process owns
        the run, or its journal has changed."""
        found, records = how.journal, list[Record]()
        if how.rewind is not None:
            records = [*attempts_after(how), *how.kept, *repetitions(how, milliseconds(host.ports.clock.now()))]
        file.continue_from(found)  # from here on, nothing raises: the file would stay locked
        if how.rewind is not None:
            file.rewind(how.rewind, records)
            found.rewound(how.rewind, max(found.lines, file.lines - len(records)))
            found.lines = file.lines
        known = replace(
            known,
            records=found.records(1),
            keeps_texts=how.keeps_texts,
            under_way=how.under_way,
            complete=how.over,
            moved=how.moved,
        )
        journal = cls(file, host, keys, known=known, earlier=earlier, run=how.head.run)
        journal.resumed = how
        return journal

    # ------------------------------------------------------------ texts

    @contextlib.contextmanager
    def cell(self, on_use: OnUse | None, *, keeps: bool) -> Iterator[None]:
        """Enclose the running of a cell's text. `keeps`: it may use answers of the cell's last run in this process."""
        id_, run, begin = open_request.cell.get(), open_request.run.get(None), self.position
        cell = self._cells.get(id_)
        if cell is None or cell.run is not run:
            cell = _CellRecords(run, cell.runs if cell is not None else [])
            if id_:
                self._cells[id_] = cell
        if keeps and cell.former and not self.has_more:
            if cell.answers is None:
                again = run.again if run is not None else frozenset[str]()
                cell.answers = self._answers(cell.former, Rules(on_use=on_use, cell=True, again=again))
            cell.answers.text_begins(self._texts + 1)
            self.usable = cell.answers
        try:
            yield
        except BaseException:
            cell.complete = False
            raise
        finally:
            self.usable = self.earlier
            cell.records.append((begin, self.position))

    def answers_of(self, id_: str, on_use: OnUse | None) -> EarlierAnswers | None:
        """Return the answers that the next run of a cell may keep; None if the cell has not run."""
        cell = self._cells.get(id_)
        return self._answers(cell.runs, Rules(on_use=on_use, cell=True)) if cell is not None else None

    def _answers(self, runs: Sequence[Sequence[Range]], rules: Rules) -> EarlierAnswers:
        """Return the answers in the records of these runs of a cell."""
        found = read(self.path)
        first, *later = (chain.from_iterable(found.records(*one) for one in run) for run in runs)
        answers = EarlierAnswers(self.directory.name, first, rules=rules)
        for run in later:
            answers.later(run)
        return answers

    def recall(self, cell: str, records: Sequence[Range]) -> None:
        """Let a cell that has not run in this process use the answers in these records when it runs with `keeps`."""
        self._cells[cell] = _CellRecords(None, [], records=list(records))

    def kept_by_cells(self) -> dict[str, Sequence[str]]:
        """Return the paths of the answers that the last run of each cell has kept, by the cells' ids."""
        return {id_: cell.answers.kept for id_, cell in self._cells.items() if cell.answers is not None}

    @contextlib.contextmanager
    def text(self, text: Text, declared: Callable[[], Collection[str]] = tuple) -> Iterator[None]:
        """Enclose the running of a file or cell; `declared` returns the names of its inputs."""
        self._texts += 1
        new = {name: value for name, value in text.supplied.items() if self._supplied.get(name) != value}
        moved = self.resumed.moved if self.resumed is not None else None
        directory = moved.before(text.directory) if moved is not None else text.directory
        text = replace(text, number=self._texts, supplied=new, directory=directory, t=self.now())
        if (before := self._supplied_before(text, declared)) is not None:
            text = replace(text, supplied=before)
            self._host.supplied_to_text = self._supplied | before
        self._supplied.update(text.supplied)
        self.begins(text)
        self.task = asyncio.current_task()
        status, cause, message, failed = "done", "", "", None
        try:
            yield
        except ResumeMismatch:
            status = ""
            raise
        except RunError as error:
            from prose_kernel.runtime.redaction import hidden_of_process

            status, cause, message = "failed", error.answer, hidden_of_process()(error.message)
            failed = [key for key in dict.fromkeys(error.replaced) if key != cause]
            raise
        except asyncio.CancelledError:
            if not self._turns.completed:  # otherwise the text had ended, and only its values were being stored
                status = "interrupted"
            raise
        except BaseException:  # a defect of this package: the text has not ended, and a fixed version can resume it
            status = ""
            raise
        finally:
            self.task, self._host.supplied_to_text = None, self._host.supplied
            if status:
                self.ended(Ended(self._texts, status, cause, message, self.now(), failed))  # type: ignore[arg-type]

    def _supplied_before(self, text: Text, declared: Callable[[], Collection[str]]) -> dict[str, str] | None:
        """Return the newly supplied values of the recorded text, if `text` continues it; None otherwise, for example
        because one of its declared inputs has another value."""
        then = self._replay.coming
        if not isinstance(then, Text) or self._replay.options.keeps_texts:
            return None
        before, now = self._supplied | then.supplied, self._supplied | text.supplied
        changed = any(name in before and before[name] != now.get(name) for name in declared())
        return then.supplied if not changed and is_same(then, replace(text, supplied=then.supplied)) else None

    def finish(self, error: RunError | None) -> None:
        """Record the end of the run, once, if it had any text."""
        if not self._is_finished and self._texts:
            self._is_finished = True
            before = self.resumed.journal.finished if self.resumed is not None else None
            record = Finished("done" if error is None else "failed")
            self.finished(record, replaces=before is not None and before.status == "failed" and error is None)

    def abandon_text(self) -> bool:
        """Abandon the running text: it makes no more requests, and no more of its records are written. Returns False if
        the run has no file to resume from."""
        self.file.flush()
        if not self.path.is_file():
            return False
        self._replay.abandon()
        return True

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def directory(self) -> Path:
        return self.path.parent

    @property
    def went_back(self) -> bool:
        """Whether the run continues from an earlier point than the one it had reached."""
        how = self.resumed
        return how is not None and bool(how.head.branch_of or how.rewind is not None or self.rewound)

    @property
    def position(self) -> int:
        """The number of the next record: the first invalid one if the run is restored to this moment."""
        return self._replay.number or self.file.next_number

    def close(self) -> None:
        self.file.close()
