"""Run a program from the command line: signals, questions at the terminal, and the result."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from prose_kernel.access import atomic
from prose_kernel.cli import report
from prose_kernel.cli.examples import is_bundled
from prose_kernel.cli.narrator import Narrator
from prose_kernel.cli.terminal import Screen, TerminalAsker, somebody_here
from prose_kernel.errors import CompileError, Interrupted, ProseError, RunError, StateError, UsageError
from prose_kernel.runs.workspace import Start, Workspace, refuse_unknown_inputs, stay
from prose_kernel.runtime.values import Value, verbatim
from prose_kernel.views.output_window import Limits

if TYPE_CHECKING:
    from prose_kernel.cli.only_stale import Former
    from prose_kernel.runs.journal import Resumption
    from prose_kernel.runs.keeping import EarlierRun
    from prose_kernel.runs.languages import Compiled, Language
    from prose_kernel.runs.run import Run
    from prose_kernel.runs.settings import Settings
    from prose_kernel.runtime.journal_records import Asked

FAILED, NOT_STARTED, NOBODY = 1, 2, 3
NOT_LOADABLE = ("E215", "E112")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to run a program: its inputs, decisions made in advance, and the settings in force.

    `origin` is set for a program that is fetched, `trust` is what was agreed to about such programs. `who_answers` are
    the options that a resumed run does not remember. `run_id` is the id of a new run, "" for any. `keep` is the run
    whose answers it may use; `why` lists the requests that are asked in spite of it. `former`: only stale cells of a
    notebook run.
    """

    name: str
    inputs: Mapping[str, str]
    decisions: Mapping[str, bool]
    settings: Settings
    cwd: Path
    origin: str = ""
    trust: tuple[str, ...] = ()
    json: bool = False
    usage: bool = False
    gate_files: bool = False
    who_answers: tuple[str, ...] = ()
    resumption: Resumption | None = None
    run_id: str = ""
    keep: EarlierRun | None = None
    why: bool = False
    former: Former | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One text to run, and its name in messages. `may_fail`: a notebook's cell with the tag `raises-exception`."""

    text: str
    name: str
    may_fail: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. `products` are the texts printed at the end; `text_name` is the program or cell that was the
    last to run; `signal` is set for an interrupted run; `journal` is the one with which it can be resumed, if it can;
    `notes` are said last, about what sessions have consumed; `forgotten`: it could be resumed, had it been kept."""

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
    """One run from its first text to its closing. `feed` compiles and runs one text in it. `language` is that of a text
    which names none."""

    def __init__(self, request: Request, screen: Screen, language: Language) -> None:
        self.request = request
        self.screen = screen
        self.language = language
        limits = Limits(request.settings.display_cap, request.settings.display_lines)
        self.narrator = Narrator(screen, limits, keep=self._keep_image)
        here = somebody_here(sys.stdin, sys.stderr)
        self.asker = TerminalAsker(sys.stdin, screen, here, request.settings.notify)
        self.text_name = request.name

    @cached_property
    def workspace(self) -> Workspace:
        given = self.request
        start = Start(
            given.cwd,
            given.name,
            notebook=False,
            supplied=given.inputs,
            decisions=given.decisions,
            gate_files=given.gate_files,
            elsewhere=is_bundled(given.name),
            origin=given.origin,
            trust=given.trust,
            language=self.language,
            run_id=given.run_id,
            keep=given.keep,
        )
        settings = given.settings
        if not (self.screen.shares_terminal("stdout") and self.screen.shares_terminal("stderr")):
            settings = settings.changed(display_cap=0)  # a pipe gets everything, and a command waits for a slow reader
        return self.plugged(settings, start)

    def plugged(self, settings: Settings, start: Start) -> Workspace:
        """The workspace of this run, which the narrator reports; it continues the run that the request resumes."""
        how, narrator = self.request.resumption, self.narrator
        if self.language.markers and self.screen.shares_terminal("stderr"):
            from prose_kernel.storage.transcript import MarkedTrace

            narrator.narrate(MarkedTrace())
        workspace = Workspace(
            settings, start, asker=self.asker, listeners=[narrator], resumption=how, on_live=self._caught_up
        )
        narrator.watch(workspace)
        return workspace

    def _caught_up(self, lost: Sequence[Asked]) -> None:
        how = self.request.resumption
        for remark in report.under_way(lost, how) if how is not None else ():
            self.screen.note(remark)

    def _keep_image(self, name: str, data: bytes) -> str:
        """Write an image into the run's directory; its path as a person would type it, "" where that cannot be."""
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
        """Raises what `Workspace.execute` raises, and `UsageError` for an `--input` that the program does not take."""
        compiled = self.compile(cell.text, cell.name)
        refuse_unknown_inputs(self.request.inputs, compiled, self.language, "--input ")
        self.narrator.language = self.language
        value = await self.workspace.run(compiled)
        if self.request.resumption is not None and self.request.resumption.complete:
            self.narrator.unshown = value  # nothing of it was told

    def compile(self, text: str, name: str, language: Language | None = None) -> Compiled:
        """Compile a text; its warnings are shown, its errors raised."""
        compiled = self.workspace.compile(text, name, language)
        if not compiled.ok:
            raise CompileError(compiled.diagnostics)
        for found in compiled.diagnostics:
            self.screen.note(found.render().partition("\n")[0], "yellow")
            if found.hint:
                self.screen.note(f"hint: {found.hint}")
        return compiled

    def execute(self, cells: Sequence[Cell]) -> Ended:
        """Run all texts to the end of the run."""
        self.screen.banner()
        return asyncio.run(self.through(cells))

    async def through(self, cells: Sequence[Cell]) -> Ended:
        """Feed all texts, the first error ends it; then take what the run has made, and close it."""
        error: ProseError | None = None
        done = 0
        with _interrupts(lambda: self.workspace) as received:
            try:
                if self.request.trust:
                    self.workspace.imports.from_elsewhere()  # nonsense is an error, whatever the program uses
                if self.request.origin and self.request.resumption is None:
                    cells = [Cell(await self.workspace.fetch_program(), self.request.name)]
                for cell in cells:
                    self.text_name = cell.name
                    await self._feed(cell)
                    done += 1
                    if received:
                        break
            except (CompileError, RunError, StateError, UsageError) as problem:
                error = problem
            except asyncio.CancelledError:
                stay()
            finally:
                ended = await self._close(error, done, received)
        return ended

    async def _feed(self, cell: Cell) -> None:
        """Note the failure of a cell that may fail, and continue, as Jupyter's runners do."""
        try:
            await self.feed(cell)
        except (CompileError, RunError, UsageError) as problem:
            if not cell.may_fail:
                raise
            self.screen.note(f"{cell.name} failed, as its tag raises-exception expects: {problem}")

    async def _close(self, error: ProseError | None, done: int, received: Sequence[int]) -> Ended:
        """Take what the run has made, if there is one, write its end down, and close it."""
        workspace, run = self.workspace, self.workspace.current
        started = done > 0 or bool(received) or isinstance(error, RunError) or (run is not None and run.id is not None)
        cause = Interrupted() if received else error if isinstance(error, RunError) else None
        from_outside = bool(received) or (isinstance(error, RunError) and bool(error.answer))
        try:
            if started:
                error = await self._write_end(cause) or error
            outputs = workspace.outputs() if started else {}
            bindings = {name: named.info.value for name, named in workspace.bindings().items()} if started else {}
            self.narrator.close()
            return Ended(
                128 + received[0] if received else _status(error, done),
                run_id=run.id if run is not None else None,
                run_directory=run.directory if run is not None else None,
                outputs=self._data({name: value for name, (value, _) in outputs.items()}),
                bindings=self._data(bindings),
                products=self._products(outputs),
                error=None if received else error,
                text_name=self.text_name,
                journal=run.journal_file if from_outside and run is not None else None,
                forgotten=from_outside and workspace.context.leaves_nothing,
                signal=received[0] if received else None,
                stderr_shown=error is not None and error is self.narrator.shown_error,
                notes=self._notes(run) if started and run is not None else (),
            )
        finally:
            await workspace.close(cause)

    def _notes(self, run: Run) -> tuple[str, ...]:
        earlier = run.journal.earlier if run.journal is not None else None
        kept = report.kept(earlier, why=self.request.why) if earlier is not None else []
        return (*report.session_notes(run.started_services, usage=self.request.usage), *kept)

    async def _write_end(self, cause: RunError | None) -> StateError | None:
        """The last line of the log; what is in the way of that is the run's error when it has no other."""
        try:
            await self.workspace.end(cause)
        except StateError as unkept:
            return None if cause else unkept
        return None

    def _data(self, values: Mapping[str, Value]) -> dict[str, object]:
        """Values as JSON data; only where they are asked for, because it reads every binding."""
        return {name: verbatim(value) for name, value in values.items()} if self.request.json else {}

    def _products(self, outputs: Mapping[str, tuple[Value, Language]]) -> tuple[str, ...]:
        """The outputs for people; without any, the value of the last statement if nothing has shown it yet."""
        if outputs:
            return tuple(report.output_text(name, *output) for name, output in outputs.items())
        unshown = self.narrator.unshown
        if unshown is None:
            return ()
        text = self.narrator.language.text_of(unshown)
        return (text if self.request.resumption is None else text.removesuffix("\n"),)  # a command had printed it


def _status(error: ProseError | None, done: int) -> int:
    """The exit status; what is wrong with a later cell of a notebook comes after the start.

    Imports are loaded before anything runs, so one that cannot be is found before the start.
    """
    if error is None:
        return 0
    if isinstance(error, RunError) and not (error.code in NOT_LOADABLE and not done):
        return NOBODY if error.nobody else FAILED
    return FAILED if done else NOT_STARTED


@contextmanager
def _interrupts(workspace: Callable[[], Workspace]) -> Iterator[list[int]]:
    """Signals end the program, not this process: the first by the interrupt ladder, the second at once.

    A third one is taken literally. A signal that was ignored when we were started (nohup) stays ignored. Plain signal
    handlers run even while the loop is busy, which a handler of the loop would not.
    """
    received: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        received.append(number)
        if len(received) > 2:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        workspace().interrupt()

    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
