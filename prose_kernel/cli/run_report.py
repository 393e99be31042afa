"""`prose report`: all that happened in a run as one HTML page (docs/how-to/reports.md)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prose_kernel.cli.options import state_dir_option
from prose_kernel.errors import UsageError

if TYPE_CHECKING:
    from prose_kernel.storage.runs import KeptRun


@click.command(short_help="Write the report of a run as one HTML page.")
@click.argument("run", required=False)
@click.option(
    "--output", "-o", metavar="FILE", help="The file; - for standard output.  [default: PROGRAM-TIME-ID.html]"
)
@click.option("--force", is_flag=True, help="Replace a file that isn't a report.")
@state_dir_option
def report(run: str | None, output: str | None, force: bool, state_dir: str | None) -> int:
    """Write a run as one HTML page. RUN is an id, or its beginning; default: the last run."""
    from prose_kernel.cli.gates import places_here
    from prose_kernel.runs import settings
    from prose_kernel.views.page import write_page
    from prose_kernel.views.report import file_name, report_of, secrets_out

    found = _found(run, places_here(state_dir))
    chosen = settings.load(Path.cwd(), state_dir=state_dir)
    html = asyncio.run(report_of(found, chosen, secrets_out(chosen, Path.cwd())))
    if output == "-":
        click.echo(html, nl=False)
        return 0
    assert found.journal is not None, "the report is made of it"
    file = Path(output or file_name(found.journal.head)).expanduser()
    write_page(file, html, force=force)
    click.echo(str(file))
    return 0


def _found(wanted: str | None, where: object) -> KeptRun:
    from prose_kernel.storage.runs import all_runs, find

    if wanted is not None:
        return find(where, wanted)  # type: ignore[arg-type]
    for run in reversed(all_runs(where)):  # type: ignore[arg-type]
        if run.journal is not None:
            return run
    raise UsageError("no run is kept here", hint="prose run FILE begins one")
