"""What front ends feed texts to: runs, one after the other, and what outlives them.

The kernel, `%%prose` and the command line all feed source text to a `Workspace` and listen to its events. A cell and a
file take the same two calls: `compile` with what is known by then, `run` the tree (`execute` does both). Texts of
several languages may follow each other in one run: each language has its machine, made at its first text.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from prose_kernel.errors import CompileError, ResumeMismatch, RunError
from prose_kernel.language.source import Source
from prose_kernel.run import languages
from prose_kernel.run import parts as run_parts
from prose_kernel.run.current_run import CurrentRun, Environment
from prose_kernel.run.current_run import Start as Start
from prose_kernel.run.settings import WHO_ANSWERS, Settings, budget_limits
from prose_kernel.runtime.asker import serial
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.events import Audience, Event, Listener, Untold
from prose_kernel.runtime.journal_records import Asked, Text
from prose_kernel.runtime.open_loops import OpenLoop
from prose_kernel.runtime.ports import Clock, Commands, SessionRequest
from prose_kernel.runtime.statement_hook import StatementHook, joined
from prose_kernel.runtime.values import Value

if TYPE_CHECKING:
    from prose_kernel.processes.tasks.service import TaskService
    from prose_kernel.programs.resolver import RemotePrograms
    from prose_kernel.remote.commands import RemoteState
    from prose_kernel.run.journal import Resumption
    from prose_kernel.run.languages import Compiled, Language, Programs
    from prose_kernel.run.session_services import SessionServices
    from prose_kernel.runtime.budgets import Budget
    from prose_kernel.runtime.machine import BindingInfo, Definition, Machine, Preview
    from prose_kernel.runtime.ports import LoadedProgram, LoadRequest
    from prose_kernel.runtime.services import Asker
    from prose_kernel.storage.gates.gatekeeper import Gatekeeper
    from prose_kernel.storage.kept import Kept


def load_what_cells_need(language: Language) -> None:
    """Import what a program with nothing but commands uses, so that its first cell need not."""
    from prose_kernel.processes import Engine, ShellCommands
    from prose_kernel.storage import filesystem, kept, memory, trace, transcript
    from prose_kernel.storage.gates import gatekeeper

    _ = Engine, ShellCommands, language.machine()
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
        self._listeners = Audience(listeners)
        self._told = Audience((self._listeners,))
        self._around = Environment(
            settings,
            start if resumption is None else replace(start, origin=resumption.head.origin),
            serial(asker),
            clock or SystemClock(),
            tell=self._told,
            load=self._load,
            interrupt=self.interrupt,
            supplied=dict(start.supplied),
            resumption=resumption,
            decisions=dict(start.decisions),
            from_journal=set(start.supplied) if resumption is not None else set(),
        )
        self._on_live = on_live
        self._hooks: list[StatementHook] = []
        self._run: CurrentRun | None = None
        self._prepared: Kept | None = None  # of the run that begins next
        self._programs: dict[str, Programs] = {}  # by language
        self._resolver: RemotePrograms | None = None
        self._running: Language | None = None  # the language of the text that runs
        self.on_loaded: Callable[[LoadedProgram], None] = lambda loaded: None
        self._orphans_gone = False
        self._untold = Untold()
        self._muted = False
        self._mute(resumption is not None)  # what is replayed was shown when it happened
        self.texts = 0  # of the run that have begun
        self._task: asyncio.Task[object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # ------------------------------------------------------------ what a front end asks for

    @property
    def settings(self) -> Settings:
        return self._around.settings

    @property
    def start(self) -> Start:
        return self._around.start

    @property
    def language(self) -> Language:
        """The language of a text that says nothing else."""
        return self._around.language

    @property
    def machine(self) -> Machine:
        """The machine of that language in the current run."""
        return self.machine_of(self.language)

    def machine_of(self, language: Language) -> Machine:
        """The machine of a language in the current run, made at its first use."""
        return self._open(language).machine_of(language)

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
        return self._open().services

    @property
    def started_services(self) -> SessionServices | None:
        """The same, if something of the current run has used them."""
        return self._run.started_services if self._run is not None else None

    @property
    def tasks(self) -> TaskService:
        """Commands with a waiting window and the tasks of the current run. Loads tasks at first use."""
        return self._open().tasks

    @property
    def started_tasks(self) -> TaskService | None:
        """The tasks of the current run, if something of it has used them."""
        return self._run.started_tasks if self._run is not None else None

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
        return self._run.directory if self._run is not None else None

    @property
    def begun(self) -> bool:
        """Whether a text of the run has begun to run."""
        return self.texts > 0

    @property
    def keeps_journal(self) -> bool:
        """Whether the run writes down what happens."""
        return self._run is not None and self._run.journal is not None

    @property
    def leaves_nothing(self) -> bool:
        """Whether nothing of a run is left on disk (`Environment.leaves_nothing`)."""
        return self._around.leaves_nothing

    @property
    def journal(self) -> Path | None:
        """The journal of the run, with which it can be resumed; None where it has none, or none yet."""
        run = self._run
        path = run.journal.file.path if run is not None and run.journal is not None else None
        return path if path is not None and path.is_file() else None

    @property
    def journal_position(self) -> int:
        """Where in its journal the run is (`RunJournal.position`); 0 without one."""
        return self._run.journal.position if self._run is not None and self._run.journal is not None else 0

    def abandon(self) -> bool:
        """The text that runs is given up as if it had not come this far: it asks the outside for nothing more, and
        nothing more of it is written down. False where there is no journal to bring it back from."""
        run = self._run
        if run is None or run.journal is None:
            return False
        run.journal.file.flush()
        if self.journal is None:
            return False
        run.journal.journal.abandon()
        return True

    @property
    def database(self) -> str | None:
        """The database that the run is kept in, for people; None for a run in files or in memory."""
        return self._run.database if self._run is not None else None

    @property
    def trace_text(self) -> str:
        """The log of a run that is kept outside of memory, as it was after the last statement that was waited for."""
        return self._run.trace_text if self._run is not None else ""

    @property
    def transcript(self) -> str | None:
        """The markers of a run that lives in memory (openprose.md 7.6); None for one on disk."""
        return self._run.transcript if self._run is not None else None

    @property
    def commands_here(self) -> Commands:
        """Runs commands on this machine, wherever those of the program run."""
        run = self._open()
        services = run.started_services
        return (services.commands if services is not None else None) or run.commands

    @property
    def remote(self) -> RemoteState | None:
        """The machines that run the commands of programs; None where this one does, or before they were needed."""
        return self._around.remote.state if self._around.remote is not None else None

    def add_listener(self, listener: Listener, *, replayed: bool = False) -> None:
        """Tell a listener of all events from now on; `replayed`: those of a run that is brought back too."""
        (self._told if replayed else self._listeners).add(listener)

    @property
    def running_language(self) -> Language:
        """The language of the text that runs, or has run last."""
        return self._running or self.language

    def remove_listener(self, listener: Listener) -> None:
        (self._listeners if self._listeners.has(listener) else self._told).remove(listener)

    def add_hook(self, hook: StatementHook) -> None:
        """Let it look at each statement before it runs, from now on, in all languages (`runtime/statement_hook.py`)."""
        self._hooks.append(hook)
        self._set_hook()

    def remove_hook(self, hook: StatementHook) -> None:
        self._hooks.remove(hook)
        self._set_hook()

    def _set_hook(self) -> None:
        if self._run is not None:
            self._run.any_machine.hook = joined(self._hooks)

    def loops(self) -> Collection[OpenLoop]:
        """The loops that run now, outer ones first: for a live view, which looks a few times in a second."""
        return self._run.any_machine.loops if self._run is not None else ()

    def answering(self, request: SessionRequest) -> str:
        """Who answers a session that is under way: the provider, and the model that the program names."""
        services = self.started_services
        if services is None:
            return request.model or ""
        from prose_kernel.run.session_description import who

        return ", ".join(part for part in (who(services), request.model) if part)

    def supply(self, name: str, value: str) -> None:
        """Give the value of an input before the program asks for it; in a run that has begun, from the next text on."""
        self._around.supplied[name] = value
        self._around.from_journal.discard(name)
        if self._run is not None:
            self._run.any_machine.supply(name, value)

    def declare(self, text: str, language: Language | None = None) -> None:
        """A text that is going to run declares inputs: from now on their values decide no gate of the run."""
        language = language or self.language
        compiled = language.compile(Source.of(text), cell=self.start.notebook)
        self._around.inputs.update(language.inputs(compiled.program))

    def choose(self, **changes: object) -> None:
        """Who answers sessions and conditions, and what is recorded, from the next text on, in this run too.

        `changes` are settings by name (those of `WHO_ANSWERS`). Raises `UsageError` for an unknown provider or a
        script that makes no sense; then nothing has changed.
        """
        if unknown := sorted(changes.keys() - set(WHO_ANSWERS)):
            raise TypeError(f"a run cannot change its {unknown[0]}")
        settings = self.settings.changed(**changes)
        if self._run is not None:
            self._run.choose(settings)
        self._around.settings = settings

    def limit(self, budget: str) -> None:
        """Let the run have this budget from now on, and later ones too; `off`: none. Raises `UsageError`."""
        budget_limits(budget)
        self._around.settings = self.settings.changed(budget=budget)
        if self._run is not None:
            self._run.limit(budget)

    @property
    def budget(self) -> Budget | None:
        """What the run may consume, and what it has consumed."""
        return self._open().any_machine.host.budget

    async def connect(self, url: str) -> RemoteState | None:
        """Let the workers of a scheduler run commands from now on, in this run too; `off`: this machine.

        Raises `UsageError` when no worker there can be used; then nothing has changed.
        """
        settings, former = self.settings.changed(remote=url), self._around.remote
        self._around.remote = await run_parts.remote_commands(settings, self.start.cwd, self._around.asker.show)
        self._around.settings = settings
        if self._run is not None:
            self._run.plug_in()
        if former is not None:
            await asyncio.to_thread(former.close)
        return self.remote

    # ------------------------------------------------------------ the two calls

    def compile(
        self, text: str, name: str = "cell", language: Language | None = None, prompt: int | None = None
    ) -> Compiled:
        """The tree and all diagnostics of a text, checked against what the run knows by now; `prompt`: the number
        beside the cell of a notebook."""
        language = language or self.language
        compiled = language.compile(
            Source.of(text, name, prompt),
            profile=self.settings.profile,
            known=self.machine_of(language).known() if self._run is not None else None,
            load=lambda path: self._programs_of(language).load_contract(path),
            cell=self.start.notebook,
            pipefail=self.settings.exec.pipefail,
        )
        return self._with_models_checked(compiled, language) if "model" in text else compiled

    def _with_models_checked(self, compiled: Compiled, language: Language) -> Compiled:
        """W117 for each model that the settings know nothing of: it is asked for by that name."""
        from prose_kernel.language.diagnostics import diagnostic, in_order

        named = language.spending(compiled.program).models if compiled.ok else ()
        strange = [
            diagnostic(
                compiled.source,
                "W117",
                span,
                f"The settings know no model `{name}`; the server is asked for a model of that name",
                f'give it a meaning in prose.toml: [models.SERVER] "{name}" = "MODEL"',
            )
            for name, span in named
            if name is not None and span is not None and not self.settings.knows_model(name)
        ]
        found: Any = compiled
        return replace(found, diagnostics=in_order([*compiled.diagnostics, *strange])) if strange else compiled

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
            self._tell_warnings()

    def _tell_warnings(self) -> None:
        while self._around.warnings:
            self._around.asker.show(f"Warning: {self._around.warnings.popleft()}")

    async def _run_text(self, compiled: Compiled, inputs: Mapping[str, str], language: Language) -> Value:
        await self._confirm_approvals()
        await self._prepare()
        machine = self.machine_of(language)
        run = self._open(language)
        await self._log_approvals(run)
        watched = await self._watch(run) if self.settings.watched else contextlib.nullcontext()
        self._around.inputs.update(language.inputs(compiled.program))
        self._refuse_unpriced(run, compiled, language)
        await run.retire()
        self._running = language
        self.texts += 1
        await self._wait_for_orphans()
        if self._around.remote is None and self.settings.on_other_machines:
            self._around.remote = await run_parts.remote_commands(
                self.settings, self.start.cwd, self._around.asker.show
            )
            run.plug_in()
        run.keep_text(compiled, language)
        with run.written_down(compiled, inputs, language), watched:
            return await machine.run(compiled.program, compiled.source, inputs=inputs, cell=self.start.notebook)

    def _refuse_unpriced(self, run: CurrentRun, compiled: Compiled, language: Language) -> None:
        """Before anything runs: under a budget of money each model has a price. Raises `UsageError`."""
        budget = run.any_machine.host.budget
        ours = budget is not None and budget.limits.usd is not None
        if self.settings.budget.unpriced == "allow" or not (ours or "budget" in compiled.source.text):
            return
        spending = language.spending(compiled.program)
        if ours or spending.money:
            judges = bool(list(language.judged_texts(compiled.program)))
            run.services.refuse_unpriced([name for name, _ in spending.models], judges=judges)

    async def _watch(self, run: CurrentRun) -> AbstractContextManager[None]:
        """What stands around a text while somebody watches from outside. Raises `UsageError`."""
        around = self._around
        if around.spans is None:
            directory = run.journal.file.path.parent if run.journal is not None else None
            warn = around.warnings.append
            around.spans = await asyncio.to_thread(run_parts.watch, self.settings, self.start.cwd, directory, warn)
            self.add_listener(around.spans)
            run.plug_in()
        return around.spans.text()

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
                self.settings, self.start.cwd, file, asker=self._around.asker, writes=writes
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
        if self._around.remote is not None:
            self._around.remote.interrupt()

        def cancel() -> None:
            if run is not None and run.journal is not None:
                run.journal.journal.interrupt(task)
            else:
                task.cancel()
            for hook in self._hooks:
                hook.interrupted()

        loop.call_soon_threadsafe(cancel)

    # ------------------------------------------------------------ life

    async def end(self, error: RunError | None = None) -> None:
        """Write down that the run is over, with the error that ended it, if any. Raises `StateError`."""
        if self._run is not None:
            self._caught_up()
            await self._run.end(error)

    async def reset(self) -> None:
        """End the run; the next text starts a new one, with no names and only the values that the start supplied."""
        try:
            await self._close_run(None)
        finally:
            self._forget()
            self._around.supplied = dict(self.start.supplied)
            self._around.inputs.clear()

    def _forget(self) -> None:
        """The run is over; another one is none that is resumed."""
        self._run = self._around.resumption = self._around.approvals = None
        self._around.from_journal.clear()
        self._around.decisions.clear()
        self._around.decisions.update(self.start.decisions)
        self._untold, self.texts = Untold(), 0
        self._mute(False)

    async def close(self, error: RunError | None = None) -> None:
        """End the run, with the error that ended it if any, and every process it left. A second call does nothing."""
        try:
            await self._close_run(error)
        finally:
            self._forget()
            opened = (self._around.remote, self._around.started_engine, self._around.spans)
            if self._around.spans is not None:
                self.remove_listener(self._around.spans)
            self._around.remote = self._around.started_engine = self._around.spans = None
            await asyncio.gather(*(asyncio.to_thread(one.close) for one in opened if one is not None))
            self._tell_warnings()

    async def _close_run(self, error: RunError | None) -> None:
        if self._run is not None:
            await self._run.close(partial(self.end, error))

    # ------------------------------------------------------------ what survives

    async def _confirm_approvals(self) -> None:
        """Before a resumed run continues: the approvals of its earlier processes are confirmed, in one question.

        Raises `GateRejected` when they are not, and `UsageError`; then nothing of the run was opened.
        """
        around, how = self._around, self._around.resumption
        if how is None or how.over or around.approvals is not None:
            return
        from prose_kernel.run.earlier_approvals import earlier_approvals

        found = await asyncio.to_thread(earlier_approvals, how)
        settings = self.settings
        place: Literal["cell", "terminal"] = "cell" if self.start.notebook else "terminal"
        asks = settings.gates.mode != "deny" and around.asker.available
        believe = settings.gates.resume == "replay"
        await found.confirm(around.asker, self.start.decisions, place if asks else None, believe=believe)
        around.approvals = found
        around.decisions.update({**found.decisions, **self.start.decisions})

    async def _log_approvals(self, run: CurrentRun) -> None:
        """The log of each gate shows its approval that was taken over."""
        found = self._around.approvals
        if found is not None and found.found and found.confirmed is not None:
            taken, found.found = [one for one, _ in found.found], []
            await run.gates.took_over(taken, found.confirmed)

    async def _wait_for_orphans(self) -> None:
        """Before anything of a resumed run starts: what its killed process has left running is gone."""
        if self._around.resumption is None or self._orphans_gone:
            return
        from prose_kernel.processes.watchdog import wait_for_orphans

        stop = threading.Event()
        try:
            gone = await asyncio.to_thread(wait_for_orphans, stop)
        finally:
            stop.set()
        self._orphans_gone = True
        if not gone:
            self._around.warnings.append(
                "commands that a killed process has started cannot be ended, and may still run"
            )

    async def restore(self) -> None:
        """Bring a run back: its finished texts run again, with the answers that they got then. A text that was
        running is not among them; the next one that is run goes on where that one was, if it is the same.

        Raises `ResumeMismatch` when the program asks something else than it did, and `CancelledError` when it is
        interrupted meanwhile: then the journal is as it was.
        """
        from prose_kernel.run.journal import interrupted_text, texts_of

        how = self._around.resumption
        assert how is not None
        with self._interruptible():
            await self._confirm_approvals()
            await self._prepare()
        texts = how.journal.texts
        machine = self._open(languages.LANGUAGES[texts[0].record.language if texts else how.head.language]).any_machine
        for text in texts_of(how):
            language = languages.LANGUAGES[text.language]
            self._goes_on_as(text, machine)
            compiled = self.compile(text.text, text.name, language, text.prompt or None)
            try:
                await self.run(compiled, text.inputs, language)
            except ResumeMismatch:
                raise
            except RunError:
                if self._abandoned:
                    raise
            except asyncio.CancelledError:
                if self._abandoned:
                    raise
                stay()
        if (unfinished := interrupted_text(how)) is not None:
            self._goes_on_as(unfinished, machine)
        self._mute(False)  # a cell that goes on is shown as one that runs
        run = self._run
        if run is None or run.journal is None or not run.journal.journal.has_more:
            self._caught_up()
        if run is not None and run.journal is not None and not run.journal.journal.has_more:
            run.give_back()
        await machine.ports.store.flush()

    @property
    def _abandoned(self) -> bool:
        journal = self._run.journal if self._run is not None else None
        return journal is not None and journal.journal.abandoned

    def _goes_on_as(self, text: Text, machine: Machine) -> None:
        """What a person had set before the text."""
        for name, value in text.supplied.items():
            self.supply(name, value)
        self._around.from_journal.update(text.supplied)
        machine.cwd = text.directory

    def _live(self, under_way: Sequence[Asked]) -> None:
        run, how = self._run, self._around.resumption
        assert run is not None and run.journal is not None and how is not None
        run.give_back()
        if run.started_services is not None and (
            how.head.branch_of or how.rewind is not None or run.journal.journal.rewound
        ):
            run.started_services.memories.go_back()
        self._on_live(under_way)
        self._caught_up()
        for event in self._untold.take():
            self._told(event)

    def _caught_up(self) -> None:
        """The run is where it was: what happens from now on is told, and kept at once."""
        self._mute(False)
        if self._run is not None and self._run.kept is not None:
            self._run.kept.store.hold(False)

    # ------------------------------------------------------------ plugging in

    def _open(self, language: Language | None = None) -> CurrentRun:
        """The run; where there is none, a text of `language` begins one."""
        if self._run is None:
            kept = self._kept() if self.language.state == "state" else None
            self._run = CurrentRun(self._around, language or self.language, kept, self._live)
            self._set_hook()
        return self._run

    async def _prepare(self) -> None:
        """Open the database of a run that is going to begin, without keeping the loop from anything else. Before a run
        is resumed, end what its killed process had started and its watchdog has not ended yet."""
        if self._around.resumption is not None and self._run is None:
            from prose_kernel.processes.tasks.recovery import sweep

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
        if kept is not None and self._around.resumption is not None:
            kept.store.restart()
            kept.store.hold(True)
        return kept

    def _open_store(self, warn: Callable[[str], None]) -> Kept | None:
        run_id = self._around.resumption.head.run if self._around.resumption is not None else None
        return run_parts.keep(self.settings, self.start.cwd, self._around.clock, warn, run_id)

    def _warn(self, text: str) -> None:
        self._around.asker.show(f"Warning: {text}")

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
        loaded = await self._programs_of(self._running or self.language).load_program(request)
        self.on_loaded(loaded)
        return loaded

    def _mute(self, muted: bool) -> None:
        """Whether events are only noted, or reach the listeners."""
        if muted is not self._muted:
            self._muted = muted
            self._told.remove(self._listeners if muted else self._note)
            self._told.add(self._note if muted else self._listeners)

    def _note(self, event: Event) -> None:
        self._untold.note(event)
