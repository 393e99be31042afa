"""`prose run`: run one program, or the cells of a notebook (docs/reference/openprose.md 8)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prose_kernel.cli import program_files, result_text, shared_options
from prose_kernel.cli.shared_options import profile_of, profile_option, state_dir_option
from prose_kernel.cli.terminal import Screen
from prose_kernel.errors import BudgetSpent, ProseError, RunError, UsageError
from prose_kernel.language.structs import replace
from prose_kernel.runs import languages

if TYPE_CHECKING:
    from prose_kernel.cli.execution import Cell, ProgramRun, Request, RunEnd
    from prose_kernel.cli.run_key import RunKey
    from prose_kernel.runs.languages import Language


@click.command(short_help="Run a program, a notebook or a bundled example.")
@click.argument("target", metavar="TARGET", required=False)
@click.option(
    "--resume", metavar="[RUN]", is_flag=False, flag_value="", help="Resume a run; without RUN the last unfinished one."
)
@click.option(
    "--interrupted",
    type=click.Choice(["rerun", "fail"]),
    help="With --resume: what was running is repeated, or fails.  [default: rerun]",
)
@click.option("--from", "at", metavar="AT", help="With --resume: begin a branch of the run before c3 or c1/4.")
@click.option("--stored", is_flag=True, help="With --resume: use the program's original text.")
@click.option(
    "--changed", is_flag=True, help="With --resume: begin a new run of the changed text, which keeps answers."
)
@click.option("--cwd", metavar="DIR", help="With --resume: continue in this directory.")
@click.option("--keep", metavar="RUN", help="Keep the answers of that run to unchanged requests.")
@click.option("--why", is_flag=True, help="With --changed or --keep: show why each request was made.")
@click.option("--ask-again", is_flag=True, help="With --changed or --keep: ask a person's inputs again.")
@click.option(
    "--yes-rerun", is_flag=True, help="With --changed or --keep: repeat commands and sessions without a question."
)
@click.option("--only-stale", is_flag=True, help="Continue the last run of a notebook, with stale cells only.")
@click.option("--id", "key", metavar="KEY", help="At most one run for this key: resume it, or print its outputs again.")
@click.option("--input", "inputs", metavar="NAME=VALUE", multiple=True, help="The value of an input. Repeatable.")
@click.option(
    "--prior",
    metavar="NAME=VALUE",
    multiple=True,
    help="Of a responsibility: the value of an earlier render. Repeatable.",
)
@state_dir_option
@click.option(
    "--state",
    "--backend",
    "state",
    metavar="KIND",
    help="filesystem, sqlite, postgres, in-context.  [default: OpenProse filesystem, VVM in-context]",
)
@click.option("--in-context", is_flag=True, help="Keep the run in memory.")
@profile_option
@click.option("--strict", is_flag=True, help="Accept only the original grammar.")
@click.option(
    "--gates",
    metavar="MODE",
    help="auto (default): ask, else reject; ask: only this prompt decides; wait: for prose gate; deny: reject. "
    "More: prose explain 5.10.",
)
@click.option("--gate-files", is_flag=True, help="With --gates=wait: accept decision files of any program.")
@click.option(
    "--yes", metavar="GATE", multiple=True, help="Approve a gate (MODULE:GATE of an import) in advance. Repeatable."
)
@click.option("--no", metavar="GATE", multiple=True, help="Reject a gate in advance. Repeatable.")
@click.option(
    "--provider",
    metavar="NAME",
    help="Provider of sessions: SERVER[:MODEL], acp:AGENT, human, scripted, dry-run, replay.",
)
@click.option("--script", metavar="FILE", help="The answers of the scripted provider (YAML).")
@click.option("--judge", metavar="NAME", help="Judge of conditions: SERVER[:MODEL], acp:AGENT, or off.")
@click.option("--cassette", metavar="NAME", help="The recording to write.")
@click.option("--cassette-mode", metavar="MODE", help="auto, record, replay or off.")
@click.option(
    "--cassette-stale",
    metavar="HOW",
    help="After changes to files that a recorded session read: warn, fail (default in CI), ignore.",
)
@click.option(
    "--trust",
    metavar="PROGRAM",
    multiple=True,
    help="Agree to programs: a URL or handle/name with its imports, a SHA-256, or all. Repeatable.",
)
@click.option("--realtime", is_flag=True, help="Replay sessions at their recorded speed.")
@click.option("--remote", metavar="ADDRESS", help="Run commands on a Dask cluster: tls://HOST:PORT, or local.")
@click.option(
    "--budget", metavar="LIMITS", help="Limits: 2 usd, 200k tokens, 30 min, 100 sessions, or some of them; off."
)
@click.option("--otel", is_flag=True, help="Send spans through OpenTelemetry.")
@click.option("--log", metavar="FILE", help="Write spans to FILE, as lines of JSON.")
@click.option("--usage", is_flag=True, help="Print the consumption of sessions and judgements.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Format of the result.")
@click.pass_context
def run(ctx: click.Context, /, target: str | None, **options: Any) -> int:
    """Run a program, a notebook (its cells in order) or a bundled example. TARGET is a file, - (OpenProse on
    standard input), an example (name, number or keyword), or handle/name or a URL, fetched after your agreement.

    Results go to stdout, remarks to stderr. With --format json stdout ends with one object {"status", "run_id",
    "outputs", "bindings", "error"}, and all else goes to stderr.

    Exit status 1: the program failed; 2: nothing was started; 3: a missing answer (session, condition,
    input, gate).
    """
    from prose_kernel.cli.execution import Request
    from prose_kernel.runs import settings

    typed_settings = {name: options.pop(name) for name in shared_options.SETTINGS}
    given = shared_options.RunOptions(typed_settings, **options)
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
        from prose_kernel.cli import run_resume

        return begin(run_resume.resume(target, given, Path.cwd()))
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
    target = program_files.contract_file_of(target)
    cwd, fetched = Path.cwd(), program_files.is_remote(target, strict=given.strict)
    name = target if fetched else program_files.find_program(target)
    cells, language = ([], languages.default()) if fetched else read(name)
    kept: dict[str, Any] = {language.state: shared_options.backend_of(given.state, given.in_context)}
    chosen = settings.load(
        cwd,
        file=shared_options.settings_file(cwd, name),
        **kept,
        **typed_settings,
        profile=profile_of(given.profile, given.strict) if given.profile or given.strict else None,
        cassette_realtime=True if given.realtime else None,
        telemetry_otel=True if given.otel else None,
        telemetry_log=given.log,
    )
    request = Request(
        cwd,
        name,
        notebook=False,
        supplied=shared_options.supplied(given),
        decisions=shared_options.decisions(given.yes, given.no),
        language=language,
        settings=chosen,
        cells=cells,
        origin=name if fetched else "",
        trust=given.trust,
        json=given.form == "json",
        usage=given.usage,
        gate_files=given.gate_files,
        answering_options=shared_options.answering_options(given),
    )
    if given.gate_files and chosen.gates.mode != "wait":
        raise UsageError("--gate-files needs --gates=wait")
    if chosen.gates.mode == "wait" and language.state == "state" and chosen.state.kind == "in-context":
        raise UsageError("--gates wait needs a run on disk; remove --in-context")
    if given.keep is not None:
        from prose_kernel.cli import run_keep

        request = run_keep.keeping_request(request, given)
    if given.only_stale:
        request = _only_stale(request, given)
    if given.key is None:
        return begin(request)
    return _run_once(request, given.key, given)


def _check_keeping(given: shared_options.RunOptions, *, kept: bool) -> None:
    """Raise `UsageError` for an option that needs `--keep` or `--changed`."""
    typed = {"--yes-rerun": given.yes_rerun, "--why": given.why, "--ask-again": given.ask_again}
    if not kept and (option := next((name for name, used in typed.items() if used), None)):
        raise UsageError(f"{option} is about --changed and --keep", hint="write one of them too, or leave it out")


def _only_stale(request: Request, given: shared_options.RunOptions) -> Request:
    """Return the request for the stale cells of a notebook. Raises `UsageError` for another program, and for options
    that exclude `--only-stale`."""
    if not request.program_file.endswith(".ipynb"):
        raise UsageError("--only-stale is for notebooks", hint="prose run FILE --keep RUN keeps answers of a program")
    if given.keep is not None or given.key is not None:
        raise UsageError(f"--only-stale and --{'keep' if given.key is None else 'id'} exclude each other")
    from prose_kernel.cli import only_stale

    return only_stale.branch_request(request)


def begin(request: Request, key: RunKey | None = None) -> int:
    """Begin or resume a run, and report its end. Returns the exit status."""
    screen = Screen(sys.stdout, sys.stderr, products_to_stderr=request.json)
    for variable in request.settings.misspelt:
        screen.note(f"Warning: {variable}")
    for remark in request.remarks:
        screen.note(remark)
    program = run_of(request, screen)
    if key is not None:
        key.begin(program.workspace.context)
    here = Path.cwd()  # the program may remove it
    return _report_end(request, program.execute(), screen, here)


def _run_once(request: Request, key: str, given: shared_options.RunOptions) -> int:
    """Begin or resume the run of a key. Returns the exit status."""
    from prose_kernel.cli import run_key, run_resume
    from prose_kernel.runtime.clock import SystemClock
    from prose_kernel.storage.run_paths import new_run_id, runs_directories

    with run_key.claimed(key, request.settings, request.cwd) as claim:
        if claim.run is not None:
            claim.check_program(request.program_file, request.cwd)
            target = None if request.origin else request.program_file
            return begin(run_resume.resume(target, replace(given, resume=claim.run.id), request.cwd))
        directories = runs_directories(request.cwd, request.settings.state_dir)
        return begin(replace(request, run_id=new_run_id(SystemClock(), directories)), claim)


def read(name: str) -> tuple[list[Cell], Language]:
    """Return the text of a program, or the cells of a notebook, and the language of a text that does not name one.

    Raises `UsageError`, or `CompileError` (E109), if they cannot be read.
    """
    from prose_kernel.cli.execution import Cell

    if name.endswith(".ipynb"):
        from prose_kernel.cli.notebook_file import check_no_going_back, read_cells

        cells, language = read_cells(name)
        check_no_going_back(cells, language)
        return cells, language
    return [Cell(program_files.read_source(name).text, name)], languages.of_file(name)


def run_of(request: Request, screen: Screen) -> ProgramRun:
    """Return the run of a program or notebook, not yet started."""
    from prose_kernel.cli.execution import ProgramRun

    if request.program_file.endswith(".ipynb"):
        from prose_kernel.cli.notebook_file import NotebookRun

        return NotebookRun(request, screen)
    return ProgramRun(request, screen)


# ---------------------------------------------------------------- the end of a run


def _report_end(request: Request, ended: RunEnd, screen: Screen, here: Path) -> int:
    """Print the end of a run that was begun in the directory `here`, and return the exit status."""
    error = ended.error
    if error is not None:
        screen.line("stderr", _error_text(request, ended, error, here))
        screen.explain(result_text.code_of(error), request.settings.docs_url)
    elif ended.signal is not None:
        screen.line("stderr", "interrupted" + _resume_lines(request, ended, here))
    if request.json:
        click.echo(result_text.result_line(_result(ended)))
    elif error is None and ended.signal is None:
        for text in ended.products:
            screen.line("stdout", text)
    for note in ended.notes:
        screen.note(note)
    return ended.status


def _error_text(request: Request, ended: RunEnd, error: ProseError, here: Path) -> str:
    named = isinstance(error, RunError) or ended.text_name == request.program_file
    place = "" if named else f"In {ended.text_name}:\n"
    return place + result_text.error_text(error, ended.stderr_shown) + _resume_lines(request, ended, here)


def _resume_lines(request: Request, ended: RunEnd, cwd: Path) -> str:
    """Return lines with the directory of the run, and the command that resumes it (docs/reference/openprose.md 8)."""
    lines: list[str] = []
    if ended.run_directory is not None:
        lines.append(f"\nrun directory: {program_files.shortest(ended.run_directory, cwd)}")
    if ended.journal is not None:
        options = _resume_options(request.answering_options, ended.error)
        name = request.program_file
        program = f"{shlex.quote(name)} " if program_files.is_outside(name, request.cwd) else ""
        lines.append(f"\nto resume it: prose run {program}--resume {_run_name(ended.journal.parent, cwd)}{options}")
    elif ended.forgotten:
        lines.append("\nnothing of this run is kept; with --state=filesystem it can be resumed")
    return "".join(lines)


def _resume_options(answering_options: Sequence[str], error: ProseError | None) -> str:
    """Return the options for resuming a run. If its budget is spent, a higher one is needed."""
    named = list(zip(answering_options[::2], answering_options[1::2], strict=True))
    options = [f" {name} {shlex.quote(value)}" for name, value in named]
    if isinstance(error, BudgetSpent) and error.details.get("budget") == "the run":
        options = [option for option in options if not option.startswith(" --budget ")] + [" --budget LIMITS"]
    return "".join(options)


def _run_name(directory: Path, cwd: Path) -> str:
    """Return the name under which `--resume` finds a run from here: its id, or else its directory."""
    from prose_kernel.runs import settings
    from prose_kernel.storage.runs import places

    here = [place.path for place in places(cwd, settings.load(cwd, problems=[]).state_dir)]
    name = program_files.shortest(directory, cwd)
    return directory.name if directory.parent in here else shlex.quote(name if "/" in name else f"./{name}")


def _result(ended: RunEnd) -> dict[str, object]:
    body: dict[str, object] | None = None
    if ended.signal is not None:
        body = {"type": "Interrupted", "code": None, "message": "interrupted", "line": None, "column": None}
    elif ended.error is not None:
        body = result_text.error_json(ended.error)
    return result_text.result("failed" if body else "completed", ended.run_id, ended.outputs, ended.bindings, body)
