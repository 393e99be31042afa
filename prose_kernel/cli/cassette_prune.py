"""Replay programs for `prose cassette prune`, to find the records that they use."""

from __future__ import annotations

import asyncio
import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from prose_kernel.cli import execution, program_files, result_text, run, shared_options
from prose_kernel.cli.execution import ProgramRun, Request, RunEnd
from prose_kernel.cli.notebook_file import NotebookRun
from prose_kernel.cli.terminal import Screen, TerminalAsker
from prose_kernel.errors import ProseError
from prose_kernel.language.structs import replace
from prose_kernel.runs import settings

_PROVIDER = re.compile(r"^%provider\b.*$", re.MULTILINE)
_MODE = re.compile(r"^(%cassette\b.*?)\s+--mode[=\s]+\S+", re.MULTILINE)


class Replayed(Struct, frozen=True):
    """The result of a program's replay: the used records (file, record) and all that it has read, or the error that
    ended it early."""

    used: frozenset[tuple[str, bytes]]
    known: frozenset[tuple[str, bytes]] = frozenset()
    error: str | None = None
    status: int = 0


class _Watched(ProgramRun):
    """A run that notes its records before it is closed."""

    used: frozenset[tuple[str, bytes]] = frozenset()
    known: frozenset[tuple[str, bytes]] = frozenset()

    def __init__(self, request: Request, screen: Screen) -> None:
        super().__init__(request, screen)
        self.asker = TerminalAsker(sys.stdin, screen, available=False)

    async def ended(self, error: ProseError | None) -> RunEnd:
        cassettes = self.workspace.opened.services.cassettes
        self.used = cassettes.used()
        read = cassettes.store.cassettes if self.used else ()
        self.known = frozenset((str(one.path), entry.raw) for one in read for entry in one.entries)
        return await super().ended(error)


class _WatchedNotebook(_Watched, NotebookRun):
    """A run of a notebook that notes its records before it is closed."""


def replayed(program: str, inputs: Sequence[str], yes: Sequence[str], no: Sequence[str]) -> Replayed:
    """Run a program or notebook from its recordings only. Raises `UsageError` for invalid arguments."""
    cwd, name = Path.cwd(), program_files.find_program(program)
    chosen = settings.load(
        cwd, file=shared_options.settings_file(cwd, name), gates="deny", provider="replay", cassette_mode="replay"
    )
    cells, language = run.read(name)
    is_notebook = name.endswith(".ipynb")
    request = Request(
        cwd,
        name,
        notebook=False,
        supplied=shared_options.pairs(inputs),
        decisions=shared_options.decisions(yes, no),
        language=language,
        settings=chosen,
        cells=[replace(cell, text=_in_replay(cell.text)) for cell in cells] if is_notebook else cells,
    )
    watched = (_WatchedNotebook if is_notebook else _Watched)(request, Screen(io.StringIO(), sys.stderr))
    ended = asyncio.run(watched.run_and_close())
    if ended.error is None and ended.signal is None:
        return Replayed(watched.used, watched.known)
    ending = result_text.error_text(ended.error, ended.stderr_shown) if ended.error is not None else "interrupted"
    return Replayed(frozenset(), error=ending, status=ended.status or execution.FAILED)


def _in_replay(text: str) -> str:
    """Return a cell without the magics that choose a provider; every line keeps its number."""
    return _MODE.sub(r"\1", _PROVIDER.sub("", text))
