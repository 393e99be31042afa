"""Feeding a program to a workspace from the command line: signals, the person at the terminal, what came out."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from prose_kernel.cli import files, report
from prose_kernel.cli.narrator import Narrator
from prose_kernel.cli.notebook_file import Cell, read_cells
from prose_kernel.cli.terminal import Screen, TerminalAsker, somebody_here
from prose_kernel.errors import CompileError, RunError, UsageError
from prose_kernel.machine.values import full_text, plain
from prose_kernel.workspace import Start, Workspace

if TYPE_CHECKING:
    from prose_kernel.cli.run import Request

FAILED, NOT_STARTED, NOBODY = 1, 2, 3
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. `products` are the texts printed at the end; `signal` is set for an interrupted run."""

    status: int
    run_id: str | None = None
    run_directory: Path | None = None
    outputs: Mapping[str, object] = field(default_factory=dict)
    bindings: Mapping[str, object] = field(default_factory=dict)
    products: tuple[str, ...] = ()
    error: CompileError | RunError | None = None
    signal: int | None = None
    stderr_shown: bool = False


def execute(request: Request) -> Ended:
    """Run the program to its end. Raises `UsageError`, and `CompileError` (E109), when its text cannot be had."""
    screen = Screen(sys.stdout, sys.stderr, products_to_stderr=request.json)
    notebook = request.name.endswith(".ipynb")
    cells = read_cells(request.name) if notebook else [Cell(files.read_source(request.name).text, request.name)]
    screen.banner()
    return asyncio.run(_Run(request, screen, notebook).through(cells))


class _Run:
    """One run from its first cell to its closing."""

    def __init__(self, request: Request, screen: Screen, notebook: bool) -> None:
        self._request = request
        self._narrator = Narrator(screen)
        self._screen = screen
        asker = TerminalAsker(sys.stdin, screen, available=somebody_here(sys.stdin, sys.stderr))
        self._notebook = notebook
        settings = request.settings
        cwd = request.cwd
        if notebook:  # its commands expect to run beside it, as in Jupyter; the run is kept where it was started
            settings = replace(settings, state_dir=str(cwd / settings.state_dir))
            cwd = (cwd / Path(request.name).expanduser()).resolve().parent
        self._workspace = Workspace(
            settings,
            Start(cwd, request.name, notebook=False, supplied=request.inputs, decisions=request.decisions),
            asker=asker,
            listeners=[self._narrator],
        )

    async def through(self, cells: Sequence[Cell]) -> Ended:
        with _interrupts(self._workspace) as received:
            started = False
            error: CompileError | RunError | None = None
            try:
                for cell in cells:
                    await self._one(cell)
                    started = True
            except (CompileError, RunError) as problem:
                error = problem
            except asyncio.CancelledError:
                received.append(signal.SIGINT)
            return await self._end(error, started, received)
''' '''
