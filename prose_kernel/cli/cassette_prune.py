"""Programs run in replay for `prose cassette prune`, to see which records they use."""

from __future__ import annotations

import asyncio
import io
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prose_kernel.cli import execution, files, report, run, run_options
from prose_kernel.cli.execution import Cell, Ended, ProgramRun, Request
from prose_kernel.cli.notebook_file import NotebookRun
from prose_kernel.cli.terminal import Screen, TerminalAsker
from prose_kernel.errors import ProseError, RunError
from prose_kernel.runs import settings
from prose_kernel.runs.languages import Language

_PROVIDER = re.compile(r"^%provider\b.*$", re.MULTILINE)
_MODE = re.compile(r"^(%cassette\b.*?)\s+--mode[=\s]+\S+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Replayed:
    """How the replay of a program ended: the records that it has used, or why it did not come to its end."""

    used: frozenset[tuple[str, bytes]]
    error: str | None = None
    status: int = 0


class _Watched(ProgramRun):
    """A run whose recordings are looked at before it is closed."""

    used: frozenset[tuple[str, bytes]] = frozenset()

    def __init__(self, request: Request, screen: Screen, language: Language) -> None:
        super().__init__(request, screen, language)
        self.asker = TerminalAsker(sys.stdin, screen, available=False)

    async def _close(self, error: ProseError | None, done: int, received: Sequence[int]) -> Ended:
        self.used = self.workspace.opened.services.cassettes.used()
        return await super()._close(error, done, received)


class _WatchedNotebook(_Watched, NotebookRun):
    """The same for a notebook; the replay asks for all of its cells."""

    def __init__(self, request: Request, screen: Screen, language: Language, cells: Sequence[Cell]) -> None:
        NotebookRun.__init__(self, request, screen, language, cells)
        self.asker = TerminalAsker(sys.stdin, screen, available=False)


def replayed(program: str, inputs: Sequence[str], yes: Sequence[str], no: Sequence[str]) -> Replayed:
    """Run a program or notebook from its recordings alone. Raises `UsageError` for what makes no sense beforehand."""
    cwd, name = Path.cwd(), files.find_program(program)
    chosen = settings.load(
        cwd,
        file=run_options.settings_file(cwd, name),
        gates="deny",
        provider="replay",
        cassette_mode="replay",
    )
    request = Request(name, run_options.pairs(inputs), run_options.decisions(yes, no), chosen, cwd)
    screen = Screen(io.StringIO(), sys.stderr)
    cells, language = run.read(name)
    if name.endswith(".ipynb"):
        cells = [Cell(_in_replay(cell.text), cell.name, cell.may_fail) for cell in cells]
        watched: _Watched = _WatchedNotebook(request, screen, language, cells)
    else:
        watched = _Watched(request, screen, language)
    ended = asyncio.run(watched.through(cells))
    if ended.error is None and ended.signal is None:
        return Replayed(watched.used)
    return Replayed(frozenset(), _told(ended, request.name), ended.status or execution.FAILED)


def _told(ended: Ended, name: str) -> str:
    if ended.error is None:
        return "interrupted"
    if isinstance(ended.error, RunError):
        return report.run_error_text(ended.error, shown_stderr=ended.stderr_shown)
    return report.usage_text(ended.error)


def _in_replay(text: str) -> str:
    """Return a cell without the magics that choose a provider; every line keeps its number."""
    return _MODE.sub(r"\1", _PROVIDER.sub("", text))
