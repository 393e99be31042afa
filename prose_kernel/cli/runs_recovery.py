"""`prose runs resume|fork|repair|rebuild`: continue, branch off or repair ended runs (docs/how-to/durability.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prose_kernel.cli import result_text
from prose_kernel.cli.gates import places_here
from prose_kernel.cli.shared_options import state_dir_option
from prose_kernel.cli.terminal import confirm
from prose_kernel.errors import CompileError, UsageError
from prose_kernel.views.document import counted

if TYPE_CHECKING:
    from prose_kernel.storage.journal_reading import JournalRead
    from prose_kernel.storage.runs import KeptRun, RunPlace

_SIGNALLED = 128


@click.command(short_help="Resume programs one after another.")
@click.argument("targets", metavar="[RUN]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All killed runs, the oldest first.")
@click.option(
    "--interrupted",
    type=click.Choice(["rerun", "fail"]),
    help="What was running is repeated, or fails.  [default: rerun]",
)
@click.option("--cwd", metavar="DIR", help="Continue here; needed for runs of other machines in PostgreSQL.")
@state_dir_option
@click.pass_context
def resume(
    context: click.Context,
    targets: Sequence[str],
    everything: bool,
    interrupted: str | None,
    cwd: str | None,
    state_dir: str | None,
) -> int:
    """Resume programs one after another, as prose run --resume does; not runs of notebooks (%restore).

    Exit status: the highest of all runs.
    """
    from prose_kernel.cli.main import USAGE_STATUS
    from prose_kernel.cli.run import run as run_command

    if bool(targets) == everything:
        raise click.UsageError("name the runs, or give --all")
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
            click.echo(f"{result_text.error_text(problem)}\n", err=True)
            ended = USAGE_STATUS
        status = max(status, ended)
        if ended > _SIGNALLED:
            break
    return status


def _chosen(where: Sequence[RunPlace], targets: Sequence[str], *, moved: bool) -> Iterator[KeptRun]:
    """Yield the named runs, or all killed ones (`moved`: also those lost elsewhere). Raises `UsageError`."""
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


@click.command()
@click.argument("run")
@click.argument("at")
@click.option(
    "--files", "with_files", is_flag=True, help="Restore changed files, remove created ones; needs [run] keep_files."
)
@click.option("--yes", is_flag=True, help="Do not ask before overwriting files that others have changed.")
@state_dir_option
def fork(run: str, at: str, with_files: bool, yes: bool, state_dir: str | None) -> None:
    """Begin a branch of RUN before AT; run nothing.

    AT is a cell (c3), a statement (c1/4) or a request (c1/4/x0); prose runs show RUN lists them. RUN stays as it is.
    """
    from prose_kernel.cli.run_keep import with_journal
    from prose_kernel.cli.streams import interrupts
    from prose_kernel.runs import settings
    from prose_kernel.runs.restored_files import FileRestoration
    from prose_kernel.runs.resumption import branch, record_at
    from prose_kernel.runtime.clock import SystemClock
    from prose_kernel.storage.runs import check_directory, find

    found = with_journal(find(places_here(state_dir), run), Path.cwd())
    journal = found.ended_journal()
    before, back = record_at(journal, at), None
    if with_files:
        there = Path(journal.head.directory)
        check_directory(found.id, there, [Path.cwd()], "type the command in that directory")
        back = FileRestoration.before(journal, before)
        if back.foreign and not yes:
            question = back.question()
            confirm(f"{question[0].upper()}{question[1:]}", "Overwrite them?", "to overwrite them: --yes")
    new = branch(journal, before, SystemClock(), settings.load(Path.cwd(), state_dir=state_dir).state_dir)
    known = counted(new.answers(), "answer")
    click.echo(f"Run {new.head.run} begins as a branch of run {found.id} before {at}, with {known}.")
    if back is not None:
        with interrupts(lambda _: None):  # all files are put back before the command can end
            back.apply()
        click.echo("\n".join(back.summary()))
    resumed = f"%restore {new.head.run}, in a notebook" if found.interactive else f"prose run --resume {new.head.run}"
    click.echo(f"to resume it: {resumed}")


@click.command()
@click.argument("run")
@click.option("--yes", is_flag=True, help="Do not ask.")
@state_dir_option
def repair(run: str, yes: bool, state_dir: str | None) -> None:
    """Ignore the answers after the damage in a journal.

    It lists them and asks first. A resumed run makes their requests again.
    """
    from prose_kernel.runs.earlier_run import answered_from
    from prose_kernel.runtime.journal_records import Rewound
    from prose_kernel.storage.journal_file import changing
    from prose_kernel.storage.journal_reading import read
    from prose_kernel.storage.runs import find

    found = find(places_here(state_dir), run)
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
        lines.append(f"{counted(len(unused), 'answer')} after it would no longer count:")
        lines += result_text.request_lines(unused)
    if yes:
        click.echo("\n".join(lines), err=True)
    else:
        confirm("\n".join(lines), "Repair it?", "to repair it without a question: --yes")
    with changing(journal.path, f"the journal of run {found.id} cannot be repaired") as file:
        file.continue_from(journal)
        file.copy([Rewound(lost)])
    click.echo(f"repaired {found.id}: {counted(read(journal.path).answers(), 'answer')} before line {lost + 1}")


@click.command(short_help="Write a run's rows in a database again, from its journal.")
@click.argument("run", required=False)
@state_dir_option
def rebuild(run: str | None, state_dir: str | None) -> None:
    """Write a run's rows in SQLite or PostgreSQL again, from its journal. Default: the last run in a
    database."""
    from prose_kernel.runs import rebuilding, settings

    journal = _journal(run, places_here(state_dir))
    done = asyncio.run(rebuilding.rebuild(journal, settings.load(Path.cwd(), state_dir=state_dir), Path.cwd()))
    rows = (
        f"{counted(done.bindings, 'binding')}, {counted(done.lines, 'line')} of the log, {counted(done.gates, 'gate')}"
    )
    click.echo(f"rebuilt {journal.head.run} in {done.database}: {rows}")


def _journal(wanted: str | None, where: Sequence[RunPlace]) -> JournalRead:
    """Return the journal of a run, or of the last run in a database. Raises `UsageError`."""
    from prose_kernel.runs.rebuilding import is_in_database
    from prose_kernel.storage.runs import all_runs, find

    if wanted is None:
        for run in reversed(all_runs(where)):
            if run.journal is not None and is_in_database(run.journal):
                return run.journal
        raise UsageError("no run here is kept in a database", hint="prose runs lists the runs; name one to rebuild it")
    return find(where, wanted).ended_journal()
