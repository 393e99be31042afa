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
@click.option("--state-dir", metavar="DIR", help="Where runs are kept.  [default: .prose]")
@click.pass_context
def resume(
    context: click.Context, targets: Sequence[str], everything: bool, interrupted: str | None, state_dir: str | None
) -> int:
    """Resume runs, one after another, as prose run --resume RUN does. One that can't be resumed is reported.

    Providers and limits are those of prose.toml and of the environment. Runs of notebooks stay: %restore resumes them.

    Exit status: the highest of all runs; Ctrl-C ends the current one, and none of the others begins.
    """
    from prose_kernel.cli import report
    from prose_kernel.cli.main import USAGE_STATUS
    from prose_kernel.cli.run import run as run_command

    if bool(targets) == everything:
        raise click.UsageError("name the runs, or give --all")
    state_dir = state_dir or context.obj
    chosen = list(_chosen(places_here(state_dir), targets))
    if not chosen:
        click.echo("no run here was killed")
    status = 0
    for run in chosen:
        try:
            ended = context.invoke(run_command, resume=run.id, interrupted=interrupted, state_dir=state_dir)
        except (CompileError, UsageError) as problem:
            click.echo(f"{report.usage_text(problem)}\n", err=True)
            ended = USAGE_STATUS
        status = max(status, ended)
        if ended > _SIGNALLED:
            break
    return status


def _chosen(where: Sequence[RunPlace], targets: Sequence[str]) -> Iterator[KeptRun]:
    """The named runs, or all that were killed. Raises `UsageError` for a name of none."""
    from prose_kernel.storage.runs import all_runs, find

    if targets:
        yield from {run.id: run for run in [find(where, target) for target in targets]}.values()
        return
    for run in all_runs(where):
        if run.state == "killed" and not run.interactive:
            yield run
        elif run.state == "killed":
            click.echo(f"run {run.id} belongs to a notebook: %restore {run.id} there resumes it", err=True)
