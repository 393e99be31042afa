"""`prose runs`: list, show, compare and remove runs (docs/how-to/durability.md). `prose report`: write the report of a
run as an HTML page (docs/how-to/reports.md)."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import to_builtins

from prose_kernel.cli import program_files
from prose_kernel.cli.gates import places_here
from prose_kernel.cli.runs_recovery import fork, rebuild, repair, resume
from prose_kernel.cli.shared_options import state_dir_option
from prose_kernel.errors import UsageError
from prose_kernel.language.text import escaped
from prose_kernel.runtime.json_data import json_text
from prose_kernel.views.document import Table, counted, plain_text
from prose_kernel.views.escaping import clip, visible
from prose_kernel.views.problems import message_line

if TYPE_CHECKING:
    from prose_kernel.storage.bindings import StoredBinding
    from prose_kernel.storage.journal_reading import JournalRead
    from prose_kernel.storage.run_history import HistoryStep, RunCell, RunDifference
    from prose_kernel.storage.runs import KeptRun, RunPlace

_form = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="Format of the output."
)
_AGES: Final = {"h": "hours", "d": "days", "w": "weeks"}
_LINES: Final = 40
"""The number of lines of a text that `show` prints."""
_STEPS: Final = 200
"""The number of answers of a text that `show` prints: half of them are the first, half the last."""


@click.group(invoke_without_command=True)
@_form
@state_dir_option
@click.pass_context
def runs(context: click.Context, form: str, state_dir: str | None) -> None:
    """List the runs of this directory. RUN is an id, or its beginning.

    \b
    running      a process runs it now
    done         complete
    failed       ended with an error; prose run --resume RUN repeats a failed request, after an error of the
                 program itself with --changed
    interrupted  ended by a person; prose run --resume RUN continues it, in a notebook %restore RUN
    killed       its process was ended, or a branch has not begun to run; the same
    lost         PostgreSQL: its process on another machine is gone, or cannot reach the database; the same
    unreadable   its journal cannot be used; prose runs show RUN shows why
    unknown      it has no journal

    Exit status 1: the runs differ, or nothing was removed.
    """
    context.obj = state_dir
    if context.invoked_subcommand is None:
        _list(form, state_dir)


@runs.command("list")
@_form
@state_dir_option
def list_(form: str, state_dir: str | None) -> None:
    """List them, the latest last."""
    _list(form, state_dir)


@runs.command()
@click.argument("run")
@_form
@state_dir_option
def show(run: str, form: str, state_dir: str | None) -> None:
    """Show its texts, requests with answers, and values."""
    from prose_kernel.storage.runs import bindings_of, fetched, find

    where = places_here(state_dir)
    found = fetched(where, find(where, run))
    bound = bindings_of(where, found)
    if form == "json":
        _json(_whole(found, bound))
    else:
        click.echo("\n".join(visible(line) for line in _page(found, bound)))


@runs.command()
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="RUN")
@_form
@state_dir_option
def diff(first: str, second: str, form: str, state_dir: str | None) -> int:
    """Compare the texts, answers and values of two runs."""
    from prose_kernel.storage.runs import bindings_of, fetched, find

    where = places_here(state_dir)
    one, other = (fetched(where, find(where, wanted)) for wanted in (first, second))
    for run in (one, other):
        if run.problem is not None:
            raise run.problem
    parts = list(differences(one, other, bindings_of(where, one), bindings_of(where, other)))
    if form == "json":
        _json([{"what": part.what, "at": part.at, "lines": part.lines} for part in parts])
    elif not parts:
        click.echo("no differences")
    else:
        click.echo(f"--- run {one.id}\n+++ run {other.id}")
        click.echo("\n".join(difference_lines(parts)))
    return 1 if parts else 0


def difference_lines(parts: Iterable[RunDifference]) -> Iterator[str]:
    """Yield the differences between two runs as lines of text."""
    for part in parts:
        yield from (visible(line) for line in ["", f"{part.what} {part.at}", *(f"  {line}" for line in part.lines)])


@runs.command()
@click.argument("targets", metavar="[RUN]...", nargs=-1)
@click.option("--older", metavar="AGE", help="All that began longer ago: 12h, 30d, 8w.")
@click.option("--all-finished", is_flag=True, help="All that are done.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@state_dir_option
def rm(targets: Sequence[str], older: str | None, all_finished: bool, yes: bool, state_dir: str | None) -> int:
    """Remove runs with all files, except running ones."""
    from prose_kernel.storage.runs import all_runs, find, remove

    if not (targets or older or all_finished):
        raise click.UsageError("name the runs, or give --older or --all-finished")
    where = places_here(state_dir)
    chosen = {run.id: run for run in (find(where, target) for target in targets)}
    stay = 0
    if older or all_finished:
        least = _age(older) if older else timedelta()
        for run in all_runs(where):
            if (all_finished and run.state != "done") or not _is_older(run, least):
                continue
            if run.state in ("running", "unknown"):
                stay += run.id not in chosen
            else:
                chosen[run.id] = run
    if stay:
        click.echo(
            f"{counted(stay, 'run')} of which it is not known to have ended stay; name one to remove it", err=True
        )
    if not chosen:
        click.echo("nothing to remove")
        return 0
    if not yes and not _agreed(list(chosen.values())):
        return 1
    status = 0
    for run in chosen.values():
        try:
            remove(where, run)
            click.echo(f"removed {run.id}")
        except UsageError as problem:
            click.echo(f"Error: {problem}", err=True)
            status = 1
    return status


for command in (fork, rebuild, repair, resume):
    runs.add_command(command)


def _agreed(chosen: list[KeptRun]) -> bool:
    """Ask the person before removing runs. Raises `UsageError` without a terminal."""
    if not sys.stdin.isatty():
        raise UsageError(
            f"{counted(len(chosen), 'run')} would be removed; confirmation needs a terminal", hint="add --yes"
        )
    for run in chosen:
        click.echo(f"{run.id}  {run.state}  {run.shown_program}")
    return click.confirm(f"Remove {counted(len(chosen), 'run')}?")


def _age(text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,5})\s*([hdw])", text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} isn't an age such as 12h, 30d or 8w", param_hint="--older")
    return timedelta(**{_AGES[found[2]]: int(found[1])})


def _is_older(run: KeptRun, least: timedelta) -> bool:
    from prose_kernel.runtime.clock import SystemClock

    return run.begun is not None and SystemClock().now() - run.begun >= least


def _json(body: object) -> None:
    click.echo(json_text(body, ascii_only=True))


# ---------------------------------------------------------------- list


def _list(form: str, state_dir: str | None) -> None:
    from prose_kernel.storage.runs import all_runs

    found = [run for run in all_runs(places_here(state_dir)) if run.state != "unreadable" or run.path.exists()]
    if form == "json":
        return _json([_facts(run) for run in found])
    if not found:
        return click.echo("no run is kept here")
    rows = []
    for run in found:
        counts = map(_number, (run.texts, run.answers))
        rows.append((run.id, run.state, run.shown_program, run.language, _begun(run), *counts, _size(run)))
    head = ("run", "state", "program", "language", "begun", "cells", "answers", "size")
    return click.echo(plain_text(Table(head, rows, most=None)))


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _begun(run: KeptRun) -> str:
    return f"{run.begun:%Y-%m-%d %H:%M:%S}" if run.begun is not None else "-"


def _size(run: KeptRun) -> str:
    size = float(run.size)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _facts(run: KeptRun) -> dict[str, Any]:
    return {
        "run": run.id,
        "state": run.state,
        "program": run.program,
        "language": run.language or None,
        "begun": f"{run.begun:%Y-%m-%dT%H:%M:%SZ}" if run.begun is not None else None,
        "cells": run.texts,
        "answers": run.answers,
        "bytes": run.size,
        "directory": str(run.directory) if not run.is_copy else None,
        "problem": str(run.problem) if run.state == "unreadable" and run.problem is not None else None,
    }


# ---------------------------------------------------------------- show


def _cells(run: KeptRun) -> list[RunCell]:
    from prose_kernel.storage.run_history import cells_of

    return list(cells_of(run.journal)) if run.journal is not None else []


def _whole(run: KeptRun, bound: list[StoredBinding]) -> dict[str, Any]:
    head = run.journal.head if run.journal is not None else None
    return {
        **_facts(run),
        "head": to_builtins(head) if head is not None else None,
        "texts": [to_builtins(cell) for cell in _cells(run)],
        "under_way": [asked.key for asked in run.journal.under_way()] if run.journal is not None else [],
        "bindings": [one._asdict() for one in bound],
    }


def _page(run: KeptRun, bound: list[StoredBinding]) -> Iterator[str]:
    yield f"run {run.id}: {run.state}"
    if run.problem is not None:
        yield f"  {run.problem}" + (f" ({run.problem.hint})" if run.problem.hint else "")
    language = f" ({run.language})" if run.language else ""
    yield f"  program    {run.shown_program or '-'}{language}"
    yield f"  begun      {_begun(run)} UTC"
    is_here = run.directory.exists() and not run.is_copy
    yield f"  kept in    {program_files.shortest(run.directory, Path.cwd()) if is_here else 'PostgreSQL'}, {_size(run)}"
    if run.journal is not None:
        yield from _of_head(run)
        for cell in _cells(run):
            yield ""
            yield from _of_cell(cell)
    if bound:
        yield "\nbindings"
        yield from (f"  {one.name} ({one.kind}) = {clip(one.value)}" for one in bound)
    can_continue = run.state in ("failed", "interrupted", "killed", "lost")
    if run.journal is not None and (damage := _damage(run.journal)) is not None:
        yield f"\n{damage}" + (f": to let it continue before that, prose runs repair {run.id}" if can_continue else "")
    elif run.journal is not None and can_continue:
        yield f"\n{_how_to_continue(run.journal)}"


def _damage(journal: JournalRead) -> UsageError | None:
    """Return an error that names the first lost record of the journal; None if the journal is whole."""
    lost = journal.first_lost()
    return None if lost is None else journal.damaged(lost)


def _how_to_continue(journal: JournalRead) -> str:
    from prose_kernel.runs.resumption import resumption

    run = journal.head.run
    if journal.head.interactive:
        return f"to resume it: %restore {run}, in a notebook"
    if resumption(journal).complete:
        return f"its program failed by itself; to continue with a corrected text: prose run --resume {run} --changed"
    head = journal.head
    program = f"{shlex.quote(head.program)} " if program_files.is_outside(head.program, Path(head.directory)) else ""
    return f"to resume it: prose run {program}--resume {run}"


def _of_head(run: KeptRun) -> Iterator[str]:
    assert run.journal is not None
    head = run.journal.head
    yield f"  directory  {escaped(head.directory)}"
    if head.branch_of:
        what = "kept from" if head.changed else "branch of"
        yield f"  {what}  {head.branch_of[-1]}"
    for name, value in head.supplied.items():
        yield f"  input      {name} = {clip(value)}"
    for name, approved in head.decisions.items():
        yield f"  gate       {name}: {'approved' if approved else 'rejected'} beforehand"
    yield f"  answers    {_number(run.answers)}"


def _of_cell(cell: RunCell) -> Iterator[str]:
    message = f": {message_line(cell.message)}" if cell.message else ""
    yield f"c{cell.number}  {escaped(cell.name)}, {cell.status or 'not ended'}{message}"
    lines = cell.text.strip("\n").splitlines()
    yield from (f"  | {line}" for line in lines[:_LINES])
    if len(lines) > _LINES:
        yield f"  | … {len(lines) - _LINES:,} more lines"
    steps = cell.steps
    left_out = len(steps) - _STEPS
    for step in steps[: _STEPS // 2] if left_out > 0 else steps:
        yield _of_step(step)
    if left_out > 0:
        yield f"  … {left_out:,} more"
        yield from map(_of_step, steps[-_STEPS // 2 :])


def _of_step(step: HistoryStep) -> str:
    answer = f" → {clip(step.answer, 60)}" if step.answer.strip() else ""
    made = f" ({clip(str(step.made), 120)})" if step.made.calls or step.made.doing else ""
    return f"  {step.mark} {step.at}  {step.kind} {clip(step.text, 80)}{answer}{made}"


# ---------------------------------------------------------------- diff


def differences(
    one: KeptRun, other: KeptRun, ones: list[StoredBinding], others_: list[StoredBinding]
) -> Iterator[RunDifference]:
    """Yield the differences between two runs: first texts, then answers, then bindings."""
    from prose_kernel.storage.run_history import RunDifference

    cells, others = _cells(one), _cells(other)
    for number in range(max(len(cells), len(others))):
        texts = [at[number].text if number < len(at) else "" for at in (cells, others)]
        if texts[0] != texts[1]:
            yield RunDifference("text", f"c{number + 1}", texts[0], texts[1])
    steps, others_steps = ({step.at: step for cell in found for step in cell.steps} for found in (cells, others))
    for key in dict.fromkeys((*steps, *others_steps)):
        found = steps.get(key), others_steps.get(key)
        answers = [f"{step.kind} {step.text}\n{step.mark} {step.answer}".rstrip() if step else "" for step in found]
        if answers[0] != answers[1]:
            decision = all(step is not None and step.kind == "judge" for step in found)
            yield RunDifference("answer", key, answers[0], answers[1], decision)
    bound, others_bound = ({item.name: item.value for item in found} for found in (ones, others_))
    for name in dict.fromkeys((*bound, *others_bound)):
        if bound.get(name) != others_bound.get(name):
            then, now = (at[name] or "(empty)" if name in at else "" for at in (bound, others_bound))
            yield RunDifference("binding", name, then, now)


# ---------------------------------------------------------------- report


@click.command(short_help="Write the report of a run as one HTML page.")
@click.argument("run", required=False)
@click.option(
    "--output", "-o", metavar="FILE", help="The file; - for standard output.  [default: PROGRAM-TIME-ID.html]"
)
@click.option("--force", is_flag=True, help="Replace a file that isn't a report.")
@state_dir_option
def report(run: str | None, output: str | None, force: bool, state_dir: str | None) -> int:
    """Write a run as one HTML page. RUN is an id, or its beginning; default: the last run."""
    from prose_kernel.runs import settings
    from prose_kernel.views.page import write_page
    from prose_kernel.views.report import file_name, run_report, secrets_out

    found = _found(run, places_here(state_dir))
    chosen = settings.load(Path.cwd(), state_dir=state_dir)
    journal = found.kept_journal()
    html = asyncio.run(run_report(journal, found.state, chosen, secrets_out(chosen, Path.cwd())))
    if (damage := _damage(journal)) is not None:
        click.echo(f"Warning: {damage}: the report lacks that record", err=True)
    if output == "-":
        click.echo(html, nl=False)
        return 0
    file = Path(os.path.expanduser(output or file_name(journal.head)))
    write_page(file, html, force=force)
    click.echo(str(file))
    return 0


def _found(wanted: str | None, where: Sequence[RunPlace]) -> KeptRun:
    from prose_kernel.storage.runs import all_runs, fetched, find

    if wanted is not None:
        return fetched(where, find(where, wanted))
    for run in reversed(all_runs(where)):
        if run.journal is not None:
            return run
    raise UsageError("no run is kept here", hint="prose run FILE begins one")
