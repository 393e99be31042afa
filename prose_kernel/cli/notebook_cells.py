"""Run the cells of a notebook from the command line, and show the output of their magics as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from prose_kernel.cli.execution import Cell, ProgramRun
from prose_kernel.cli.terminal import Screen
from prose_kernel.errors import UsageError
from prose_kernel.notebook.cells import Cells
from prose_kernel.runs.languages import Language
from prose_kernel.runs.provenance import Opening
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.home import expanded
from prose_kernel.runtime.ports import Stream
from prose_kernel.runtime.values import Value
from prose_kernel.views.cell_view import CellView
from prose_kernel.views.display import Display, Output

if TYPE_CHECKING:
    from prose_kernel.runs.resumption import Resumption


class NotebookCells(Cells):
    """Cells that run as in the kernel; the command line's narrator reports their programs."""

    def __init__(self, run: ProgramRun) -> None:
        given = run.request
        notebook = (given.cwd / expanded(given.program_file)).resolve()
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

    async def program(self, text: str, view: CellView, name: str = "cell", language: Language | None = None) -> Value:
        """Run a program of a cell or of `%run`."""
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


def only_in_a_kernel() -> UsageError:
    """Return the error of magics that restore a run."""
    return UsageError("%restore and %back are for a notebook in a kernel", hint="prose run --resume resumes a run")


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
