"""`prose run --keep RUN` and `--resume RUN --changed`: a run of an edited program keeps answers of an earlier one
(docs/how-to/edit-and-continue.md)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prose_kernel.access import peers
from prose_kernel.cli import report
from prose_kernel.cli.terminal import somebody_here
from prose_kernel.errors import UsageError
from prose_kernel.runs.keeping import EarlierRun, earlier_run
from prose_kernel.runs.resuming import refuse_dry_run
from prose_kernel.runs.settings import Settings
from prose_kernel.storage import runs
from prose_kernel.views.document import counted

if TYPE_CHECKING:
    from prose_kernel.cli.execution import Cell, Request
    from prose_kernel.cli.run_options import RunOptions
    from prose_kernel.runs.languages import Language


def kept(request: Request, given: RunOptions, cells: Sequence[Cell], language: Language) -> Request:
    """The request for a run that keeps answers of `--keep RUN`. Raises `UsageError`, also if the person declines."""
    if request.name.endswith(".ipynb") or request.origin:
        raise UsageError("--keep is for program files", hint="cells of a notebook keep their answers in the notebook")
    refuse_dry_run(request.settings)
    earlier = run_to_keep(given.keep or "", request.settings, language, request.cwd)
    earlier = replace(earlier, ask_again=given.ask_again)
    confirm_rerun(earlier, cells[0].text, request.settings, yes=given.yes_rerun)
    return replace(request, keep=earlier, why=given.why)


def run_to_keep(wanted: str, settings: Settings, language: Language, cwd: Path) -> EarlierRun:
    """The run whose answers are kept, by the beginning of its id. Raises `UsageError`."""
    found = runs.find(runs.places(cwd, settings.state_dir), wanted)
    if found.problem is not None:
        raise found.problem
    if not found.has_journal:
        raise UsageError(f"run {found.id} has no journal", hint="it was not kept on disk, or the journal was off")
    return earlier_run(found.path, language, cwd)


def confirm_rerun(earlier: EarlierRun, text: str, settings: Settings, *, yes: bool) -> None:
    """Ask the person before requests are repeated because a changed text doesn't use their answers.

    Raises `UsageError` if they decline, and if no person can be asked.
    """
    from prose_kernel.runs.foreseeing import repeated_requests

    if yes:
        return
    found = asyncio.run(repeated_requests(earlier, text, settings))
    if not found:
        return
    unused = f"The changed text does not use {counted(len(found), 'answer')} of run {earlier.head.run}."
    heading = f"{unused} Requests that it still makes run again:"
    listed = "\n".join([heading, *report.listed(found)])
    if peers.inside_a_run() or not somebody_here(sys.stdin, sys.stderr):
        raise UsageError(listed, hint="to run it without a question: --yes-rerun")
    click.echo(listed, err=True)
    if not click.confirm("Run it?", err=True):
        raise UsageError("nothing was run")
