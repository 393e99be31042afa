"""`prose gates`, `prose gate approve|reject|log`: decide gates of other runs (docs/reference/openprose.md 5.10, 8)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prose_kernel.cli.shared_options import state_dir_option
from prose_kernel.language.text import escaped, escaped_lines
from prose_kernel.views.escaping import visible

if TYPE_CHECKING:
    from prose_kernel.storage.database.postgres import PostgresDatabase
    from prose_kernel.storage.gates.second_process import PendingGate, Verb
    from prose_kernel.storage.runs import RunPlace

_run = click.option("--run", "run", metavar="RUN", help="The run, by its id.")
_as = click.option("--as", "principal", metavar="NAME", default="user", help="Decide as this principal of the gate.")
_comment = click.option("--comment", metavar="TEXT", default="", help="Kept with the decision.")
_reason = click.option("--comment", "--reason", "comment", metavar="TEXT", default="", help="Kept with the decision.")
_target = click.argument("target", metavar="[RUN] GATE", nargs=-1, required=True)


@click.command(short_help="List the gates that wait for a decision.")
@_run
@state_dir_option
def gates(run: str | None, state_dir: str | None) -> None:
    """List the gates that wait for a decision, of one run or of all.

    Exit status 1: no such run.
    """
    from prose_kernel.runtime.clock import SystemClock
    from prose_kernel.storage.gates.second_process import damaged_records, pending_gates

    directory, postgres = places_of_runs(state_dir)
    found = pending_gates(directory, SystemClock(), run, postgres)
    click.echo("\n\n".join(map(_pending_text, found)) if found else "no gate waits for a decision")
    for damaged_run, name in damaged_records(directory, SystemClock(), run, postgres):
        click.echo(f"Warning: {visible(name)} of run {damaged_run} is damaged and was not read", err=True)


def _pending_text(gate: PendingGate) -> str:
    record, allow = gate.record, gate.record.request.allow
    how = gate.command if gate.how.by_command else gate.how.value
    lines = [
        f"{escaped(record.spelled)}  (run {record.run})",
        *(f"  {line}" for line in escaped_lines(record.request.prompt).split("\n")),
        *([] if allow == ("user",) else [f"  allow: {escaped(', '.join(allow)) or 'nobody'}"]),
        f"  opened {_time(record.created_at)}, deadline {_time(record.timeout_at)}",
        f"  {how}",
    ]
    return visible("\n".join(lines))  # the texts of an ended run come from files that commands can write


def _time(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


@click.group()
def gate() -> None:
    """Decide a gate, or read its log. GATE is a record id, or the name of a single pending gate.

    Exit status 1: refused (no such gate, already resolved, too late, not allowed, from inside a run).
    """


def _deciding(verb: Verb, comment: Callable[..., Any], past: str) -> click.Command:
    """Return the command that approves or rejects a gate."""

    @gate.command(verb, help=f"{past} a pending gate.")
    @_target
    @_run
    @comment
    @_as
    @state_dir_option
    def decide(target: tuple[str, ...], run: str | None, comment: str, principal: str, state_dir: str | None) -> None:
        from prose_kernel.runtime.clock import SystemClock
        from prose_kernel.storage.gates.second_process import Decider, resolve_gate

        run, name = _run_and_gate(target, run)
        directory, postgres = places_of_runs(state_dir)
        by = Decider(os.environ, principal, comment)
        done = resolve_gate(directory, verb, name, run, by=by, clock=SystemClock(), postgres=postgres)
        click.echo(f"gate {done.id} of run {done.run}: {done.status} by {done.principal}")

    return decide


approve, reject = _deciding("approve", _comment, "Approve"), _deciding("reject", _reason, "Reject")
approve_alias = click.Command(
    "approve", callback=approve.callback, params=approve.params, help="Same as `gate approve`."
)
reject_alias = click.Command("reject", callback=reject.callback, params=reject.params, help="Same as `gate reject`.")


@gate.command()
@_target
@_run
@state_dir_option
def log(target: tuple[str, ...], run: str | None, state_dir: str | None) -> None:
    """Print the events of one gate, oldest first."""
    from prose_kernel.runtime.clock import SystemClock
    from prose_kernel.storage.gates.second_process import gate_log

    run, name = _run_and_gate(target, run)
    directory, postgres = places_of_runs(state_dir)
    for event in gate_log(directory, name, run, clock=SystemClock(), postgres=postgres):
        comment = f"  {event.comment}" if event.comment else ""
        metadata = f"  {json.dumps(dict(event.metadata))}" if event.metadata else ""
        kind = f"{event.event_type:<8}"
        line = f"{_time(event.timestamp)}  {event.gate_id}  {kind}  {event.principal}{comment}{metadata}"
        click.echo(visible(line))


def _run_and_gate(target: tuple[str, ...], run: str | None) -> tuple[str | None, str]:
    """Return run and gate of the arguments `GATE` or `RUN GATE`; the run may also be given as an option."""
    if len(target) == 1:
        return run, target[0]
    if len(target) != 2 or (run is not None and run != target[0]):
        raise click.UsageError("give a GATE, or a RUN and a GATE")
    return target


def places_of_runs(state_dir: str | None, wanted: str = "gates") -> tuple[Path, PostgresDatabase | None]:
    """Return the places of runs: the state directory, and the shared database if one is configured.

    `DATABASE_URL` may belong to any program, so it counts only if the settings choose PostgreSQL.
    """
    from prose_kernel.runs import settings

    chosen = settings.load(Path.cwd(), state_dir=state_dir)
    urls = settings.postgres_urls(Path.cwd(), chosen.state_dir)
    directory = Path(chosen.state_dir)
    if urls.url is None or (urls.place == "DATABASE_URL" and chosen.state.kind != "postgres"):
        return directory, None
    from prose_kernel.storage.database.postgres import PostgresDatabase
    from prose_kernel.storage.database.schema import POSTGRES, DatabaseError

    postgres = PostgresDatabase(urls.url)
    try:
        _, version = postgres.examine()
    except DatabaseError as error:
        problem = str(error)
    else:
        if version is None or POSTGRES.reads(version):
            return directory, postgres
        problem = f"it has tables of version {version}, this version of prose_kernel uses {POSTGRES.version}"
    click.echo(f"Warning: {wanted} in PostgreSQL are not shown: {postgres.place}: {problem}", err=True)
    return directory, None


def places_here(state_dir: str | None) -> Sequence[RunPlace]:
    """Return the places of this directory's runs, including databases."""
    from prose_kernel.storage.run_paths import runs_directory
    from prose_kernel.storage.runs import places

    directory, postgres = places_of_runs(state_dir, "runs")
    here: list[RunPlace] = [*places(Path.cwd(), directory)]
    if postgres is not None:
        from prose_kernel.storage.database.kept_runs import PostgresRuns

        here.append(PostgresRuns(postgres, runs_directory(directory)))
    return here
