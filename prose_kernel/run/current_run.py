"""One run of a workspace: the one place where ports are plugged into machines. Its parts are made when they are first
needed, and closed together."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from prose_kernel._version import __version__
from prose_kernel.errors import RunError
from prose_kernel.run import languages
from prose_kernel.run import parts as run_parts
from prose_kernel.run.lazy import lazy
from prose_kernel.run.settings import DECIDES, Settings, budget_limits, surroundings
from prose_kernel.runtime.asker import PersonUser
from prose_kernel.runtime.budgets import RUN, Budget
from prose_kernel.runtime.events import Listener
from prose_kernel.runtime.journal_records import Asked, Head, Text
from prose_kernel.runtime.ports import Clock, Commands, Phrases, Ports, Races

if TYPE_CHECKING:
    from prose_kernel.cassettes.library import SharedCassettes
    from prose_kernel.models.providers.model_servers import SharedWays
    from prose_kernel.processes import Engine, ShellCommands
    from prose_kernel.processes.exec_tool.tool import AgentPrograms
    from prose_kernel.processes.tasks.service import TaskService
    from prose_kernel.remote.commands import RemoteCommands
    from prose_kernel.run.earlier_approvals import EarlierApprovals
    from prose_kernel.run.journal import Resumption, RunJournal
    from prose_kernel.run.languages import Compiled, Language
    from prose_kernel.run.session_services import SessionServices
    from prose_kernel.runtime.journal_codec import Request
    from prose_kernel.runtime.machine import Machine
    from prose_kernel.runtime.ports import LoadedProgram, LoadRequest
    from prose_kernel.runtime.services import Asker
    from prose_kernel.storage.answer_files import AnswerFiles
    from prose_kernel.storage.gates.gatekeeper import Gatekeeper
    from prose_kernel.storage.home import RunHome
    from prose_kernel.storage.kept import Kept
    from prose_kernel.storage.transcript import InContextTrace
    from prose_kernel.telemetry.listener import Spans


@dataclass(frozen=True, slots=True)
class Start:
    """How a workspace begins: where, and under which name its program goes into the trace.

    Where `program_file` is a file, local imports are relative to its directory, otherwise to `cwd`. `notebook` tells
    that cells arrive one by one, and that a gate never waits for a decision from outside. `supplied` holds input values
    given beforehand; `decisions` what a person decided about gates before the start; `gate_files` that files which
    somebody else writes decide gates. `elsewhere` tells that the program is nobody's own file, but an example of the
    package: its sessions work in `cwd`. `notebook_path` is the notebook's own, where it is known. `origin` is the
    registry name or URL of a program that is fetched; `trust` what was agreed to beforehand about programs from
    elsewhere. `language` is that of a text which says nothing else; without it, that of the program file. `at` stands
    before all paths of the run, and `recordings` and `ways` to model servers are those that it shares with others.
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
    at: str = ""
    recordings: SharedCassettes | None = None
    ways: SharedWays | None = None


@dataclass(slots=True)
class Environment:
    """What a run finds: settings, front end and process engine, which stay when it ends. `resumption` is the earlier
    run that it goes on with.

    `supplied` are values of inputs by now, those named in `from_journal` as a resumed run was given them before;
    `inputs` are the names that texts of the run declare; `decisions` what persons have decided about gates to come, and
    `approvals` what they have to confirm first in a run that is resumed. `warnings` are told at the
    end of a text, from whichever thread they come.
    """

    settings: Settings
    start: Start
    asker: Asker
    clock: Clock
    tell: Listener
    load: Callable[[LoadRequest], Awaitable[LoadedProgram]]
    interrupt: Callable[[], None]
    supplied: dict[str, str]
    resumption: Resumption | None = None
    decisions: dict[str, bool] = field(default_factory=dict)
    approvals: EarlierApprovals | None = None
    from_journal: set[str] = field(default_factory=set)
    inputs: set[str] = field(default_factory=set)
    warnings: deque[str] = field(default_factory=deque)
    started_engine: Engine | None = None
    remote: RemoteCommands | None = None
    spans: Spans | None = None

    @property
    def language(self) -> Language:
        """The language of a text that says nothing else."""
        return self.start.language or languages.of_file(self.start.program_file)

    @property
    def leaves_nothing(self) -> bool:
        """Whether nothing of a run is left on disk that nobody has asked for: a program of VVM in its default mode
        (docs/reference/vvm.md 7.1). A notebook is kept itself, and so is what it has done."""
        start = self.start
        noted = start.notebook or start.program_file.endswith(".ipynb") or start.recordings is not None
        return self.language.state != "state" and self.settings.vvm.state != "filesystem" and not noted

    @property
    def project(self) -> Path:
        """The directory in which the sessions of the run work."""
        file = self.start.cwd / self.start.program_file
        at_home = self.language.at_home and not self.start.notebook and not self.start.elsewhere
        return file.parent if at_home and file.is_file() else self.start.cwd

    @property
    def functions(self) -> Path | None:
        """The directory whose Python functions sessions may use; None where the program is nobody's own file."""
        file = self.start.cwd / self.start.program_file
        if self.start.origin or self.start.elsewhere:
            return None
        return file.parent if file.is_file() else self.start.cwd

    @property
    def engine(self) -> Engine:
        """The process engine, started at first use."""
        if self.started_engine is None:
            from prose_kernel.processes import Engine

            # said in the engine's thread, at any time; the person is told at the end of a cell
            self.started_engine = Engine(on_warning=self.warnings.append)
        return self.started_engine

    def gatekeeper(self, kept: Kept | None) -> Gatekeeper:
        return run_parts.gatekeeper(
            self.asker,
            self.settings,
            kept,
            self.clock,
            decisions=self.decisions,
            supplied=self._decision_supplied,
            notebook=self.start.notebook,
            files=self.start.gate_files,
            started=self._started,
        )

    def _started(self, number: int) -> bool:
        """Whether a session, a process group or a worker on this machine with this number works for the run."""
        engine, remote = self.started_engine, self.remote
        return (engine is not None and engine.guards(number)) or (remote is not None and remote.works_in(number))

    def _decision_supplied(self, name: str) -> str | None:
        """A value supplied under the name of a gate decides it, unless a text of the run declares an input of that
        name, or an earlier process of the run was given it."""
        return None if name in self.inputs or name in self.from_journal else self.supplied.get(name)


class CurrentRun:
    """What belongs to one run, which a text of `language` begins. `kept` is None for one that lives in memory.

    `machines` are those of the languages used so far, by their names; `earlier` are services that others have replaced
    in this run, closed with its next text.
    """

    def __init__(
        self, around: Environment, language: Language, kept: Kept | None, on_live: Callable[[Sequence[Asked]], None]
    ) -> None:
        from prose_kernel.processes import ShellCommands
        from prose_kernel.storage.transcript import InContextTrace, MarkedTrace

        settings, start = around.settings, around.start
        self.around = around
        self.kept = kept
        self.answers: AnswerFiles | None = None
        self.started_services: SessionServices | None = None
        self.started_tasks: TaskService | None = None
        self.earlier: list[SessionServices] = []
        self._on_live = on_live
        in_state = around.language.state == "state"
        self._transcript: InContextTrace | None = None
        if kept is None:
            self._transcript = InContextTrace(around.asker.show) if in_state else MarkedTrace()
        if settings.vvm.state == "filesystem":
            run_id = around.resumption.head.run if around.resumption is not None else None
            self.answers = run_parts.answer_files(around.project, start.program_file, self.home, around.clock, run_id)
        self.gates = around.gatekeeper(kept)
        self.commands: ShellCommands = ShellCommands(around.engine, settings.shell, displayed=settings.display_cap)
        self.machines: dict[str, Machine] = {language.name: self._first_machine(language)}
        self.limit(settings.budget.run)
        self.programs: AgentPrograms | None = None
        if settings.exec.enabled:
            self.programs = run_parts.agent_programs(
                settings, self.home, around.engine, around.clock, around.warnings.append
            )
        self.journal = self._new_journal()
        if settings.chooses_who_answers:  # a choice that makes no sense is an error of the first text
            _ = self.services
        self.plug_in()

    def _first_machine(self, language: Language) -> Machine:
        from prose_kernel.storage.memory import MemoryStore
        from prose_kernel.storage.shown_files import FilesToShow

        around, kept = self.around, self.kept
        ports = Ports(
            commands=self.commands,
            sessions=lazy(lambda: self.services.sessions),
            judge=lazy(lambda: self.services.judge),
            user=PersonUser(around.asker, self._phrases),
            gates=self.gates,
            store=kept.store if kept is not None else MemoryStore(cwd=around.start.cwd),
            clock=around.clock,
            races=lazy(self._races),
            memories=lazy(lambda: self.services.digests),
            answers=self.answers,
            files=FilesToShow(),
        )
        trace: Listener | None = kept.trace if kept is not None else self._transcript
        assert trace is not None
        machine = language.machine()(
            ports,
            listeners=(trace, around.tell) if self.answers is None else (trace, self.answers, around.tell),
            cwd=str(around.start.cwd),
            program_file=around.start.program_file,
            concurrency=around.settings.concurrency,
            load=around.load,
            supplied=around.supplied,
            at=around.start.at,
        )
        language.configure(machine, around.settings)
        return machine

    def _phrases(self) -> Phrases | None:
        """Whoever puts questions into words; nothing is loaded where no provider was chosen."""
        settings = self.around.settings
        return self.services.phrases if settings.judge.phrase and settings.chooses_who_answers else None

    # ------------------------------------------------------------ what it consists of

    @property
    def any_machine(self) -> Machine:
        """For what the machines of a run share: ports, directory, supplied values, beginning and end."""
        return next(iter(self.machines.values()))

    def machine_of(self, language: Language) -> Machine:
        """The machine of a language, made at its first use."""
        machine = self.machines.get(language.name)
        if machine is None:
            machine = self.machines[language.name] = language.machine().beside(self.any_machine)
            language.configure(machine, self.around.settings)
        return machine

    @property
    def services(self) -> SessionServices:
        """Who answers, and its recordings. Loads the sessions room at first use."""
        if self.started_services is None:
            self.started_services = self._connect(self.around.settings)
        return self.started_services

    @property
    def tasks(self) -> TaskService:
        """Commands with a waiting window, and tasks. Loads tasks at first use."""
        if self.started_tasks is None:
            around = self.around
            self.started_tasks = run_parts.task_service(
                around.settings, around.start.cwd, self.home, around.engine, around.clock
            )
        return self.started_tasks

    def limit(self, budget: str | None) -> None:
        """Let the whole run have this budget from now on; None or `off`: none. Raises `UsageError`."""
        limits, host = budget_limits(budget or "off"), self.any_machine.host
        if limits is None:
            host.budget = None
        elif host.budget is None:
            host.budget = Budget(RUN, "the run", limits, self.around.clock)
        else:
            host.budget.begin_again(limits)
        del host.caught_budgets[RUN]

    def choose(self, settings: Settings) -> None:
        """Let others answer from the next text on. Raises `UsageError`; then nothing has changed."""
        chosen = self._connect(settings)
        if self.started_services is not None:
            self.earlier.append(self.started_services)
        self.started_services = chosen
        self.plug_in()

    def plug_in(self) -> None:
        """Let the machines use the services and the commands that are there by now."""
        commands: Commands = self.around.remote or self.commands
        if (spans := self.around.spans) is not None and self.around.settings.telemetry.commands:
            from prose_kernel.telemetry.commands import TracedCommands

            commands = TracedCommands(commands, spans)
        machine, services = self.any_machine, self.started_services
        if services is None:  # they will come when they are needed
            machine.ports = structs.replace(machine.ports, commands=commands)
            return
        machine.ports = structs.replace(machine.ports, commands=services.commands or commands, races=services.races)

    def _races(self) -> Races:
        races = self.services.races
        assert races is not None  # a choice that records nothing is made before the first race (`plug_in`)
        return races

    def _connect(self, settings: Settings) -> SessionServices:
        """Put together what answers sessions. Raises `UsageError`."""
        from prose_kernel.access.policy import Note, unnoted
        from prose_kernel.models.tools.commands import command_tools
        from prose_kernel.models.tools.exec import exec_tools
        from prose_kernel.processes.helpers import Helpers
        from prose_kernel.processes.tasks.terminals import TaskTerminals
        from prose_kernel.run.session_chain import Facilities, connect
        from prose_kernel.storage.journal_file import is_answered

        around, start, tasks, home = self.around, self.around.start, self.tasks, self.home or self.answers
        options = settings.session_options(start.cwd)
        if around.leaves_nothing and not settings.records_by_choice:
            options = replace(options, cassette=structs.replace(options.cassette, writes=False))
        directory = home.directory if home is not None else None
        note: Note = unnoted
        if directory is not None:
            note = run_parts.tool_notes(run_parts.audit_log(settings, directory, around.clock, around.warnings.append))
        facilities = Facilities(
            around.clock,
            around.interrupt,
            Helpers(around.engine),
            TaskTerminals(tasks),
            more_tools=lambda request, policy, desk: (
                *command_tools(request, policy, desk, tasks),
                *exec_tools(request, policy, desk, self.programs, str(start.cwd)),
            ),
            is_answered=is_answered,
            functions=around.functions,
            note=note,
            recordings=start.recordings,
            ways=start.ways,
        )
        where = surroundings(around.project, directory, settings.state_dir)
        return connect(around.asker, options, where, facilities, self.started_services)

    # ------------------------------------------------------------ what it leaves behind

    @property
    def home(self) -> RunHome | None:
        return self.kept.home if self.kept is not None else None

    @property
    def directory(self) -> Path | None:
        """That of the run, be it that of its journal alone; None before it exists."""
        home, journal = self.home or self.answers, self.journal.file.path.parent if self.journal is not None else None
        directory = home.directory if home is not None else journal
        return directory if directory is not None and directory.is_dir() else None

    @property
    def database(self) -> str | None:
        """The database that the run is kept in, for people; None for a run in files or in memory."""
        found = self.kept.database if self.kept is not None else None
        return f"{found.dialect.title} ({found.place})" if found is not None else None

    @property
    def trace_text(self) -> str:
        """The log of a run that is kept outside of memory, as it was after the last statement that was waited for."""
        if self.kept is not None:
            return self.kept.store.trace_text()
        return self.answers.trace_text() if self.answers is not None else ""

    @property
    def transcript(self) -> str | None:
        """The markers of a run that lives in memory (openprose.md 7.6); None for one on disk."""
        return self._transcript.text if self._transcript is not None and self.answers is None else None

    def keep_text(self, compiled: Compiled, language: Language) -> None:
        """Keep the text of a program or a cell with the run."""
        source, notebook = compiled.source.text, self.around.start.notebook
        if self.kept is not None:
            keep = self.kept.store.record_source if notebook else self.kept.store.start
            keep(source)
        if self.answers is not None and language.state == "vvm_state":
            keep = self.answers.record_source if notebook else self.answers.start
            keep(source)

    # ------------------------------------------------------------ its journal

    @contextlib.contextmanager
    def written_down(self, compiled: Compiled, inputs: Mapping[str, str], language: Language) -> Iterator[None]:
        """Write what happens in here into the journal, as one text."""
        if self.journal is None:
            yield
            return
        source = compiled.source
        supplied, directory = dict(self.around.supplied), self.any_machine.cwd
        prompt = source.prompt or 0
        text = Text(0, language.name, source.name, source.text, dict(inputs), supplied, directory, prompt=prompt)
        with self.journal.text(text):
            yield

    def _new_journal(self) -> RunJournal | None:
        around, settings, how = self.around, self.around.settings, self.around.resumption
        in_memory = around.leaves_nothing or (self.kept is None and around.language.state == "state")
        if how is None and (settings.journal == "off" or in_memory or settings.provider == "dry-run"):
            return None
        from prose_kernel.run.journal import RunJournal
        from prose_kernel.storage.journal_file import NAME, JournalFile

        host, durable = self.any_machine.host, settings.journal == "durable"
        if how is not None:
            file = JournalFile(how.journal.path, durable=durable, on_lost=self._journal_lost)
            return RunJournal.resume(file, host, how, self._on_live, self._replayed)
        directory = run_parts.journal_directory(around.project, self.home, self.answers, around.clock)
        file = JournalFile(
            directory / NAME,
            durable=durable,
            on_lost=self._journal_lost,
            out_of_git=self._out_of_git(),
            at_once=self.kept is not None and self.kept.database is not None and not self.kept.database.inside,
        )
        return RunJournal.begin(file, host, self._head(directory.name))

    def _out_of_git(self) -> Path | None:
        """The directory that git ignores: ours alone, never one that the settings name."""
        from prose_kernel.storage.layout import STATE

        if self.home is None:
            return self.around.project / ".vvm"
        return self.home.state_dir if self.home.state_dir.name == STATE else None

    def _head(self, run_id: str) -> Head:
        around, start = self.around, self.around.start
        deciding: dict[str, str | int | bool | None] = {
            name: value for name, value in around.settings.by_name().items() if name in (*DECIDES, "cassette_mode")
        }
        return Head(
            run_id,
            start.program_file,
            around.language.name,
            str(start.cwd),
            package=__version__,
            notebook=start.notebook,
            notebook_path=start.notebook_path,
            gate_files=start.gate_files,
            elsewhere=start.elsewhere,
            origin=start.origin,
            supplied=dict(start.supplied),
            started=f"{around.clock.now():%Y-%m-%dT%H:%M:%S.%fZ}",
            decisions=dict(start.decisions),
            settings=deciding,
        )

    def _journal_lost(self, reason: str) -> None:
        if self.home is not None and not self.home.directory.is_dir():
            return  # the store says that nothing can be kept
        then = "a resumed run asks and runs again what comes now"
        self.around.warnings.append(f"the journal cannot be written ({reason}); {then} [E219]")

    def _replayed(self, request: Request, notes: Mapping[str, object], got: bool) -> None:
        self.services.again(request, notes, got)

    def give_back(self) -> None:
        """What agents have left in the run is what the replayed answers have made it, and no more."""
        if self.answers is not None:
            self.answers.forget_others()
        known = {}
        if self.started_services is not None:
            from prose_kernel.models.memory_directory import forget_answered

            known = self.started_services.memories.known
            forget_answered(self.started_services.memories)
        directory = self.home.directory if self.home is not None else None
        if directory is not None and (known or any((directory / name).is_dir() for name in ("agents", "imports"))):
            from prose_kernel.models.memory import restore_memories

            restore_memories(directory, known)

    # ------------------------------------------------------------ its end

    async def retire(self) -> None:
        """Close services that others have replaced."""
        earlier, self.earlier = self.earlier, []
        async with contextlib.AsyncExitStack() as replaced:
            for services in earlier:
                replaced.push_async_callback(services.retire)

    async def end(self, error: RunError | None) -> None:
        """Write down that the run is over. Raises `StateError`."""
        if self.journal is not None and self.journal.journal.replaying:  # nothing was left to do
            self.give_back()
        await self.any_machine.end(error)
        if self.journal is not None:
            self.journal.finish(error)

    async def close(self, end: Callable[[], Awaitable[None]]) -> None:
        """Call `end`, then close every part, whatever becomes of the others."""
        async with contextlib.AsyncExitStack() as parts:
            if self.kept is not None:
                parts.callback(self.kept.store.close)
            for closed in (self.journal, self.programs):
                if closed is not None:
                    parts.callback(closed.close)
            for one in (self.started_tasks, self.started_services):
                if one is not None:
                    parts.push_async_callback(one.close)
            parts.push_async_callback(self.retire)
            await end()
