"""The journal of a workspace's run: begun with its first text, replayed when it is resumed (docs/durability.md)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from prose_kernel.errors import ResumeMismatch, RunError, UsageError
from prose_kernel.runtime.journal import Journal, OnReplayed, UnderWay
from prose_kernel.runtime.journal_records import Answered, Asked, Ended, Finished, Head, Interrupted, Text
from prose_kernel.state.journal_file import JournalFile, JournalRead, read

if TYPE_CHECKING:
    from prose_kernel.runtime.execution_context import Host


@dataclass(frozen=True, slots=True)
class Resumption:
    """A run that is to go on: what its journal holds, and what becomes of what was under way when it ended.

    `rewind` is the number of the record from which on nothing counts any more: the answer that the run failed for, or
    the interrupt. Made by `resumption`.
    """

    journal: JournalRead
    under_way: UnderWay = "rerun"
    rewind: int | None = None

    @property
    def head(self) -> Head:
        return self.journal.head

    @property
    def directory(self) -> Path:
        """That of the run."""
        return self.journal.path.parent

    @property
    def complete(self) -> bool:
        """Whether the run has come to its end: nothing of it is left to do."""
        finished = self.journal.finished
        return finished is not None and finished.status == "done"


def resumption(path: Path, under_way: UnderWay = "rerun") -> Resumption:
    """How the run with this journal goes on. Raises `UsageError` when it cannot, with the reason."""
    found = read(path)
    last = found.texts[-1].ended if found.texts else None
    if last is None:  # when it was killed while an interrupt ended it, it goes on before that
        return Resumption(found, under_way, _last_record(found, Ended(0, "interrupted")))
    if last.status == "done" or found.head.notebook:
        return Resumption(found, under_way)
    at = _last_record(found, last)
    if at is None:
        raise UsageError(
            f"run {found.head.run} ended with an error of the program itself: {last.message}",
            hint="nothing from outside made it fail, so it would fail again; mend the program and run it anew",
        )
    return Resumption(found, under_way, at)


def _last_record(found: JournalRead, last: Ended) -> int | None:
    """The number of the answer that the text failed for, or of its interrupt."""
    at = None
    for number, record in found.records(found.texts[-1].number) if found.texts else ():
        match record:
            case Answered(key=key) if last.status == "failed" and key == last.cause:
                at = number
            case Interrupted() if last.status == "interrupted":
                at = number
    return at


@dataclass(slots=True)
class RunJournal:
    """Writes down one run. A new one has a `head`; one that is resumed goes on behind its records.

    `on_live` is told what was under way when a resumed run has come to the end of its records.
    """

    file: JournalFile
    journal: Journal
    resumed: Resumption | None = None
    _texts: int = 0
    _finished: bool = False
    _supplied: dict[str, str] = field(default_factory=dict)

    @classmethod
    def begin(cls, file: JournalFile, host: Host, head: Head) -> RunJournal:
        """The journal of a new run."""
        file.append(head)
        journal = host.journal = Journal(file, host.scheduler, head.run, place=str(file.path))
        return cls(file, journal)

    @classmethod
    def resume(
        cls,
        file: JournalFile,
        host: Host,
        how: Resumption,
        on_live: Callable[[Sequence[Asked]], None],
        on_replayed: OnReplayed,
    ) -> RunJournal:
        """The journal of a run that goes on. Raises `UsageError` when another process runs it, or it has changed."""
        file.continue_from(how.journal)
        found = how.journal
        if how.rewind is not None:
            file.rewind(how.rewind)
            found.lines = file.lines
            found.rewound(how.rewind)
        records = found.records(1)
        run = how.head.branch_of or how.head.run
        journal = host.journal = Journal(
            file,
            host.scheduler,
            run,
            known=records,
            under_way=how.under_way,
            on_live=on_live,
            on_replayed=on_replayed,
            place=str(file.path),
        )
        return cls(file, journal, how)

    # ------------------------------------------------------------ texts

    @contextlib.contextmanager
    def text(self, text: Text) -> Iterator[None]:
        """One file or cell while it runs."""
        self._texts += 1
        new = {name: value for name, value in text.supplied.items() if self._supplied.get(name) != value}
        self._supplied.update(new)
        self.journal.begins(structs.replace(text, number=self._texts, supplied=new))
        self.journal.task = asyncio.current_task()
        status, cause, message = "done", "", ""
        try:
            yield
        except ResumeMismatch:
            status = ""
            raise
        except RunError as error:
            status, cause, message = "failed", error.answer, error.message
            raise
        except asyncio.CancelledError:
            status = "interrupted"
            raise
        except BaseException:  # ours: the text did not end, and can go on when it is mended
            status = ""
            raise
        finally:
            self.journal.task = None
            if status:
                self.journal.ended(Ended(self._texts, status, cause, message))  # type: ignore[arg-type]

    def finish(self, error: RunError | None) -> None:
        """The run is over."""
        if self._finished or not self._texts:
            return
        self._finished = True
        status = "done" if error is None else "failed"
        if self.resumed is None or not self.resumed.complete:
            self.journal.finish(Finished(status))  # type: ignore[arg-type]

    def close(self) -> None:
        self.file.close()


def texts_of(how: Resumption) -> list[Text]:
    """The texts of the run that have ended, in order."""
    return [text.record for text in how.journal.texts if text.ended is not None]


def settings_of(head: Head) -> Mapping[str, object]:
    """The settings that decide what the program of a run does: it is resumed with the same ones."""
    return head.settings
