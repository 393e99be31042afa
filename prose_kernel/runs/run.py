"""One run: its machines, their ports to the outside, its journal and its files.

Only this module connects ports to machines. Parts that a run may not need are made when they are first used; all of
them are closed together.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prose_kernel._version import __version__
from prose_kernel.access import plain_files
from prose_kernel.errors import RunError, UsageError
from prose_kernel.language.contracts import is_contract
from prose_kernel.language.structs import replace
from prose_kernel.runs import run_assembly
from prose_kernel.runs.lazy_objects import Once, lazy
from prose_kernel.runs.run_machines import Machines
from prose_kernel.runs.settings import FIXED_SETTINGS, Settings, budget_limits, surroundings
from prose_kernel.runtime.asker import PersonUser
from prose_kernel.runtime.budgets import RUN, Budget
from prose_kernel.runtime.events import Listener
from prose_kernel.runtime.journal_records import Asked, Head, Text
from prose_kernel.runtime.journal_replay import KnownRecords
from prose_kernel.runtime.ports import Commands, Phrases, Ports, Races, Sessions, Store
from prose_kernel.runtime.requests import Keys

if TYPE_CHECKING:
    from prose_kernel.processes.exec_tool.tool import AgentPrograms
    from prose_kernel.processes.shell import ShellCommands
    from prose_kernel.processes.tasks.service import TaskService
    from prose_kernel.runs.context import RunContext
    from prose_kernel.runs.journal import RunJournal
    from prose_kernel.runs.languages import Compiled, Language
    from prose_kernel.runs.provider_chain import SessionServices
    from prose_kernel.runtime.earlier_answers import EarlierAnswers
    from prose_kernel.runtime.requests import Request
    from prose_kernel.storage.answer_files import AnswerFiles
    from prose_kernel.storage.file_history import FileHistory
    from prose_kernel.storage.run_directory import RunDirectory, StoredRun
    from prose_kernel.storage.transcript import InContextTrace

_WITH_JOURNAL: Final = "keep the run in files: --state=filesystem"


class _UnrecordedRaces:
    """The `Races` port of a run without recordings: no race has a recorded winner, and none is recorded."""

    def recorded(self, at: str, text: str) -> None:
        return None

    async def ended(self, at: str, text: str, branches: tuple[int, ...]) -> None:
        return None


class Run:
    """One run, whose first text is one of `language`. `kept` is None for a run in memory. `on_live` is called at the
    end of a resumed run's journal, with the requests that were running then."""

    def __init__(
        self,
        context: RunContext,
        language: Language,
        kept: StoredRun | None,
        on_live: Callable[[Sequence[Asked]], None],
    ) -> None:
        from prose_kernel.processes.resources import LimitedCommands
        from prose_kernel.processes.shell import ShellCommands

        settings = context.settings
        self.context = context
        self.kept = kept
        self.answers: AnswerFiles | None = None
        self.started_services: SessionServices | None = None
        self._replaced_services: list[SessionServices] = []  # they are closed when the next text begins
        self._on_live = on_live
        if settings.vvm.state == "filesystem":
            self.answers = run_assembly.answer_files(context, self.home)
        self._file_history = Once(self._new_file_history)
        self.gates = run_assembly.gatekeeper(context, kept, self._owns_process)
        self.commands: ShellCommands = ShellCommands(context.engine(), settings.shell, displayed=settings.display_cap)
        self._local_commands: Commands = LimitedCommands(self.commands, settings.remote.resources)
        self.task_service: Once[TaskService] = Once(lambda: run_assembly.task_service(self.context, self.home))
        self._transcript = self._new_transcript()
        self.machines = Machines(context, language, self._ports(), self._listeners())
        self.machine = self.machines.first
        self.limit(settings.budget.run)
        self.programs: AgentPrograms | None = None
        if settings.exec.enabled:
            self.programs = run_assembly.agent_programs(context, self.home)
        self.journal = self._new_journal()
        try:
            if settings.chooses_answer_source:  # reports an invalid choice when the first text begins
                self.started_services = self._connect(settings)
            self._plug_in()
        except BaseException:
            if self.journal is not None:  # the run would count as running
                self.journal.close()
            raise

    def _ports(self) -> Ports:
        from prose_kernel.storage.shown_files import FilesToShow

        return Ports(
            commands=self._local_commands,
            sessions=lazy(self._sessions),
            judge=lazy(lambda: self.services.judge),
            user=PersonUser(self.context.asker, self._phrases),
            gates=self.gates,
            store=self._store(),
            clock=self.context.clock,
            races=lazy(self._races),
            memories=lazy(lambda: self.services.digests),
            answers=self.answers,
            files=FilesToShow(),
            tree=lazy(self._file_history) if self.context.settings.run.keep_files else None,
        )

    def _store(self) -> Store:
        if self.kept is not None:
            return self.kept.store
        from prose_kernel.storage.stores import MemoryStore

        start = self.context.start
        return start.overrides.store or MemoryStore(cwd=start.cwd)

    def _new_file_history(self) -> FileHistory:
        """Make the file history. The journal calls this at the first request that can change files."""
        from prose_kernel.storage.file_history import FileHistory

        start, journal = self.context.start, self.journal
        assert journal is not None
        warn = self.context.warnings.append
        return FileHistory(start.cwd, journal.directory, lambda: journal.file.next_number, warn, start.notebook_path)

    def _sessions(self) -> Sessions:
        keep = self.context.start.keep
        if keep is None or not keep.models:
            return self.services.sessions
        from prose_kernel.runs.earlier_run import OtherModels

        return OtherModels(self.services.sessions, keep.models)

    def _races(self) -> Races:
        return self.services.races or _UnrecordedRaces()

    def _phrases(self) -> Phrases | None:
        """Return the judge that phrases questions, None if no provider was chosen: then nothing is loaded."""
        settings = self.context.settings
        return self.services.phrases if settings.judge.phrase and settings.chooses_answer_source else None

    def _new_transcript(self) -> InContextTrace | None:
        """Return the listener that records the markers of a run in memory; None for one on disk."""
        if self.kept is not None:
            return None
        from prose_kernel.storage.transcript import InContextTrace, MarkedTrace

        return InContextTrace(self.context.asker.show) if self.context.state_setting_applies else MarkedTrace()

    def _listeners(self) -> list[Listener]:
        found = (self.kept.trace if self.kept is not None else self._transcript, self.answers, self.context.emit)
        return [listener for listener in found if listener is not None]

    def _owns_process(self, number: int) -> bool:
        """Return whether this process group, POSIX session or worker process on this machine belongs to this run."""
        engine, remote = self.context.engine.made, self.context.remote
        return (engine is not None and engine.guards(number)) or (remote is not None and remote.is_worker(number))

    # ------------------------------------------------------------ services

    @property
    def services(self) -> SessionServices:
        """The providers of sessions and their recordings. First use loads `models`."""
        if self.started_services is None:
            self.started_services = self._connect(self.context.settings)
        return self.started_services

    @property
    def tasks(self) -> TaskService:
        """Commands with a waiting window, and tasks. First use loads the task service."""
        return self.task_service()

    @property
    def local_commands(self) -> Commands:
        """The port that runs commands on this machine, even if the program's commands run on other machines."""
        services = self.started_services
        return (services.commands if services is not None else None) or self.commands

    @property
    def budget(self) -> Budget | None:
        """The budget of the run, with its consumption."""
        return self.machine.host.budget

    def limit(self, budget: str | None) -> None:
        """Set the budget of the whole run from now on; None or `off` removes it. Raises `UsageError`."""
        limits, host = budget_limits(budget or "off"), self.machine.host
        if limits is None:
            host.budget = None
        elif host.budget is None:
            host.budget = Budget(RUN, "the run", limits, self.context.clock)
        else:
            host.budget.replace_limits(limits)
        del host.caught_budgets[RUN]

    def choose(self, settings: Settings) -> None:
        """Replace the session services from the next text on. Raises `UsageError`; then nothing has changed."""
        chosen = self._connect(settings)
        if self.started_services is not None:
            self._replaced_services.append(self.started_services)
        self.started_services = chosen
        self._plug_in()

    def use(self, context: RunContext) -> None:
        """Continue with other settings, and with commands on other machines."""
        self.context = context
        self._plug_in()

    def _plug_in(self) -> None:
        """Connect the current services and commands to the machines."""
        services, spans = self.started_services, self.context.spans
        commands: Commands = self.context.remote or self._local_commands
        if spans is not None and self.context.settings.telemetry.commands:
            from prose_kernel.telemetry.spans_from_events import TracedCommands

            commands = TracedCommands(commands, spans)
        if services is None:  # they are made at their first use
            self.machines.use(commands, self.machine.host.ports.races)
        else:
            self.machines.use(services.commands or commands, services.races)

    def _connect(self, settings: Settings) -> SessionServices:
        """Make the services that answer sessions. Raises `UsageError`."""
        from prose_kernel.models.tools.commands import command_tools
        from prose_kernel.models.tools.exec import exec_tools
        from prose_kernel.processes.long_lived_processes import Helpers
        from prose_kernel.processes.tasks.service import TaskTerminals
        from prose_kernel.runs.provider_chain import Facilities, connect
        from prose_kernel.storage.journal_reading import is_answered

        context, start, tasks, home = self.context, self.context.start, self.tasks, self.home or self.answers
        directory = home.directory if home is not None else None
        options = settings.session_options(start.cwd)
        if context.leaves_no_files and not settings.records_by_choice:
            options = replace(options, cassette=replace(options.cassette, writes=False))
        facilities = Facilities(
            context.clock,
            context.interrupt,
            Helpers(context.engine()),
            TaskTerminals(tasks),
            more_tools=lambda request, policy, approvals: (
                *command_tools(request, policy, approvals, tasks),
                *exec_tools(request, policy, approvals, self.programs, str(start.cwd)),
            ),
            is_answered=is_answered,
            functions=context.functions,
            note=run_assembly.tool_notes(context, directory),
            recordings=start.recordings,
            connections=start.connections,
            overrides=start.overrides,
        )
        where = surroundings(context.project, directory, settings.state_dir)
        return connect(context.asker, options, where, facilities, self.started_services)

    # ------------------------------------------------------------ files of the run

    @property
    def home(self) -> RunDirectory | None:
        return self.kept.home if self.kept is not None else None

    @property
    def directory(self) -> Path | None:
        """The directory of the run, which may hold only its journal; None before it exists."""
        home = self.home or self.answers
        directory = home.directory if home is not None else self.journal.directory if self.journal is not None else None
        return directory if directory is not None and directory.is_dir() else None

    @property
    def id(self) -> str | None:
        """The id of the run; None as long as it has no directory."""
        return self.directory.name if self.directory is not None else None

    @property
    def owned(self) -> str | None:
        """The id under which this process owns the run; None without a journal: such a run cannot be taken over."""
        return self.journal.path.parent.name if self.journal is not None else None

    @property
    def journal_file(self) -> Path | None:
        """The journal from which the run can be resumed; None if there is none yet, or it is empty (a full disk)."""
        path = self.journal.path if self.journal is not None else None
        found = plain_files.stamp_of(path) if path is not None else None
        return path if found is not None and found.size else None

    @property
    def database(self) -> str | None:
        """The description of the run's database; None for a run in files or in memory."""
        found = self.kept.database if self.kept is not None else None
        return f"{found.dialect.title} ({found.place})" if found is not None else None

    @property
    def trace_text(self) -> str:
        """The log of a run on disk or in a database, as of the last statement whose end was awaited; "" in memory."""
        if self.kept is not None:
            return self.kept.store.trace_text()
        return self.answers.trace_text() if self.answers is not None else ""

    @property
    def transcript(self) -> str | None:
        """The markers of a run in memory (openprose.md 7.6); None for one on disk."""
        return self._transcript.text if self._transcript is not None and self.answers is None else None

    # ------------------------------------------------------------ its texts

    @contextlib.contextmanager
    def text(
        self, compiled: Compiled, inputs: Mapping[str, str], language: Language, *, keeps: bool = False
    ) -> Iterator[None]:
        """Enclose the running of one text: it is stored with the run, and the journal records what happens. `keeps`: a
        cell that runs again may keep its answers."""
        from prose_kernel.storage.run_paths import copies_of

        source, notebook = compiled.source, self.context.start.notebook
        kept = self.kept.store if self.kept is not None else None
        if kept is not None and not notebook and is_contract(source.name):
            kept.start(source.text, copies_of(source.text, compiled.program.texts()))
            kept = None
        for store in (kept, self.answers if language.state == "vvm_state" else None):
            if store is not None:
                (store.record_source if notebook else store.start)(source.text)
        if self.journal is None:
            yield
            return
        supplied, directory = dict(self.context.given.supplied), self.machine.cwd
        prompt = source.prompt or 0
        profile = language.profile or ""
        text = Text(
            0, language.name, source.name, source.text, dict(inputs), supplied, directory, profile, prompt=prompt
        )
        declared = partial(language.inputs, compiled.program)
        with self.journal.cell(self._replayed, keeps=keeps), self.journal.text(text, declared):
            yield

    def interrupt(self) -> None:
        """End open gates, commands and a wait for the store, from any thread. A second call kills the commands."""
        self.gates.interrupt()
        self.commands.interrupt()
        if self.kept is not None:
            self.kept.store.interrupt()

    def cancel(self, task: asyncio.Task[object]) -> None:
        """End the text that runs in this task."""
        if self.journal is not None:
            self.journal.end_replay()
            self.journal.interrupt(task)
        else:
            task.cancel()

    # ------------------------------------------------------------ its journal

    @property
    def no_journal_reason(self) -> str:
        """The sentence that says why the run has no journal and keeps no answers; "" if it has one."""
        context, settings = self.context, self.context.settings
        if context.resumption is not None:
            return ""
        if settings.journal == "off":
            why = 'journal = "off"'
        elif settings.provider == "dry-run":
            why = "it is a dry run"
        elif context.leaves_no_files:
            why = "VVM's default mode leaves nothing on disk"
        elif self.kept is None and context.state_setting_applies:
            why = 'state = "in-context"'
        else:
            return ""
        return f"this run keeps no journal ({why}), so no answers are kept"

    def _new_journal(self) -> RunJournal | None:
        context, start = self.context, self.context.start
        how, mode = context.resumption, context.settings.journal
        if self.no_journal_reason:
            if start.keep is not None:
                message = f"{self.no_journal_reason}, and those of an earlier run can't be used"
                raise UsageError(message, hint=None if mode == "off" else _WITH_JOURNAL)
            if start.notebook and context.settings.rerun == "keep":
                context.warnings.append(f'rerun = "keep" has no effect: {self.no_journal_reason}')
            return None
        from prose_kernel.runs.journal import RunJournal
        from prose_kernel.storage.journal_file import JournalFile
        from prose_kernel.storage.journal_reading import NAME

        host, copy = self.machine.host, self.kept.copy if self.kept is not None else None
        if how is not None:
            file = JournalFile(how.journal.path, durable=mode == "durable", on_lost=self._journal_lost, copy=copy)
            known = KnownRecords(iter(()), on_live=self._on_live, on_replayed=self._replayed)
            return RunJournal.resume(file, host, how, known, self._keys(how.head), self._answers_kept(how.head))
        directory = run_assembly.journal_directory(context, self.home or self.answers)
        head = self._head(directory.name)
        file = JournalFile(
            directory / NAME,
            durable=mode == "durable",
            on_lost=self._journal_lost,
            out_of_git=self._out_of_git(),
            copy=copy,
            sole=head.interactive and self.home is None and self.answers is None,
        )
        return RunJournal.begin(file, host, head, self._keys(head), self._answers_kept(head))

    def _keys(self, head: Head) -> Keys:
        context, ids = self.context, (head.run, *reversed(head.branch_of))
        shell = context.settings.shell or ""
        encoded = tuple(one.encode() for one in ids)
        return Keys(str(context.start.cwd), str(context.project), encoded, shell, self.answers)

    def _answers_kept(self, head: Head) -> EarlierAnswers | None:
        """Return the answers of an earlier run that this one keeps, also when it is resumed; None without one."""
        keep, how = self.context.start.keep, self.context.resumption
        if keep is None and how is not None and how.earlier_journal is not None:
            from prose_kernel.runs.earlier_run import EarlierRun
            from prose_kernel.runs.resumption import resumption

            with contextlib.suppress(UsageError):  # the earlier run is gone: the remaining requests are made live
                keep = EarlierRun(resumption(how.earlier_journal))
        return keep.answers(head.run, self._replayed) if keep is not None else None

    def _out_of_git(self) -> Path | None:
        """Return the directory to exclude from git: only a default one, never one that a setting names."""
        from prose_kernel.storage.run_paths import STATE, VVM

        if self.home is None:
            return self.context.project / VVM
        return self.home.state_dir if self.home.state_dir.name == STATE else None

    def _head(self, run_id: str) -> Head:
        context, start = self.context, self.context.start
        database = self.kept.database if self.kept is not None else None
        deciding: dict[str, str | int | bool | None] = {
            name: value
            for name, value in context.settings.by_name().items()
            if name in (*FIXED_SETTINGS, "cassette_mode")
        }
        return Head(
            run_id,
            start.program_file,
            context.language.name,
            str(start.cwd),
            package=__version__,
            notebook=start.notebook,
            notebook_path=start.notebook_path,
            gate_files=start.gate_files,
            elsewhere=start.elsewhere,
            database=database.place if database is not None and not database.inside else "",
            origin=start.origin,
            supplied=dict(start.supplied),
            started=f"{context.clock.now():%Y-%m-%dT%H:%M:%S.%fZ}",
            decisions=dict(start.decisions),
            settings=deciding,
            branch_of=start.keep.ids if start.keep is not None else [],
            changed=start.keep is not None,
        )

    def _journal_lost(self, reason: str) -> None:
        if self.home is not None and not self.home.directory.is_dir():
            return  # the store reports that nothing can be kept
        then = "a resumed run asks and runs again what comes now"
        self.context.warnings.append(f"the journal cannot be written ({reason}); {then} [E219]")

    def _replayed(self, request: Request, notes: Mapping[str, object], got: bool) -> None:
        self.services.again(request, notes, got)

    def reset_agents(self) -> None:
        """Reset the files and memories of agents to their state after the replayed answers, without later changes."""
        if self.answers is not None:
            self.answers.forget_others()
        known = {}
        if self.started_services is not None:
            from prose_kernel.models.memory_directory import forget_answered

            known = self.started_services.memories.known
            forget_answered(self.started_services.memories)
        directory = self.home.directory if self.home is not None else None
        if directory is not None and (known or any((directory / name).is_dir() for name in ("agents", "imports"))):
            from prose_kernel.models.agent_memory import restore_memories

            restore_memories(directory, known)

    # ------------------------------------------------------------ its end

    async def retire(self) -> None:
        """End the agents' processes of replaced services. Their recordings stay open for the services that followed."""
        earlier, self._replaced_services = self._replaced_services, []
        async with contextlib.AsyncExitStack() as replaced:
            for services in earlier:
                replaced.push_async_callback(services.live.close)

    async def end(self, error: RunError | None) -> None:
        """Record the end of the run. Raises `StateError`."""
        if self.journal is not None and self.journal.replaying:  # the whole run came from the journal
            self.reset_agents()
        await self.machine.end(error)
        if self.journal is not None:
            self.journal.finish(error)

    async def close(self, end: Callable[[], Awaitable[None]]) -> None:
        """Call `end`, then close every part, even if closing another one fails."""
        async with contextlib.AsyncExitStack() as closing:
            if self.kept is not None:
                closing.callback(self.kept.store.close)
            for closed in (self.journal, self.programs):
                if closed is not None:
                    closing.callback(closed.close)
            for one in (self.task_service.made, self.started_services):
                if one is not None:
                    closing.push_async_callback(one.close)
            closing.push_async_callback(self.retire)
            await end()
