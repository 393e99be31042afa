"""Replay a run from its journal: all its events in order, and its bindings at the end.

Nothing is asked or run: every answer comes from the journal, and the replay ends with its last record. So this works
for runs that are done, failed, killed or running in another process, and for every backend. `Replay.gap` explains why a
replay is incomplete, for example because this version runs the program differently.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct, field

from prose_kernel.access import plain_files
from prose_kernel.errors import Interrupted, ResumeMismatch, RunError
from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.runs import languages
from prose_kernel.runs.context import RunContext, Start, SuppliedValues
from prose_kernel.runs.journal import RunJournal
from prose_kernel.runs.languages import Language
from prose_kernel.runs.run_machines import BoundName, Machines
from prose_kernel.runs.settings import Settings, original_settings
from prose_kernel.runtime.events import Event
from prose_kernel.runtime.journal_records import Asked, Record, Repeated, Text, answer_in
from prose_kernel.runtime.journal_replay import KnownRecords
from prose_kernel.runtime.ports import AnswerFile, LoadedProgram, LoadRequest, Ports, Store
from prose_kernel.runtime.requests import Keys, Request
from prose_kernel.storage.journal_file import JournalFile
from prose_kernel.storage.journal_reading import JournalRead, TextRead
from prose_kernel.storage.stores import MemoryStore

PATIENCE: Final = 120.0
"""Seconds that a replay may take."""
_IDLE: Final = 1.0
"""Seconds that a program may compute after its last record: it may have been killed during a long computation."""


class RequestTimes(Struct, frozen=True):
    """The times of a request and its answer, in milliseconds since 1970; 0 if unknown."""

    asked: int = 0
    answered: int = 0


class Replay(Struct):
    """The result of a replay. `gap` explains why it isn't complete ("" if it is). `bound` are the names of the run,
    each with the language that bound it; `outputs` are the names of its outputs."""

    bound: dict[str, BoundName] = field(default_factory=dict)
    outputs: frozenset[str] = frozenset()
    gap: str = ""
    errors: list[RunError | None] = field(default_factory=list)
    """For each text that was run, the error that ended it."""


def times_of(found: JournalRead) -> Mapping[str, RequestTimes]:
    """Return the times of each request and its answer, by key. Raises `UsageError` if the file cannot be used."""
    times: dict[str, RequestTimes] = {}
    for _, record in found.records(1):
        if isinstance(record, (Asked, Repeated)):
            times[record.key] = RequestTimes(record.t)
        elif (answered := answer_in(record)) is not None:
            asked = times.get(answered.key, RequestTimes()).asked
            times[answered.key] = RequestTimes(answered.again or asked, answered.t)
    return times


class ReplayListener:
    """Receives the progress of a replay, in order. Subclasses override the methods that they need."""

    def __call__(self, event: Event) -> None:
        """Receive an event of the run."""

    def begins(self, text: TextRead, source: Source, language: Language) -> None:
        """Called when a file or cell of the run begins."""

    def ends(self, text: TextRead, error: RunError | None) -> None:
        """Called when the file or cell has ended, or the records end before it."""

    def noted(self, notes: Mapping[str, Any]) -> None:
        """Receive the notes on an answer."""

    def passed(self, record: Record) -> None:
        """Called when this record was replayed, before the next one."""

    def over(self) -> None:
        """Called when the records end. The program is cancelled; later events are not part of the run."""


async def replay(
    found: JournalRead, settings: Settings, listener: ReplayListener, store: Store | None = None
) -> Replay:
    """Replay a run. Its bindings are put into `store`, by default into memory.

    Never raises because of a record in the journal; raises `UsageError` if the file itself cannot be used.
    """
    return await Replaying(found, settings, listener, store).run()


class Replaying:
    """A replay of the records of a run. `lost` has the texts of imported programs whose files are gone, by address."""

    lost: Mapping[str, str] = {}

    def __init__(self, found: JournalRead, settings: Settings, listener: ReplayListener, store: Store | None) -> None:
        self._found, self._head = found, found.head
        head = found.head
        self._settings = settings.changed(**original_settings(head.settings))
        self._listener = listener
        self._programs: dict[str, Any] = {}
        self._over = False
        self._task: asyncio.Task[Any] | None = None
        self._until = 0.0
        self._running: Language = languages.LANGUAGES[head.language]
        first = languages.LANGUAGES[found.texts[0].record.language] if found.texts else self._running
        start = Start(Path(head.directory), head.program, head.notebook, head.supplied, language=self._running)
        unanswered = cast("Any", UnansweredPort())
        self._context = RunContext(
            self._settings,
            start,
            unanswered,
            self._emit,
            self._load,
            unanswered,
            SuppliedValues(start),
            engine=unanswered,
        )
        store = store or MemoryStore(cwd=start.cwd, by_value=not self._context.state_setting_applies)
        self._machines = Machines(self._context, first, self._ports(unanswered, store), (self._emit,))
        self._journal = self._open()

    def _ports(self, unanswered: Any, store: Store) -> Ports:
        """Return ports that answer no request, and the files of answers that the run has left."""
        head, in_files = self._head, self._settings.vvm.state == "filesystem"
        return Ports(
            commands=unanswered,
            sessions=unanswered,
            judge=unanswered,
            user=unanswered,
            gates=unanswered,
            store=store,
            clock=self._context.clock,
            memories=unanswered,
            files=unanswered,
            answers=_Answers(head.run, self._found.path.parent / "bindings") if in_files else None,
        )

    def _open(self) -> RunJournal:
        head = self._head
        keys = Keys(run_ids=tuple(one.encode() for one in (head.run, *head.branch_of)))
        known = KnownRecords(self._records(), keeps_texts=True, on_live=self._at_end, on_replayed=self._replayed)
        return RunJournal(ReadOnlyJournalFile(self._found.path), self._machines.first.host, keys, known=known)

    def _records(self) -> Iterator[tuple[int, Record]]:
        for number, record in self._found.records(1):
            yield number, record
            self._listener.passed(record)

    # ------------------------------------------------------------ texts

    async def run(self) -> Replay:
        replayed = Replay()
        self._until = asyncio.get_running_loop().time() + PATIENCE
        for text in self._found.texts:
            language = languages.of_text(text.record.language, text.record.profile)
            source = Source.of(text.record.text, text.record.name, text.record.prompt or None)
            self._listener.begins(text, source, language)
            error: RunError | None = None
            try:
                await self._text(text.record, source, language)
            except ResumeMismatch as other:
                replayed.gap = (
                    f"this version of prose_kernel does something else than the one that ran it: {other.hint}"
                )
            except RunError as failed:
                error = failed
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
            except TimeoutError:
                replayed.gap = f"its replay takes more than {PATIENCE:.0f} seconds"
            except Exception as defect:
                replayed.gap = f"its replay failed ({type(defect).__name__}); please report this"
            replayed.errors.append(error)
            self._listener.ends(text, error)
            if replayed.gap or self._over:
                break
        replayed.bound, replayed.outputs = self._machines.bindings(), frozenset(self._machines.outputs())
        if self._found.finished is not None and not (replayed.gap or self._over):
            await self._machines.first.end(self._end(replayed.errors))
        return replayed

    def _end(self, errors: Sequence[RunError | None]) -> RunError | None:
        """Return the error with which the run was closed."""
        if self._found.finished is None or self._found.finished.status == "done":
            return None
        last = self._found.texts[-1].ended if self._found.texts else None
        return Interrupted() if last is not None and last.status == "interrupted" else errors[-1]

    async def _text(self, text: Text, source: Source, language: Language) -> None:
        """Run a text in a separate task, which is cancelled at the end of the records."""
        machine = self._machines.of(language)
        self._machines.use(machine.host.ports.commands, None)
        for name, value in text.supplied.items():
            machine.host.supplied[name] = value
        machine.cwd = text.directory
        self._running = language
        compiled = language.compile(
            source, profile=self._settings.profile, known=machine.known(), cell=self._head.notebook
        )

        async def run() -> None:
            with self._journal.text(text):
                await machine.run(compiled.program, compiled.source, inputs=text.inputs, cell=self._head.notebook)

        task = self._task = asyncio.create_task(run())
        try:
            await self._watched(task)
        finally:
            if not task.done():
                self._is_over()
                self._journal.give_up(task)
                with suppress(asyncio.CancelledError, RunError):
                    await task

    async def _watched(self, task: asyncio.Task[None]) -> None:
        """Wait for a text, but not for a long computation after the last record."""
        clock = asyncio.get_running_loop()
        exhausted = 0.0
        while not task.done():
            await asyncio.wait((task,), timeout=0.2)
            now = clock.time()
            if task.done():
                break
            if now > self._until:
                raise TimeoutError
            if self._journal.has_more:
                exhausted = 0.0
            elif not exhausted:
                exhausted = now
            elif now - exhausted > _IDLE:
                return
        await task

    # ------------------------------------------------------------ callbacks of the replayed run

    def _emit(self, event: Event) -> None:
        if not self._over:
            self._listener(event)

    def _is_over(self) -> None:
        self._over = True
        self._listener.over()

    def _at_end(self, under_way: Sequence[Asked]) -> None:
        self._is_over()
        if self._task is not None:
            self._journal.give_up(self._task)

    def _replayed(self, request: Request, notes: Mapping[str, Any], got: bool) -> None:
        self._listener.noted(notes)

    async def _load(self, request: LoadRequest) -> LoadedProgram:
        """Load an import; its texts come from the journal."""
        language = self._running
        if language.name not in self._programs:  # kept, because a loaded program may load others
            self._programs[language.name] = self._programs_of(language)
        if self.lost and request.texts is None:
            request = replace(request, texts=self.lost)
        loaded: LoadedProgram = await self._programs[language.name].load_program(request)
        return loaded

    def _programs_of(self, language: Language) -> Any:
        head, profile = self._head, self._settings.profile
        base = Path(head.directory)
        file = Path(base, os.path.expanduser(head.program))
        if head.origin:
            return language.programs(base, profile=profile, origin=head.origin)
        if file.suffix in language.suffixes:
            return language.programs(file.parent, program=file, profile=profile)
        return language.programs(base, profile=profile)


class ReadOnlyJournalFile(JournalFile):
    """A journal file that is only read: nothing is written to it."""

    def append(self, record: Record) -> None: ...

    def rewind(self, to: int, then: Sequence[Record] = ()) -> None: ...


class UnansweredPort:
    """Ports without answers: a request calls `stop` and cancels the text that makes it. In a replay, no request gets
    here, because `Journal.answer` has the answer or ends the text."""

    def __init__(self, stop: Callable[[], None] = lambda: None) -> None:
        self._stop = stop

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        return self._asked

    def replayed(self, *given: object) -> None:
        """Do nothing: the record of a replayed gate stays unchanged."""

    async def _asked(self, *given: object, **named: object) -> Any:
        self._stop()
        raise asyncio.CancelledError


class _Answers:
    """The `Answers` port: the files with agents' answers that the run has left, and changes of them in memory."""

    def __init__(self, run_id: str, directory: Path) -> None:
        self.readable = f".vvm/runs/{run_id}/bindings"
        self._directory = directory
        self._texts: dict[str, str] = {}

    def target(self, number: int) -> AnswerFile:
        name = f"b{number:06d}"
        return AnswerFile(name, f"{self.readable}/{name}.md", "")

    def clear(self, target: AnswerFile) -> None:
        self._texts.pop(target.name, None)

    def read(self, target: AnswerFile) -> str | None:
        if target.name in self._texts:
            return self._texts[target.name]
        try:
            return plain_files.read_text(self._directory / f"{target.name}.md", errors="replace")
        except (OSError, ValueError):
            return None

    def write(self, target: AnswerFile, text: str) -> None:
        self._texts[target.name] = text

    def answered(self, name: str | None, agent: str, target: AnswerFile, summary: str) -> str:
        return name or target.name

    def failed(self, name: str | None, agent: str, target: AnswerFile, kind: str) -> str:
        return name or target.name
