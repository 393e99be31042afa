"""`prose tasks list|show|output|stop`: inspect and stop the tasks of runs in this directory (exec-and-tasks.md 4, 5).

A run that a live kernel owns is only read; stopping a task leaves a request, which the kernel carries out. Tasks that a
killed kernel left are first recorded as interrupted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.cli.shared_options import state_dir_option
from prose_kernel.errors import GateRefused
from prose_kernel.views.document import Table, plain_text
from prose_kernel.views.escaping import TerminalText, visible

if TYPE_CHECKING:
    from prose_kernel.processes.tasks.records import TaskRecord

_target = click.argument("target", metavar="[RUN] TASK", nargs=-1, required=True)
_STOP_SECONDS = 3.0
_LOOK_SECONDS = 0.05


class Found(Struct, frozen=True):
    """A task and its run."""

    run: Path
    record: TaskRecord


@click.group()
def tasks() -> None:
    """List, show, read and stop tasks. TASK is an id, or a number in RUN; default: the newest run with tasks.

    Exit status 1: no such task, or unreadable records.
    """


@tasks.command("list")
@click.option("--run", metavar="RUN", help="The run, by its id.")
@click.option("--all", "everything", is_flag=True, help="Also finished ones.")
@state_dir_option
def list_(run: str | None, everything: bool, state_dir: str | None) -> int:
    """List the active tasks of a run or of all."""
    tasks, problems = _all(_directory(state_dir), run)
    rows = [
        (found.run.name, str(found.record.number), _standing(found.record), found.record.cmd_display)
        for found in tasks
        if everything or not found.record.ended
    ]
    if rows:
        click.echo(plain_text(Table((), rows, most=None)))
    elif not problems:
        click.echo("no tasks" if everything else "no active tasks")
    for problem in problems:
        click.echo(visible(problem), err=True)
    return 1 if problems else 0


@tasks.command()
@_target
@state_dir_option
def show(target: tuple[str, ...], state_dir: str | None) -> None:
    """Show its state, command, result and times."""
    found = _find(target, state_dir)
    record = found.record
    lines = [
        f"task {record.number} of run {found.run.name}: {_standing(record)}",
        f"  id         {record.task_id}",
        f"  summary    {visible(record.summary)}",
        f"  command    {visible(record.cmd_display)}",
        f"  directory  {visible(record.workdir)}",
        f"  shell      {visible(record.shell)}",
        f"  of         {visible(record.session or 'the person')}",
        f"  created    {record.created_at}",
    ]
    if record.ended_at:
        lines.append(f"  ended      {record.ended_at}")
    if record.stop_requested_at and not record.ended:
        lines.append("  a stop was requested")
    lines.append(f"  output     {record.output_summary}" + (f" ({record.log_error})" if record.log_error else ""))
    if record.log_ref:
        lines.append(f"  log        {record.log_ref}")
    click.echo("\n".join(lines))


@tasks.command()
@_target
@click.option("--log", "whole", is_flag=True, help="Print the whole log.")
@state_dir_option
def output(target: tuple[str, ...], whole: bool, state_dir: str | None) -> None:
    """Print the beginning and end of its output."""
    from prose_kernel.processes.tasks import log
    from prose_kernel.processes.tasks.records import preview_of

    found = _find(target, state_dir)
    if not whole:
        click.echo(TerminalText().feed(preview_of(found.record)[0]), nl=False)
        return
    text = TerminalText()
    try:
        for piece in log.read(found.run / (found.record.log_ref or "")):
            click.echo(text.feed(piece), nl=False)
    except OSError:
        raise GateRefused("the log of this task is missing", hint="leave out --log for the preview") from None
    click.echo(text.end(), nl=False)


@tasks.command()
@_target
@state_dir_option
def stop(target: tuple[str, ...], state_dir: str | None) -> None:
    """End a task; the second time, kill it."""
    from prose_kernel.processes.tasks.store import Store

    found = _find(target, state_dir)
    record = found.record
    if record.ended:
        click.echo(f"task {record.number} has ended already: {_standing(record)}")
        return
    with _readable(found.run), contextlib.closing(Store(found.run, mode="look")) as store:
        store.request_stop(record.task_id)
        end = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < end:
            now = store.find(record.task_id, number=False)
            if now is None or now.ended or (now.revision > record.revision and now.stop_requested_at):
                break
            time.sleep(_LOOK_SECONDS)
        else:
            raise GateRefused(f"the kernel that runs task {record.number} has not answered yet; the request is kept")
    if now is None or now.ended or now.force_stop_requested:
        click.echo(f"task {record.number} has ended")
    else:
        click.echo(f"task {record.number} was asked to end; run the same command again to kill it")


# ---------------------------------------------------------------- find tasks


def _standing(record: TaskRecord) -> str:
    from prose_kernel.processes.tasks.records import ending_of

    return visible(ending_of(record))


def _directory(state_dir: str | None) -> Path:
    from prose_kernel.runs import settings

    return Path(settings.load(Path.cwd(), state_dir=state_dir).state_dir)


def _all(directory: Path, run: str | None) -> tuple[list[Found], list[str]]:
    """Return the tasks of all runs (or one), newest run last, and the problems of unreadable runs.

    Raises `GateRefused` for an unknown run.
    """
    from prose_kernel.processes.tasks.store import exists

    runs = directory / "runs"
    if run is not None and not plain_files.is_directory(runs / run):
        raise GateRefused(f"there is no run {run}", hint="prose tasks list --all lists the runs with tasks")
    names = [runs / run] if run is not None else sorted(runs.iterdir()) if runs.is_dir() else []
    found: list[Found] = []
    problems: list[str] = []
    for each in names:
        if exists(each):
            try:
                found += _of_run(each)
            except GateRefused as problem:
                problems.append(str(problem))
    return found, problems


def _of_run(run: Path) -> list[Found]:
    from prose_kernel.processes.tasks.ledger import recover, sweep
    from prose_kernel.processes.tasks.store import Owned, Store
    from prose_kernel.runtime.clock import SystemClock

    with _readable(run):
        with contextlib.suppress(Owned):  # a kernel runs them
            if recover(run, SystemClock()):
                sweep()
        with contextlib.closing(Store(run, mode="look")) as store:
            return [Found(run, record) for record in store.all()]


@contextlib.contextmanager
def _readable(run: Path) -> Iterator[None]:
    """Raise `GateRefused` if the records of a run's tasks cannot be read in the block."""
    from prose_kernel.processes.tasks.store import StoreError

    try:
        yield
    except StoreError as problem:
        hint = f"the logs of its tasks are in {run}/tasks"
        raise GateRefused(f"run {run.name}: the records of its tasks cannot be read: {problem}", hint=hint) from None


def _find(target: tuple[str, ...], state_dir: str | None) -> Found:
    if len(target) > 2:
        raise click.UsageError("give a TASK, or a RUN and a TASK")
    run, name = target if len(target) == 2 else (None, target[0])
    found, problems = _all(_directory(state_dir), run)
    matching = [each for each in found if each.record.task_id == name]
    if not matching and name.isdigit() and found:
        newest = found[-1].run
        matching = [each for each in found if each.run == newest and each.record.number == int(name)]
    if not matching:
        raise GateRefused(
            problems[0] if problems else f"there is no task {name}", hint="prose tasks list --all lists them"
        )
    return matching[0]
