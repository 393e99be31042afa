"""What a run of an edited program would keep and ask, found out without asking anything (amendment A57).

The program runs in memory with the kept answers of the earlier run. A session or command that is asked again gets a
placeholder, so that everything that uses its answer is asked again, too. At any other request without a kept answer the
program ends, because what it does next depends on the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from prose_kernel.runs.journal import RunJournal
from prose_kernel.runs.keeping import EarlierRun, commands_first
from prose_kernel.runs.replay import Known, Replaying, ReplayListener, Unwritten
from prose_kernel.runs.settings import Settings
from prose_kernel.runtime.continuing import AskedAgain, EarlierAnswers
from prose_kernel.runtime.journal import Journal
from prose_kernel.runtime.journal_records import Answered, Asked, Record
from prose_kernel.runtime.keys import Keys, reader
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
from prose_kernel.storage.journal_file import TextRead
from prose_kernel.storage.shown_files import FilesToShow


async def repeated_requests(earlier: EarlierRun, text: str, settings: Settings) -> list[Asked]:
    """Return the answered requests whose answers a run of the changed text does not use, commands first; without those
    that had failed. `text` replaces the last file's text. Nothing is asked or run."""
    foreseen = Foreseeing(earlier, text, settings)
    complete = not (await foreseen.run()).gap and not foreseen.stopped
    if complete and not foreseen.answers.asked:
        return []  # unused answers belong to statements that are gone
    return commands_first(one.asked for one in foreseen.answers.unused if not one.failed)


class Foreseeing(Replaying):
    """The run of a changed text, as far as the answers of an earlier run reach. `stopped`: it ended at a request, and
    not at the end of the program."""

    def __init__(self, earlier: EarlierRun, text: str, settings: Settings) -> None:
        found, self.lost = earlier.journal, earlier.lost_imports()
        last = structs.replace(found.texts[-1].record, text=text)
        self.answers: EarlierAnswers = earlier.answers(found.head.run, foreseen=True)
        self.stopped = False
        self._log = _Log(found.path)
        self._files = FilesToShow()
        now = replace(found, texts=[*found.texts[:-1], TextRead(last, found.texts[-1].number)], finished=None)
        super().__init__(now, Known({}), settings, ReplayListener(), None)

    def _ports(self, nobody: Any, store: Store) -> Ports:
        stop: Any = _Stop(self._stop)
        ports = super()._ports(stop, store)
        return structs.replace(ports, sessions=_Placeholder(), commands=_PlaceholderResult(), files=self._files)

    def _open(self) -> RunJournal:
        head, host = self._head, self._machines.first.host
        ids = tuple(one.encode() for one in (head.run, *head.branch_of))
        answers = reader(host.ports.answers)
        keys = Keys(head.directory, str(self._context.project), ids, self._settings.shell or "", answers)
        host.journal = Journal(self._log, host.scheduler, keys, earlier=self.answers)
        return RunJournal(self._log, host.journal)

    def requests(self) -> list[Asked | AskedAgain]:
        """The requests that the run makes, in their order: a kept one as it is, one that is asked with the reason."""
        again = {one.asked.key: one for one in self.answers.asked_again()}
        kept = {one.key: one for one in self._log.asked if one.key in self._log.kept}
        made: dict[str, Asked | AskedAgain] = {**kept, **again}
        return [made[one.key] for one in self._log.asked if one.key in made]

    async def _watched(self, task: asyncio.Task[None]) -> None:
        await asyncio.wait_for(task, self._until - asyncio.get_running_loop().time())

    def _stop(self) -> None:
        self.stopped = True
        self._at_end(())


class _Log(Unwritten):
    """Notes which requests were made, and which of them have a kept answer."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: list[Asked] = []
        self.kept: set[str] = set()

    def append(self, record: Record) -> None:
        if isinstance(record, Asked):
            self.asked.append(record)
        elif isinstance(record, Answered) and record.kept:
            self.kept.add(record.key)


class _Stop:
    """The ports whose answers decide what the program does next."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        return self._asked

    def replayed(self, *given: object) -> None:
        """A gate keeps its decision."""

    async def _asked(self, *given: object, **named: object) -> Any:
        self._stop()
        raise asyncio.CancelledError


class _PlaceholderResult:
    """The `Commands` port: an output that differs from all others."""

    async def run(self, request: CommandRequest, on_output: OnOutput | None = None) -> CommandResult:
        return CommandResult("exited", 0, f"(the output of {request.at})")


class _Placeholder:
    """The `Sessions` port: an answer that differs from all others."""

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        return SessionResult(f"(the answer to {request.at})", origin="dry-run")
