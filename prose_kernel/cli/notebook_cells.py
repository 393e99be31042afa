"""The cells of a notebook file run from the command line: magics and programs as in the kernel, shown as text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from prose_kernel.cells.runner import Cells
from prose_kernel.cli.notebook_file import Cell
from prose_kernel.cli.terminal import Screen
from prose_kernel.presentation.cell_view import CellView
from prose_kernel.presentation.display import Display, Problem
from prose_kernel.runtime.ports import Stream
from prose_kernel.runtime.values import Value
from prose_kernel.workspace import Start, Workspace

if TYPE_CHECKING:
    from prose_kernel.cli.execution import ProgramRun


class NotebookCells(Cells):
    """The kernel's own handling of cells, but programs are told by the command line's narrator."""

    def __init__(self, run: ProgramRun) -> None:
        given = run.request
        notebook = (given.cwd / os.path.expanduser(given.name)).resolve()  # noqa: PTH111 - a home directory of nobody stays as it is
        super().__init__(notebook.parent, run.asker)
        self._told_by = run
        self._start = Start(self.cwd, notebook.name, supplied=given.inputs, decisions=given.decisions)
        chosen = given.settings
        self.overrides = {name: getattr(chosen, name) for name in chosen.__slots__}
        self.overrides["state_dir"] = str(given.cwd / chosen.state_dir)
        if chosen.script:
            self.overrides["script"] = str(given.cwd / chosen.script)
        self._output = TextOutput(run.screen)

    @property
    def workspace(self) -> Workspace:
        if self._workspace is None:
            listeners = [self._told_by.narrator]
            self._workspace = Workspace(self.settings, self._start, asker=self.asker, listeners=listeners)
        return self._workspace

    async def feed(self, cell: Cell) -> None:
        """Run one cell. Raises `CompileError`, `RunError` and `UsageError`."""
        await self._run(cell.text, self._output, CellView(self._output, live=False, cap=0))

    async def program(self, text: str, view: CellView, name: str = "cell") -> Value:
        """Programs of cells, and of `%run`."""
        run = self._told_by
        return await self.workspace.run(run.compile(text, run.text_name if name == "cell" else name))


class TextOutput:
    """What magics show, as plain text: `notebook.output.Output` for a terminal or pipe."""

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

    def update(self, display: Display, display_id: str) -> None:
        """What has been printed stays."""

    def clear(self) -> None:
        """What has been printed stays."""

    def error(self, problem: Problem) -> None:
        """Errors reach the end of the run by themselves."""
