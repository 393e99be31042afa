"""`prose runs rebuild`: the rows of a run in its database, rewritten from its journal (docs/how-to/durability.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prose_kernel.errors import UsageError
from prose_kernel.views.document import counted

if TYPE_CHECKING:
    from prose_kernel.storage.journal_file import JournalRead
    from prose_kernel.storage.runs import RunPlace


@click.command()
@click.argument("run", required=False)
@click.option("--state-dir", metavar="DIR", help="Where runs are kept.  [default: .prose]")
@click.pass_context
def rebuild(context: click.Context, run: str | None, state_dir: str | None) -> None:
    """Write the rows of a run in SQLite or PostgreSQL again, from its journal. Without RUN: the last run in a database.

    Nothing is asked, and no command runs. Bindings and the log are replaced; missing gate records are added.

    Exit status: 0, 2 no such run, it is running, its journal is damaged, or the database cannot be used.
    """
    from prose_kernel.cli.gates import places_here
    from prose_kernel.runs import rebuilding, settings

    state_dir = state_dir or context.obj
    journal = _journal(run, places_here(state_dir))
    done = asyncio.run(rebuilding.rebuild(journal, settings.load(Path.cwd(), state_dir=state_dir), Path.cwd()))
    rows = (
        f"{counted(done.bindings, 'binding')}, {counted(done.lines, 'line')} of the log, {counted(done.gates, 'gate')}"
    )
    click.echo(f"rebuilt {journal.head.run} in {done.database}: {rows}")


def _journal(wanted: str | None, where: Sequence[RunPlace]) -> JournalRead:
    """The journal of a run, or of the last one in a database. Raises `UsageError`."""
    from prose_kernel.runs.rebuilding import is_in_database
    from prose_kernel.storage.runs import all_runs, find

    if wanted is None:
        for run in reversed(all_runs(where)):
            if run.journal is not None and is_in_database(run.journal):
                return run.journal
        raise UsageError("no run here is kept in a database", hint="prose runs lists the runs; name one to rebuild it")
    return find(where, wanted).ended_journal()
