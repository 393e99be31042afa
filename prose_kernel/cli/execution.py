"""Run a program from the command line, with signals, questions at the terminal, and the result."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from msgspec import Struct

from prose_kernel.access import atomic
from prose_kernel.cli import result_text, streams
from prose_kernel.cli.examples import is_bundled
from prose_kernel.cli.narrator import Narrator
from prose_kernel.cli.streams import interrupts
from prose_kernel.cli.terminal import Screen, TerminalAsker, is_interactive
from prose_kernel.errors import CompileError, Interrupted, ProseError, RunError, UsageError
from prose_kernel.language.structs import replace
from prose_kernel.runs.execution import AcceptedValues, to_end
from prose_kernel.runs.forced_interrupt import in_cell, may_stop
from prose_kernel.runs.languages import without_errors
from prose_kernel.runs.workspace import Start, Workspace, uncancel
from prose_kernel.runtime.values import Value, verbatim
from prose_kernel.views.output_limit import Limits

if TYPE_CHECKING:
    from prose_kernel.cli.only_stale import LastRun
    from prose_kernel.runs.languages import Compiled, Language
    from prose_kernel.runs.resumption import Resumption
    from prose_kernel.runs.run import Run
    from prose_kernel.runs.settings import Settings
    from prose_kernel.runtime.journal_records import Asked

FAILED, NOT_STARTED, NO_ANSWER = 1, 2, 3
NOT_LOADABLE = ("E215", "E112")


class Cell(Struct, frozen=True):
    """One text to run, and its name in messages. `may_fail`: a notebook's cell with the tag `raises-exception`."""

    text: str
    name: str
    may_fail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Start):
    """A request to run a program: the start of its run, its texts, and the settings in force.

    - `language`: the language of a text that does not name one.
    - `answering_options`: options that have to be given again when the run is resumed.
    - `why`: show why requests are made again in spite of `keep`.
    - `former`: facts about the last run of a notebook, of which only stale cells run.
    - `remarks`: lines that are shown before it runs.
    - `earlier_decisions`: the gates whose decisions were given to an earlier process of the run.
    """

    language: Language
    settings: Settings
    cells: Sequence[Cell] = ()
    json: bool = False
    usage: bool = False
    answering_options: tuple[str, ...] = ()
    resumption: Resumption | None = None
    why: bool = False
    former: LastRun | None = None
    remarks: tuple[str, ...] = ()
    earlier_decisions: Collection[str] = ()

    @property
    def typed_decisions(self) -> dict[str, bool]:
        """The decisions given by options of this command."""
        return {name: yes for name, yes in self.decisions.items() if name not in self.earlier_decisions}


@dataclass(frozen=True, slots=True, repr=False)
class RunEnd:
    """The end of a run.

    `products` are the texts printed at the end, `notes` the last remarks, about consumption. `text_name` is the last
    program or cell that ran. `signal` is set for an interrupted run. `journal` is set if the run can be resumed;
    `forgotten`: it could be, if it had been kept. It has no `repr`, which would contain all values of the run:
    `asyncio.run` of Python 3.11 makes the `repr` of its result twice.
    """

    status: int
    run_id: str | None = None
    run_directory: Path | None = None
    outputs: Mapping[str, object] = field(default_factory=dict)
    bindings: Mapping[str, object] = field(default_factory=dict)
    products: tuple[str, ...] = ()
    error: ProseError | None = None
    text_name: str = ""
    signal: int | None = None
    journal: Path | None = None
    stderr_shown: bool = False
    notes: tuple[str, ...] = ()
    forgotten: bool = False


class ProgramRun:
    """A run from its first text until it is closed. `feed` compiles and runs one text in it."""

    def __init__(self, request: Request, screen: Screen) -> None:
        self.request = request
        self.screen = screen
        self.language = request.language
        limits = Limits(request.settings.display_cap, request.settings.display_lines)
        self.narrator = Narrator(screen, limits, keep=self._keep_image)
        here = is_interactive(sys.stdin, sys.stderr)
        self.asker = TerminalAsker(sys.stdin, screen, here, request.settings.notify)
        self.text_name = request.program_file
        self._done = 0  # the number of texts that have ended
        self.received: Sequence[int] = ()
        """The received signals; `SIGPIPE` if standard output has lost its reader."""

    @cached_property
    def workspace(self) -> Workspace:
        request, settings = self.request, self.request.settings
        if not (self.screen.shares_terminal("stdout") and self.screen.shares_terminal("stderr")):
            settings = settings.changed(display_cap=0)  # a pipe gets everything, and a command waits for a slow reader
        return self.new_workspace(settings, replace(request, elsewhere=is_bundled(request.program_file)))

    def new_workspace(self, settings: Settings, start: Start) -> Workspace:
        """Return the workspace of this run, or of the run that it resumes, with the narrator as listener."""
        how, narrator = self.request.resumption, self.narrator
        if self.language.markers and self.screen.shares_terminal("stderr"):
            from prose_kernel.storage.transcript import MarkedTrace

            narrator.narrate(MarkedTrace())
        workspace = Workspace(
            settings, start, asker=self.asker, listeners=[narrator], resumption=how, on_live=self._report_lost
        )
        narrator.watch(workspace)
        return workspace

    def _report_lost(self, lost: Sequence[Asked]) -> None:
        how = self.request.resumption
        for remark in result_text.lost_requests(lost, how) if how is not None else ():
            self.screen.note(remark)

    def _keep_image(self, name: str, data: bytes) -> str:
        """Write an image into the run's directory and return its path, as short as possible; "" if this fails."""
        run = self.workspace.current
        directory = run.directory if run is not None else None
        if directory is None:
            return ""
        path = directory / "images" / name
        try:
            atomic.write_whole(path, data)
        except OSError:
            return ""
        here = Path.cwd()
        return str(path.relative_to(here) if path.is_relative_to(here) else path)

    async def feed(self, cell: Cell) -> None:
        """Compile and run a text. Raises the errors of `Workspace.execute`, and `UsageError` for an `--input` or a gate
        that the program does not have."""
        compiled = self.compile(cell.text, cell.name)
        accepted = AcceptedValues()
        accepted.add(compiled.program, self.language, self.workspace.imports.of(self.language).load_contract)
        self.refuse_unknown(accepted)
        self.narrator.language = self.language
        value = await self.workspace.run(compiled, interrupted=lambda: self.received)
        if self.request.resumption is not None and self.request.resumption.complete:
            self.narrator.unshown = value  # the replay reported no events

    def check_given(self) -> None:
        """Raise `UsageError` for an option with a name that none of several texts knows, before the first text runs."""

    def refuse_unknown(self, accepted: AcceptedValues) -> None:
        """Raise `UsageError` for an `--input`, `--yes` or `--no` with a name that the program does not have."""
        accepted.check_inputs(self.request.supplied, "--input ")
        for option, approves in (("--yes ", True), ("--no ", False)):
            names = [name for name, one in self.request.typed_decisions.items() if one == approves]
            accepted.check_gates(names, option)

    def compile(self, text: str, name: str, language: Language | None = None) -> Compiled:
        """Compile a text and show its warnings. Raises `CompileError` if it has errors."""
        compiled = without_errors(self.workspace.compile(text, name, language))
        for found in compiled.diagnostics:
            self.screen.note(found.render().partition("\n")[0], "yellow")
            if found.hint:
                self.screen.note(f"hint: {found.hint}")
        return compiled

    def execute(self) -> RunEnd:
        self.screen.banner()
        with self.screen.continuing():
            return asyncio.run(self.run_and_close())

    async def run_and_close(self) -> RunEnd:
        with (
            interrupts(self._interrupt, loop=asyncio.get_running_loop()) as received,
            streams.until_unread(self._unread),
        ):
            self.received = received
            try:
                return await to_end(lambda: self.workspace, self._run_texts(), self.ended)
            finally:
                self.narrator.close()

    def _interrupt(self, frame: FrameType | None) -> None:
        """Handle a signal. The second one also stops code that computes without a wait, as in the kernel."""
        self.workspace.interrupt()
        if len(self.received) > 1 and may_stop(frame):
            self.workspace.note_stop()
            raise asyncio.CancelledError

    def _unread(self) -> None:
        if not self.received:  # after a signal, this would be a second interrupt, which kills
            self.received = [signal.SIGPIPE]
            self.workspace.interrupt()

    async def _run_texts(self) -> None:
        """Run all texts until one fails. Raises its error, and `Interrupted` after a signal."""
        request, cells = self.request, self.request.cells
        token = in_cell.set(True)
        try:
            self.check_given()
            if request.trust:
                self.workspace.imports.from_elsewhere()  # reports invalid values even if no program is fetched
            if request.origin and request.resumption is None:
                cells = [Cell(await self.workspace.fetch_program(), request.program_file)]
            for cell in cells:
                self.text_name = cell.name
                await self._feed_tolerant(cell)
                self._done += 1
                if self.received:
                    break
        except asyncio.CancelledError:
            in_cell.set(False)  # from here on, nothing is stopped: the run has to be closed
            uncancel()
        except ProseError:
            if not self.received:
                raise
        finally:
            in_cell.reset(token)
        if self.received:
            raise Interrupted

    async def _feed_tolerant(self, cell: Cell) -> None:
        """Run a cell. If it may fail, note its failure and continue, as Jupyter's runners do."""
        try:
            await self.feed(cell)
        except (CompileError, RunError, UsageError) as problem:
            if not cell.may_fail:
                raise
            self.screen.note(f"{cell.name} failed, as its tag raises-exception expects: {problem}")

    async def ended(self, error: ProseError | None) -> RunEnd:
        """Return the end of the run and its results, while the run is still open."""
        workspace, run, received = self.workspace, self.workspace.current, self.received[:1]  # later ones are too late
        started = self._done > 0 or isinstance(error, RunError) or (run is not None and run.id is not None)
        from_outside = bool(received) or (isinstance(error, RunError) and bool(error.answer))
        outputs = workspace.outputs() if started else {}
        self.narrator.close()
        return RunEnd(
            _ended_by(received[0]) if received else _status(error, self._done),
            run_id=run.id if run is not None else None,
            run_directory=run.directory if run is not None else None,
            outputs=self._json_values({name: value for name, (value, _) in outputs.items()}),
            bindings=self._json_values(workspace.values() if started else {}),
            products=self._products(outputs),
            error=None if received else error,
            text_name=self.text_name,
            journal=run.journal_file if from_outside and run is not None else None,
            forgotten=from_outside and workspace.context.leaves_no_files,
            signal=received[0] if received else None,
            stderr_shown=error is not None and error is self.narrator.shown_error,
            notes=self._notes(run) if started and run is not None else (),
        )

    def _notes(self, run: Run) -> tuple[str, ...]:
        earlier = run.journal.earlier if run.journal is not None else None
        kept = result_text.kept_answers(earlier, why=self.request.why) if earlier is not None else []
        return (*result_text.session_notes(run.started_services, usage=self.request.usage), *kept)

    def _json_values(self, values: Mapping[str, Value]) -> dict[str, object]:
        """Return values as JSON data; empty without `--format json`, because this reads every binding."""
        return {name: verbatim(value) for name, value in values.items()} if self.request.json else {}

    def _products(self, outputs: Mapping[str, tuple[Value, Language]]) -> tuple[str, ...]:
        """Return the outputs for people; without outputs, the value of the last statement unless it was shown."""
        if outputs:
            return tuple(result_text.output_text(name, *output) for name, output in outputs.items())
        unshown = self.narrator.unshown
        if unshown is None:
            return ()
        text = self.narrator.language.text_of(unshown)
        # a resumed run prints the output of a command, which ends with a newline
        return (text if self.request.resumption is None else text.removesuffix("\n"),)


def _ended_by(number: int) -> int:
    return FAILED if number == signal.SIGPIPE else 128 + number


def _status(error: ProseError | None, done: int) -> int:
    """Return the exit status. `done` is the number of texts that have ended.

    Imports are loaded before anything runs, so an import that cannot be loaded is an error before the start, except in
    a later cell of a notebook.
    """
    if error is None:
        return 0
    if isinstance(error, RunError) and not (error.code in NOT_LOADABLE and not done):
        return NO_ANSWER if error.no_answer else FAILED
    return FAILED if done else NOT_STARTED
