"""`prose runs repair`: a damaged journal is cut before its damage, so that the run can be resumed (amendment A56)."""

from __future__ import annotations

import sys

import click

from prose_kernel.cli.gates import places_here
from prose_kernel.cli.terminal import somebody_here
from prose_kernel.errors import UsageError
from prose_kernel.views.document import counted


@click.command()
@click.argument("run")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--state-dir", metavar="DIR", help="Where runs are kept.  [default: .prose]")
@click.pass_context
def repair(context: click.Context, run: str, yes: bool, state_dir: str | None) -> None:
    """Let a run whose journal is damaged continue before the damage.

    Lists the answers after the damage, commands first, and asks. They no longer count: when the run is resumed, their
    requests are made again. No line of the journal is removed.

    Exit status: 0, 2 no such run, it is running, nothing before the damage can be used, or a person declined.
    """
    from prose_kernel.cli import report
    from prose_kernel.runs.keeping import answered_from
    from prose_kernel.runtime.journal_records import Rewound
    from prose_kernel.storage.journal_file import changing, read
    from prose_kernel.storage.runs import find

    found = find(places_here(state_dir or context.obj), run)
    journal = found.ended_journal()
    lost = journal.first_lost()
    if lost is None:
        click.echo(f"the journal of run {found.id} has no damage")
        return
    if not any(text.number < lost for text in journal.texts):
        hint = f"run the program again; prose runs rm {found.id} removes this run"
        raise UsageError(f"line {lost + 1} of the journal of run {found.id}, its program, is damaged", hint=hint)
    unused = answered_from(lost, journal.records(1))
    lines = [f"line {lost + 1} of the journal of run {found.id} is damaged: the run would continue before it."]
    if unused:
        lines += [f"{counted(len(unused), 'answer')} after it would no longer count:", *report.listed(unused)]
    if not yes and not somebody_here(sys.stdin, sys.stderr):
        raise UsageError("\n".join(lines), hint="to repair it without a question: --yes")
    click.echo("\n".join(lines), err=True)
    if not yes and not click.confirm("Repair it?", err=True):
        raise UsageError("nothing was changed")
    with changing(journal.path, f"the journal of run {found.id} cannot be repaired") as file:
        file.continue_from(journal)
        file.copy([Rewound(lost)])
    click.echo(f"repaired {found.id}: {counted(read(journal.path).answers(), 'answer')} before line {lost + 1}")
