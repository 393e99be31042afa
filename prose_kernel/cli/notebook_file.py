"""`prose run NOTEBOOK`: run the cells of a notebook as in the kernel, and show their output as text.

In a notebook of a Prose or VVM kernel, these are all code cells; in a Python notebook, the cells that begin with
`%%prose` or `%%vvm`.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from prose_kernel.cli import program_files
from prose_kernel.cli.execution import Cell, ProgramRun
from prose_kernel.cli.terminal import Screen
from prose_kernel.errors import UsageError
from prose_kernel.notebook.cell_scan import PROFILE, draft_language, segments
from prose_kernel.notebook.cells import Cells
from prose_kernel.notebook.notebook_files import decoded, in_profile_of, language_of
from prose_kernel.runs import languages
from prose_kernel.runs.execution import AcceptedValues
from prose_kernel.runs.languages import Language
from prose_kernel.runs.provenance import Opening
from prose_kernel.runs.run import Run
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.ports import Stream
from prose_kernel.runtime.values import Value
from prose_kernel.views.cell_view import CellView
from prose_kernel.views.display import Display, Output

if TYPE_CHECKING:
    from prose_kernel.runs.resumption import Resumption

MAY_FAIL = "raises-exception"


def read_cells(name: str) -> tuple[list[Cell], Language]:
    """Return the cells in order, and the language of cells that do not name one. A cell's name is its number among the
    notebook's code cells.

    Raises `UsageError` if the file isn't a notebook, or has no cells to run.
    """
    book, whole = _read(name)
    cells = [
        Cell(text, f"cell {number}", MAY_FAIL in cell.metadata.get("tags", ()))
        for number, cell in enumerate((cell for cell in book.cells if cell.cell_type == "code"), 1)
        if (text := cell.source if whole is not None else of_magic(cell.source)) is not None
    ]
    if not cells:
        raise _without_cells(name, whole)
    return cells, whole or in_profile_of(languages.default(), book.metadata)


def check_no_going_back(cells: Iterable[Cell], language: Language) -> None:
    """Raise `UsageError` for a cell with `%back`, unless it may fail, before anything runs."""
    for cell in cells:
        own, text = draft_language(cell.text, language)
        magics = [one.text.split()[:1] for one in segments(text, own) if one.magic]
        if ["back"] in magics and not cell.may_fail:
            error = only_in_a_kernel()
            raise UsageError(f"{cell.name}: {error}", hint=error.hint)


def only_in_a_kernel() -> UsageError:
    """Return the error of magics that restore a run."""
    return UsageError("%restore and %back are for a notebook in a kernel", hint="prose run --resume resumes a run")


def read_book(name: str) -> tuple[Any, Language | None]:
    """Return a notebook as nbformat reads it, and the language of its kernel; None for another kernel.

    Raises `UsageError` if the file isn't a notebook, or has no cells to run.
    """
    book, whole = _read(name)
    if whole is None and not any(of_magic(cell.source) for cell in book.cells if cell.cell_type == "code"):
        raise _without_cells(name, whole)
    return book, whole


def _without_cells(name: str, whole: Language | None) -> UsageError:
    """Return the error for a notebook without cells to run. `whole` is None for a kernel of another language."""
    if whole is not None:
        return UsageError(f"{name} has no code cells: there is nothing to run")
    magics = ", ".join(f"%%{language.magic}" for language in languages.LANGUAGES.values())
    return UsageError(f"{name} has no cells for Prose: it is neither a Prose notebook nor does it use {magics}")


def _read(name: str) -> tuple[Any, Language | None]:
    import nbformat

    _, data = decoded(name, program_files.read_bytes(name))
    try:
        with warnings.catch_warnings():  # missing parts that aren't needed, such as ids of cells
            warnings.simplefilter("ignore")
            book = nbformat.reads(json.dumps(data), as_version=4)  # type: ignore[no-untyped-call]
    except (ValueError, KeyError, AttributeError, TypeError, nbformat.ValidationError) as problem:
        raise UsageError(f"{name} is not a notebook: {str(problem).splitlines()[0]}") from None
    return book, language_of(book.metadata)


def of_magic(source: str) -> str | None:
    """Return the text of a cell that begins with `%%prose` or `%%vvm`; None for other cells. Raises `UsageError` if the
    magic has options that need Python."""
    text = source.lstrip()
    first = text.partition("\n")[0].strip()
    word, _, options = first.partition(" ")
    if not word.startswith("%%") or languages.of_magic(word[2:]) is None:
        return None
    if options.strip() and not PROFILE.fullmatch(options.strip()):
        raise UsageError(
            f"`{first}`: there is no Python here that values could come from or go to",
            hint="run this notebook with Jupyter, or give the values with --input",
        )
    return text


# ---------------------------------------------------------------- run


class NotebookRun(ProgramRun):
    """A run of the cells of a notebook. Their commands run in its directory, as in Jupyter; the run is kept in the
    directory in which it was started."""

    @cached_property
    def _cells(self) -> NotebookCells:
        former = self.request.former
        return NotebookCells(self) if former is None else former.cells(self)

    @property
    def workspace(self) -> Workspace:
        return self._cells.workspace

    def check_given(self) -> None:
        """Declare the inputs of all cells. Raises `UsageError` for a name that no cell knows."""
        request = self.request
        if not request.supplied and not request.typed_decisions:
            return
        accepted, complete = AcceptedValues(), True
        for cell in request.cells:
            language, text = draft_language(cell.text, self.language)
            pieces = segments(text, language)
            texts = [piece.text for piece in pieces if not piece.magic]
            declared = self._cells.declarations("".join(texts), language)
            load = self.workspace.imports.of(language).load_contract
            for one in (*texts, declared):
                accepted.add(self.workspace.declare(one, language), language, load)
            complete = complete and language.profile != "prosescript"
            complete = complete and not any(piece.magic and piece.text.split()[:1] == ["run"] for piece in pieces)
        if complete:
            self.refuse_unknown(accepted)

    async def feed(self, cell: Cell) -> None:
        await self._cells.feed(cell)

    def _notes(self, run: Run) -> tuple[str, ...]:
        return (*super()._notes(run), *self._cells.notes)


class NotebookCells(Cells):
    """Cells that run as in the kernel; the command line's narrator reports their programs."""

    def __init__(self, run: ProgramRun) -> None:
        given = run.request
        notebook = (given.cwd / os.path.expanduser(given.program_file)).resolve()
        super().__init__(notebook.parent, run.asker, run.language)
        self._runner = run
        self._start = Start(
            self.cwd,
            notebook.name,
            supplied=given.supplied,
            decisions=given.decisions,
            notebook_path=str(notebook),
            trust=given.trust,
            language=run.language,
            run_id=given.run_id,
        )
        chosen = given.settings
        self.overrides = chosen.by_name()
        self.overrides["state_dir"] = str(given.cwd / chosen.state_dir)
        if chosen.script:
            self.overrides["script"] = str(given.cwd / chosen.script)
        self._output = TextOutput(run.screen)
        self._name = ""  # the name of the running cell

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for the end of the run."""
        return ()

    @property
    def notebook_path(self) -> str:
        return self._start.notebook_path

    def _new_workspace(self) -> Workspace:
        return self._runner.new_workspace(self.settings, self._start)

    def check_restorable(self) -> None:
        raise only_in_a_kernel()

    async def restore(self, resumption: Resumption, decisions: Mapping[str, bool] | None = None) -> None:
        self.check_restorable()

    async def feed(self, cell: Cell) -> None:
        """Run one cell. Raises `CompileError`, `RunError` and `UsageError`."""
        failed, self._name = True, cell.name
        try:
            await self._run(cell.text, self._output, CellView(self._output, live=False, limits=self.limits))
            failed = False
        finally:
            self.remember(Opening.of(cell.text, cell.name, None), None, failed=failed)

    async def run_text(self, text: str, view: CellView, name: str = "cell", language: Language | None = None) -> Value:
        run = self._runner
        language = run.narrator.language = language or self.language
        compiled = run.compile(text, self._name if name == "cell" else name, language)
        record, workspace = self.record, self.workspace
        record.begin(compiled.source, language)
        workspace.add_listener(record)
        view.language = language
        try:
            with self._shown_stepwise(workspace, view):
                return await workspace.run(compiled, language=language, interrupted=lambda: run.received)
        finally:
            workspace.remove_listener(record)
            record.end()


class TextOutput(Output):
    """Output of magics as plain text, for a terminal or pipe. Printed lines cannot change, and errors end the run."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def stream(self, name: Stream, text: str) -> None:
        self._screen.write(name, text)

    def display(self, display: Display, display_id: str | None = None) -> None:
        if text := display.data.get("text/plain"):
            self._screen.line("stdout", text)

    def result(self, display: Display) -> None:
        self.display(display)

    def page(self, display: Display) -> None:
        self.display(display)
