"""Functions that make the parts of a run from the settings, when a workspace first needs them.

Each function imports its room when it is called: a program without sessions never loads providers, and one without
tasks never loads tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from prose_kernel.errors import StateError, UsageError
from prose_kernel.runtime.clock import milliseconds
from prose_kernel.runtime.ports import Clock, Owner

if TYPE_CHECKING:
    from prose_kernel.access.approvals import AuditWriter
    from prose_kernel.processes.exec_tool.audit import AuditLog
    from prose_kernel.processes.exec_tool.tool import AgentPrograms
    from prose_kernel.processes.tasks.service import TaskService
    from prose_kernel.remote.commands import RemoteCommands
    from prose_kernel.runs.context import RunContext
    from prose_kernel.runs.settings import Settings
    from prose_kernel.runtime.events import Listener
    from prose_kernel.runtime.journal_records import Head
    from prose_kernel.storage.answer_files import AnswerFiles
    from prose_kernel.storage.database.schema import Database
    from prose_kernel.storage.gates.deciding import Gatekeeper
    from prose_kernel.storage.gates.records import Records
    from prose_kernel.storage.run_directory import RunDirectory, StoredRun
    from prose_kernel.telemetry.spans_from_events import Spans


def keep(context: RunContext) -> StoredRun | None:
    """Return the store of a run in files or in a database; None for a run in memory.

    Raises `StateError` if the database is unavailable or of another version (7.1). A server may take seconds to answer.
    """
    settings, how = context.settings, context.resumption
    if settings.state.kind == "in-context" or context.start.overrides.store is not None:
        return None
    from prose_kernel.storage.run_directory import RunDirectory, StoredRun
    from prose_kernel.storage.state_log import Trace
    from prose_kernel.storage.stores import FilesystemStore

    home = RunDirectory(Path(settings.state_dir), _run_id(context), cwd=context.start.cwd)
    try:
        kept = in_database(settings, home, context.clock, context.emit)
        if how is not None and kept is not None:
            _check_database(kept, how.head)
    except DatabaseUnavailable as problem:
        if how is not None:
            raise StateError(f"run {home.run_id} cannot be resumed: {problem}", hint=problem.hint or None) from None
        files = 'keep the run in files: --state filesystem, or state = "filesystem" in prose.toml'
        hint = f"{problem.hint}; or {files}" if problem.hint else files
        raise StateError(f"the run cannot begin: {problem}", hint=hint) from None
    return kept or StoredRun(home, FilesystemStore(home), Trace(home, context.clock))


def _check_database(kept: StoredRun, head: Head) -> None:
    """Raise `DatabaseUnavailable` if a resumed run is kept in another database."""
    from prose_kernel.storage.database.ownership import has_run
    from prose_kernel.storage.database.schema import DatabaseError

    database = kept.database
    if database is None or database.inside or head.database in ("", database.place):
        return
    try:
        with contextlib.closing(database.connect()) as connection:
            if has_run(connection, head.run):
                return
    except DatabaseError as error:
        raise DatabaseUnavailable(f"PostgreSQL at {database.place} cannot be used: {error}") from None
    reason = f"it is kept in PostgreSQL at {head.database}, and not in that at {database.place}"
    rebuild = f"prose runs rebuild {head.run} writes its rows into this one"
    raise DatabaseUnavailable(reason, f"use the URL that the run began with; or {rebuild}")


def _run_id(context: RunContext) -> str:
    """Return the id of the resumed run, or a new id."""
    from prose_kernel.storage.run_paths import new_run_id, runs_directories

    if context.resumption is not None:
        return context.resumption.head.run
    directories = runs_directories(context.start.cwd, context.settings.state_dir)
    return context.start.run_id or new_run_id(context.clock, directories)


class DatabaseUnavailable(Exception):
    """A database cannot be used. The message is the reason; `hint` says what to do about it."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


def in_database(settings: Settings, home: RunDirectory, clock: Clock, emit: Listener) -> StoredRun | None:
    """Return the run in the database of the settings; None if they choose files. `emit` receives an event when the run
    waits for its database. Raises `DatabaseUnavailable`."""
    if not settings.state.in_database:
        return None
    ownership = None
    if settings.state.kind == "sqlite":
        database, users = _sqlite(home), None
    else:
        from prose_kernel.storage.database.ownership import Ownership
        from prose_kernel.storage.journal_reading import NAME

        database, users = _postgres(settings, home)
        ownership = Ownership(home.run_id, home.directory / NAME)
    from prose_kernel.storage.database.execution_rows import DatabaseTrace
    from prose_kernel.storage.database.row_writer import RowWriter
    from prose_kernel.storage.database.store import DatabaseStore
    from prose_kernel.storage.run_directory import StoredRun

    patience = settings.state.patience
    writes = RowWriter(
        database,
        home,
        clock,
        patience=patience,
        on_wait=_report_waits(database, patience, emit),
        users=users,
        ownership=ownership,
    )
    return StoredRun(home, DatabaseStore(writes), DatabaseTrace(writes, clock), database, ownership)


def _report_waits(database: Database, patience: float, emit: Listener) -> Callable[[str | None], None]:
    """Return a function that emits an event with the reason why the run waits for its database; None ends the wait."""
    from prose_kernel.language.source import Source, Span
    from prose_kernel.runtime.events import Place, StoreWaits

    place = Place(Source("", ""), Span(0, 0), 0)
    store = database.place if database.inside else f"{database.dialect.title} ({database.place})"
    return lambda reason: emit(StoreWaits(place, store, reason, patience))


def _sqlite(home: RunDirectory) -> Database:
    from prose_kernel.storage.run_paths import DATABASE

    try:
        from prose_kernel.storage.database import sqlite
    except ImportError:
        raise DatabaseUnavailable("this Python has no SQLite") from None
    kind = sqlite.network_drive(home.state_dir)
    if kind is not None:
        place = home.shown(home.state_dir)
        raise DatabaseUnavailable(
            f"'{place}' is on a network drive ({kind}), which can damage a SQLite file",
            "choose a directory on this machine with --state-dir",
        )
    file = home.directory / DATABASE
    return sqlite.SqliteDatabase(file, home.shown(file))


def _postgres(settings: Settings, home: RunDirectory) -> tuple[Database, Database | None]:
    """Return the database of runs, and the one of the user's memory if it is a different one."""
    from prose_kernel.runs.settings import postgres_urls
    from prose_kernel.storage.database import postgres
    from prose_kernel.storage.database.schema import DatabaseError

    if not postgres.is_installed():
        raise DatabaseUnavailable("the package psycopg is not installed", postgres.INSTALL)
    urls = postgres_urls(home.cwd, settings.state_dir)
    if urls.url is None:
        raise DatabaseUnavailable("there is no URL of a PostgreSQL database", postgres.HINT)
    database = postgres.PostgresDatabase(urls.url, home.run_id)
    try:
        database.test()
    except DatabaseError as error:
        reason = f"PostgreSQL at {database.place} cannot be used: {error}"
        raise DatabaseUnavailable(reason, f"check the URL in {urls.place}") from None
    return database, postgres.PostgresDatabase(urls.user_url) if urls.user_url else None


def journal_directory(context: RunContext, owner: RunDirectory | AnswerFiles | None) -> Path:
    """Return the directory of a run's journal: the directory `owner` of its other files, if it has any."""
    if owner is not None:
        return owner.directory
    from prose_kernel.storage.answer_files import ROOT

    return context.project / ROOT / "runs" / _run_id(context)


def answer_files(context: RunContext, home: RunDirectory | None) -> AnswerFiles:
    """Return the files for the answers of a run's agents. They share the id of `home`, which has its other files."""
    from prose_kernel.storage.answer_files import AnswerFiles

    run_id = home.run_id if home is not None else _run_id(context)
    durable = context.settings.journal == "durable"
    return AnswerFiles(context.project, run_id, context.clock, context.start.program_file, durable=durable)


def gatekeeper(context: RunContext, kept: StoredRun | None, started: Callable[[int], bool]) -> Gatekeeper:
    """Return the `Gates` port of a run; `started` returns whether a process belongs to this run."""
    from prose_kernel.storage.gates.answers import PriorDecisions
    from prose_kernel.storage.gates.deciding import Gatekeeper, GatePolicy

    settings, clock = context.settings, context.clock
    trusts_records = settings.gates.resume == "replay"
    start, patience = context.start, settings.state.patience
    database = kept.database if kept is not None else None
    waits = _report_waits(database, patience, context.emit) if database is not None else lambda reason: None
    policy = GatePolicy(settings.gates.mode, start.notebook, start.gate_files, trusts_records, patience, waits)
    prior = PriorDecisions(context.given.decisions, context.given.decision, context.given.following)
    return Gatekeeper(_gate_records(kept, clock), context.asker, clock, policy, prior, started=started)


def _gate_records(kept: StoredRun | None, clock: Clock) -> Records:
    from prose_kernel.storage.gates.file_records import FileRecords, MemoryRecords

    if kept is None:
        return MemoryRecords(clock)
    home = kept.home
    if kept.database is None:
        return FileRecords(home.paths.gates, home.run_id, clock)
    from prose_kernel.storage.database.gate_records import DatabaseRecords

    return DatabaseRecords(kept.database, home.paths.gates, home.run_id, clock)


def watch(context: RunContext, run: Path | None) -> Spans:
    """Return the listener that reports a run with the directory `run` to OpenTelemetry and the log. This is slow.
    Raises `UsageError`."""
    from prose_kernel.telemetry.spans import SpanDestination
    from prose_kernel.telemetry.spans_from_events import Spans

    settings, warn = context.settings, context.warnings.append
    recorders: list[SpanDestination] = []
    if settings.telemetry.otel:
        try:
            from prose_kernel.telemetry.otel import Meter, Tracer
        except ImportError:
            hint = "install it with: pip install 'prose_kernel[otel]'"
            raise UsageError("OpenTelemetry is not installed", hint=hint) from None
        except ValueError as problem:  # it reads some environment variables when it is imported
            raise UsageError(f"a variable of OpenTelemetry cannot be used: {problem}") from None
        recorders += [Tracer(os.environ, warn), Meter(os.environ)]
    if settings.telemetry.log:
        from prose_kernel.telemetry.log import LogFile

        recorders.append(LogFile(context.start.cwd / settings.telemetry.log, warn))
    remote = os.environ.get("TRACEPARENT", "")
    return Spans(recorders, remote=remote, content=settings.telemetry.content, run=run)


async def remote_commands(context: RunContext, run: str | None) -> RemoteCommands | None:
    """Return connected commands on other machines, None if the settings do not choose any. First, ends the processes
    that an earlier process of the `run` left running there. Raises `UsageError`."""
    settings = context.settings
    if not settings.on_other_machines:
        return None
    from prose_kernel.remote.commands import RemoteCommands

    assert settings.remote.scheduler is not None
    remote = RemoteCommands(
        settings.remote.scheduler,
        context.start.cwd,
        environment=settings.remote.environment,
        resources=settings.remote.resources,
        shell=settings.shell,
        displayed=settings.display_cap,
    )
    try:
        state = await remote.connect(remote_owner(context, run) if run is not None else None)
    except BaseException:
        await asyncio.shield(asyncio.to_thread(remote.close))
        raise
    for warning in state.warnings:
        context.show(warning)
    return remote


def remote_owner(context: RunContext, run: str) -> Owner:
    """Return this process as a run's owner on workers. Later processes have larger numbers if their clocks agree."""
    epoch = milliseconds(context.clock.now())
    return Owner(run, epoch, context.resumption is not None)


def task_service(context: RunContext, home: RunDirectory | None) -> TaskService:
    """Return the service for commands with a waiting window, and the tasks that they become."""
    from prose_kernel.processes.options import TaskOptions
    from prose_kernel.processes.tasks.records import Pointer
    from prose_kernel.processes.tasks.service import TaskService
    from prose_kernel.runs.settings import surroundings

    settings, cwd = context.settings, context.start.cwd
    options = TaskOptions(**asdict(settings.tasks), shell=settings.shell)
    directory = pointer = None
    if home is not None:
        directory = home.directory
        notebook = surroundings(cwd, directory, settings.state_dir).notebook
        pointer = Pointer(home.state_dir, home.run_id, notebook)
    return TaskService(
        context.engine(), directory, str(cwd), context.clock, options, displayed=settings.display_cap, pointer=pointer
    )


def agent_programs(context: RunContext, home: RunDirectory | None) -> AgentPrograms:
    """Return the `Exec` tool for agents, which the operator has switched on."""
    from prose_kernel.processes.exec_tool.tool import AgentPrograms
    from prose_kernel.processes.options import ExecOptions

    options = ExecOptions(**asdict(context.settings.exec))
    audit = _audit_log(context, home.directory if home is not None else None)
    return AgentPrograms(context.engine(), options, audit, warn=context.warnings.append)


def _audit_log(context: RunContext, directory: Path | None) -> AuditLog:
    """Return the audit log of agents' programs in the run's directory; None: in memory."""
    from prose_kernel.processes.exec_tool.audit import AuditLog

    path, mandatory = directory / "audit.jsonl" if directory is not None else None, context.settings.exec.audit_required
    return AuditLog(path, mandatory=mandatory, warn=context.warnings.append, now=context.clock.now)


def tool_notes(context: RunContext, directory: Path | None) -> AuditWriter:
    """Return the function that records calls of the user's tools in the run's audit log, if it has a directory."""
    from prose_kernel.access.approvals import no_audit
    from prose_kernel.models.tools.tool import ToolRefused
    from prose_kernel.processes.exec_tool.audit import AuditFailure

    if directory is None:
        return no_audit
    audit = _audit_log(context, directory)

    def note(event: str, fields: Mapping[str, object]) -> None:
        try:
            audit.append(event, **fields)
        except AuditFailure as failure:
            raise ToolRefused(str(failure)) from None

    return note


def add_prose_to_path() -> None:
    """Make `exec` find `prose`: append its directory to PATH, where it hides no other program."""
    own = str(Path(sys.executable).parent)
    if shutil.which("prose") is None and Path(own, "prose").exists():
        os.environ["PATH"] = os.pathsep.join(filter(None, (os.environ.get("PATH", os.defpath), own)))
