"""`prose run`: run one program, or the cells of a notebook (docs/reference/openprose.md 8)."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prose_kernel.cli import files, report, run_options
from prose_kernel.cli.profiles import profile_of, profile_option
from prose_kernel.cli.terminal import Screen
from prose_kernel.errors import ProseError, RunError, UsageError

if TYPE_CHECKING:
    from prose_kernel.cli.execution import Cell, Ended, ProgramRun, Request
    from prose_kernel.cli.resuming import Resumed
    from prose_kernel.cli.run_key import RunKey
    from prose_kernel.runs.languages import Language


@click.command(short_help="Run a program, a notebook or a bundled example.")
@click.argument("target", metavar="TARGET", required=False)
@click.option(
    "--resume",
    metavar="[RUN]",
    is_flag=False,
    flag_value="",
    help="Let a run go on, by the beginning of its id; without RUN the last one that did not finish.",
)
@click.option(
    "--interrupted",
    type=click.Choice(["rerun", "fail"]),
    help="With --resume: what becomes of commands and sessions that were under way.  [default: rerun]",
)
@click.option("--from", "at", metavar="AT", help="With --resume: a branch of the run that begins before c3 or c1/4.")
@click.option("--stored", is_flag=True, help="With --resume: the program's text as it was when the run began.")
@click.option(
    "--changed", is_flag=True, help="With --resume: a new run of the program's text as it is, which keeps answers."
)
@click.option(
    "--cwd", metavar="DIR", help="With --resume: continue in this directory, not in the one where the run was begun."
)
@click.option("--keep", metavar="RUN", help="Use the answers of that run for requests that have not changed.")
@click.option("--why", is_flag=True, help="With --changed or --keep: say why each request was asked.")
@click.option("--ask-again", is_flag=True, help="With --changed or --keep: ask a person's inputs again.")
@click.option(
    "--yes-rerun",
    is_flag=True,
    help="With --changed or --keep: don't ask before commands and sessions are repeated.",
)
@click.option("--only-stale", is_flag=True, help="Of a notebook: continue its last run, and run only stale cells.")
@click.option(
    "--id",
    "key",
    metavar="KEY",
    help="At most one run for this key: repeated, the command resumes that run, or prints its outputs again.",
)
@click.option("--input", "inputs", metavar="NAME=VALUE", multiple=True, help="The value of an input. Repeatable.")
@click.option(
    "--prior",
    metavar="NAME=VALUE",
    multiple=True,
    help="Of a responsibility: what an earlier render said under that name. Repeatable.",
)
@click.option("--state-dir", metavar="DIR", help="The directory for runs.  [default: .prose]")
@click.option(
    "--state",
    "--backend",
    "state",
    metavar="KIND",
    help="filesystem, sqlite, postgres or in-context.  [default: OpenProse filesystem, VVM in-context]",
)
@click.option("--in-context", is_flag=True, help="Keep everything in memory; write nothing.")
@profile_option
@click.option("--strict", is_flag=True, help="Apply the language reference literally.")
@click.option("--gates", metavar="MODE", help="How gates are decided: auto (default), ask, wait or deny.")
@click.option("--gate-files", is_flag=True, help="With --gates=wait: a decision file written by any program decides.")
@click.option(
    "--yes", metavar="GATE", multiple=True, help="Approve a gate, or MODULE:GATE of an import, in advance. Repeatable."
)
@click.option(
    "--no", metavar="GATE", multiple=True, help="Reject a gate, or MODULE:GATE of an import, in advance. Repeatable."
)
@click.option(
    "--provider",
    metavar="NAME",
    help="What answers sessions: human, scripted, dry-run, replay, SERVER[:MODEL], acp:AGENT.",
)
@click.option("--script", metavar="FILE", help="The answers of the scripted provider (YAML).")
@click.option("--judge", metavar="NAME", help="What decides conditions: SERVER[:MODEL], acp:AGENT, or off.")
@click.option("--cassette", metavar="NAME", help="The recording to write.")
@click.option("--cassette-mode", metavar="MODE", help="auto, record, replay or off.")
@click.option(
    "--cassette-stale",
    metavar="HOW",
    help="Where a file that a recorded session read has changed: warn, fail or ignore. Default: fail in CI, else warn.",
)
@click.option(
    "--trust",
    metavar="PROGRAM",
    multiple=True,
    help="Agree to programs from elsewhere: a URL or handle/name with its imports, a SHA-256, or all. Repeatable.",
)
@click.option("--realtime", is_flag=True, help="Replay sessions at their recorded speed.")
@click.option(
    "--remote",
    metavar="ADDRESS",
    help="Run commands on the workers of a Dask scheduler (tls://HOST:PORT), or of a cluster here: local.",
)
@click.option(
    "--budget",
    metavar="LIMITS",
    help="What sessions and judgements may consume: 2 usd, 200k tokens, 30 min, 100 sessions, or some of it; off.",
)
@click.option(
    "--otel", is_flag=True, help="Send spans of the run through OpenTelemetry; the OTEL_ variables say where."
)
@click.option("--log", metavar="FILE", help="Write what happens to FILE, as lines of JSON.")
@click.option("--usage", is_flag=True, help="Print what sessions and judgements consumed.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="How the result is printed."
)
@click.pass_context
def run(ctx: click.Context, /, target: str | None, **options: Any) -> int:
    """Run a program, a notebook (its cells in order) or a bundled example. TARGET is a file, - for OpenProse on
    standard input, or the name, number or keyword of an example; handle/name or a URL is fetched.

    Before a program from elsewhere first runs, you are shown what it is and asked; prose.lock notes the answer.

    Results of the program go to stdout, remarks about it to stderr. With --format json the last line of
    stdout is one object {"status", "run_id", "outputs", "bindings", "error"}, and all else goes to stderr.

    Exit status: 0 ended normally, 1 the program failed, 2 usage or an error found before the start (nothing was run),
    3 failed because nobody could answer a session, condition, input or gate.
    """
    from prose_kernel.cli.execution import Request
    from prose_kernel.runs import languages, settings

    given = run_options.RunOptions(**options)
    if given.resume is not None:
        if given.key is not None:
            raise UsageError("--id and --resume exclude each other")
        if given.stored and given.changed:
            raise UsageError("--stored and --changed exclude each other")
        if given.only_stale:
            raise UsageError("--only-stale and --resume exclude each other")
        if given.keep is not None:
            hint = "--resume RUN --changed keeps the answers of that run"
            raise UsageError("--keep and --resume exclude each other", hint=hint)
        _check_keeping(given, kept=given.changed)
        from prose_kernel.cli import resuming

        under_way = given.interrupted or "rerun"
        wanted = resuming.Wanted(given.resume, given.at, under_way, given.stored, given.changed, given.cwd)
        return _resume(resuming.resume(target, wanted, ctx.params, Path.cwd()))
    about_resuming = {
        "--from": given.at is not None,
        "--stored": given.stored,
        "--changed": given.changed,
        "--interrupted": given.interrupted is not None,
        "--cwd": given.cwd is not None,
    }
    if option := next((name for name, used in about_resuming.items() if used), None):
        raise UsageError(
            f"{option} is about a run that is resumed", hint="write --resume RUN too; prose runs lists them"
        )
    _check_keeping(given, kept=given.keep is not None)
    if target is None:
        raise click.MissingParameter(ctx=ctx, param=ctx.command.params[0])
    target = files.meant(target)
    cwd, fetched = Path.cwd(), files.is_remote(target, strict=given.strict)
    name = target if fetched else files.find_program(target)
    cells, language = ([], languages.default()) if fetched else read(name)
    kept: dict[str, Any] = {language.state: run_options.backend_of(given.state, given.in_context)}
    chosen = settings.load(
        cwd,
        file=run_options.settings_file(cwd, name),
        **kept,
        state_dir=given.state_dir,
        profile=profile_of(given.profile, given.strict) if given.profile or given.strict else None,
        gates=given.gates,
        provider=given.provider,
        script=given.script,
        judge=given.judge,
        cassette=given.cassette,
        cassette_mode=given.cassette_mode,
        cassette_stale=given.cassette_stale,
        cassette_realtime=True if given.realtime else None,
        remote=given.remote,
        budget=given.budget,
        telemetry_otel=True if given.otel else None,
        telemetry_log=given.log,
    )
    request = Request(
        name,
        run_options.supplied(given),
        run_options.decisions(given.yes, given.no),
        chosen,
        cwd,
        origin=name if fetched else "",
        trust=given.trust,
        json=given.form == "json",
        usage=given.usage,
        gate_files=given.gate_files,
        who_answers=run_options.who_answers(ctx.params),
    )
    if given.gate_files and chosen.gates.mode != "wait":
        raise UsageError("--gate-files needs --gates=wait")
    if (
        request.settings.gates.mode == "wait"
        and kept.keys() == {"state"}
        and request.settings.state.kind == "in-context"
    ):
        raise UsageError("--gates wait needs a run on disk; remove --in-context")
    if given.keep is not None:
        from prose_kernel.cli import keeping

        request = keeping.kept(request, given, cells, language)
    if given.only_stale:
        request = _only_stale(request, given, cells, language)
    if given.key is None:
        return begin(request, cells, language)
    return _run_once(request, cells, language, given.key, ctx.params)


def _check_keeping(given: run_options.RunOptions, *, kept: bool) -> None:
    """Raises `UsageError` for an option that only a run with kept answers has."""
    typed = {"--yes-rerun": given.yes_rerun, "--why": given.why, "--ask-again": given.ask_again}
    if not kept and (option := next((name for name, used in typed.items() if used), None)):
        raise UsageError(f"{option} is about --changed and --keep", hint="write one of them too, or leave it out")


def _only_stale(request: Request, given: run_options.RunOptions, cells: list[Cell], language: Language) -> Request:
    """Raises `UsageError` for a program that is not a notebook, and for options that exclude it."""
    if not request.name.endswith(".ipynb"):
        raise UsageError("--only-stale is for notebooks", hint="prose run FILE --keep RUN keeps answers of a program")
    if given.keep is not None or given.key is not None:
        raise UsageError(f"--only-stale and --{'keep' if given.key is None else 'id'} exclude each other")
    from prose_kernel.cli import only_stale

    return only_stale.continued(request, cells, language)


def begin(request: Request, cells: list[Cell], language: Language, key: RunKey | None = None) -> int:
    """Begin a run, and report how it ended. Returns the exit status."""
    screen = Screen(sys.stdout, sys.stderr, products_to_stderr=request.json)
    program = run_of(request, screen, language, cells)
    if key is not None:
        key.begin(program.workspace.context)
    return _report(request, program.execute(cells), screen)


def _run_once(request: Request, cells: list[Cell], language: Language, key: str, options: Mapping[str, Any]) -> int:
    """Begin the run of a key, or resume it."""
    from prose_kernel.cli import resuming, run_key
    from prose_kernel.runtime.clock import SystemClock
    from prose_kernel.storage.layout import new_run_id

    with run_key.claimed(key, request.settings, request.cwd) as claim:
        if claim.run is not None:
            claim.check_program(request.name, request.cwd)
            target = None if request.origin else request.name
            return _resume(resuming.resume(target, resuming.Wanted(claim.run.id), options, request.cwd))
        return begin(replace(request, run_id=new_run_id(SystemClock())), cells, language, claim)


def _resume(resumed: Resumed) -> int:
    request = resumed.request
    screen = Screen(sys.stdout, sys.stderr, products_to_stderr=request.json)
    for remark in resumed.remarks:
        screen.note(remark)
    program = run_of(request, screen, resumed.language, resumed.cells)
    return _report(request, program.execute(resumed.cells), screen)


def read(name: str) -> tuple[list[Cell], Language]:
    """The text of a program, or those of a notebook, and the language of a text that names none.

    Raises `UsageError`, and `CompileError` (E109), when they cannot be read.
    """
    from prose_kernel.cli.execution import Cell
    from prose_kernel.runs import languages

    if name.endswith(".ipynb"):
        from prose_kernel.cli.notebook_file import read_cells

        return read_cells(name)
    return [Cell(files.read_source(name).text, name)], languages.of_file(name)


def run_of(request: Request, screen: Screen, language: Language, cells: Sequence[Cell]) -> ProgramRun:
    """What runs the texts of a program or notebook."""
    from prose_kernel.cli.execution import ProgramRun

    if request.name.endswith(".ipynb"):
        from prose_kernel.cli.notebook_file import NotebookRun

        return NotebookRun(request, screen, language, cells)
    return ProgramRun(request, screen, language)


# ---------------------------------------------------------------- the end of a run


def _report(request: Request, ended: Ended, screen: Screen) -> int:
    """Print how it ended; the exit status is returned."""
    error = ended.error
    if error is not None:
        screen.line("stderr", _error_text(request, ended, error))
        screen.explain(report.code_of(error), request.settings.docs_url)
    elif ended.signal is not None:
        screen.line("stderr", "interrupted" + _where(request, ended))
    if request.json:
        click.echo(report.result_line(_result(ended)))
    elif error is None and ended.signal is None:
        for text in ended.products:
            screen.line("stdout", text)
    for note in ended.notes:
        screen.note(note)
    return ended.status


def _error_text(request: Request, ended: Ended, error: ProseError) -> str:
    if isinstance(error, RunError):
        text = report.run_error_text(error, shown_stderr=ended.stderr_shown)
        return text + _where(request, ended)
    place = "" if ended.text_name == request.name else f"In {ended.text_name}:\n"
    return place + report.usage_text(error) + _where(request, ended)


def _where(request: Request, ended: Ended) -> str:
    """Where the run is, and the command that lets it go on (docs/reference/openprose.md 8)."""
    cwd = Path.cwd()
    lines = [f"\nrun directory: {_shortest(ended.run_directory, cwd)}"] if ended.run_directory is not None else []
    if ended.journal is not None:
        options = "".join(f" {shlex.quote(part)}" for part in request.who_answers)
        program = f"{shlex.quote(request.name)} " if files.is_outside(request.name, request.cwd) else ""
        lines.append(f"\nto resume it: prose run {program}--resume {_named(ended.journal.parent, cwd)}{options}")
    elif ended.forgotten:
        lines.append("\nnothing of this run is kept; with --state=filesystem it can be resumed")
    return "".join(lines)


def _named(directory: Path, cwd: Path) -> str:
    """A run as `--resume` finds it from here: by its id, else by its directory."""
    from prose_kernel.runs import settings
    from prose_kernel.storage.runs import places

    here = [place.path for place in places(cwd, settings.load(cwd, problems=[]).state_dir)]
    name = _shortest(directory, cwd)
    return directory.name if directory.parent in here else shlex.quote(name if "/" in name else f"./{name}")


def _shortest(path: Path, cwd: Path) -> str:
    relative = os.path.relpath(path, cwd)
    return str(path) if relative.startswith("..") else relative


def _result(ended: Ended) -> dict[str, object]:
    body: dict[str, object] | None = None
    if ended.signal is not None:
        body = {"type": "Interrupted", "code": None, "message": "interrupted", "line": None, "column": None}
    elif ended.error is not None:
        body = report.error_json(ended.error)
    return report.result("failed" if body else "completed", ended.run_id, ended.outputs, ended.bindings, body)
