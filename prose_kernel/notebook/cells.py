"""Run the cells of one notebook in one workspace, for the kernel, `%%prose` and `prose run NOTEBOOK`.

A front end supplies an `Output` for each cell and an `Asker` for questions. Everything else happens here, so that all
front ends produce the same outputs for the same cell.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from prose_kernel.errors import CompileError, ResumeMismatch, RunError, UsageError
from prose_kernel.language.source import Source
from prose_kernel.notebook.background import Background, EarlierTasks
from prose_kernel.notebook.cell_scan import Segment, cell_language, has_statements, is_preview, segments
from prose_kernel.notebook.exercise_checks import ExerciseProgress
from prose_kernel.notebook.magics.registry import find, run_line, statement
from prose_kernel.notebook.notebook_files import in_notebook
from prose_kernel.runs import languages
from prose_kernel.runs.forced_interrupt import in_cell
from prose_kernel.runs.provenance import Cell, Opening, Provenance
from prose_kernel.runtime.asker import serial
from prose_kernel.runtime.open_request import CellRun
from prose_kernel.runtime.values import Value
from prose_kernel.views.bundle import bundle
from prose_kernel.views.display import Display, Output, Problem
from prose_kernel.views.output_with_panel import OutputWithPanel, PanelRemovingAsker

if TYPE_CHECKING:
    from prose_kernel.language.diagnostics import Diagnostic
    from prose_kernel.runs.context import SuppliedValues
    from prose_kernel.runs.languages import Compiled, Language, Programs
    from prose_kernel.runs.resumption import Resumption
    from prose_kernel.runs.run import Run
    from prose_kernel.runs.run_machines import BoundName, Defined
    from prose_kernel.runs.settings import Settings
    from prose_kernel.runs.workspace import Workspace
    from prose_kernel.runtime.services import Asker
    from prose_kernel.runtime.statement_hook import StatementHook
    from prose_kernel.storage.journal_reading import JournalRead
    from prose_kernel.views.cell_view import CellView
    from prose_kernel.views.live_panel import LivePanel
    from prose_kernel.views.output_limit import Limits
    from prose_kernel.views.run_record import RunRecord

_CHANGE_ALL = (["run"], ["reset"], ["provider"], ["restore"], ["back"])
"""Magics that change the known names."""
_UNDEFINED = frozenset({"E007", "E053", "E131", "E132", "E140", "V040"})
"""Errors about a name that nothing has defined."""
_UNBOUND = "R201"
"""The error about such a name while a program runs."""
_MAYBE_UNBOUND = "V701"
"""The compiler's warning about a name that may be unbound."""
_NEW_RUN_MAGICS = re.compile(r"^%(?:reset|restore|back)\b.*$", re.MULTILINE)
_WITHOUT_RUN = re.compile(r"\s*%(?:reset|restore)\b")


@dataclass(slots=True)
class LastRun:
    """A cell of the current run. `text` is its text when it last finished (None: never), `tried` its text when it last
    ran, `given` the Python variables that were passed to it."""

    language: Language
    text: str | None = None
    tried: str = ""
    given: tuple[str, ...] = ()


class Rewinder(Protocol):
    """A debugger, which may rewind a running text to one of its statements."""

    def text_starts(self) -> None:
        """Note that a program text starts to run."""
        ...

    def rewind_target(self) -> tuple[int, int] | None:
        """Return the number of the statement to rewind to, and the number of the first journal record to discard; None
        if no rewind was requested. Called after the text has ended."""
        ...

    def text_restarts(self, number: int) -> None:
        """Note that the text starts again, and pause before that statement."""
        ...


class FrontEnd:
    """The notebook that cells belong to. This one has no Python variables and cannot run its cells by itself."""

    def holds(self, cell: Cell, name: str) -> bool:
        """Return whether the Python variable `name` still has the value that was passed to `cell`."""
        return True

    def rerunning(self, opening: Opening) -> AbstractAsyncContextManager[None]:
        """Return a context in which `%rerun` runs a cell: Python variables are passed in before, and out afterwards."""
        return nullcontext()

    def rerun(self, cells: Sequence[Cell]) -> bool:
        """Ask the front end to run stale `cells`. Return False if it cannot; nothing runs then."""
        return False


class Cells:
    """Runs the cells of a notebook in one workspace. All calls except `interrupt` belong to one event loop.

    `cwd` is the notebook's directory, `language` the language of cells that name none. `overrides` are settings that
    magics have changed.
    """

    def __init__(
        self, cwd: Path, asker: Asker, language: Language | None = None, front_end: FrontEnd | None = None
    ) -> None:
        self.cwd = cwd
        self.front_end = front_end or FrontEnd()
        self._panel_removing = PanelRemovingAsker(asker)
        self.asker = cast("Asker", self._panel_removing)
        self._kernel_language = language or languages.default()
        self.overrides: dict[str, Any] = {}
        self.show_warnings = True
        self.stepwise = False  # whether cells show the steps of the machine, statement by statement
        self.started_workspace: Workspace | None = None  # the workspace, once it exists
        self._stopped: Resumption | None = None  # a restored run whose last text was interrupted
        self.unrestored: Path | None = None  # the journal of a run to restore before the next cell
        self._given: SuppliedValues | None = None  # inputs and decisions given to that run in this process
        self._task: asyncio.Task[object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._in_program = False
        self._record: RunRecord | None = None
        self.ran: dict[object, LastRun] = {}  # by cell, in the order in which they first ran
        self.provenance = Provenance()
        self.exercises = ExerciseProgress()
        self.last_problem: Problem | None = None  # of the cell that failed last
        self.last_journal: Path | None = None  # of the run that ended last
        self.debugger: Rewinder | None = None
        self._hooks: list[StatementHook] = []
        self._view: CellView | None = None
        self.earlier_tasks = EarlierTasks(cwd, lambda: self.settings.state_dir)
        self.background = Background()

    # ------------------------------------------------------------ the workspace

    @cached_property
    def language(self) -> Language:
        """The language of cells that name none, in the profile that the notebook's metadata names at first use."""
        path = self.notebook_path
        return in_notebook(self._kernel_language, Path(self.cwd, path)) if path else self._kernel_language

    @property
    def settings(self) -> Settings:
        """The settings in force. Raises `UsageError` if one is invalid."""
        from prose_kernel.runs import settings

        return settings.load(self.cwd, None, **self.overrides)

    @property
    def workspace(self) -> Workspace:
        """The workspace, made at first use. Raises `UsageError` if a setting is invalid."""
        if self.started_workspace is None:
            self.started_workspace = self._new_workspace()
            self._hook(self.started_workspace)
            self.provenance.listen(self.started_workspace)
        return self.started_workspace

    def _new_workspace(self) -> Workspace:
        from prose_kernel.runs.workspace import Start, Workspace

        start = Start(self.cwd, notebook_path=self.notebook_path, language=self.language)
        return Workspace(self.settings, start, asker=self.asker)

    def _hook(self, workspace: Workspace) -> None:
        for hook in self._hooks:
            workspace.add_hook(hook)

    def add_hook(self, hook: StatementHook) -> None:
        """Call a hook before each statement, in this and later runs."""
        self._hooks.append(hook)
        if self.started_workspace is not None:
            self.started_workspace.add_hook(hook)

    def remove_hook(self, hook: StatementHook) -> None:
        self._hooks.remove(hook)
        if self.started_workspace is not None:
            self.started_workspace.remove_hook(hook)

    @property
    def current(self) -> Run | None:
        """The run, once it has started."""
        return self.started_workspace.current if self.started_workspace is not None else None

    def choose(self, **overrides: object) -> None:
        """Set the providers of sessions and conditions, and the recording mode (`settings.ANSWER_SOURCES`), for this
        and later runs.

        Raises `UsageError` for invalid values; then nothing has changed.
        """
        before, workspace = dict(self.overrides), self.workspace
        former = workspace.settings.answer_sources
        self.overrides.update(overrides)
        try:
            workspace.choose(**self.settings.answer_sources)
            _ = workspace.opened.services  # making the services checks the values before the first cell
        except UsageError:
            self.overrides = before
            if workspace.settings.answer_sources != former:
                workspace.choose(**former)
            raise

    async def connect(self, address: str) -> None:
        """Run commands on the machines at `address` (`off`: on this machine), in this and later runs. If it raises
        `UsageError`, nothing has changed."""
        await self.workspace.connect(address)
        self.overrides["remote"] = address

    @property
    def notebook_path(self) -> str:
        """The notebook's path, as Jupyter reports it; "" if it does not."""
        return os.environ.get("JPY_SESSION_NAME", "")

    @property
    def directory(self) -> Path:
        """The directory in which commands run."""
        return self.started_workspace.cwd if self.started_workspace is not None else self.cwd

    def programs(self, language: Language) -> Programs:
        """Return the imports of texts in a language; works before the run begins, too."""
        if self.started_workspace is not None:
            return self.started_workspace.imports.of(language)
        from prose_kernel.runs.imported_programs import contract_of

        notebook = Path(self.cwd, self.notebook_path) if self.notebook_path else None
        return language.programs(self.cwd, program=contract_of(notebook), profile=self.settings.profile)

    def targets(self, language: Language) -> Any:
        """Return the possible targets of `call` in a cell of a language; None for a language without calls."""
        profile = language.profile or self.settings.profile
        if profile not in languages.WITH_CALLS:
            return None
        known = self.started_workspace.machine_of(language).known() if self.started_workspace is not None else None
        return language.targets(self.programs(language).load_contract, profile, known)

    def check_restorable(self) -> None:
        """Raise `UsageError` if no run can be restored."""

    async def restore(self, resumption: Resumption, decisions: Mapping[str, bool] | None = None) -> None:
        """End the current run and restore another one, which the next cell continues. `decisions` confirm its
        approvals beforehand. Call `workspace.flush` afterwards to write its state.

        Raises `UsageError` if another process runs it, `GateRejected` if its approvals are not confirmed, and
        `ResumeMismatch`; then there is no run.
        """
        from prose_kernel.runs.settings import original_settings
        from prose_kernel.runs.workspace import Start, Workspace

        await self.end()
        head = resumption.head
        start = Start(
            Path(head.directory),
            supplied=head.supplied,
            decisions=decisions or {},
            notebook_path=head.notebook_path,
            language=languages.LANGUAGES[head.language],
        )
        state_dir = resumption.state_dir or self.settings.state_dir
        settings = self.settings.changed(**original_settings(head.settings), state_dir=state_dir)
        workspace = self.started_workspace = Workspace(settings, start, asker=self.asker, resumption=resumption)
        self._hook(workspace)
        self.provenance = Provenance(self.provenance)
        self.provenance.listen(workspace)
        self._in_program = True
        last = resumption.journal.texts[-1].ended if resumption.journal.texts else None
        self._stopped = resumption if last is not None and last.status == "interrupted" else None
        self.ran = {
            text.record.number: LastRun(languages.of_text(text.record.language, text.record.profile), text.record.text)
            for text in resumption.journal.texts
            if text.ended is not None and text.ended.status == "done"
        }
        try:
            await workspace.replay()
            self.provenance.end_outer_text()
        except BaseException:
            await self.end()
            raise
        finally:
            self._in_program = False

    async def end(self) -> None:
        """End the run and all its processes; the next cell starts a new run."""
        workspace, self.started_workspace, self._stopped = self.started_workspace, None, None
        self.unrestored = None
        self._record, self.provenance, self.ran = None, Provenance(self.provenance), {}
        if workspace is not None:
            self._remember_journal(workspace)
            await workspace.close()

    def _remember_journal(self, workspace: Workspace) -> None:
        if workspace.current is not None:
            self.last_journal = workspace.current.journal_file or self.last_journal

    async def reset(self) -> None:
        """End the run and forget every name; the next cell starts a new run in the notebook's directory."""
        self._record, self.ran, former = None, {}, self.provenance
        self.unrestored = None
        if self.started_workspace is not None:
            self._remember_journal(self.started_workspace)
            self.started_workspace.remove_listener(former)
            self.provenance = Provenance(former)
            self.provenance.listen(self.started_workspace)
            await self.started_workspace.reset()

    async def close(self) -> None:
        """End the run, all its processes, and the background work."""
        try:
            await self.end()
        finally:
            await self.background.close()

    def warm_up(self) -> None:
        """Import the modules that the first cell needs, ahead of time."""
        from prose_kernel.runs.workspace import preload_cell_modules
        from prose_kernel.views import cell_view, run_record

        _ = cell_view, run_record
        self.language.compile(Source.of(self.language.sample, "cell"))
        preload_cell_modules(self.language)

    @property
    def record(self) -> RunRecord:
        """A short summary of the cells of the run."""
        if self._record is None:
            from prose_kernel.views.run_record import RunRecord

            self._record = RunRecord()
        return self._record

    # ------------------------------------------------------------ a cell

    def opening(self, code: str, number: int | None, metadata: Mapping[str, Any]) -> Opening:
        """Return the opening of a cell, from the metadata of its request, which may name deleted cells."""
        if isinstance(deleted := metadata.get("deletedCells"), list):
            self.provenance.forget([key for key in deleted if isinstance(key, str)])
        cell_id = metadata.get("cellId")
        return Opening.of(code, cell_id if isinstance(cell_id, str) else None, number, metadata)

    @property
    def limits(self) -> Limits:
        """How much of one command's output is displayed."""
        from prose_kernel.views.output_limit import Limits

        settings = self.workspace.settings
        return Limits(settings.display_cap, settings.display_lines)

    async def run(
        self, code: str, output: Output, *, live: bool, language: Language | None = None, opening: Opening | None = None
    ) -> Problem | None:
        """Run a cell to its end. Never raises: an error is shown through `output.error` and returned.

        `live` is true if a person is watching, `language` the language of the cell (None: its first line may name
        one), `opening` the front end's id of the cell. An interrupt ends the cell with a problem named
        `KeyboardInterrupt`.
        """
        from prose_kernel.views.cell_view import CellView
        from prose_kernel.views.problems import problem_of

        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        view: CellView | None = None
        failed = True
        opening = opening or Opening.of(code, None, None)
        self.provenance.begin(opening)
        token = in_cell.set(True)
        try:
            panel = self._panel(OutputWithPanel(output)) if live else None
            output = panel.output if panel is not None else output
            output = self.exercises.listen(output, self.cwd)
            named = self._directory_name
            view = CellView(output, live=live, limits=self.limits, directory_name=named, panel=panel)
            value = await self._run(code, output, view, language)
            view = self._view or view
            view.finish(value)
            failed = False
        except BaseException as error:
            in_cell.set(False)  # from here on, nothing is stopped: the cell needs its reply
            if isinstance(error, asyncio.CancelledError) and self._task is not None:
                self._task.uncancel()
            view = self._view or view
            if view is not None:
                view.fail()
            problem = self._with_link(problem_of(error, stderr_shown=view is not None and error is view.shown_error))
            if problem.ename != "UsageError":
                self.last_problem = problem
            output.error(problem)
            return problem
        finally:
            in_cell.reset(token)
            self.provenance.end(failed=failed)
            self.remember(opening, language, failed=failed)
            self._task = self._view = self._panel_removing.output = None
        return None

    def remember(self, opening: Opening, language: Language | None, *, failed: bool) -> None:
        """Record a finished cell of the run. A cell that runs again replaces its record; a cell without an id is always
        new."""
        key = object() if opening.key.startswith("text:") else opening.key
        code = _NEW_RUN_MAGICS.split(opening.code)[-1]  # the text above such a magic belongs to an ended run
        ran = self.ran.setdefault(key, LastRun(language or self.language))
        ran.tried = code
        if not failed:
            ran.language, ran.text, ran.given = language or self.language, code, tuple(opening.given)

    def _panel(self, output: OutputWithPanel) -> LivePanel:
        """Return the live view of running activities for a watched cell."""
        from prose_kernel.views.live_panel import LivePanel

        self._panel_removing.output = output
        return LivePanel(
            output,
            loops=lambda: self.started_workspace.loops() if self.started_workspace is not None else (),
            asked=lambda request: self.workspace.answering(request),
        )

    async def run_again(self, cell: Cell, output: Output, view: CellView) -> None:
        """Run a cell again inside another one, which shows its outputs. Raises the errors of its programs."""
        calling, running = self.provenance.calling, view.language
        failed = True
        opening = replace(cell.opening, run=CellRun(keeps=True))  # a new execution of the cell
        self.provenance.begin(opening)
        try:
            async with self.front_end.rerunning(opening):
                await self._run(cell.code, output, view, cell.opening.language)
            failed = False
        finally:
            view.language = running
            self.provenance.end(failed=failed)
            cell.unfinished = failed
            if calling is not None:
                self.provenance.begin(calling)

    def _with_link(self, problem: Problem) -> Problem:
        """Return the problem with a link to its documentation, if that is on the web."""
        if not problem.code:
            return problem
        from prose_kernel.runs import reference_pages

        try:
            return replace(problem, link=reference_pages.link(problem.code, self.settings.docs_url))
        except UsageError:
            return problem

    async def _run(self, code: str, output: Output, view: CellView, language: Language | None = None) -> Value:
        await self._show_task_news(output, view)
        if not _WITHOUT_RUN.match(code):
            await self.restore_former()
        if language is None:
            language, code = cell_language(code, self.language)
        view.language = language
        begins = code.lstrip()
        if begins.startswith("%%"):
            from prose_kernel.notebook.magics import tasks as task_magics

            line, _, body = begins[2:].partition("\n")
            if line.split(None, 1)[:1] and line.split(None, 1)[0] in task_magics.CELL_MAGICS:
                await task_magics.run_cell(self, line.strip(), body, output, view)
                return None
        if begins.startswith("!"):
            hint = f'exec "{begins[1:].strip().partition(chr(10))[0]}"'
            raise UsageError("`!` does not run a command here", hint=statement(hint, language))
        pieces = segments(code, language)
        if pieces[0].magic and is_preview(pieces):
            await self._preview(pieces, output, view)
            return None
        if page := _help_wanted(code):
            output.page(self.help_page(page, language))
            return None
        if len(pieces) > 1:
            self._check_whole(pieces, language)
        value: Value = None
        for piece in pieces:
            if piece.magic:
                view.settle()
                await run_line(self, piece.text, output, view)
                view.language = language
                value = None
            elif has_statements(piece.text):
                if declared := self.declarations(piece.text, language):
                    await self.run_text(declared, view, "parameters", language)
                value = await self.run_text(piece.text, view, language=language)
        return value

    def declarations(self, text: str, language: Language) -> str:
        """Return statements that declare the parameters read by a text, in a contract file opened as a notebook."""
        if language.profile != "prosescript" or not self.notebook_path:
            return ""
        from prose_kernel.notebook.contract_notebooks import declarations

        supplied = self.workspace.context.given.supplied
        return declarations(Path(self.cwd, self.notebook_path), text, self.names(), supplied)

    async def _show_task_news(self, output: Output, view: CellView) -> None:
        run = self.current
        if self.earlier_tasks.is_due() or (run is not None and run.task_service.made is not None):
            from prose_kernel.notebook.magics.tasks import show_news

            await show_news(self, output, live=view.live)

    async def _preview(self, pieces: list[Segment], output: Output, view: CellView) -> None:
        """Run the magic at the start of a cell on the program below it, which does not run."""
        name, _, first = pieces[0].text.partition(" ")
        for piece in pieces[1:]:
            if piece.magic:
                hint = f"move %{piece.text} to another cell"
                raise UsageError(f"%{name} previews the program below it and cannot run %{piece.text}", hint=hint)
        below = "".join(piece.text for piece in pieces[1:])
        await run_line(self, name, output, view, first.lstrip() + below)

    def _check_whole(self, pieces: list[Segment], language: Language) -> None:
        """Check all magics and programs of a cell before any of it runs."""
        for piece in pieces:
            if piece.magic:
                find(piece.text, language)
        if any(p.magic and p.text.split(None, 1)[:1] in _CHANGE_ALL for p in pieces):
            return  # these magics will change the known names
        lines: list[str] = []
        for piece in pieces:
            if not piece.magic:
                own = piece.text.split("\n")
                lines += own[len(lines) :]
            else:
                lines += [""] * (piece.line - len(lines))
        if self.declarations("\n".join(lines), language):
            return  # these names are declared only when the program below a magic runs
        compiled = self.workspace.compile("\n".join(lines), language=language)
        if not compiled.ok:
            raise CompileError(compiled.diagnostics, self._hint("\n".join(lines), language, compiled.diagnostics))

    def _hint(self, text: str, language: Language, found: Sequence[Diagnostic]) -> str | None:
        """Return a hint for a text with errors as a whole: it may be in another language, or use names of a run that
        was lost with the kernel."""
        hint = self._other_language(text, language)
        unknown = any(one.code in _UNDEFINED and not one.hint for one in found)
        if hint or self.workspace.begun or self.last_journal or not unknown:
            return hint
        from prose_kernel.notebook.magics.restore import restorable_runs

        magic = serial(self.asker).magic
        return f"{magic}restore brings back the names of the last run" if restorable_runs(self, mine=True) else None

    def _other_language(self, text: str, language: Language) -> str | None:
        """Return a hint for a text that isn't a program in its language, but a correct one in another."""
        words = text.split(None, 2)
        reserved = words[1:2] == ["="] and language.completeness(f"{words[0]} = 1")[0] == "invalid"
        # One word is valid in too many languages; a reserved word as a name, as in `let = 1`, is more likely a mistake.
        if language.completeness(text)[0] == "invalid" and len(words) > 1 and not reserved:
            for other in languages.LANGUAGES.values():
                if other is not language and not self.workspace.compile(text, language=other).diagnostics:
                    return f"this is {other.title}: write %%{other.magic} on the first line of the cell"
        return None

    async def run_text(self, text: str, view: CellView, name: str = "cell", language: Language | None = None) -> Value:
        """Compile program text and run it in the current run, shown through `view`.

        Raises the errors of `Workspace.run`, and `CompileError`, in which case nothing was executed.
        """
        language = view.language = language or self.language
        await self._continue_with(text, language)
        workspace = self.workspace
        opening = self.provenance.calling
        compiled = workspace.compile(text, name, language, opening.number if opening is not None else None)
        if not compiled.ok:
            hint = self._hint(text, language, compiled.diagnostics) if name == "cell" else None
            raise CompileError(compiled.diagnostics, hint)
        if self.show_warnings:
            view.warnings(compiled.diagnostics)
        first = not workspace.begun and self.last_journal is None
        try:
            return await self._run_compiled(workspace, compiled, view)
        except RunError as error:
            advised = error.hint or any(one.code == _MAYBE_UNBOUND and one.hint for one in compiled.diagnostics)
            if first and error.code == _UNBOUND and not advised:
                from prose_kernel.notebook.magics.restore import earlier_run_hint

                earlier = earlier_run_hint(self)
                error.hint = f"{serial(self.asker).magic}reset ends this run; then {earlier}" if earlier else error.hint
            raise

    async def _continue_with(self, text: str, language: Language) -> None:
        """Continue at the point of interruption if the restored run ended with an interrupt of this text: its finished
        statements are not run again."""
        run = self.current
        if run is not None and run.journal is not None and run.journal.abandoned:
            # The run was interrupted while its records were replayed, so it can make no more requests.
            await self._restored_from(run.journal.path)
        resumption, self._stopped = self._stopped, None
        if resumption is None:
            return
        from prose_kernel.runs.resumption import interrupted_at

        last = resumption.journal.texts[-1].record
        if (last.text, last.language, last.profile) == (text, language.name, language.profile or ""):
            try:
                await self._restored_from(resumption.journal.path, interrupted_at)
            finally:
                self._stopped = None

    async def restore_former(self) -> None:
        """Restore the run whose restoring failed or was interrupted, if any. Raises the errors of `_restored_from`."""
        if self.unrestored is None:
            return
        before, self._task, self._loop = self._task, asyncio.current_task(), asyncio.get_running_loop()
        try:
            await self._restored_from(self.unrestored)
        finally:
            self._task = before

    async def _restored_from(self, path: Path, rewind: Callable[[JournalRead], int | None] = lambda _: None) -> None:
        """Restore this notebook's run again, up to the record that `rewind` returns (None: to its end). Inputs and
        decisions given in this process remain valid. Raises `StateError` if the restored run cannot be written, and the
        errors of `restore_instead`."""
        from prose_kernel.runs.resumption import Resumption
        from prose_kernel.storage.journal_reading import read

        opening = self.provenance.calling
        if self.started_workspace is not None:
            latest = self.started_workspace.context.given
            if self.unrestored is None or self._given is None:
                self._given = latest
            else:  # this workspace was made after the run could not be restored
                self._given.take_over(latest)
        given = self._given

        def how() -> Resumption:
            journal = read(path)
            return Resumption(journal, rewind=rewind(journal))

        await self.restore_instead(path, how)
        if given is not None:
            self.workspace.context.given.take_over(given)
        if opening is not None:
            self.provenance.begin(opening)
        await self.workspace.flush()

    async def restore_instead(self, former: Path, how: Callable[[], Resumption]) -> None:
        """End the current run, whose journal is `former`, and restore another one. If this is interrupted or fails, the
        next cell restores the former run to its end. Raises the errors of `restore`."""
        ending = asyncio.ensure_future(self.end())
        try:
            await asyncio.shield(ending)
            await self.restore(how())
        except ResumeMismatch:  # another attempt would fail in the same way; the next cell begins a new run
            raise
        except (asyncio.CancelledError, RunError, UsageError) as error:
            # The run could not be recorded, so that it can make no more requests, or another process uses it.
            try:
                await asyncio.shield(ending)
            finally:
                self.unrestored = former
            if isinstance(error, UsageError) and error.hint is None:
                error.hint = "%reset begins a new run"
            raise

    async def _run_compiled(self, workspace: Workspace, compiled: Compiled, view: CellView) -> Value:
        record = self.record
        record.begin(compiled.source, view.language)
        self.exercises.program_begins()
        workspace.add_listener(record)
        workspace.add_listener(view)
        self._in_program = True
        if self.debugger is not None:
            self.debugger.text_starts()
        back: tuple[int, int] | None = None
        try:
            with self._shown_stepwise(workspace, view):
                return await workspace.run(compiled, language=view.language)
        except BaseException:
            back = self.debugger.rewind_target() if self.debugger is not None else None
            if back is None:
                raise
        finally:
            self._in_program = False
            workspace.remove_listener(view)
            workspace.remove_listener(record)
            record.end()
        return await self._rerun_rewound(compiled, view, *back)

    async def _rerun_rewound(self, compiled: Compiled, view: CellView, number: int, record: int) -> Value:
        """Run a text again after a rewind, with the answers from journal records before `record`."""
        from prose_kernel.views.cell_view import CellView

        path = self.current.journal_file if self.current is not None else None
        assert path is not None
        assert self.debugger is not None
        view.settle()
        panel = None
        if view.panel is not None:
            view.panel.end()
            panel = self._panel(view.panel.output)
        view.output.clear()
        language = view.language
        await self._restored_from(path, lambda _: record)
        self._view = view = CellView(
            view.output, live=view.live, limits=self.limits, directory_name=self._directory_name, panel=panel
        )
        view.language = language
        self.debugger.text_restarts(number)
        return await self._run_compiled(self.workspace, compiled, view)

    @contextmanager
    def _shown_stepwise(self, workspace: Workspace, view: CellView) -> Iterator[None]:
        """Show the steps of the machine in this context, if `stepwise` is set."""
        if not self.stepwise:
            yield
            return
        from prose_kernel.views.step_display import StepDisplay

        work = StepDisplay(view.language, self.record.steps_of)
        workspace.add_hook(work)
        workspace.add_listener(work)
        try:
            yield
        finally:
            workspace.remove_listener(work)
            workspace.remove_hook(work)
            if (shown := work.table()) is not None:
                view.show_separately(bundle(shown))

    def _directory_name(self, path: str) -> str:
        """Return a directory's name for outputs: relative to the notebook's directory, "" if it is elsewhere."""
        try:
            return str(Path(path).relative_to(self.cwd))
        except ValueError:
            return ""

    # ------------------------------------------------------------ interrupt

    @property
    def running(self) -> bool:
        return self._task is not None

    def interrupt(self) -> None:
        """End the running cell, if any; may be called from any thread. A second call also ends its `finally` bodies."""
        workspace, task, loop = self.started_workspace, self._task, self._loop
        if task is None or loop is None:
            return

        def cancel() -> None:
            if self._task is not task:
                return  # the cell has ended: the task must finish what follows it
            if self._in_program and self.started_workspace is not None:
                self.interrupt()  # the program has begun meanwhile
            else:
                task.cancel()

        if self._in_program and workspace is not None:
            workspace.interrupt()
        else:
            loop.call_soon_threadsafe(cancel)

    # ------------------------------------------------------------ bindings and help

    def names(self) -> Mapping[str, BoundName]:
        """Return the bound names of the run, in both languages; none before the first cell."""
        return self.started_workspace.bindings() if self.started_workspace is not None else {}

    def definitions(self) -> Sequence[Defined]:
        """Return the definitions of the run's texts, in both languages."""
        return self.started_workspace.definitions() if self.started_workspace is not None else ()

    def values(self) -> Mapping[str, Value]:
        """Return the values of these names."""
        return self.started_workspace.values() if self.started_workspace is not None else {}

    def inspect(self, code: str, cursor: int, detail: int = 0) -> Display | None:
        """Return help for the word at a cursor position, or None."""
        from prose_kernel.notebook import inspection

        found = inspection.inspect(self, code, cursor, detail)
        return bundle(found) if found is not None else None

    def help_page(self, word: str, language: Language | None = None) -> Display:
        """Return the help page for a cell such as `plan?`. Raises `UsageError` if there is no help for the word."""
        from prose_kernel.notebook import inspection

        found = inspection.describe(self, word, language or self.language)
        if found is None:
            raise UsageError(f"there is no help for {word}", hint="%help lists all magics, %bindings all names")
        return bundle(found)


def _help_wanted(code: str) -> str | None:
    """Return the word in a cell such as `plan?`, `?exec` or `%bindings?`; None for every other cell."""
    text = code.strip()
    if "\n" in text or not (text.endswith("?") or text.startswith("?")):
        return None
    word = text.strip("?").strip()
    return word if word and all(c.isalnum() or c in "_-%" for c in word) else None
