"""`prose plan`: show the requests that a program would make, and the answers of an earlier run that it would keep."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prose_kernel.cli import program_files, result_text
from prose_kernel.errors import CompileError, UsageError
from prose_kernel.language.source import Source
from prose_kernel.runs.languages import without_errors
from prose_kernel.views.document import plain_text
from prose_kernel.views.request_text import planned_requests

if TYPE_CHECKING:
    from prose_kernel.runs.languages import Language
    from prose_kernel.runs.settings import Settings


@click.command(short_help="Show the requests of a program, and their maximum cost.")
@click.argument("name", metavar="FILE")
@click.option(
    "--keep", metavar="RUN", help="Show the answers of that run that it would keep, and why it would ask again."
)
def plan(name: str, keep: str | None) -> int:
    """Show each session, command and gate that a program will reach, with text and maximum cost. Nothing
    is run.

    Exit status 1: errors in the program.
    """
    from prose_kernel.cli import shared_options
    from prose_kernel.runs import languages, settings

    cwd, file = Path.cwd(), program_files.find_program(name)
    if file.endswith(".ipynb"):
        raise UsageError("a plan is made of a program file", hint="in a notebook, type %plan")
    text, language = program_files.read_source(file).text, languages.of_file(file)
    chosen = settings.load(cwd, file=shared_options.settings_file(cwd, file))
    try:
        if keep is not None:
            shown = "\n".join(_kept(file, text, language, chosen, keep))
        else:
            shown = asyncio.run(_whole(file, text, language, chosen))
    except CompileError as error:
        click.echo(result_text.diagnostics_text(error.diagnostics), err=True)
        return 1
    if shown:
        click.echo(shown)
    return 0


async def _whole(name: str, text: str, language: Language, chosen: Settings) -> str:
    """Return the plan of a program, as the magic %plan shows it."""
    from prose_kernel.cli.terminal import Screen, TerminalAsker
    from prose_kernel.notebook.magics import previews
    from prose_kernel.runs.workspace import Start, Workspace

    start = Start(Path.cwd(), name, notebook=False, language=language)
    asker = TerminalAsker(sys.stdin, Screen(sys.stdout, sys.stderr), False)
    workspace = Workspace(chosen.changed(state="in-context", vvm_state="in-context"), start, asker=asker)
    try:
        compiled = without_errors(workspace.compile(text, name, language))
        found = await workspace.preview(compiled, language)
        services = workspace.opened.services
        return plain_text(previews.plan(found, previews.uncounted(compiled, language), services))
    finally:
        await workspace.close()


def _kept(name: str, text: str, language: Language, chosen: Settings, keep: str) -> Iterator[str]:
    """Yield the requests of a program after an earlier run, with the reason of each that is asked again."""
    from prose_kernel.cli.run_keep import run_to_keep
    from prose_kernel.runs.planned_run import PlannedRun

    cwd = Path.cwd()
    program = Path(cwd, os.path.expanduser(name))
    programs = language.programs(program.parent, program=program, profile=chosen.profile)
    without_errors(language.compile(Source.of(text, name), profile=chosen.profile, load=programs.load_contract))
    planned = PlannedRun.of_program(run_to_keep(keep, chosen, language, cwd), text, chosen)
    replayed = asyncio.run(planned.run())
    for one in planned_requests(planned):
        yield f"{'kept' if one.kept else 'asked':5}  {one.text}"
        yield from (f"         {line}" for line in (*([] if one.kept else [one.why]), *one.files))
    if replayed.gap or planned.stopped:
        yield "The rest depends on that answer."
