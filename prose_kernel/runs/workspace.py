"""The workspace of a front end: its runs, one after the other, and the parts that outlive them.

The kernel, `%%prose` and the command line all feed source text to a `Workspace` and listen to its events. A cell and a
file take the same two calls: `compile` checks the text against the names known so far, `run` runs the tree (`execute`
does both). One run may have texts of several languages: each language has its machine, made for its first text.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prose_kernel.errors import ResumeMismatch, RunError
from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.runs import languages, run_assembly
from prose_kernel.runs.context import Listeners, RunContext, Start, SuppliedValues
from prose_kernel.runs.imported_programs import Imports
from prose_kernel.runs.lazy_objects import Once
from prose_kernel.runs.run import Run
from prose_kernel.runs.settings import ANSWER_SOURCES, Settings, budget_limits
from prose_kernel.runtime import open_request
from prose_kernel.runtime.asker import serial
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.events import Listener
from prose_kernel.runtime.journal_records import Asked, Text
from prose_kernel.runtime.ports import Clock, LoadedProgram, LoadRequest, SessionRequest
from prose_kernel.runtime.running_loops import OpenLoop
from prose_kernel.runtime.statement_hook import StatementHook, joined
from prose_kernel.runtime.values import Value

if TYPE_CHECKING:
    from prose_kernel.language.diagnostics import Diagnostic
    from prose_kernel.processes.engine import Engine
    from prose_kernel.remote.commands import RemoteState
    from prose_kernel.runs.languages import Compiled, Language
    from prose_kernel.runs.resumption import ResumeSteps, Resumption
    from prose_kernel.runs.run_machines import BoundName, Defined
    from prose_kernel.runtime.machine import Machine, Preview
    from prose_kernel.runtime.services import Asker
    from prose_kernel.storage.run_directory import StoredRun

__all__ = ["Start", "Workspace", "preload_cell_modules", "uncancel"]


def preload_cell_modules(language: Language) -> None:
    """Import the modules that a program with only commands uses, so that its first cell need not."""
    from prose_kernel.processes import resources, system
    from prose_kernel.processes.engine import Engine
    from prose_kernel.processes.shell import ShellCommands
    from prose_kernel.runs import journal
    from prose_kernel.runtime import redaction
    from prose_kernel.storage import file_history, shown_files, state_log, stores, transcript
    from prose_kernel.storage.gates import deciding

    _ = Engine, ShellCommands, language.machine(), resources, journal, redaction
    _ = deciding, file_history, shown_files, state_log, stores, transcript
    if system.LINUX:
        from prose_kernel.processes import sandbox_syscalls  # uses system calls that only Linux has

        _ = sandbox_syscalls


def uncancel() -> None:
    """Reset the cancellation of the current task, after it was handled."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


def _with_findings(compiled: Compiled, more: Sequence[Diagnostic]) -> Compiled:
    from prose_kernel.language.diagnostics import in_order

    return replace(compiled, diagnostics=in_order([*compiled.diagnostics, *more]))


def _resume_steps(how: Resumption | None, start: Start) -> ResumeSteps | None:
    if how is None and start.keep is None:
        return None
    from prose_kernel.runs.resumption import ResumeSteps

    return ResumeSteps(how) if how is not None else ResumeSteps(start.keep.how, keeps=True) if start.keep else None


class Workspace:
    """A run that is fed with cells, or with one file.

    Machine, store and process engine are opened by the first cell that needs them. `current` is the run, None before it
    is opened; `imports` finds imported programs. Call all methods except `interrupt` in the same event loop. Close the
    workspace when done.
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
        resumed = resumption is not None
        self.current: Run | None = None
        self.begun = False
        """Whether a text of the run has started."""
        self._listeners = Listeners(listeners, muted=resumed)  # replayed events were shown when they happened
        self._warnings: deque[str] = deque()
        self.context = RunContext(
            settings,
            start if resumption is None else replace(start, origin=resumption.head.origin),
            serial(asker),
            self._listeners.all,
            self._load,
            self.interrupt,
            SuppliedValues(start, resumed=resumed),
            Once(self._new_engine),
            clock or SystemClock(),
            self._warnings,
            resumption,
        )
        self._resuming = _resume_steps(resumption, start)
        self._on_live = on_live
        self._hooks: list[StatementHook] = []
        self._prepared: StoredRun | None = None  # the store of the run that begins next
        self.imports = Imports(self.context)
        self._running: Language | None = None  # the language of the text that runs
        self._task: asyncio.Task[object] | None = None
        self._stops = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def _new_engine(self) -> Engine:
        from prose_kernel.processes.engine import Engine

        # warnings come from the engine's thread, at any time; the person sees them at the end of a cell
        return Engine(on_warning=self._warnings.append)

    # ------------------------------------------------------------ the run

    @property
    def settings(self) -> Settings:
        return self.context.settings

    @property
    def start(self) -> Start:
        return self.context.start

    @property
    def language(self) -> Language:
        """The language of a text that does not name one."""
        return self.context.language

    @property
    def running_language(self) -> Language:
        """The language of the running text, or else of the last one."""
        return self._running or self.language

    @property
    def opened(self) -> Run:
        """The current run; if there is none, a new one begins."""
        return self._open(self.language)

    def _open(self, language: Language) -> Run:
        if self.current is None:
            kept = self._kept() if self.context.state_setting_applies else None
            self.current = Run(self.context, language, kept, self._continue_live)
            self._set_hook()
        return self.current

    def machine_of(self, language: Language) -> Machine:
        """The machine of a language in the current run, made at its first use."""
        return self._open(language).machines.of(language)

    def bindings(self) -> dict[str, BoundName]:
        """Return all names of the run with their values and languages."""
        return self.current.machines.bindings() if self.current is not None else {}

    def outputs(self) -> dict[str, tuple[Value, Language]]:
        """Return the outputs of the run's programs with their present values, and the language of each."""
        return self.current.machines.outputs() if self.current is not None else {}

    def values(self) -> dict[str, Value]:
        """Return the values of all names."""
        return {name: named.info.value for name, named in self.bindings().items()}

    def definitions(self) -> tuple[Defined, ...]:
        """Return the definitions of all texts of the run."""
        return self.current.machines.definitions() if self.current is not None else ()

    @property
    def cwd(self) -> Path:
        """The working directory of the next command."""
        return Path(self.current.machine.cwd) if self.current is not None else self.start.cwd

    @cwd.setter
    def cwd(self, directory: Path) -> None:
        self.opened.machine.cwd = str(directory)

    @property
    def remote(self) -> RemoteState | None:
        """The machines that run the program's commands; None for this machine, or before they are connected."""
        return self.context.remote.state if self.context.remote is not None else None

    def add_listener(self, listener: Listener, *, replayed: bool = False) -> None:
        """Pass all events from now on to a listener; with `replayed`, also the events of a restored run."""
        self._listeners.add(listener, replayed=replayed)

    def remove_listener(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    def add_hook(self, hook: StatementHook) -> None:
        """Call the hook before each statement from now on, in all languages (`runtime/statement_hook.py`)."""
        self._hooks.append(hook)
        self._set_hook()

    def remove_hook(self, hook: StatementHook) -> None:
        self._hooks.remove(hook)
        self._set_hook()

    def _set_hook(self) -> None:
        if self.current is not None:
            self.current.machine.host.hook = joined(self._hooks)

    def loops(self) -> Collection[OpenLoop]:
        """Return the running loops, outer ones first. Live views poll this a few times a second."""
        return self.current.machine.host.loops.keys() if self.current is not None else ()

    def answering(self, request: SessionRequest) -> str:
        """Return the provider of a running session, and the model that the program names."""
        services = self.current.started_services if self.current is not None else None
        if services is None:
            return request.model or ""
        from prose_kernel.runs.session_description import who

        return ", ".join(part for part in (who(services), request.model) if part)

    # ------------------------------------------------------------ changes from the next text on

    def supply(self, name: str, value: str, *, by_journal: bool = False) -> None:
        """Give the value of an input in advance. `by_journal`: it was given to an earlier process of the run."""
        self.context.given.supply(name, value, by_journal=by_journal)

    def declare(self, text: str, language: Language | None = None) -> Any:
        """Declare the inputs of a text before it runs, so that their values decide no gates. Return its program."""
        language = language or self.language
        compiled = language.compile(Source.of(text), cell=self.start.notebook)
        self.context.given.declare(language.inputs(compiled.program))
        return compiled.program

    def choose(self, **changes: object) -> None:
        """Change the providers of sessions and conditions, and the recordings, also in the current run.

        `changes` are settings by name (those of `ANSWER_SOURCES`). Raises `UsageError` for an unknown provider or an
        invalid script; then nothing has changed.
        """
        if unknown := sorted(changes.keys() - set(ANSWER_SOURCES)):
            raise TypeError(f"a run cannot change its {unknown[0]}")
        settings = self.settings.changed(**changes)
        if self.current is not None:
            self.current.choose(settings)
        self._change(settings=settings)

    def limit(self, budget: str) -> None:
        """Set the budget of this run and later ones; `off` removes it. Raises `UsageError`."""
        budget_limits(budget)
        self._change(settings=self.settings.changed(budget=budget))
        if self.current is not None:
            self.current.limit(budget)

    async def connect(self, url: str) -> RemoteState | None:
        """Run commands on the workers of a scheduler, also in the current run; `off`: on this machine.

        Raises `UsageError` if no worker can be used; then nothing has changed.
        """
        settings, former = self.settings.changed(remote=url), self.context.remote
        run = self.current.owned if self.current is not None else None
        remote = await run_assembly.remote_commands(replace(self.context, settings=settings), run)
        self._change(settings=settings, remote=remote)
        if former is not None:
            await asyncio.to_thread(former.close)
        return self.remote

    def _change(self, **changes: Any) -> None:
        """Replace fields of the context, also in the current run."""
        self.context = replace(self.context, **changes)
        if self.current is not None:
            self.current.use(self.context)

    # ------------------------------------------------------------ the two calls

    def compile(
        self, text: str, name: str = "cell", language: Language | None = None, prompt: int | None = None
    ) -> Compiled:
        """Return the tree and all diagnostics of a text, checked against the names that the run has so far. `prompt` is
        the number of a notebook's cell."""
        language = language or self.language
        compiled = language.compile(
            Source.of(text, name, prompt),
            profile=self.settings.profile,
            known=self.machine_of(language).known() if self.current is not None else None,
            load=lambda path: self.imports.of(language).load_contract(path),
            cell=self.start.notebook,
            pipefail=self.settings.exec.pipefail,
        )
        if compiled.ok and (why := language.refused(compiled.program, compiled.source, self.context.given.supplied)):
            return _with_findings(compiled, [why])
        return self._with_models_checked(compiled, language) if "model" in text else compiled

    def _with_models_checked(self, compiled: Compiled, language: Language) -> Compiled:
        """Add W117 for each model that the settings do not know: the server receives its name unchanged."""
        from prose_kernel.language.diagnostics import diagnostic

        named = language.spending(compiled.program, compiled.source).models if compiled.ok else ()
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
        return _with_findings(compiled, strange) if strange else compiled

    async def run(
        self,
        compiled: Compiled,
        inputs: Mapping[str, str] | None = None,
        language: Language | None = None,
        *,
        interrupted: Callable[[], object] = lambda: False,
    ) -> Value:
        """Run a compiled text of a language in the current run and return its value.

        `interrupted` returns true if an interrupt arrived earlier, when `interrupt` had nothing to end. Raises
        `RunError` for an uncaught error of the program, and `CancelledError` after an interrupt, when every command
        has ended and `finally` bodies have run. Either way the run continues with the next text.
        """
        try:
            with self._interruptible():
                if interrupted():  # checked here because from now on `interrupt` cancels this task
                    raise asyncio.CancelledError
                return await self._run_text(compiled, inputs or {}, language or self.language)
        finally:
            if self.current is not None and self.current.answers is not None:
                self.current.answers.flush()
            self.context.show_warnings()

    async def _run_text(self, compiled: Compiled, inputs: Mapping[str, str], language: Language) -> Value:
        await self._prepare()
        run = self._open(language)
        machine = run.machines.of(language)
        if self._resuming is not None:
            await self._resuming.log_approvals(run.gates)
        watched = await self._watched(run)
        self.context.given.declare(language.inputs(compiled.program))
        self._refuse_unpriced(run, compiled, language)
        await run.retire()
        self._running, self.begun = language, True
        if self._resuming is not None:
            await self._resuming.wait_for_orphans(self.context)
        if language.may_run_commands(compiled.program):
            await self._reach_workers(run.owned)
        with run.text(compiled, inputs, language, keeps=self._keeps), watched:
            return await machine.run(compiled.program, compiled.source, inputs=inputs, cell=self.start.notebook)

    @property
    def _keeps(self) -> bool:
        """Whether the running text may keep answers of the last run of its cell."""
        cell = open_request.run.get(None)
        by_default = self.settings.rerun == "keep"
        return self.start.notebook and (cell.may_keep(by_default) if cell is not None else by_default)

    async def _reach_workers(self, run: str | None) -> None:
        """Connect to the workers that the settings name, as the owner of this run. Raises `UsageError`."""
        if self.context.remote is None:
            if self.settings.on_other_machines:
                self._change(remote=await run_assembly.remote_commands(self.context, run))
        elif run is not None and run != self.context.remote.run_id:
            await self.context.remote.connect(run_assembly.remote_owner(self.context, run))

    def _refuse_unpriced(self, run: Run, compiled: Compiled, language: Language) -> None:
        """Raise `UsageError` if a budget of money applies and a model has no known price, before anything runs."""
        ours = run.budget is not None and run.budget.limits.usd is not None
        if self.settings.budget.unpriced == "allow" or not (ours or re.search("budget|call", compiled.source.text)):
            return
        spending = language.spending(compiled.program, compiled.source)
        if ours or spending.money:
            judges = bool(list(language.judged_texts(compiled.program)))
            run.services.refuse_unpriced([name for name, _ in spending.models], judges=judges)

    async def _watched(self, run: Run) -> contextlib.AbstractContextManager[object]:
        """Return the context manager that reports a text according to the settings. Raises `UsageError`."""
        if not self.settings.watched:
            return contextlib.nullcontext()
        spans = self.context.spans
        if spans is None:
            directory = run.journal.directory if run.journal is not None else None
            spans = await asyncio.to_thread(run_assembly.watch, self.context, directory)
            self.add_listener(spans)
            self._change(spans=spans)
        return spans.text()

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let `interrupt` cancel the calling task while it is in this block."""
        before, self._task = self._task, asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        try:
            yield
        finally:
            self._task = before

    async def preview(self, compiled: Compiled, language: Language | None = None) -> tuple[Preview, ...]:
        """Describe each session, command and gate of a compiled text; nothing runs."""
        language = self._running = language or self.language
        return await self.machine_of(language).preview(compiled.program, compiled.source)

    async def execute(
        self, text: str, name: str = "cell", inputs: Mapping[str, str] | None = None, language: Language | None = None
    ) -> Value:
        """Compile and run a text. Raises `CompileError` if it has errors; then none of it has run."""
        return await self.run(languages.without_errors(self.compile(text, name, language)), inputs, language)

    async def fetch_program(self) -> str:
        """Return the text of the program at `origin`. Raises the errors of `Imports.root`, and `CancelledError`."""
        with self._interruptible():
            return await self.imports.root()

    async def _load(self, request: LoadRequest) -> LoadedProgram:
        """Load an import of the running text: imports run at the top level of a text, so its language is theirs."""
        return await self.imports.load(request, self.running_language)

    def interrupt(self) -> None:
        """End the running program, from any thread: its commands by the interrupt ladder, the rest by cancellation.

        A second call kills the remaining commands immediately. Without a program, only a wait for the store ends.
        """
        task, loop, run, stops = self._task, self._loop, self.current, self._stops
        if task is None or loop is None:
            if run is not None and run.kept is not None:
                run.kept.store.interrupt()
            return
        if run is not None:
            run.interrupt()
        if self.context.remote is not None:
            self.context.remote.interrupt()

        def cancel() -> None:
            if self._task is not task or self._stops != stops:
                return  # the program has ended, or its code was stopped: the task must finish what follows
            if self.current is not None:  # the run may have been opened in the meantime
                self.current.cancel(task)
            else:
                task.cancel()
            for hook in self._hooks:
                hook.interrupted()

        loop.call_soon_threadsafe(cancel)

    def note_stop(self) -> None:
        """Record that an exception stops code that never waits. It takes the place of the interrupts that have not been
        delivered. Call this in the task of that code."""
        self._stops += 1
        if self.current is not None and self.current.journal is not None:
            self.current.journal.note_stop()

    # ------------------------------------------------------------ its end

    async def end(self, error: RunError | None = None) -> None:
        """Record the end of the run, and the error that ended it, if any. Raises `StateError`."""
        if self.current is not None:
            self._end_restoring()
            await self.current.end(error)

    async def reset(self) -> None:
        """End the run. The next text starts a new one, without names and only with the values supplied at the start."""
        try:
            await self._close_run(None)
        finally:
            self._forget()

    async def close(self, error: RunError | None = None) -> None:
        """End the run, with the error that ended it, if any, and all of its processes. A second call does nothing."""
        try:
            await self._close_run(error)
        finally:
            self._forget()
            remote, spans = self.context.remote, self.context.spans
            if spans is not None:
                self.remove_listener(spans)
            self._change(remote=None, spans=None)
            opened = (remote, self.context.engine.take(), spans)
            await asyncio.gather(*(asyncio.to_thread(one.close) for one in opened if one is not None))
            self.context.show_warnings()

    async def _close_run(self, error: RunError | None) -> None:
        if self.current is not None:
            await self.current.close(partial(self.end, error))

    def _forget(self) -> None:
        """Reset the state of the run that is over, so that the next text begins a new run."""
        self.current = self._resuming = None
        start = replace(self.context.start, run_id="", keep=None)
        self._change(resumption=None, start=start, given=SuppliedValues(start))
        self.begun = False
        self.imports.end_replay()
        self._listeners.forget()

    # ------------------------------------------------------------ a run that is resumed

    async def restore(self) -> None:
        """Restore a run: run its finished texts again, with the answers from the journal.

        A text that was running is not run again: the next text continues there, if it is the same. Raises
        `ResumeMismatch` if the program makes other requests than before, `CancelledError` if it is interrupted (then
        the journal is unchanged), and the errors of `flush`.
        """
        await self.replay()
        await self.flush()

    async def flush(self) -> None:
        """Write pending values to the store. Raises `StateError`; all names stay usable."""
        with self._interruptible():
            await self.opened.machine.host.ports.store.flush()

    async def replay(self) -> None:
        """Restore the run like `restore`, without writing to the store."""
        how = self.context.resumption
        assert how is not None
        with self._interruptible():
            await self._prepare()
            texts = how.journal.texts
            run = self._open(languages.LANGUAGES[texts[0].record.language if texts else how.head.language])
            for text in how.ended_texts:
                await self._run_again(run, text)
                await asyncio.sleep(0)  # raises the `CancelledError` of an interrupt between two texts
            if (unfinished := how.interrupted_text) is not None:
                self._continue_as(run, unfinished)
            self._listeners.mute(False)  # a cell that continues is shown as running
            if run.journal is None or not run.journal.has_more:
                self._end_restoring()
                run.reset_agents()

    async def _run_again(self, run: Run, text: Text) -> None:
        """Replay a text that has ended. It ends as before, possibly by an error or an interrupt."""
        language = languages.of_text(text.language, text.profile)
        self._continue_as(run, text)
        compiled = self.compile(text.text, text.name, language, text.prompt or None)
        begin = run.journal.position if run.journal is not None else None
        try:
            await self.run(compiled, text.inputs, language)
        except ResumeMismatch:
            raise
        except (RunError, asyncio.CancelledError) as ended:
            # a new error or interrupt, possibly before the text began: the next text must not take its place
            if run.journal is not None and (run.journal.abandoned or run.journal.position == begin):
                raise
            if isinstance(ended, asyncio.CancelledError):
                uncancel()
        self._listeners.text_ended()

    def _continue_as(self, run: Run, text: Text) -> None:
        """Set the inputs and the working directory that a person had set before the text."""
        for name, value in text.supplied.items():
            self.supply(name, value, by_journal=True)
        run.machine.cwd = text.directory

    def _continue_live(self, under_way: Sequence[Asked]) -> None:
        """Continue live after the last record of the journal."""
        run = self.current
        assert run is not None and run.journal is not None
        run.reset_agents()
        if run.started_services is not None and run.journal.went_back:
            run.started_services.memories.go_back()
        self._on_live(under_way)
        self._end_restoring()
        self._listeners.emit_open()

    def _end_restoring(self) -> None:
        """End the restoration of the run: from now on, events are shown and values are stored immediately."""
        self._listeners.mute(False)
        self.imports.end_replay()
        if self.current is not None and self.current.kept is not None:
            self.current.kept.store.hold(False)

    # ------------------------------------------------------------ opening a run

    async def _prepare(self) -> None:
        """Prepare the next run, without blocking the loop: have the approvals of its earlier processes confirmed, end
        what these have started, and open the database."""
        if self._resuming is not None:
            await self._resuming.confirm_approvals(self.context)
            if self.current is None:
                await self._resuming.sweep()
        if self.settings.state.in_database and self.current is None and self.context.state_setting_applies:
            self._prepared = await asyncio.to_thread(run_assembly.keep, self.context)

    def _kept(self) -> StoredRun | None:
        prepared, self._prepared = self._prepared, None
        kept = prepared or run_assembly.keep(self.context)
        if kept is not None and self.context.resumption is not None:
            kept.store.restart()
            kept.store.hold(True)
        return kept
