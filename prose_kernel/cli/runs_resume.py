"""`prose runs resume`: continue several runs, or all that were killed (docs/how-to/durability.md, amendment A52)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from prose_kernel.cli.gates import places_here
from prose_kernel.errors import CompileError, UsageError

if TYPE_CHECKING:
    from prose_kernel.storage.runs import KeptRun, RunPlace

_SIGNALLED = 128


@click.command()
@click.argument("targets", metavar="[RUN]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All runs that were killed, the oldest first.")
@click.option(
    "--interrupted",
    type=click.Choice(["rerun", "fail"]),
    help="What becomes of commands and sessions that were under way.  [default: rerun]",
)
@click.option(
    "--cwd", metavar="DIR", help="Continue in this directory, also runs of other machines that PostgreSQL keeps."
)
@click.option("--state-dir", metavar="DIR", help="Where runs are kept.  [default: .prose]")
@click.pass_context
def resume(
    context: click.Context,
    targets: Sequence[str],
    everything: bool,
    interrupted: str | None,
    cwd: str | None,
    state_dir: str | None,
) -> int:
    """Resume runs, one after another, as prose run --resume RUN does. One that can't be resumed is reported.

    Runs of other machines whose process is lost are resumed only with --cwd. Providers and limits are those of
    prose.toml and of the environment. Runs of notebooks stay: %restore resumes them.

    Exit status: the highest of all runs; Ctrl-C ends the current one, and none of the others begins.
    """
    from prose_kernel.cli import report
    from prose_kernel.cli.main import USAGE_STATUS
    from prose_kernel.cli.run import run as run_command

    if bool(targets) == everything:
        raise click.UsageError("name the runs, or give --all")
    state_dir = state_dir or context.obj
    chosen = list(_chosen(places_here(state_dir), targets, moved=cwd is not None))
    if not chosen:
        click.echo("no run here was killed")
    status = 0
    for run in chosen:
        try:
            given = {"interrupted": interrupted, "state_dir": state_dir, "cwd": cwd}
            state = None if run.has_journal else "postgres"
            ended = context.invoke(run_command, resume=run.id, state=state, **given)
        except (CompileError, UsageError) as problem:
            click.echo(f"{report.usage_text(problem)}\n", err=True)
            ended = USAGE_STATUS
        status = max(status, ended)
        if ended > _SIGNALLED:
            break
    return status


def _chosen(where: Sequence[RunPlace], targets: Sequence[str], *, moved: bool) -> Iterator[KeptRun]:
    """The named runs, or all that were killed; `moved`: also those that other machines have lost. Raises `UsageError`
    for a name of none."""
    from prose_kernel.storage.database.kept_runs import PostgresRuns
    from prose_kernel.storage.runs import all_runs, find

    if targets:
        yield from {run.id: run for run in [find(where, target) for target in targets]}.values()
        return
    for run in all_runs(where):
        if run.state not in ("killed", "lost"):
            continue
        head = run.place.head(run) if isinstance(run.place, PostgresRuns) else run.head
        if head is not None and head.interactive:
            click.echo(f"run {run.id} belongs to a notebook: %restore {run.id} there resumes it", err=True)
        elif run.has_journal or moved:
            yield run
        else:
            hint = "add --cwd DIR to continue it in a directory here"
            click.echo(f"run {run.id} is lost on another machine: {hint}", err=True)
