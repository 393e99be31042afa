"""Find out which answers a run of an edited program would keep and which requests it would make, without making any
(amendment A57).

The program runs in memory with the kept answers of the earlier run. A session or command without a kept answer gets a
placeholder, so that everything that uses its answer is asked again, too. Any other request without a kept answer ends
the program, because its next steps depend on the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.runs.earlier_run import EarlierRun, commands_first
from prose_kernel.runs.journal import RunJournal
from prose_kernel.runs.languages import Language
from prose_kernel.runs.replay import ReadOnlyJournalFile, Replaying, ReplayListener, UnansweredPort
from prose_kernel.runs.settings import Settings
from prose_kernel.runtime.earlier_answers import AskedAgain, EarlierAnswers, OnUse
from prose_kernel.runtime.journal_records import Asked, Record, Text
from prose_kernel.runtime.journal_replay import KnownRecords
from prose_kernel.runtime.ports import (
    CommandRequest,
    CommandResult,
    OnOutput,
    Ports,
    SessionProgress,
    SessionRequest,
    SessionResult,
    Store,
)
from prose_kernel.runtime.requests import Keys, Request
from prose_kernel.storage.journal_reading import JournalRead, TextRead, read
from prose_kernel.storage.shown_files import FilesToShow


async def repeated_requests(earlier: EarlierRun, text: str, settings: Settings) -> list[Asked]:
    """Return the answered requests whose answers a run of the changed text does not use, commands first; failed ones
    are left out. `text` replaces the last file's text. Nothing is asked or run."""
    planned = PlannedRun.of_program(earlier, text, settings)
    complete = not (await planned.run()).gap and not planned.stopped
    if complete and next(planned.answers.asked_again(), None) is None:
        return []  # unused answers belong to deleted statements
    return commands_first(one.asked for one in planned.answers.unused if not one.failed)


class PlannedRun(Replaying):
    """A run of changed texts, as far as kept `answers` reach. `stopped`: it ended at a request, not at the end of the
    program. `lost` has the imported programs whose files are gone."""

    def __init__(
        self,
        found: JournalRead,
        answers: EarlierAnswers,
        settings: Settings,
        commands: dict[str, CommandRequest],
        lost: Mapping[str, str] | None = None,
    ) -> None:
        self.lost = lost or {}
        self.answers = answers
        self.stopped = False
        self.commands = commands
        """The commands that were asked, and the kept ones that declare files, by key."""
        self._log = _Log(found.path)
        self._files = FilesToShow()
        super().__init__(replace(found, finished=None), settings, ReplayListener(), None)

    @classmethod
    def of_program(cls, earlier: EarlierRun, text: str, settings: Settings) -> PlannedRun:
        """Return the run of the changed text of a program file."""
        found = earlier.journal
        last = replace(found.texts[-1].record, text=text)
        texts = [*found.texts[:-1], TextRead(last, found.texts[-1].number)]
        commands: dict[str, CommandRequest] = {}
        answers = earlier.answers(found.head.run, _collecting(commands), planned=True)
        return cls(replace(found, texts=texts), answers, settings, commands, earlier.lost_imports())

    def _ports(self, unanswered: Any, store: Store) -> Ports:
        stop: Any = UnansweredPort(self._stop)  # the next steps of the program depend on these answers
        ports = super()._ports(stop, store)
        return replace(ports, sessions=_Placeholder(), commands=_PlaceholderResult(self.commands), files=self._files)

    def _open(self) -> RunJournal:
        return RunJournal(self._log, self._machines.first.host, self._keys, earlier=self.answers)

    @property
    def _keys(self) -> Keys:
        head = self._head
        ids = tuple(one.encode() for one in (head.run, *head.branch_of))
        answers = self._machines.first.host.ports.answers
        return Keys(head.directory, str(self._context.project), ids, self._settings.shell or "", answers)

    def requests(self) -> list[Asked | AskedAgain]:
        """Return the requests of the run, in order. A request that would be asked again is returned with the reason."""
        again = {one.asked.key: one for one in self.answers.asked_again()}
        kept = {*self.answers.kept}
        return [again.get(one.key, one) for one in self._log.asked if one.key in kept or one.key in again]

    async def _watched(self, task: asyncio.Task[None]) -> None:
        await asyncio.wait_for(task, self._until - asyncio.get_running_loop().time())

    def _stop(self) -> None:
        self.stopped = True
        self._at_end(())


class PlannedCell(PlannedRun):
    """A second run of a notebook's cell, after a replay of all recorded texts."""

    @classmethod
    def of_cell(cls, journal: RunJournal, cell: str, text: Text, settings: Settings) -> PlannedCell | None:
        """Return the run of `text` in the cell with this id; None if this process has no answers of the cell. Raises
        `UsageError` if the journal cannot be read."""
        commands: dict[str, CommandRequest] = {}
        answers = journal.answers_of(cell, _collecting(commands))
        if answers is None:
            return None
        found = read(journal.path)
        new = TextRead(replace(text, number=len(found.texts) + 1), found.lines)
        return cls(replace(found, texts=[*found.texts, new]), answers, settings, commands)

    def _open(self) -> RunJournal:
        known = KnownRecords(self._records(), keeps_texts=True, on_live=lambda under_way: None)
        return RunJournal(self._log, self._machines.first.host, self._keys, known=known)

    async def _text(self, text: Text, source: Source, language: Language) -> None:
        if text is self._found.texts[-1].record:
            self.answers.text_begins(text.number)
            self._journal.usable = self.answers
        await super()._text(text, source, language)


def _collecting(commands: dict[str, CommandRequest]) -> OnUse:
    def used(request: Request, notes: Mapping[str, object], got: bool) -> None:
        if isinstance(request, CommandRequest):
            commands[request.at] = request

    return used


class _Log(ReadOnlyJournalFile):
    """A journal file that keeps a list of the requests in memory and writes nothing."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: list[Asked] = []

    def append(self, record: Record) -> None:
        if isinstance(record, Asked):
            self.asked.append(record)


class _PlaceholderResult:
    """A `Commands` port whose output is different for each request."""

    def __init__(self, commands: dict[str, CommandRequest]) -> None:
        self._commands = commands

    async def run(self, request: CommandRequest, on_output: OnOutput | None = None) -> CommandResult:
        self._commands[request.at] = request
        return CommandResult("exited", 0, f"(the output of {request.at})")


class _Placeholder:
    """A `Sessions` port whose answer is different for each request."""

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        return SessionResult(f"(the answer to {request.at})", origin="dry-run")
