"""Run the cells of a notebook for a test, in this process, offline and without questions, and keep all outputs."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from prose_kernel.language.source import Source
from prose_kernel.notebook.cells import Cells
from prose_kernel.notebook.messages import error_content
from prose_kernel.runs.languages import Language
from prose_kernel.runs.provenance import Opening
from prose_kernel.runs.resumption import Resumption
from prose_kernel.runs.workspace import Workspace
from prose_kernel.runtime import events as ev
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.ports import Stream
from prose_kernel.testing.notebook_source import CodeCell
from prose_kernel.testing.options import time_limited
from prose_kernel.testing.outputs import Output
from prose_kernel.views.display import Display, Problem
from prose_kernel.views.display import Output as Sink
from prose_kernel.views.escaping import terminal
from prose_kernel.views.test_results import Statement

Origins = dict[int, tuple[tuple[str, Statement], ...]]


class CellRun(Struct, frozen=True):
    """The result of running a cell: its outputs, and for each output its statement, by index."""

    outputs: list[Output]
    origins: Origins = field(default_factory=dict)
    failed: bool = False
    over_time: bool = False
    interrupted: bool = False
    seconds: float = 0.0


class Statements:
    """A listener that tracks the statement of the running cell to which the next output belongs.

    It receives each event before the cell's view. The view delays cards of names and notes, so the statements that
    caused them also wait here; other outputs belong to the statement of the event.
    """

    kinds = frozenset(
        {
            *(ev.Bound, ev.CellStarted, ev.StatementDone, ev.Judged, ev.GateOpened, ev.GateResolved, ev.Warned),
            *(ev.CommandStarted, ev.CommandOutput, ev.CommandFinished, ev.SessionStarted, ev.SessionFinished),
            *(ev.ParallelStarted, ev.ParallelJoined),
        }
    )

    def __init__(self) -> None:
        self._source: Source | None = None
        self._last: Statement | None = None
        self._waiting: list[tuple[str, Statement]] = []
        self._taken = False

    def begin(self) -> None:
        self._source = self._last = None
        self._waiting, self._taken = [], False

    def __call__(self, event: ev.Event) -> None:
        place = event.place
        if isinstance(event, ev.CellStarted):
            self._source = place.source
            return
        if self._taken:
            self._waiting, self._taken = [], False
        if place.source is self._source:
            line, column = place.source.line_column(place.span.start)
            self._last = Statement(line, column, place.source.line_text(line))
        if self._last is None:
            return
        if isinstance(event, ev.Bound):
            self._waiting.append((event.name, self._last))
        elif isinstance(event, ev.Judged | ev.GateResolved | ev.Warned):
            self._waiting.append(("", self._last))

    def of_display(self) -> tuple[tuple[str, Statement], ...]:
        self._taken = True
        return tuple(self._waiting) or self.of_stream()

    def of_stream(self) -> tuple[tuple[str, Statement], ...]:
        return (("", self._last),) if self._last is not None else ()


class CapturedOutput(Sink):
    """Collects the outputs that a saved notebook would contain. Help pages are not saved."""

    def __init__(self, language: Language, statements: Statements) -> None:
        self._language = language
        self._statements = statements
        self._displays: dict[str, int] = {}
        self._waits = False  # whether the next output clears the others
        self.outputs: list[Output] = []
        self.origins: Origins = {}

    def _add(self, output: Output, origin: tuple[tuple[str, Statement], ...]) -> None:
        if self._waits:
            self.clear()
        self.origins[len(self.outputs)] = origin
        self.outputs.append(output)

    def stream(self, name: Stream, text: str) -> None:
        self._add({"output_type": "stream", "name": name, "text": text}, self._statements.of_stream())

    def display(self, display: Display, display_id: str | None = None) -> None:
        self._add(_bundle("display_data", display), self._statements.of_display())
        if display_id is not None:
            self._displays[display_id] = len(self.outputs) - 1

    def result(self, display: Display) -> None:
        output = {"execution_count": None, **_bundle("execute_result", display)}
        self._add(output, self._statements.of_display())

    def update(self, display: Display, display_id: str) -> None:
        if (number := self._displays.get(display_id)) is not None:
            self.outputs[number] = _bundle("display_data", display)

    def error(self, problem: Problem) -> None:
        self._add({"output_type": "error", **error_content(problem)}, ())

    def clear(self, *, wait: bool = False) -> None:
        self._waits = wait
        if not wait:
            self.outputs.clear()
            self.origins.clear()
            self._displays.clear()


def _bundle(kind: str, display: Display) -> Output:
    return {"output_type": kind, "data": dict(display.data), "metadata": display.metadata}


class TestedCells(Cells):
    """The cells of a notebook under test. `overrides` are settings of the test."""

    __test__ = False  # tells pytest that this class contains no tests

    def __init__(self, notebook: Path, language: Language, overrides: Mapping[str, Any]) -> None:
        self._output: CapturedOutput | None = None
        super().__init__(notebook.parent, Unattended(self._remark), language)
        self._notebook = notebook
        self._statements = Statements()
        self.overrides = dict(overrides)
        if "offline" not in overrides and self.settings.cassette.name is None:
            self.overrides["cassette"] = notebook.stem  # a live test's recording is named after the notebook
        self._runs: list[Path] = []  # the directories of ended runs
        self._prompts = itertools.count(1)  # execution counts as if the whole notebook was run once

    @property
    def notebook_path(self) -> str:
        return str(self._notebook)

    @property
    def workspace(self) -> Workspace:
        is_new = self.started_workspace is None
        workspace = super().workspace
        if is_new:
            workspace.add_listener(self._statements)  # before the views of cells
        return workspace

    async def restore(self, resumption: Resumption, decisions: Mapping[str, bool] | None = None) -> None:
        await super().restore(resumption, decisions)
        self.workspace.add_listener(self._statements)

    async def end(self) -> None:
        self._note_run()
        await super().end()

    async def reset(self) -> None:
        self._note_run()
        await super().reset()

    def _note_run(self) -> None:
        if self.current is not None and self.current.directory is not None:
            self._runs.append(self.current.directory)

    async def close(self) -> None:
        await super().close()
        for directory in self._runs:
            remove_run(directory)

    def _remark(self, text: str) -> None:
        """Show a remark in the cell, as in a kernel."""
        if self._output is not None:
            self._output.stream("stdout", terminal(text if text.endswith("\n") else text + "\n"))

    async def test(self, cell: CodeCell, seconds: float) -> CellRun:
        """Run a cell, at most for the given time."""
        output = self._output = CapturedOutput(self.language, self._statements)
        self._statements.begin()
        begin = time.monotonic()
        with time_limited(seconds, self.interrupt) as watch:
            problem = await self.run(
                cell.text, output, live=False, opening=Opening.of(cell.text, None, next(self._prompts))
            )
        return CellRun(
            output.outputs, output.origins, problem is not None, watch.over, watch.interrupted, time.monotonic() - begin
        )


def remove_run(directory: Path) -> None:
    """Remove the directory of a test's run, and the state directories above it if they are empty then."""
    shutil.rmtree(directory, ignore_errors=True)
    runs, state = directory.parent, directory.parent.parent
    with suppress(OSError):
        runs.rmdir()
        if [path.name for path in state.iterdir()] == [".gitignore"]:
            (state / ".gitignore").unlink()
        state.rmdir()
