"""The journal of a workspace's run: begun with its first text, replayed when resumed (docs/how-to/durability.md)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec import MsgspecError, Raw, structs

from prose_kernel.errors import ResumeMismatch, RunError, StoreFailed, UsageError
from prose_kernel.runs.resuming import approved_here
from prose_kernel.runtime import asides
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.earlier_answers import EarlierAnswers, OnUse, Rules
from prose_kernel.runtime.journal import NO_KEYS, Journal
from prose_kernel.runtime.journal_approvals import Approved
from prose_kernel.runtime.journal_records import (
    NOTHING,
    Answered,
    Asked,
    Ended,
    Finished,
    Head,
    Interrupted,
    Noted,
    Text,
    answers_of,
)
from prose_kernel.runtime.journal_replay import KnownRecords, Moved, UnderWay
from prose_kernel.runtime.keys import Keys
from prose_kernel.runtime.ports import Clock
from prose_kernel.storage import file_history
from prose_kernel.storage.journal_file import JournalFile, changing
from prose_kernel.storage.journal_reading import NAME, JournalRead, read
from prose_kernel.storage.layout import VVM

if TYPE_CHECKING:
    from prose_kernel.runtime.execution_context import Host

Range = tuple[int, int]
"""The numbers of a first record, and of the one after the last."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """A run to be resumed: its journal, and the treatment of requests that had no answer when it ended.

    `rewind` is the number of the record from which on nothing counts any more: the answer that the run failed for
    (`cause`), or the interrupt. `texts_stay`: a text that differs from the recorded one is an error, else it takes its
    place. `cwd` is the directory in which it continues, if that is not the one in which it was begun. Made by
    `resumption`.
    """

    journal: JournalRead
    under_way: UnderWay = "rerun"
    rewind: int | None = None
    cause: Asked | None = None
    texts_stay: bool = False
    cwd: Path | None = None

    @property
    def head(self) -> Head:
        return self.journal.head

    @property
    def moved(self) -> Moved | None:
        """From where to where the run has moved; None if it continues where it was begun."""
        return Moved(self.head.directory, str(self.cwd)) if self.cwd is not None else None

    @property
    def directory(self) -> Path:
        """That of the run."""
        return self.journal.path.parent

    @property
    def state_dir(self) -> str | None:
        """The state directory of the run, relative to its working directory if it is inside; None for a VVM run, which
        has its files elsewhere."""
        directory, base = self.directory.resolve().parent.parent, Path(self.cwd or self.head.directory).resolve()
        if directory.name == VVM:
            return None
        return str(directory.relative_to(base)) if directory.is_relative_to(base) else str(directory)

    @property
    def keeps(self) -> Path | None:
        """The journal of the run whose answers this one may use; None if there is none."""
        head = self.head
        if not head.changed or head.branch_at or not head.branch_of:
            return None
        return self.directory.with_name(head.branch_of[-1]) / NAME

    @property
    def complete(self) -> bool:
        """Whether the run has ended, possibly by an error of the program itself, and has nothing left to do."""
        finished, last = self.journal.finished, self.journal.texts[-1].ended if self.journal.texts else None
        if finished is None and (last is None or self.head.notebook):
            return False
        if finished is not None and finished.status == "done":
            return True
        return last is not None and (last.status == "done" or (last.status == "failed" and self.rewind is None))

    @property
    def over(self) -> bool:
        """Whether the run is complete and can't continue: a notebook's run may have further cells."""
        return self.complete and not self.head.interactive


def resumption(journal: JournalRead | Path, under_way: UnderWay = "rerun") -> Resumption:
    """Return how to resume a run. A run that ended with an error of the program itself ends with it again. Raises
    `UsageError` for a journal that can't be used."""
    if not isinstance(journal, JournalRead):
        journal = read(journal)
    journal.require_whole()
    last, interactive = journal.texts[-1].ended if journal.texts else None, journal.head.interactive
    rewind, cause = None, None
    if last is None or not (interactive or last.status == "done"):
        # A text that was killed while an interrupt or its store ended it resumes before that.
        rewind, cause = _last_record(journal, last) or (None, None)
    return Resumption(journal, under_way, rewind, cause, texts_stay=not interactive)


def _last_record(journal: JournalRead, last: Ended | None) -> tuple[int, Asked | None] | None:
    """Return the number of the answer that made the text fail, with its request; or that of its interrupt.

    Without its end (None), the text failed if its store did: a program does not catch that.
    """
    if not journal.texts:
        return None
    begin, found = journal.texts[-1].number, None

    def fails(key: str, error: Raw) -> bool:
        if last is None:
            return found is None and codec.is_store_failure(error)
        return last.status == "failed" and key == last.cause

    for number, record in journal.records(begin, holding=_signs(last)):
        match record:
            case Answered(key=key, error=error) if fails(key, error):
                found = number, key
            case Noted(key=key, value=error) if fails(key, error):
                found = number, ""
            case Interrupted() if found is None and (last is None or last.status == "interrupted"):
                found = number, ""
    if found is None:
        return None
    number, key = found
    requests = (one for _, one in journal.records(begin, number, _written(key)) if isinstance(one, Asked))
    return number, {asked.key: asked for asked in requests}.get(key) if key else None


def _signs(last: Ended | None) -> list[bytes]:
    """Return texts of which each record holds one that may have ended a text so: others need not be decoded."""
    if last is not None and last.status == "failed":
        return _written(last.cause)
    return [b'{"k":"interrupted"', *([StoreFailed.__name__.encode()] if last is None else ())]


def _written(key: str) -> list[bytes]:
    """Return the forms in which a record may hold a key (`journal_codec.dumps`)."""
    return [codec.dumps(key), json.dumps(key).encode()]


def interrupted_at(journal: JournalRead) -> int | None:
    """Return the number of the record of the last text's interrupt; None if there was none."""
    found = _last_record(journal, Ended(0, "interrupted"))
    return found[0] if found is not None else None


def imported(journal: JournalRead) -> dict[str, str]:
    """Return the programs that the run's texts have imported, with what these import: text by address.

    Of a program that was imported twice, the later text. Raises `UsageError` when the journal's file can't be used.
    """
    found: dict[str, str] = {}
    for _, _, record in answers_of(journal.records(1), "import"):
        if record.value != NOTHING:
            with contextlib.suppress(MsgspecError):  # the replay names the record
                found.update(codec.decode(record.value, dict[str, str]))
    return found


# ---------------------------------------------------------------- branches


def point_of(journal: JournalRead, at: str) -> int:
    """Return the number of the first record of a cell (`c3`) or of a statement's requests (`c1/4`).

    Raises `UsageError` if there is none.
    """
    near: list[str] = []
    for number, record in journal.records(1):
        match record:
            case Text() if at == f"c{record.number}":
                return number
            case Asked(key=key):
                if key == at or key.startswith((f"{at}/", f"{at}#")):
                    return number
                near.append(key)
    shown = ", ".join([*near[:3], "…", *near[-3:]] if len(near) > 6 else near) or "nothing"
    cells = "c1" if len(journal.texts) == 1 else f"c1 to c{len(journal.texts)}"
    hint = f"it has the cells {cells}; asked was {shown}"
    raise UsageError(f"run {journal.head.run} asked nothing at {at}", hint=hint)


def branch(journal: JournalRead, before: int, run_id: str, started: datetime, text: str | None = None) -> JournalRead:
    """Begin another run with the records of this one up to the record `before`; `text` replaces the text of the last
    file or cell. Its directory is next to the other one. Large values and answers that the journal refers to are
    copied; the replay restores the rest.

    Raises `UsageError` if it can't be written.
    """
    journal.require_whole(before)
    head, directory = journal.head, journal.path.parent
    numbered = list(journal.records(1, before))
    records = [record for _, record in numbered]
    new = structs.replace(
        head,
        run=run_id,
        started=f"{started:%Y-%m-%dT%H:%M:%S.%fZ}",
        branch_of=[*head.branch_of, head.run],
        branch_at=len(records) + 1,
        changed=text is not None,
    )
    if text is not None:
        last = max(index for index, record in enumerate(records) if isinstance(record, Text))
        records[last] = structs.replace(cast("Text", records[last]), text=text)
    path = directory.with_name(run_id) / NAME
    with changing(path, f"no branch of run {head.run} can be begun") as file:
        of_vvm = directory.parent.parent.name == VVM
        answers = directory if of_vvm else Path(head.directory, VVM, "runs", head.run)
        for source in (directory / "attachments", answers / "bindings"):
            if source.is_dir():
                shutil.copytree(source, source.parent.with_name(run_id) / source.name, dirs_exist_ok=True)
        file_history.copy(directory, path.parent, [number for number, _ in numbered], before)
        file.copy([new, *records])
    approved_here(run_id, branch_of=head.run)
    return read(path)


# ---------------------------------------------------------------- the journal of a workspace


@dataclass(slots=True, eq=False)
class _CellRecords:
    """Where the journal has the last run of a cell: the `records` of each of its texts. `former` are those of the runs
    before it, whose answers it may keep; `complete`: no text of it has failed or was interrupted."""

    run: asides.CellRun | None
    former: list[list[Range]]
    records: list[Range] = field(default_factory=list)
    complete: bool = True
    answers: EarlierAnswers | None = None

    @property
    def runs(self) -> list[list[Range]]:
        """The records for the next run: if this one didn't come to its end, it hasn't asked everything."""
        return [self.records] if self.complete else [*self.former, self.records]


class RunJournal(Journal):
    """Records one run. A new journal begins with a `head`; a resumed one continues after its records.

    `earlier` are the answers of the run of an earlier text.
    """

    def __init__(
        self,
        file: JournalFile,
        host: Host,
        keys: Keys = NO_KEYS,
        *,
        known: KnownRecords | None = None,
        clock: Clock | None = None,
        approved: set[Approved] | None = None,
        earlier: EarlierAnswers | None = None,
    ) -> None:
        super().__init__(file, host.scheduler, keys, known=known, clock=clock, approved=approved, earlier=earlier)
        host.journal = self
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
        """The journal of a new run, which may keep answers of an earlier one."""
        file.append(head)
        approved = approved_here(head.run)
        approved.update(("", name, "", b"") for name, approves in head.decisions.items() if approves)
        return cls(file, host, keys, clock=host.ports.clock, approved=approved, earlier=earlier)

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
        """Open the journal of a resumed run; `known` has no records yet. Raises `UsageError` if another process runs
        it, or it has changed."""
        file.continue_from(how.journal)
        found = how.journal
        if how.rewind is not None:
            file.rewind(how.rewind)
            found.rewound(how.rewind, file.lines)
        known = replace(
            known,
            records=found.records(1),
            texts_stay=how.texts_stay,
            under_way=how.under_way,
            again=how.cause.key if how.cause is not None else "",
            complete=how.over,
            moved=how.moved,
        )
        approved = approved_here(how.head.run)
        journal = cls(file, host, keys, known=known, clock=host.ports.clock, approved=approved, earlier=earlier)
        journal.resumed = how
        return journal

    # ------------------------------------------------------------ texts

    @contextlib.contextmanager
    def cell(self, on_use: OnUse | None, *, keeps: bool) -> Iterator[None]:
        """A text of a notebook's cell while it runs. With `keeps`, it may use the answers of the cell's last run in
        this process."""
        id_, run, begin = asides.cell.get(), asides.run.get(None), self.position
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
        """The answers that the next run of a cell may keep; None if it has not run."""
        cell = self._cells.get(id_)
        return self._answers(cell.runs, Rules(on_use=on_use, cell=True)) if cell is not None else None

    def _answers(self, runs: Sequence[Sequence[Range]], rules: Rules) -> EarlierAnswers:
        """The answers in the records of these runs of a cell."""
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
        """The paths of the answers that the last run of each cell has kept, by the cells' ids."""
        return {id_: cell.answers.kept for id_, cell in self._cells.items() if cell.answers is not None}

    @contextlib.contextmanager
    def text(self, text: Text) -> Iterator[None]:
        """One file or cell while it runs."""
        self._texts += 1
        new = {name: value for name, value in text.supplied.items() if self._supplied.get(name) != value}
        self._supplied.update(new)
        moved = self.resumed.moved if self.resumed is not None else None
        directory = moved.before(text.directory) if moved is not None else text.directory
        self.begins(structs.replace(text, number=self._texts, supplied=new, directory=directory, t=self.now()))
        self.task = asyncio.current_task()
        status, cause, message = "done", "", ""
        try:
            yield
        except ResumeMismatch:
            status = ""
            raise
        except RunError as error:
            from prose_kernel.runtime.secret_patterns import hidden_of_process

            status, cause, message = "failed", error.answer, hidden_of_process()(error.message)
            raise
        except asyncio.CancelledError:
            status = "interrupted"
            raise
        except BaseException:  # a defect of ours: the text did not end, and can be resumed with a fixed version
            status = ""
            raise
        finally:
            self.task = None
            if status:
                self.ended(Ended(self._texts, status, cause, message, self.now()))  # type: ignore[arg-type]

    def finish(self, error: RunError | None) -> None:
        """The run is over."""
        if not self._is_finished and self._texts:
            self._is_finished = True
            self.finished(Finished("done" if error is None else "failed"))

    def abandon_text(self) -> bool:
        """Give up the running text: it makes no more requests, and no more records of it are written. False if the run
        has no file to resume from."""
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
        """Whether the run continues at an earlier point than it had reached."""
        how = self.resumed
        return how is not None and bool(how.head.branch_of or how.rewind is not None or self.rewound)

    @property
    def position(self) -> int:
        """The number of the next record: the first invalid one if the run is restored to this moment."""
        return self._replay.number or self.file.following

    def close(self) -> None:
        self.file.close()


def texts_of(how: Resumption) -> list[Text]:
    """The texts of the run that have ended, in order."""
    return [text.record for text in how.journal.texts if text.ended is not None]


def interrupted_text(how: Resumption) -> Text | None:
    """The text that was running when the run ended, if one was."""
    last = how.journal.texts[-1] if how.journal.texts else None
    return last.record if last is not None and last.ended is None else None
