"""`prose run --keep RUN` and `--resume RUN --changed`: a run of an edited program keeps answers of an earlier one
(docs/how-to/edit-and-continue.md)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prose_kernel.cli import result_text
from prose_kernel.cli.terminal import confirm
from prose_kernel.errors import UsageError
from prose_kernel.language.structs import replace
from prose_kernel.runs import languages, settings
from prose_kernel.runs.earlier_run import EarlierRun, earlier_run
from prose_kernel.runs.resumption import refuse_dry_run
from prose_kernel.runs.settings import Settings
from prose_kernel.runtime.journal_records import Head
from prose_kernel.storage import runs
from prose_kernel.storage.run_paths import runs_directory
from prose_kernel.storage.runs import KeptRun
from prose_kernel.views.document import counted

if TYPE_CHECKING:
    from prose_kernel.cli.execution import Request
    from prose_kernel.cli.shared_options import RunOptions
    from prose_kernel.runs.languages import Language
    from prose_kernel.storage.database.kept_runs import PostgresRuns


def keeping_request(request: Request, given: RunOptions) -> Request:
    """Return the request for a run with `--keep RUN`. Raises `UsageError`, also if the person declines."""
    if request.program_file.endswith(".ipynb") or request.origin:
        raise UsageError("--keep is for program files", hint="cells of a notebook keep their answers in the notebook")
    refuse_dry_run(request.settings)
    earlier = run_to_keep(given.keep or "", request.settings, request.language, request.cwd)
    earlier = replace(earlier, ask_again=given.ask_again)
    confirm_rerun(earlier, request.cells[0].text, request.settings, yes=given.yes_rerun)
    return replace(request, keep=earlier, why=given.why)


def run_to_keep(wanted: str, settings: Settings, language: Language, cwd: Path) -> EarlierRun:
    """Return the run whose answers are kept, by the beginning of its id. Raises `UsageError`."""
    where: list[runs.RunPlace] = [*runs.places(cwd, settings.state_dir)]
    if settings.state.kind == "postgres":
        where = [*where, *kept_in_postgres(cwd, settings.state_dir)]
    found = runs.find(where, wanted)
    if not found.has_journal:
        found = with_journal(found, cwd)
    if found.problem is not None:
        raise found.problem
    if not found.has_journal:
        raise UsageError(f"run {found.id} has no journal", hint="it was not kept on disk, or the journal was off")
    return earlier_run(found.path, language, cwd)


def confirm_rerun(
    earlier: EarlierRun, text: str, settings: Settings, *, yes: bool, changed: str = "The changed text"
) -> None:
    """Ask the person before requests are repeated because a changed text does not use their answers. `changed` is the
    subject of the question. Raises `UsageError` if they decline, and if no person can be asked."""
    from prose_kernel.runs.planned_run import repeated_requests

    if yes:
        return
    found = asyncio.run(repeated_requests(earlier, text, settings))
    if not found:
        return
    unused = f"{changed} does not use {counted(len(found), 'answer')} of run {earlier.head.run}."
    heading = f"{unused} Requests that it still makes run again:"
    listed = "\n".join([heading, *result_text.request_lines(found)])
    confirm(listed, "Run it?", "to run it without a question: --yes-rerun", "nothing was run")


def kept_in_postgres(cwd: Path, state_dir: str) -> list[PostgresRuns]:
    """Return the runs in the PostgreSQL database of a directory; empty if none is configured."""
    from prose_kernel.storage.database.kept_runs import PostgresRuns
    from prose_kernel.storage.database.postgres import PostgresDatabase

    url = settings.postgres_urls(cwd, state_dir).url
    return [PostgresRuns(PostgresDatabase(url), runs_directory(cwd / state_dir))] if url is not None else []


def with_journal(found: KeptRun, cwd: Path) -> KeptRun:
    """Return the run with its journal, which is fetched for a run in PostgreSQL. Raises `UsageError`."""
    head = found.head
    if head is not None and (not is_in_postgres(head) or head.interactive):
        return found
    if head is None and found.has_journal:
        return found  # it explains why it can't be used
    from prose_kernel.storage.database.kept_runs import RunDatabaseUnavailable

    for place in kept_in_postgres(cwd, str(found.directory.parent.parent)):
        try:
            place.fetch_journal(found.id, lambda remark: click.echo(remark, err=True))
        except RunDatabaseUnavailable:
            if head is None:
                raise
    return runs.Directories(found.directory.parent).run(found.id)


def is_in_postgres(head: Head) -> bool:
    """Return whether a run is kept in PostgreSQL."""
    return languages.LANGUAGES[head.language].state == "state" and head.settings.get("state") == "postgres"
