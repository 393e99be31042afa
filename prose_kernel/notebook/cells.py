"""Run the cells of one notebook, for the kernel, `%%prose` and `prose run NOTEBOOK`.

A front end supplies an `Output` for each cell and an `Asker` for questions. Everything else happens here, so that all
front ends produce the same outputs for the same cell.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from prose_kernel.errors import CompileError, RunError, UsageError
from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.notebook import cell_hints
from prose_kernel.notebook.background import Background, EarlierTasks
from prose_kernel.notebook.cell_scan import Segment, cell_language, has_statements, is_preview, segments
from prose_kernel.notebook.exercise_checks import ExerciseProgress
from prose_kernel.notebook.magics.registry import find, run_line, statement
from prose_kernel.notebook.notebook_run import LastRun, NotebookRun
from prose_kernel.runs.forced_interrupt import in_cell
from prose_kernel.runs.provenance import Cell, Opening
from prose_kernel.runtime.open_request import CellRun
from prose_kernel.runtime.values import Value
from prose_kernel.views.bundle import bundle
from prose_kernel.views.display import Display, Output, Problem
from prose_kernel.views.output_with_panel import OutputWithPanel, PanelRemovingAsker

if TYPE_CHECKING:
    from prose_kernel.runs.languages import Compiled, Language
    from prose_kernel.runs.workspace import Workspace
    from prose_kernel.runtime.services import Asker
    from prose_kernel.views.cell_view import CellView
    from prose_kernel.views.live_panel import LivePanel
    from prose_kernel.views.output_limit import Limits

_CHANGE_ALL = (["run"], ["reset"], ["provider"], ["restore"], ["back"])
"""Magics that change the known names."""
_NEW_RUN_MAGICS = re.compile(r"^%(?:reset|restore|back)\b.*$", re.MULTILINE)
_WITHOUT_RUN = re.compile(r"\s*%(?:reset|restore)\b")


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


class Cells(NotebookRun):
    """Runs the cells of a notebook in its run. All calls except `interrupt` belong to one event loop."""

    def __init__(
        self, cwd: Path, asker: Asker, language: Language | None = None, front_end: FrontEnd | None = None
    ) -> None:
        self._panel_removing = PanelRemovingAsker(asker)
        super().__init__(cwd, cast("Asker", self._panel_removing), language)
        self.front_end = front_end or FrontEnd()
        self.show_warnings = True
        self.stepwise = False  # whether cells show the steps of the machine, statement by statement
        self.exercises = ExerciseProgress()
        self.last_problem: Problem | None = None  # of the cell that failed last
        self.debugger: Rewinder | None = None
        self._view: CellView | None = None
        self.earlier_tasks = EarlierTasks(cwd, lambda: self.settings.state_dir)
        self.background = Background()

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
            hint = cell_hints.of_findings(self, "\n".join(lines), language, compiled.diagnostics)
            raise CompileError(compiled.diagnostics, hint)

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
            hint = cell_hints.of_findings(self, text, language, compiled.diagnostics) if name == "cell" else None
            raise CompileError(compiled.diagnostics, hint)
        if self.show_warnings:
            view.warnings(compiled.diagnostics)
        first = not workspace.begun and self.last_journal is None
        try:
            return await self._run_compiled(workspace, compiled, view)
        except RunError as error:
            if first:
                error.hint = cell_hints.of_unbound_name(self, error, compiled.diagnostics)
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

    # ------------------------------------------------------------ help

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
