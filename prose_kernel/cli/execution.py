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
from prose_kernel.machine.values import Value, full_text, plain
from prose_kernel.workspace import Start, Workspace

if TYPE_CHECKING:
    from prose_kernel.cli.run import Request
    from prose_kernel.language.openprose.tree import Program

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
            error: CompileError | RunError | None = None
            done = 0
            try:
                for cell in cells:
                    await self._one(cell)
                    done += 1
                    if received:
                        break
            except (CompileError, RunError) as problem:
                error = problem
            except asyncio.CancelledError:
                _stay()
            return await self._end(error, done, received)

    async def _one(self, cell: Cell) -> None:
        """Compile and run one text; its warnings are shown, its errors raised."""
        compiled = self._workspace.compile(cell.text, cell.name)
        if not compiled.ok:
            raise CompileError(compiled.diagnostics)
        for found in compiled.diagnostics:
            self._screen.note(found.render(), "yellow")
        if not self._notebook:
            _known_inputs(compiled.program, self._request)
        self._value = await self._workspace.run(compiled)

    async def _end(self, error: CompileError | RunError | None, done: int, received: Sequence[int]) -> Ended:
        """Take what the run has made, then close it."""
        workspace, narrator = self._workspace, self._narrator
        status = _status(error, done) if not received else 128 + received[0]
        started = workspace.run_id is not None or done or isinstance(error, RunError)
        outputs = workspace.machine.outputs() if started else {}
        bindings = {name: info.value for name, info in workspace.machine.bindings().items()} if started else {}
        narrator.close()
        ended = Ended(
            status,
            workspace.run_id,
            workspace.run_directory,
            {name: plain(value) for name, value in outputs.items()} if self._request.json else {},
            {name: plain(value) for name, value in bindings.items()} if self._request.json else {},
            products=self._products(outputs),
            error=None if received else error,
            signal=received[0] if received else None,
            stderr_shown=error is not None and error is narrator.shown_error,
        )
        await workspace.close(error if isinstance(error, RunError) else None)
        return ended

    def _products(self, outputs: Mapping[str, Value]) -> tuple[str, ...]:
        """The outputs for people; without any, the value of the last statement if nothing has shown it yet."""
        if outputs:
            return tuple(report.output_text(name, value) for name, value in outputs.items())
        return (full_text(self._narrator.unshown),) if self._narrator.unshown is not None else ()


def _status(error: CompileError | RunError | None, done: int) -> int:
    match error:
        case None:
            return 0
        case CompileError():
            return FAILED if done else NOT_STARTED
        case RunError():
            return NOBODY if error.nobody else FAILED


def _known_inputs(program: Program, request: Request) -> None:
    """Raises `UsageError` for an `--input` that the program does not ask for."""
    from prose_kernel.cli.search import gate_names
    from prose_kernel.language.openprose.contract import contract

    declared = contract(program).inputs
    gates = gate_names(program)
    unknown = [name for name in request.inputs if name not in declared and name not in gates]
    if unknown:
        asked = f"its inputs are {', '.join(declared)}" if declared else "it has no inputs"
        raise UsageError(f"--input {unknown[0]}: {request.name} does not ask for it; {asked}")


def _stay() -> None:
    """Go on after a cancellation that has been answered."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


@contextmanager
def _interrupts(workspace: Workspace) -> Iterator[list[int]]:
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
        workspace.interrupt()

    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
