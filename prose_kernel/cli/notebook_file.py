"""`prose run NOTEBOOK`: the cells of a notebook file, run as in the kernel and shown as text.

In a notebook of one of our kernels every code cell is one; in a Python notebook those that begin with `%%prose` or
`%%vvm`.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from prose_kernel.cli import files
from prose_kernel.cli.execution import Cell, Ended, ProgramRun, Request
from prose_kernel.cli.terminal import Screen
from prose_kernel.errors import UsageError
from prose_kernel.notebook.cells import Cells
from prose_kernel.notebook.notebook_files import decoded, in_profile_of
from prose_kernel.notebook.scan import PROFILE, segments, spoken
from prose_kernel.runs import languages
from prose_kernel.runs.languages import Language
from prose_kernel.runs.provenance import Opening
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.ports import Stream
from prose_kernel.runtime.values import Value
from prose_kernel.views.cell_view import CellView
from prose_kernel.views.display import Display, Output

if TYPE_CHECKING:
    from prose_kernel.runs.journal import Resumption
    from prose_kernel.runs.run import Run

_KERNEL = (("kernelspec", "language"), ("language_info", "name"))
MAY_FAIL = "raises-exception"


def read_cells(name: str) -> tuple[list[Cell], Language]:
    """The cells in order, and the language of those that name none. A cell is called by its number among the
    notebook's code cells.

    Raises `UsageError` when the file is no notebook, or has no cells to run.
    """
    book, whole = _read(name)
    cells = [
        Cell(text, f"cell {number}", MAY_FAIL in cell.metadata.get("tags", ()))
        for number, cell in enumerate((cell for cell in book.cells if cell.cell_type == "code"), 1)
        if (text := cell.source if whole is not None else of_magic(cell.source)) is not None
    ]
    if not cells:
        raise _without_cells(name)
    return cells, whole or in_profile_of(languages.default(), book.metadata)


def read_book(name: str) -> tuple[Any, Language | None]:
    """A notebook as nbformat reads it, and the language of cells that name none; None for one of another kernel.

    Raises `UsageError` when the file is no notebook, or has no cells to run.
    """
    book, whole = _read(name)
    if whole is None and not any(of_magic(cell.source) for cell in book.cells if cell.cell_type == "code"):
        raise _without_cells(name)
    return book, whole


def _without_cells(name: str) -> UsageError:
    magics = ", ".join(f"%%{language.magic}" for language in languages.LANGUAGES.values())
    return UsageError(f"{name} has no cells for Prose: it is neither a Prose notebook nor does it use {magics}")


def _read(name: str) -> tuple[Any, Language | None]:
    import nbformat

    _, data = decoded(name, files.read_bytes(name))
    try:
        with warnings.catch_warnings():  # what is missing and not needed, such as the ids of cells
            warnings.simplefilter("ignore")
            book = nbformat.reads(json.dumps(data), as_version=4)  # type: ignore[no-untyped-call]
    except (ValueError, KeyError, AttributeError, TypeError, nbformat.ValidationError) as problem:
        raise UsageError(f"{name} is not a notebook: {str(problem).splitlines()[0]}") from None
    names = ((book.metadata.get(part) or {}).get(key) for part, key in _KERNEL)
    whole = next((found for name in names if isinstance(name, str) and (found := languages.of_magic(name))), None)
    return book, in_profile_of(whole, book.metadata) if whole is not None else None


def of_magic(source: str) -> str | None:
    """A cell that begins with `%%prose` or `%%vvm`; None for another one."""
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


# ---------------------------------------------------------------- running them


class NotebookRun(ProgramRun):
    """The cells of a notebook. Their commands expect to run beside it, as in Jupyter; the run is kept where it was
    started."""

    def __init__(self, request: Request, screen: Screen, language: Language, cells: Sequence[Cell]) -> None:
        super().__init__(request, screen, language)
        self._texts = cells

    @cached_property
    def _cells(self) -> NotebookCells:
        if (former := self.request.former) is None:
            return NotebookCells(self)
        from prose_kernel.cli.only_stale import StaleCells

        return StaleCells(self, former, self._texts)

    @property
    def workspace(self) -> Workspace:
        return self._cells.workspace

    async def through(self, cells: Sequence[Cell]) -> Ended:
        if self.request.inputs:
            for cell in cells:
                language, text = spoken(cell.text, self.language)
                texts = [piece.text for piece in segments(text, language) if not piece.magic]
                for one in (*texts, self._cells.declarations("".join(texts), language)):
                    self.workspace.declare(one, language)
        return await super().through(cells)

    async def feed(self, cell: Cell) -> None:
        await self._cells.feed(cell)

    def _notes(self, run: Run) -> tuple[str, ...]:
        return (*super()._notes(run), *self._cells.notes)


class NotebookCells(Cells):
    """Cells as in the kernel, with programs reported by the command line's narrator."""

    def __init__(self, run: ProgramRun) -> None:
        given = run.request
        notebook = (given.cwd / os.path.expanduser(given.name)).resolve()  # noqa: PTH111 - a home directory of nobody stays as it is
        super().__init__(notebook.parent, run.asker, run.language)
        self._told_by = run
        self._start = Start(
            self.cwd,
            notebook.name,
            supplied=given.inputs,
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
        self._name = ""  # of the cell that runs

    @property
    def notes(self) -> tuple[str, ...]:
        """What is said at the end of the run."""
        return ()

    @property
    def notebook_path(self) -> str:
        return self._start.notebook_path

    def _new_workspace(self) -> Workspace:
        return self._told_by.plugged(self.settings, self._start)

    async def restore(self, how: Resumption, decisions: Mapping[str, bool] | None = None) -> None:
        raise UsageError(
            "%restore and %back are for a notebook in a kernel", hint="prose run --resume lets a run go on"
        )

    async def feed(self, cell: Cell) -> None:
        """Run one cell. Raises `CompileError`, `RunError` and `UsageError`."""
        failed, self._name = True, cell.name
        try:
            await self._run(cell.text, self._output, CellView(self._output, live=False, limits=self.limits))
            failed = False
        finally:
            self.remember(Opening.of(cell.text, cell.name, None), None, failed=failed)

    async def program(self, text: str, view: CellView, name: str = "cell", language: Language | None = None) -> Value:
        """Programs of cells, and of `%run`."""
        run = self._told_by
        language = run.narrator.language = language or self.language
        compiled = run.compile(text, self._name if name == "cell" else name, language)
        record, workspace = self.record, self.workspace
        record.begin(compiled.source, language)
        workspace.add_listener(record)
        view.language = language
        try:
            with self._watched(workspace, view):
                return await workspace.run(compiled, language=language)
        finally:
            workspace.remove_listener(record)
            record.end()


class TextOutput(Output):
    """The output of magics as plain text, for a terminal or pipe. Printed lines stay, and errors end the run."""

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
