"""`prose doctor`: check the installation, its kernels in Jupyter, and the settings, and print fixes."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from prose_kernel._version import __version__
from prose_kernel.cli import doctor_sessions
from prose_kernel.cli.doctor_sessions import Finding
from prose_kernel.errors import ImportProgramError, UsageError
from prose_kernel.runs import languages

if TYPE_CHECKING:
    from prose_kernel.remote.commands import RemoteState
    from prose_kernel.runs.settings import Settings

START_SECONDS = 30
PACKAGES = ("ipykernel", "jupyter_client", "ipython", "lark", "nbformat")


@click.command(short_help="Find problems, and their fixes.")
@click.option("--start/--no-start", "start", default=True, help="Start each Prose kernel that Jupyter sees.")
@click.option("--ask", is_flag=True, help="Ask each configured model and agent a small question; costs money.")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=60.0, help="Limit of each answer (60).")
def doctor(start: bool, ask: bool, seconds: float) -> int:
    """Check versions, kernelspecs, shell, providers and confinement, and print fixes.

    Exit status 1: something is broken.
    """
    broken = 0
    for finding in chain(examine(start), _ask(seconds) if ask else ()):
        broken += finding.state == "broken"
        colour = {"ok": "green", "note": "yellow", "broken": "red"}[finding.state]
        click.echo(f"{click.style(f'{finding.state:<6}', fg=colour)} {finding.subject}: {finding.text}")
        if finding.fix:
            click.echo(f"       fix: {finding.fix}")
    click.echo("all is well" if not broken else f"{broken} broken")
    return 1 if broken else 0


def examine(start: bool = True) -> Iterator[Finding]:
    """Yield all findings, cheap ones first."""
    yield from _versions()
    yield _command()
    yield from _settings()
    yield from _kernelspecs(start)


def _ask(seconds: float) -> Iterator[Finding]:
    from prose_kernel.runs import settings

    wrong: list[UsageError] = []  # already reported by `examine`
    yield from doctor_sessions.ask_all(settings.load(Path.cwd(), problems=wrong), Path.cwd(), seconds)


def _isolation(current: Settings) -> Iterator[Finding]:
    """Yield findings about the programs of agents: whether they are allowed, and how they can be confined here."""
    from prose_kernel.processes.sandbox import probe

    allowed = "enabled: agents with `execute:` rules may run programs"
    refused = "disabled: no agent can run programs with it ([exec] enabled = true enables it)"
    yield Finding("ok", "Exec", allowed if current.exec.enabled else refused)
    yield _system()
    for found in probe():
        yield Finding(found.state, found.subject, found.text)


def _remote(current: Settings) -> Finding:
    """Return a finding about commands on other machines. If the settings choose machines, connect to them."""
    try:
        dask = version("distributed")
    except PackageNotFoundError:
        dask = None
    if not current.on_other_machines:
        others = f"for others there is Dask {dask}" if dask else "for others: pip install 'prose_kernel[dask]'"
        return Finding("ok", "remote", f"commands run on this machine; {others}")
    from prose_kernel.remote.commands import RemoteCommands

    async def look() -> RemoteState:
        try:
            return await commands.connect()
        finally:
            await asyncio.to_thread(commands.close)

    commands = RemoteCommands(str(current.remote.scheduler), Path.cwd(), shell=current.shell)
    try:
        state = asyncio.run(look())
    except UsageError as problem:
        return Finding("broken", "remote", str(problem).removeprefix("remote: "), problem.hint)
    text = f"{state.url}: {len(state.workers)} workers run {state.places} commands in parallel"
    if state.warnings:
        return Finding("note", "remote", "; ".join((text, *state.warnings)))
    return Finding("ok", "remote", text)


def _postgres(current: Settings) -> Iterator[Finding]:
    """Yield findings about PostgreSQL for runs and for the user's memory, if the settings or a URL choose it."""
    from prose_kernel.runs import settings
    from prose_kernel.storage.database import postgres

    wanted = current.state.kind == "postgres"
    urls = settings.postgres_urls(Path.cwd(), current.state_dir)
    if urls.url is None or (urls.place == "DATABASE_URL" and not wanted):
        if wanted:
            yield Finding("broken", "PostgreSQL", "state is postgres, and no URL is set", postgres.HINT)
        else:
            yield Finding("ok", "PostgreSQL", "not used; docs/how-to/teams.md says how several people share runs")
        return
    yield _database("PostgreSQL", urls.url, urls.place, wanted)
    if urls.user_url is not None:
        yield _database("PostgreSQL of the user", urls.user_url, "OPENPROSE_POSTGRES_USER_URL", wanted)


def _database(subject: str, url: str, place: str, wanted: bool) -> Finding:
    from prose_kernel.storage.database import postgres
    from prose_kernel.storage.database.schema import POSTGRES, DatabaseError

    found = f"URL from {place}"
    bad: Literal["broken", "note"] = "broken" if wanted else "note"
    if not postgres.is_installed():
        return Finding(bad, subject, f"{found}; the package psycopg is not installed", postgres.INSTALL)
    database = postgres.PostgresDatabase(url)
    try:
        server, tables = database.examine()
    except DatabaseError as problem:
        return Finding(bad, subject, f"{found}; {database.place}: {problem}", postgres.HINT)
    if tables is not None and not POSTGRES.reads(tables):
        ours = f"this version of prose_kernel uses {POSTGRES.version}"
        text = f"{found}; {database.place} has tables of version {tables}, {ours}"
        return Finding("broken", subject, text, "use the version of prose_kernel that made them, or another database")
    made = "the first run makes the tables" if tables is None else f"tables of version {tables}"
    return Finding("ok", subject, f"{found}; {server} at {database.place}, {made}")


def telemetry(current: Settings) -> Finding:
    """Return a finding about telemetry: whether it is on, and whether it can work. Nothing is sent."""
    destinations = ["OpenTelemetry"] * current.telemetry.otel + ["a log"] * bool(current.telemetry.log)
    if not destinations:
        return Finding("ok", "telemetry", "off; docs/how-to/watching.md says how runs are watched")
    if current.telemetry.log:
        file = Path.cwd() / current.telemetry.log
        if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
            fix = "set [telemetry] log to a file in a directory that you may write to"
            return Finding("broken", "telemetry", f"the log {current.telemetry.log} cannot be written", fix)
    text = f"runs are watched through {' and '.join(destinations)}"
    if current.telemetry.otel:
        try:
            from prose_kernel.telemetry.otel import destination

            text += f"; spans go to {destination(os.environ)}"
        except ImportError:
            return Finding("broken", "telemetry", "OpenTelemetry is not installed", "pip install 'prose_kernel[otel]'")
        except UsageError as problem:
            return Finding("broken", "telemetry", str(problem), problem.hint)
        except ValueError as problem:  # the modules read some variables when they are imported
            return Finding("broken", "telemetry", str(problem))
    if current.telemetry.content:
        return Finding("note", "telemetry", f"{text}, with prompts, answers and commands")
    return Finding("ok", "telemetry", f"{text}, without prompts, answers and commands")


def _programs(current: Settings) -> Finding:
    """Return a finding about pinned and cached programs. Nothing is fetched."""
    from prose_kernel.runs.imported_programs import remote_programs

    try:
        resolver = remote_programs(current, Path.cwd())
        pins = resolver.lock.pins()
    except ImportProgramError as problem:
        return Finding("broken", "programs", problem.message, problem.hint)
    kept = dict(resolver.cache.entries())
    missing = sum(pin.sha256 not in kept for pin in pins.values())
    text = f"{len(pins)} from elsewhere pinned here, {len(kept)} cached ({sum(kept.values()):,} bytes)"
    if missing:
        return Finding("note", "programs", f"{text}; {missing} will be fetched when first used")
    return Finding("ok", "programs", text)


def _system() -> Finding:
    from prose_kernel.processes import system

    if system.LINUX:
        return Finding("ok", "processes", "Linux: every command is ended with all that it started")
    text = "POSIX only: commands and tasks work; agents' programs cannot be confined, so Exec is refused"
    return Finding("note", "processes", text)


def _versions() -> Iterator[Finding]:
    yield Finding("ok", "python", f"{sys.version.split()[0]} ({sys.executable})")
    yield Finding("ok", "prose_kernel", __version__)
    for name in PACKAGES:
        try:
            yield Finding("ok", name, version(name))
        except PackageNotFoundError:
            yield Finding("broken", name, "not installed", f"{sys.executable} -m pip install {name}")


def _command() -> Finding:
    """Return a finding about `prose` on the PATH: whether it belongs to this environment."""
    found = shutil.which("prose")
    own = Path(sys.executable).parent
    if found is None:
        return Finding("note", "prose", "not on the PATH", f'PATH="{own}:$PATH"')
    if Path(found).resolve().parent != own.resolve() and Path(found).parent != own:
        return Finding("note", "prose", f"the PATH leads to another installation, {found}")
    return Finding("ok", "prose", found)


def _settings() -> Iterator[Finding]:
    from prose_kernel.runs import settings

    problems: list[UsageError] = []
    current = settings.load(Path.cwd(), problems=problems)
    for problem in problems:
        yield Finding("broken", "settings", str(problem), problem.hint or "correct or remove it")
    for remark in current.misspelt:
        yield Finding("broken", "settings", remark, "correct or remove it")
    yield _shell(current.shell)
    yield _state_directory(Path.cwd() / current.state_dir)
    yield from doctor_sessions.examine(current, Path.cwd())
    yield from _isolation(current)
    yield _remote(current)
    yield from _postgres(current)
    yield _programs(current)
    yield telemetry(current)


def _shell(wanted: str | None) -> Finding:
    shell = wanted or shutil.which("bash") or shutil.which("sh")
    if shell is None:
        return Finding("broken", "shell", "neither bash nor sh is on the PATH", "install bash, or set PROSE_SHELL")
    try:
        status = subprocess.run([shell, "-c", "exit 7"], stdin=subprocess.DEVNULL, timeout=10).returncode
    except (OSError, subprocess.TimeoutExpired) as problem:
        return Finding("broken", "shell", f"{shell} does not start: {problem}", "set PROSE_SHELL to a shell that does")
    if status != 7:
        return Finding("broken", "shell", f"{shell} does not run commands", "set PROSE_SHELL to a POSIX shell")
    return Finding("ok", "shell", shell)


def _state_directory(directory: Path) -> Finding:
    nearest = next(p for p in (directory, *directory.parents) if p.exists() or p.is_symlink())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        return Finding("broken", "state", f"{nearest} is not a writable directory", "use --state-dir, or --in-context")
    return Finding("ok", "state", str(directory))


def _kernelspecs(start: bool) -> Iterator[Finding]:
    from jupyter_client.kernelspec import KernelSpecManager

    seen: set[str] = set()
    for name, entry in sorted(KernelSpecManager().get_all_specs().items()):
        argv = entry["spec"].get("argv") or []
        if "prose_kernel" not in argv:
            continue
        language = languages.of_magic(str(entry["spec"].get("language"))) or languages.default()
        seen.add(language.name)
        fix = f"prose install --user --language {language.magic} --name {name}"
        yield _kernelspec(name, argv, entry["resource_dir"], start, fix)
    if not seen:
        yield Finding("broken", "kernel", "Jupyter sees no Prose kernel", "prose install --user")
        return
    for language in languages.LANGUAGES.values():
        if language.name not in seen:
            fix = f"prose install --user --language {language.magic}"
            yield Finding("note", "kernel", f"Jupyter sees no kernel of {language.title}", fix)


def _kernelspec(name: str, argv: list[str], directory: str, start: bool, fix: str) -> Finding:
    """Return a finding about a kernelspec: whether its interpreter exists and, with `start`, its kernel answers."""
    subject = f"kernel {name}"
    interpreter = sys.executable if argv[0] in ("python", "python3") else argv[0]
    if shutil.which(interpreter) is None:
        return Finding("broken", subject, f"{interpreter} is gone ({directory})", fix)
    if not start:
        return Finding("ok", subject, f"{directory}, not started")
    problem = _start(name)
    if problem:
        return Finding("broken", subject, f"does not start: {problem} ({directory})", fix)
    return Finding("ok", subject, f"starts ({directory})")


def _start(name: str) -> str | None:
    """Start a kernel and wait until it is ready. Return the problem in one line; None if it starts."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name=name)
    try:
        manager.start_kernel(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        client = manager.blocking_client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=START_SECONDS)
        finally:
            client.stop_channels()
    except (OSError, RuntimeError, ValueError) as problem:
        return str(problem).splitlines()[0] if str(problem) else type(problem).__name__
    finally:
        if manager.has_kernel:
            manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
    return None
