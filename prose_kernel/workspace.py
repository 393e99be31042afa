"""One run and everything it needs: the one place where ports are plugged into machines.

The kernel, `%%prose` and the command line all feed source text to a `Workspace` and listen to its events. A cell and a
file take the same two calls: `compile` with what is known by then, `run` the tree (`execute` does both). Texts of
several languages may follow each other in one run: each language has its machine, made at its first text.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec import structs

from prose_kernel import languages, run_parts
from prose_kernel._version import __version__
from prose_kernel.errors import CompileError, ResumeMismatch, RunError
from prose_kernel.language.source import Source
from prose_kernel.runtime.asker import PersonUser, serial
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.events import Event, Listener, Untold
from prose_kernel.runtime.journal_records import Asked, Head, Text
from prose_kernel.runtime.ports import Clock, Commands, Ports
from prose_kernel.runtime.values import Value
from prose_kernel.settings import DECIDES, WHO_ANSWERS, Settings

if TYPE_CHECKING:
    from prose_kernel.commands import Engine, ShellCommands
    from prose_kernel.commands.exec_tool.tool import AgentPrograms
    from prose_kernel.commands.tasks.service import TaskService
    from prose_kernel.languages import Compiled, Language, Programs
    from prose_kernel.remote.commands import RemoteCommands, RemoteState
    from prose_kernel.run_journal import Resumption, RunJournal
    from prose_kernel.runtime.journal_codec import Request
    from prose_kernel.runtime.machine import BindingInfo, Definition, Machine, Preview
    from prose_kernel.runtime.ports import LoadedProgram, LoadRequest
    from prose_kernel.runtime.services import Asker
    from prose_kernel.session_services import SessionServices
    from prose_kernel.state.answer_files import AnswerFiles
    from prose_kernel.state.gates.gatekeeper import Gatekeeper
    from prose_kernel.state.home import RunHome
    from prose_kernel.state.kept import Kept
    from prose_kernel.state.registry.resolver import RemotePrograms
    from prose_kernel.state.transcript import InContextTrace


@dataclass(frozen=True, slots=True)
class Start:
    """How a workspace begins: where, and under which name its program goes into the trace.

    Where `program_file` is a file, local imports are relative to its directory, otherwise to `cwd`. `notebook` tells
    that cells arrive one by one, and that a gate never waits for a decision from outside. `supplied` holds input values
    given beforehand; `decisions` what a person decided about gates before the start; `gate_files` that files which
    somebody else writes decide gates. `elsewhere` tells that the program is nobody's own file, but an example of the
    package: its sessions work in `cwd`. `notebook_path` is the notebook's own, where it is known. `origin` is the
    registry name or URL of a program that is fetched; `trust` what was agreed to beforehand about programs from
    elsewhere. `language` is that of a text which says nothing else; without it, that of the program file.
    """

    cwd: Path
    program_file: str = "notebook"
    notebook: bool = True
    supplied: Mapping[str, str] = field(default_factory=dict)
    decisions: Mapping[str, bool] = field(default_factory=dict)
    gate_files: bool = False
    elsewhere: bool = False
    notebook_path: str = ""
    origin: str = ""
    trust: Sequence[str] = ()
    language: Language | None = None


def load_what_cells_need(language: Language) -> None:
    """Import what a program with nothing but commands uses, so that its first cell need not."""
    from prose_kernel import deferred_services
    from prose_kernel.commands import Engine, ShellCommands
    from prose_kernel.state import filesystem, kept, memory, trace, transcript
    from prose_kernel.state.gates import gatekeeper

    _ = deferred_services, Engine, ShellCommands, language.machine()
    _ = filesystem, gatekeeper, kept, memory, trace, transcript


@dataclass(frozen=True, slots=True)
class Named:
    """A name of the run, and the language that has bound it."""

    info: BindingInfo
    language: Language

    @property
    def kind(self) -> str:
        """How it was bound, where the language has a word for it, and what its value is: `let, number`."""
        declared, kind = self.language.declared.get(self.info.kind), self.language.kind_of(self.info.value)
        return f"{declared}, {kind}" if declared else kind


@dataclass(frozen=True, slots=True)
class Defined:
    """Something that a text of the run has defined and that is no value, and the language that has defined it."""

    definition: Definition
    language: Language


def stay() -> None:
    """Go on after a cancellation that has been answered."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


@dataclass(slots=True)
class _Run:
    """What belongs to one run: closed together. `services` and `tasks` are None until something of the run needs them.

    `machines` are those of the languages used so far, by their names; the first one has begun the run.
    """

    machines: dict[str, Machine]
    gates: Gatekeeper
    commands: ShellCommands
    programs: AgentPrograms | None
    kept: Kept | None
    transcript: InContextTrace | None
    answers: AnswerFiles | None = None
    journal: RunJournal | None = None
    services: SessionServices | None = None
    tasks: TaskService | None = None

    @property
    def home(self) -> RunHome | None:
        return self.kept.home if self.kept is not None else None

    @property
    def any_machine(self) -> Machine:
        """For what the machines of a run share: ports, directory, supplied values, beginning and end."""
        return next(iter(self.machines.values()))


class Workspace:
    """A run fed by cells, or by one file.

    Making one opens nothing; the machine, the store and the process engine come with the first cell that needs them.
    Everything but `interrupt` is called in one event loop. Close it when done.
    """

    def __init__(
        self,
        settings: Settings,
        start: Start,
        *,
        asker: Asker,
        listeners: Sequence[Listener] = (),
        clock: Clock | None = None,
        resumption: Resumption | None = None,
        on_live: Callable[[Sequence[Asked]], None] = lambda under_way: None,
    ) -> None:
        self.settings = settings
        self._resumption = resumption
        self._on_live = on_live
        self.start = start if resumption is None else replace(start, origin=resumption.head.origin)
        self._asker = serial(asker)
        self._clock = clock or SystemClock()
        self._listeners = list(listeners)
        self._supplied = dict(start.supplied)
        self._inputs: set[str] = set()  # that texts of the run declare
        self._engine: Engine | None = None
        self._remote: RemoteCommands | None = None
        self._warnings: deque[str] = deque()
        self._run: _Run | None = None
        self._prepared: Kept | None = None  # of the run that begins next
        self._earlier: list[SessionServices] = []  # that others have replaced in this run: closed with the next text
        self._programs: dict[str, Programs] = {}  # by language
        self._resolver: RemotePrograms | None = None
        self._running: Language | None = None  # the language of the text that runs
        self._orphans_gone = False
        self._muted = resumption is not None  # what is replayed was shown when it happened
        self._untold = Untold()
        self.texts = 0  # of the run that have begun
        self._task: asyncio.Task[object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # ------------------------------------------------------------ what a front end asks for

    @property
    def language(self) -> Language:
        """The language of a text that says nothing else."""
        return self.start.language or languages.of_file(self.start.program_file)

    @property
    def machine(self) -> Machine:
        """The machine of that language in the current run."""
        return self.machine_of(self.language)

    def machine_of(self, language: Language) -> Machine:
        """The machine of a language in the current run, made at its first use."""
        run = self._open(language)
        machine = run.machines.get(language.name)
        if machine is None:
            machine = run.machines[language.name] = language.machine().beside(run.any_machine)
            language.configure(machine, self.settings)
        return machine

    def bindings(self) -> dict[str, Named]:
        """The names of the run with their values, whichever language has bound them."""
        found: dict[str, Named] = {}
        for language, machine in self._machines():
            for name, info in machine.bindings().items():
                if name not in found or not info.adopted:
                    found[name] = Named(info, language)
        return found

    def outputs(self) -> dict[str, tuple[Value, Language]]:
        """The outputs of the run's programs with their values by now, and the language of each."""
        return {
            name: (value, language)
            for language, machine in self._machines()
            for name, value in machine.outputs().items()
        }

    def definitions(self) -> tuple[Defined, ...]:
        """What the texts of the run have defined, in all languages."""
        return tuple(Defined(one, language) for language, machine in self._machines() for one in machine.definitions())

    def _machines(self) -> list[tuple[Language, Machine]]:
        machines = self._run.machines if self._run is not None else {}
        return [(languages.LANGUAGES[name], machine) for name, machine in machines.items()]

    @property
    def cwd(self) -> Path:
        """The directory in which the next command runs."""
        return Path(self._run.any_machine.cwd) if self._run is not None else self.start.cwd

    @cwd.setter
    def cwd(self, directory: Path) -> None:
        self._open().any_machine.cwd = str(directory)

    @property
    def services(self) -> SessionServices:
        """Who answers in the current run, and its recordings. Loads the sessions room at first use."""
        return self._services_of(self._open())

    @property
    def started_services(self) -> SessionServices | None:
        """The same, if something of the current run has used them."""
        return self._run.services if self._run is not None else None

    @property
    def tasks(self) -> TaskService:
        """Commands with a waiting window and the tasks of the current run. Loads tasks at first use."""
        return self._tasks_of(self._open())

    @property
    def started_tasks(self) -> TaskService | None:
        """The tasks of the current run, if something of it has used them."""
        return self._run.tasks if self._run is not None else None

    @property
    def gates(self) -> Gatekeeper:
        """Who decides the gates of the current run: takes decisions made beforehand."""
        return self._open().gates

    @property
    def run_id(self) -> str | None:
        """The id of the run; None before anything of it exists on disk, and where nothing of it ever does."""
        return self.run_directory.name if self.run_directory is not None else None

    @property
    def run_directory(self) -> Path | None:
        """The directory of the run, be it that of its journal alone; None before it exists."""
        run = self._run
        if run is None:
            return None
        home, journal = run.home or run.answers, run.journal.file.path.parent if run.journal is not None else None
        directory = home.directory if home is not None else journal
        return directory if directory is not None and directory.is_dir() else None

    @property
    def begun(self) -> bool:
        """Whether a text of the run has begun to run."""
        return self.texts > 0

    @property
    def keeps_journal(self) -> bool:
        """Whether the run writes down what happens."""
        return self._run is not None and self._run.journal is not None

    @property
    def journal(self) -> Path | None:
        """The journal of the run, with which it can be resumed; None where it has none, or none yet."""
        run = self._run
        path = run.journal.file.path if run is not None and run.journal is not None else None
        return path if path is not None and path.is_file() else None

    @property
    def database(self) -> str | None:
        """The database that the run is kept in, for people; None for a run in files or in memory."""
        found = self._run.kept.database if self._run is not None and self._run.kept is not None else None
        return f"{found.dialect.title} ({found.place})" if found is not None else None

    @property
    def trace_text(self) -> str:
        """The log of a run that is kept outside of memory, as it was after the last statement that was waited for."""
        run = self._run
        if run is not None and run.kept is not None:
            return run.kept.store.trace_text()
        return run.answers.trace_text() if run is not None and run.answers is not None else ""

    @property
    def transcript(self) -> str | None:
        """The markers of a run that lives in memory (openprose.md 7.6); None for one on disk."""
        run = self._run
        return run.transcript.text if run is not None and run.transcript is not None and run.answers is None else None

    @property
    def commands_here(self) -> Commands:
        """Runs commands on this machine, wherever those of the program run."""
        run = self._open()
        return (run.services.commands if run.services is not None else None) or run.commands

    @property
    def remote(self) -> RemoteState | None:
        """The machines that run the commands of programs; None where this one does, or before they were needed."""
        return self._remote.state if self._remote is not None else None

    def add_listener(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    def supply(self, name: str, value: str) -> None:
        """Give the value of an input before the program asks for it; in a run that has begun, from the next text on."""
        self._supplied[name] = value
        if self._run is not None:
            self._run.any_machine.supply(name, value)

    def declare(self, text: str, language: Language | None = None) -> None:
        """A text that is going to run declares inputs: from now on their values decide no gate of the run."""
        language = language or self.language
        compiled = language.compile(Source.of(text), cell=self.start.notebook)
        self._inputs.update(language.inputs(compiled.program))

    def choose(self, **changes: object) -> None:
        """Who answers sessions and conditions, and what is recorded, from the next text on, in this run too.

        `changes` are fields of `Settings` (those of `WHO_ANSWERS`). Raises `UsageError` for an unknown provider or a
        script that makes no sense; then nothing has changed.
        """
        if unknown := sorted(changes.keys() - set(WHO_ANSWERS)):
            raise TypeError(f"a run cannot change its {unknown[0]}")
        settings = replace(self.settings, **changes)  # type: ignore[arg-type]  # checked by whoever read them
        run = self._run
        if run is not None:
            services = self._connect(settings, run)
            self._plug_in(run, services)
            if run.services is not None:
                self._earlier.append(run.services)
            run.services = services
        self.settings = settings

    async def connect(self, url: str) -> RemoteState | None:
        """Let the workers of a scheduler run commands from now on, in this run too; `off`: this machine.

        Raises `UsageError` when no worker there can be used; then nothing has changed.
        """
        settings, former = replace(self.settings, remote=url), self._remote
        self._remote = await run_parts.remote_commands(settings, self.start.cwd, self._asker.show)
        self.settings = settings
        if self._run is not None:
            self._plug_in(self._run, self._run.services)
        if former is not None:
            await asyncio.to_thread(former.close)
        return self.remote

    # ------------------------------------------------------------ the two calls

    def compile(self, text: str, name: str = "cell", language: Language | None = None) -> Compiled:
        """The tree and all diagnostics of a text, checked against what the run knows by now."""
        language = language or self.language
        return language.compile(
            Source.of(text, name),
            profile=self.settings.profile,
            known=self.machine_of(language).known() if self._run is not None else None,
            load=lambda path: self._programs_of(language).load_contract(path),
            cell=self.start.notebook,
        )

    async def run(
        self, compiled: Compiled, inputs: Mapping[str, str] | None = None, language: Language | None = None
    ) -> Value:
        """Run a compiled text of a language in the current run and return its value.

        Raises `RunError` for an uncaught error of the program, and `CancelledError` after an interrupt, when every
        command has ended and `finally` bodies have run. Either way the run goes on with the next text.
        """
        language = language or self.language
        try:
            with self._interruptible():
                return await self._run_text(compiled, inputs or {}, language)
        finally:
            if self._run is not None and self._run.answers is not None:
                self._run.answers.flush()
            while self._warnings:
                self._asker.show(f"Warning: {self._warnings.popleft()}")

    async def _run_text(self, compiled: Compiled, inputs: Mapping[str, str], language: Language) -> Value:
        await self._prepare()
        machine = self.machine_of(language)
        run = self._open(language)
        self._inputs.update(language.inputs(compiled.program))
        await self._retire()
        self._running = language
        self.texts += 1
        await self._wait_for_orphans()
        if self._remote is None and self.settings.on_other_machines:
            self._remote = await run_parts.remote_commands(self.settings, self.start.cwd, self._asker.show)
            self._plug_in(run, run.services)
        if run.kept is not None:
            keep = run.kept.store.record_source if self.start.notebook else run.kept.store.start
            keep(compiled.source.text)
        if run.answers is not None and language.state == "vvm_state":
            keep = run.answers.record_source if self.start.notebook else run.answers.start
            keep(compiled.source.text)
        with self._written_down(run, compiled, inputs, language):
            return await machine.run(compiled.program, compiled.source, inputs=inputs, cell=self.start.notebook)

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """What the calling task does in here is what `interrupt` cancels."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            yield
        finally:
            self._task = None

    async def preview(self, compiled: Compiled, language: Language | None = None) -> tuple[Preview, ...]:
        """What each session, command and gate of a compiled text would be asked; nothing runs."""
        language = self._running = language or self.language
        return await self.machine_of(language).preview(compiled.program, compiled.source)

    async def execute(
        self,
        text: str,
        name: str = "cell",
        inputs: Mapping[str, str] | None = None,
        language: Language | None = None,
    ) -> Value:
        """Compile and run a text. Raises `CompileError` when it has errors: then nothing of it was executed."""
        compiled = self.compile(text, name, language)
        if not compiled.ok:
            raise CompileError(compiled.diagnostics)
        return await self.run(compiled, inputs, language)

    async def fetch_program(self) -> str:
        """The text of the program at the start's `origin`, when it may run.

        Raises `ImportProgramError` (E215), `CompileError` for its errors, and `CancelledError` after an interrupt.
        """
        with self._interruptible():
            programs = cast("languages.RemotePrograms", self._programs_of(self.language))
            return (await programs.load_root()).text

    @property
    def programs_from_elsewhere(self) -> RemotePrograms:
        """What provides them to this workspace; made at first use. Raises `UsageError` for a start that trusts what is
        no address, `ImportProgramError` for a registry that is none."""
        if self._resolver is None:
            writes = self.language.state != "state" or self.settings.state != "in-context"
            file = "" if self.start.origin else self.start.program_file
            self._resolver = run_parts.remote_programs(
                self.settings, self.start.cwd, file, asker=self._asker, writes=writes
            )
            self._resolver.trust.add(self.start.trust, self._resolver.registry)
        return self._resolver

    def interrupt(self) -> None:
        """End what is running, from any thread: commands by the interrupt ladder, the program by cancellation.

        A second call kills what is left at once. Without a running program it does nothing.
        """
        task, loop, run = self._task, self._loop, self._run
        if task is None or loop is None:
            return
        if run is not None:
            run.gates.interrupt()
            run.commands.interrupt()
        if self._remote is not None:
            self._remote.interrupt()

        def cancel() -> None:
            if run is not None and run.journal is not None:
                run.journal.journal.interrupt(task)
            else:
                task.cancel()

        loop.call_soon_threadsafe(cancel)

    # ------------------------------------------------------------ life

    async def end(self, error: RunError | None = None) -> None:
        """Write down that the run is over, with the error that ended it, if any. Raises `StateError`."""
        run = self._run
        if run is None:
            return
        self._caught_up()
        if run.journal is not None and run.journal.journal.replaying:  # nothing was left to do
            self._give_back(run)
        await run.any_machine.end(error)
        if run.journal is not None:
            run.journal.finish(error)

    async def reset(self) -> None:
        """End the run; the next text starts a new one, with no names and only the values that the start supplied."""
        try:
            await self._end(None)
        finally:
            self._forget()
            self._supplied = dict(self.start.supplied)
            self._inputs.clear()

    def _forget(self) -> None:
        """The run is over; another one is none that is resumed."""
        self._run = self._resumption = None
        self._muted, self._untold, self.texts = False, Untold(), 0

    async def close(self, error: RunError | None = None) -> None:
        """End the run, with the error that ended it if any, and every process it left. A second call does nothing."""
        try:
            await self._end(error)
        finally:
            self._forget()
            opened = (self._remote, self._engine)
            self._remote = self._engine = None
            await asyncio.gather(*(asyncio.to_thread(one.close) for one in opened if one is not None))

    async def _end(self, error: RunError | None) -> None:
        run = self._run
        if run is None:
            return
        async with contextlib.AsyncExitStack() as parts:  # each is closed, whatever becomes of the others
            if run.kept is not None:
                parts.callback(run.kept.store.close)
            if run.journal is not None:
                parts.callback(run.journal.close)
            if run.programs is not None:
                parts.callback(run.programs.close)
            if run.tasks is not None:
                parts.push_async_callback(run.tasks.close)
            if run.services is not None:
                parts.push_async_callback(run.services.close)
            parts.push_async_callback(self._retire)
            await self.end(error)

    async def _retire(self) -> None:
        """Close what was chosen earlier in this run."""
        earlier, self._earlier = self._earlier, []
        async with contextlib.AsyncExitStack() as replaced:
            for services in earlier:
                replaced.push_async_callback(services.retire)

    # ------------------------------------------------------------ what survives

    async def _wait_for_orphans(self) -> None:
        """Before anything of a resumed run starts: what its killed process has left running is gone."""
        if self._resumption is None or self._orphans_gone:
            return
        from prose_kernel.commands.watchdog import wait_for_orphans

        stop = threading.Event()
        try:
            gone = await asyncio.to_thread(wait_for_orphans, stop)
        finally:
            stop.set()
        self._orphans_gone = True
        if not gone:
            self._warnings.append("commands that a killed process has started cannot be ended, and may still run")

    async def restore(self) -> None:
        """Bring a run back: its finished texts run again, with the answers that they got then. A text that was
        running is not among them; the next one that is run goes on where that one was, if it is the same.

        Raises `ResumeMismatch` when the program asks something else than it did, and `CancelledError` when it is
        interrupted meanwhile: then the journal is as it was.
        """
        from prose_kernel.run_journal import interrupted_text, texts_of

        how = self._resumption
        assert how is not None
        with self._interruptible():
            await self._prepare()
        texts = how.journal.texts
        machine = self._open(languages.LANGUAGES[texts[0].record.language if texts else how.head.language]).any_machine
        for text in texts_of(how):
            language = languages.LANGUAGES[text.language]
            self._goes_on_as(text, machine)
            compiled = self.compile(text.text, text.name, language)
            try:
                await self.run(compiled, text.inputs, language)
            except ResumeMismatch:
                raise
            except RunError:
                pass
            except asyncio.CancelledError:
                if self._abandoned:
                    raise
                stay()
        if (unfinished := interrupted_text(how)) is not None:
            self._goes_on_as(unfinished, machine)
        self._muted = False  # a cell that goes on is shown as one that runs
        run = self._run
        if run is None or run.journal is None or not run.journal.journal.has_more:
            self._caught_up()
        if run is not None and run.journal is not None and not run.journal.journal.has_more:
            self._give_back(run)
        await machine.ports.store.flush()

    @property
    def _abandoned(self) -> bool:
        journal = self._run.journal if self._run is not None else None
        return journal is not None and journal.journal.abandoned

    def _goes_on_as(self, text: Text, machine: Machine) -> None:
        """What a person had set before the text."""
        for name, value in text.supplied.items():
            self.supply(name, value)
        machine.cwd = text.directory

    @contextlib.contextmanager
    def _written_down(
        self, run: _Run, compiled: Compiled, inputs: Mapping[str, str], language: Language
    ) -> Iterator[None]:
        if run.journal is None:
            yield
            return
        source = compiled.source
        supplied, directory = dict(self._supplied), run.any_machine.cwd
        text = Text(0, language.name, source.name, source.text, dict(inputs), supplied, directory)
        with run.journal.text(text):
            yield

    def _journal(self, run: _Run) -> RunJournal | None:
        settings, how = self.settings, self._resumption
        in_memory = run.kept is None and self.language.state == "state"
        if settings.journal == "off" or in_memory or settings.provider == "dry-run":
            return None
        from prose_kernel.run_journal import RunJournal
        from prose_kernel.state.journal_file import NAME, JournalFile

        host = run.any_machine.host
        if how is not None:
            file = JournalFile(how.journal.path, durable=settings.journal == "durable", on_lost=self._journal_lost)
            return RunJournal.resume(file, host, how, self._live, self._replayed)
        directory = run_parts.journal_directory(self._project, run.home, run.answers, self._clock)
        file = JournalFile(
            directory / NAME,
            durable=settings.journal == "durable",
            on_lost=self._journal_lost,
            out_of_git=None if run.home is not None else self._project / ".vvm",
        )
        return RunJournal.begin(file, host, self._head(directory.name))

    def _head(self, run_id: str) -> Head:
        settings, start = self.settings, self.start
        deciding: dict[str, str | int | bool | None] = {name: getattr(settings, name) for name in DECIDES}
        return Head(
            run_id,
            start.program_file,
            self.language.name,
            str(start.cwd),
            package=__version__,
            notebook=start.notebook,
            notebook_path=start.notebook_path,
            gate_files=start.gate_files,
            elsewhere=start.elsewhere,
            origin=start.origin,
            supplied=dict(start.supplied),
            started=f"{self._clock.now():%Y-%m-%dT%H:%M:%S.%fZ}",
            decisions=dict(start.decisions),
            settings=deciding,
        )

    def _journal_lost(self, reason: str) -> None:
        if self._run is not None and self._run.home is not None and not self._run.home.directory.is_dir():
            return  # the store says that nothing can be kept
        then = "a resumed run asks and runs again what comes now"
        self._warnings.append(f"the journal cannot be written ({reason}); {then} [E219]")

    def _replayed(self, request: Request, notes: Mapping[str, object], got: bool) -> None:
        assert self._run is not None
        self._services_of(self._run).again(request, notes, got)

    def _live(self, under_way: Sequence[Asked]) -> None:
        run, how = self._run, self._resumption
        assert run is not None and run.journal is not None and how is not None
        self._give_back(run)
        if run.services is not None:
            went_back = how.head.branch_of or how.rewind is not None or run.journal.journal.rewound
            run.services.memories.taken_back = bool(went_back)
        self._on_live(under_way)
        self._caught_up()
        for event in self._untold.take():
            self._tell(event)

    def _caught_up(self) -> None:
        """The run is where it was: what happens from now on is told, and kept at once."""
        self._muted = False
        if self._run is not None and self._run.kept is not None:
            self._run.kept.store.hold(False)

    def _give_back(self, run: _Run) -> None:
        """What agents have left in the run is what the replayed answers have made it, and no more."""
        if run.answers is not None:
            run.answers.forget_others()
        known = {}
        if run.services is not None:
            from prose_kernel.sessions.memory import forget_answered

            known = run.services.memories.known
            forget_answered(run.services.memories)
        directory = run.home.directory if run.home is not None else None
        if directory is not None and (known or any((directory / name).is_dir() for name in ("agents", "imports"))):
            from prose_kernel.sessions.memory import restore_memories

            restore_memories(directory, known)

    # ------------------------------------------------------------ plugging in

    def _open(self, language: Language | None = None) -> _Run:
        """The run; where there is none, a text of `language` begins one."""
        if self._run is None:
            self._run = self._new_run(language or self.language)
        return self._run

    def _new_run(self, language: Language) -> _Run:
        from prose_kernel.commands import ShellCommands
        from prose_kernel.deferred_services import DeferredJudge, DeferredMemories, DeferredRaces, DeferredSessions
        from prose_kernel.state.memory import MemoryStore
        from prose_kernel.state.shown_files import FilesToShow
        from prose_kernel.state.transcript import InContextTrace, MarkedTrace

        settings, start = self.settings, self.start
        keeps = self.language.state == "state"
        kept = self._kept() if keeps else None
        home = kept.home if kept is not None else None
        transcript = None if kept is not None else InContextTrace(self._asker.show) if keeps else MarkedTrace()
        trace: Listener | None = kept.trace if kept is not None else transcript
        assert trace is not None
        answers = None
        if settings.vvm_state == "filesystem":
            run_id = self._resumption.head.run if self._resumption is not None else None
            answers = run_parts.answer_files(self._project, start.program_file, home, self._clock, run_id)
        gates = self._gatekeeper(kept)
        commands = ShellCommands(self._engine_of(), settings.shell, displayed=settings.display_cap)

        def services() -> SessionServices:
            return self._services_of(run)

        ports = Ports(
            commands=commands,
            sessions=DeferredSessions(services),
            judge=DeferredJudge(services),
            user=PersonUser(self._asker),
            gates=gates,
            store=kept.store if kept is not None else MemoryStore(cwd=start.cwd),
            clock=self._clock,
            races=DeferredRaces(services),
            memories=DeferredMemories(services),
            answers=answers,
            files=FilesToShow(),
        )
        machine = language.machine()(
            ports,
            listeners=(trace, self._tell) if answers is None else (trace, answers, self._tell),
            cwd=str(start.cwd),
            program_file=start.program_file,
            concurrency=settings.concurrency,
            load=self._load,
            supplied=self._supplied,
        )
        language.configure(machine, settings)
        machines = {language.name: machine}
        programs = None
        if settings.exec_enabled:
            programs = run_parts.agent_programs(settings, home, self._engine_of(), self._clock, self._warnings.append)
        run = _Run(machines, gates, commands, programs, kept, transcript, answers)
        run.journal = self._journal(run)
        if settings.chooses_who_answers:  # a choice that makes no sense is an error of the first text
            self._plug_in(run, self._services_of(run))
        return run

    async def _prepare(self) -> None:
        """Open the database of a run that is going to begin, without keeping the loop from anything else. Before a run
        is resumed, end what its killed process had started and its watchdog has not ended yet."""
        if self._resumption is not None and self._run is None:
            from prose_kernel.commands.tasks.recovery import sweep

            await asyncio.to_thread(sweep)
        in_database = self.settings.state not in ("filesystem", "in-context")
        if in_database and self._run is None and self.language.state == "state":
            warnings: list[str] = []
            self._prepared = await asyncio.to_thread(self._open_store, warnings.append)
            for warning in warnings:
                self._warn(warning)

    def _kept(self) -> Kept | None:
        prepared, self._prepared = self._prepared, None
        kept = prepared or self._open_store(self._warn)
        if kept is not None and self._resumption is not None:
            kept.store.restart()
            kept.store.hold(True)
        return kept

    def _open_store(self, warn: Callable[[str], None]) -> Kept | None:
        run_id = self._resumption.head.run if self._resumption is not None else None
        return run_parts.keep(self.settings, self.start.cwd, self._clock, warn, run_id)

    def _warn(self, text: str) -> None:
        self._asker.show(f"Warning: {text}")

    def _services_of(self, run: _Run) -> SessionServices:
        if run.services is None:
            run.services = self._connect(self.settings, run)
        return run.services

    def _plug_in(self, run: _Run, services: SessionServices | None) -> None:
        commands: Commands = self._remote or run.commands
        machine = run.any_machine
        if services is None:  # they will come when they are needed
            machine.ports = structs.replace(machine.ports, commands=commands)
            return
        machine.ports = structs.replace(
            machine.ports,
            commands=services.commands or commands,
            sessions=services.sessions,
            judge=services.judge,
            user=services.user,
            races=services.races,
        )

    def _tasks_of(self, run: _Run) -> TaskService:
        if run.tasks is None:
            run.tasks = run_parts.task_service(self.settings, self.start.cwd, run.home, self._engine_of(), self._clock)
        return run.tasks

    def _connect(self, settings: Settings, run: _Run) -> SessionServices:
        """Services for these settings, which replace those of the run. Raises `UsageError`."""
        return run_parts.session_services(
            self._asker,
            settings,
            self.start.cwd,
            project=self._project,
            home=run.home or run.answers,
            engine=self._engine_of(),
            tasks=self._tasks_of(run),
            programs=run.programs,
            clock=self._clock,
            interrupt=self.interrupt,
            before=run.services,
        )

    @property
    def _project(self) -> Path:
        """The directory in which the sessions of the run work."""
        file = self.start.cwd / self.start.program_file
        at_home = self.language.at_home and not self.start.notebook and not self.start.elsewhere
        return file.parent if at_home and file.is_file() else self.start.cwd

    def _gatekeeper(self, kept: Kept | None) -> Gatekeeper:
        return run_parts.gatekeeper(
            self._asker,
            self.settings,
            kept,
            self._clock,
            decisions=self.start.decisions,
            supplied=self._decision_supplied,
            notebook=self.start.notebook,
            files=self.start.gate_files,
            started=lambda number: self._engine is not None and self._engine.guards(number),
        )

    def _decision_supplied(self, name: str) -> str | None:
        """A value supplied under the name of a gate decides it, unless a text of the run declares an input of that
        name."""
        return None if name in self._inputs else self._supplied.get(name)

    def _engine_of(self) -> Engine:
        if self._engine is None:
            from prose_kernel.commands import Engine

            # said in the engine's thread, at any time; the person is told at the end of a cell
            self._engine = Engine(on_warning=self._warnings.append)
        return self._engine

    def _programs_of(self, language: Language) -> Programs:
        """What finds the programs that texts of a language import; loaded with the first import."""
        found = self._programs.get(language.name)
        if found is None:
            file, profile = self.start.cwd / self.start.program_file, self.settings.profile
            around = partial(language.programs, profile=profile, resolver=lambda: self.programs_from_elsewhere)
            if self.start.origin:
                found = around(self.start.cwd, origin=self.start.origin)
            else:
                found = around(file.parent, program=file) if file.is_file() else around(self.start.cwd)
            self._programs[language.name] = found
        return found

    async def _load(self, request: LoadRequest) -> LoadedProgram:
        """An import of the text that is running: imports are loaded where they stand, at the root of their text."""
        return await self._programs_of(self._running or self.language).load_program(request)

    def _tell(self, event: Event) -> None:
        if self._muted:
            self._untold.note(event)
            return
        for listener in self._listeners:
            listener(event)
