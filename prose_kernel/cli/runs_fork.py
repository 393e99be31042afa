"""`prose runs fork`: begin a branch of a run at a point, also with its files (docs/how-to/durability.md)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prose_kernel.cli.gates import places_here
from prose_kernel.cli.terminal import somebody_here
from prose_kernel.errors import UsageError
from prose_kernel.views.document import counted

if TYPE_CHECKING:
    from prose_kernel.runs.files_back import FilesBack


@click.command()
@click.argument("run")
@click.argument("at")
@click.option("--files", "with_files", is_flag=True, help="Put back the files that the run has changed since.")
@click.option("--yes", is_flag=True, help="Do not ask before files are overwritten that others have changed.")
@click.option("--state-dir", metavar="DIR", help="Where runs are kept.  [default: .prose]")
@click.pass_context
def fork(context: click.Context, run: str, at: str, with_files: bool, yes: bool, state_dir: str | None) -> None:
    """Begin a branch of RUN before AT, without running anything.

    AT is a cell (c3), a statement (c1/4) or a request (c1/4/x0); prose runs show RUN lists them. The branch has the
    answers before that place. The run stays as it is.

    --files needs a run with the setting keep_files of [run]. Files that commands and sessions of the run have changed
    after AT are put back, and files that they have created are removed. Everything else in the directory stays.

    Exit status: 0, 2 no such run or place, its files were not kept, or a person declined.
    """
    from prose_kernel.runs.files_back import FilesBack
    from prose_kernel.runs.journal import branch, point_of
    from prose_kernel.runtime.clock import SystemClock
    from prose_kernel.storage.layout import new_run_id
    from prose_kernel.storage.runs import check_directory, find

    found = find(places_here(state_dir or context.obj), run)
    journal = found.ended_journal()
    before, back = point_of(journal, at), None
    if with_files:
        there = Path(journal.head.directory)
        check_directory(found.id, there, [Path.cwd()], "type the command in that directory")
        back = FilesBack.before(journal, before)
        if back.foreign and not yes:
            _confirm(back)
    clock = SystemClock()
    new = branch(journal, before, new_run_id(clock), clock.now())
    known = counted(new.answers(), "answer")
    click.echo(f"Run {new.head.run} begins as a branch of run {found.id} before {at}, with {known}.")
    if back is not None:
        back.apply()
        click.echo("\n".join(back.summary()))
    resumed = f"%restore {new.head.run}, in a notebook" if found.interactive else f"prose run --resume {new.head.run}"
    click.echo(f"to resume it: {resumed}")


def _confirm(back: FilesBack) -> None:
    """Raises `UsageError` if a person declines, or can't be asked."""
    text = f"{back.question()[0].upper()}{back.question()[1:]}"
    if not somebody_here(sys.stdin, sys.stderr):
        raise UsageError(text, hint="to overwrite them: --yes")
    click.echo(text, err=True)
    if not click.confirm("Overwrite them?", err=True):
        raise UsageError("nothing was changed")
