"""`prose run --resume`: resume a run that was killed or interrupted, or has failed (docs/how-to/durability.md).

This module finds the run and compares its text with the file; `runs/resumption.py` decides where it continues.
"""

from __future__ import annotations

import difflib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from prose_kernel.access import peers, plain_files
from prose_kernel.cli import program_files, shared_options
from prose_kernel.cli.execution import Cell, Request
from prose_kernel.cli.run_keep import confirm_rerun, is_in_postgres, kept_in_postgres, with_journal
from prose_kernel.cli.shared_options import RunOptions, profile_of
from prose_kernel.cli.terminal import is_interactive
from prose_kernel.errors import UsageError
from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.language.text import escaped
from prose_kernel.runs import languages, settings
from prose_kernel.runs.earlier_run import EarlierRun, earlier_run
from prose_kernel.runs.languages import Language
from prose_kernel.runs.resumption import Resumption, branch, imported_texts, record_at, refuse_dry_run, resumption
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.journal_records import Head
from prose_kernel.storage import runs
from prose_kernel.storage.runs import KeptRun
from prose_kernel.views.request_text import request_line

_DIFF_LINES = 60


def resume(target: str | None, given: RunOptions, cwd: Path) -> Request:
    """Return the request for `prose run [FILE] --resume [RUN]`. Without RUN (`given.resume`), this is the last
    unfinished run.

    Raises `UsageError`, and `CompileError` if a changed text has errors.
    """
    if target is None and given.resume and given.resume.endswith(languages.runnable_suffixes()):
        target, given = given.resume, replace(given, resume=None)
    place = _directory(given.cwd, cwd)
    kept = _run_of(target, given, place)
    journal = kept.kept_journal()
    head = journal.head
    moved = _moved(kept, head, given.cwd, target, place)
    directory = moved or Path(head.directory)
    if moved is None:
        _check_place(kept, head, target, cwd)
    if not journal.texts:
        raise UsageError(f"run {kept.id} holds no program")
    language = languages.LANGUAGES[head.language]
    chosen, inputs, decisions = _original_options(kept, head, language, given)
    chosen["state_dir"] = Resumption(journal, cwd=moved).state_dir
    file = Path(cwd, os.path.expanduser(target)) if target else directory / os.path.expanduser(head.program)
    if not given.changed and not head.notebook and resumption(journal).complete:
        given = replace(given, stored=True)  # the result of a complete run belongs to its original text
    cells, text, remarks = _texts(kept, file, target or head.program, given)
    loaded = settings.load(directory, file=shared_options.settings_file(directory, head.program), **chosen)
    refuse_dry_run(loaded)
    if text is not None:
        _check(kept, text, language, Path(directory, os.path.expanduser(head.program)), chosen["profile"])
    keep = _run_with_kept_answers(kept, given, text, loaded) if text is not None else None
    how: Resumption | None = None
    about: tuple[str, ...]
    if keep is not None:
        known = _known(keep.journal.answers(keep.before))
        about = (f"A new run begins with the changed text: {known} from run {keep.head.run}.",)
    else:
        how, about = _continuation(kept, given, loaded)
        how = replace(how, cwd=moved)
    complete = how is not None and how.complete
    return Request(
        directory,
        head.program,
        notebook=False,
        supplied=inputs,
        decisions=decisions,
        earlier_decisions=head.decisions,
        language=language,
        settings=loaded,
        cells=cells,
        remarks=(_complete(kept),) if complete else (*remarks, *about),
        json=given.form == "json",
        usage=given.usage,
        gate_files=given.gate_files,
        answering_options=(*shared_options.answering_options(given), *(("--cwd", str(moved)) if moved else ())),
        origin=head.origin,
        trust=given.trust,
        resumption=how,
        keep=keep,
        why=given.why,
    )


# ---------------------------------------------------------------- the run


def _run_of(target: str | None, given: RunOptions, cwd: Path) -> KeptRun:
    """Return the run to resume. Raises `UsageError` if there is none, or it cannot be resumed."""
    backend = shared_options.backend_of(given.state, given.in_context)
    chosen = settings.load(cwd, state_dir=given.settings["state_dir"], state=backend)
    where = runs.places(cwd, chosen.state_dir)
    if target is not None:
        directory_of_it = Path(cwd, os.path.expanduser(target)).parent
        where += [place for place in runs.places(directory_of_it, ".prose") if place not in where]
    if given.resume and chosen.state.kind == "postgres":
        found = runs.find([*where, *kept_in_postgres(cwd, chosen.state_dir)], given.resume)
    else:
        found = runs.find(where, given.resume) if given.resume else _last(runs.all_runs(where), target, given, cwd)
    if (given.at is None and not given.changed) or not found.has_journal:
        found = with_journal(found, cwd)
    if found.problem is not None and not given.resume:
        way_on = f"name another run, or remove this one: prose runs rm {found.id}"
        hint = f"{found.problem.hint}; or {way_on}" if found.problem.hint else way_on
        raise UsageError(str(found.problem), hint=hint)
    found.kept_journal()
    if found.interactive:
        raise UsageError(f"run {found.id} belongs to a notebook", hint=f"%restore {found.id} there brings it back")
    if found.state == "running" and given.at is None and not given.changed:
        raise UsageError(f"run {found.id} is being run by another process", hint="wait until that one has ended")
    return found


def _last(known: Sequence[KeptRun], target: str | None, given: RunOptions, cwd: Path) -> KeptRun:
    mine = [run for run in known if not run.interactive and run.has_journal]
    if target is not None:
        file = program_files.real(Path(cwd, os.path.expanduser(target)))
        mine = [run for run in mine if run.head is not None and program_files.real(_program(run.head)) == file]
    going = [run for run in mine if given.at or given.changed or run.state in (*runs.UNFINISHED, "unreadable")]
    if going:
        return going[-1]
    running = [run for run in mine if run.state == "running"]
    if running:
        return running[-1]
    of = f" of {target}" if target is not None else ""
    if not mine:
        raise UsageError(f"no run{of} is kept here", hint="prose run FILE begins one")
    raise UsageError(
        f"no run{of} is left to resume: all have come to their end", hint="prose runs lists them; name one to see it"
    )


def _program(head: Head) -> Path:
    return Path(head.directory, os.path.expanduser(head.program))


def _directory(named: str | None, cwd: Path) -> Path:
    """Return the directory of `--cwd`, by default `cwd`. Raises `UsageError` if it does not exist."""
    directory = program_files.real(Path(cwd, os.path.expanduser(named))) if named is not None else cwd
    if not plain_files.is_directory(directory):
        raise UsageError(f"--cwd {named}: there is no such directory")
    return directory


def _moved(kept: KeptRun, head: Head, cwd: str | None, target: str | None, here: Path) -> Path | None:
    """Return the directory in which a run continues, if it is not the original one: the one of `--cwd`, or for a run in
    PostgreSQL the current one, if the person agrees. Raises `UsageError` if no one can be asked."""
    if runs.is_one_of(Path(head.directory), [here]):
        return None
    if cwd is not None:
        return here
    if target is not None or not is_in_postgres(head):
        return None
    began = f"run {kept.id} was begun in another directory: {escaped(head.directory)}"
    if peers.inside_a_run() or not is_interactive(sys.stdin, sys.stderr):
        raise UsageError(began, hint="to continue it here, add --cwd . to the command")
    click.echo(f"R{began[1:]}", err=True)
    if not click.confirm(f"Continue it in {escaped(str(here))}?", err=True):
        raise UsageError("nothing was run", hint="type the command in that directory, or name one with --cwd")
    return here


def _check_place(kept: KeptRun, head: Head, target: str | None, cwd: Path) -> None:
    """Raise `UsageError` unless the current directory is that of the run, or the person names its program there. A
    program outside of it has to be named, because settings and functions may be next to it."""
    named = Path(cwd, os.path.expanduser(target)) if target else None
    directory, program = Path(head.directory), _program(head)
    known = kept.directory.parent in [place.path for place in runs.places(directory, ".prose")]
    command = f"prose run --resume {kept.id if known else shlex.quote(str(kept.directory.absolute()))}"
    here = [cwd] if named is None else [cwd, named.parent]
    hint = f"to resume it there: cd {shlex.quote(escaped(head.directory))} && {command}"
    runs.check_directory(kept.id, directory, here, hint)
    if program_files.is_outside(head.program, directory) and (
        named is None or program_files.real(named) != program_files.real(program)
    ):
        shown = escaped(head.program)
        raise UsageError(
            f"the program of run {kept.id} is outside of its directory: {shown}",
            hint=f"name it: prose run {shlex.quote(shown)} --resume {kept.id}",
        )


# ---------------------------------------------------------------- settings, inputs, decisions


def _original_options(
    kept: KeptRun, head: Head, language: Language, given: RunOptions
) -> tuple[dict[str, Any], dict[str, str], dict[str, bool]]:
    """Return settings, inputs and decisions of the original run. Raises `UsageError` if an option contradicts them."""

    def against(option: str, began: str) -> UsageError:
        return UsageError(f"{option}: run {kept.id} began {began}", hint="leave it out, or run the program again")

    for name, value in shared_options.pairs(given.inputs).items():
        if name not in head.supplied:
            raise against(f"--input {name}", f"without a value for {name}")
        if head.supplied[name] != value:
            raise against(f"--input {name}={value}", f"with {name}={head.supplied[name]}")
    backend = shared_options.backend_of(given.state, given.in_context)
    if backend not in (None, began := head.settings.get(language.state)):
        raise against("--in-context" if given.in_context else f"--state {given.state}", f"with {began}")
    began_with = head.settings.get("profile") or "default"
    for option, typed in (("strict", given.strict), ("profile", given.profile)):
        if typed and profile_of(given.profile, given.strict) != began_with:
            raise against(f"--{option}", f"with the profile {began_with}")
    if given.gate_files and not head.gate_files:
        raise against("--gate-files", "without it")
    decisions = shared_options.decisions(given.yes, given.no)
    inside = peers.inside_a_run()
    if inside and given.yes:
        hint = "type the command in your own terminal"
        raise UsageError("--yes: called from inside a run, which may not approve what it resumes", hint=hint)
    for name, approved in decisions.items():
        if head.decisions.get(name, approved) != approved:
            raise against(f"--{'yes' if approved else 'no'} {name}", f"with --{'no' if approved else 'yes'} {name}")
    # only these settings are taken over, because commands can write the journal
    chosen = settings.original_settings(head.settings)
    chosen["cassette_mode"] = head.settings.get("cassette_mode")
    for name in ("gates", *shared_options.ANSWERING):
        chosen[name] = given.settings[name] or chosen.get(name)
    chosen["cassette_realtime"] = True if given.realtime else None
    chosen["telemetry_otel"] = True if given.otel else None
    chosen["telemetry_log"] = str(Path(given.log).absolute()) if given.log else None
    if inside:  # a terminal that a command made isn't a person: gates close, and earlier approvals stay unconfirmed
        chosen["gates"] = "deny"
    if script := given.settings["script"]:
        chosen["script"] = str(Path(script).absolute())
    # approvals given at the start have to be confirmed again (`runs/earlier_approvals.py`)
    rejected = {name: False for name, approves in head.decisions.items() if not approves}
    return chosen, dict(head.supplied), rejected | decisions


# ---------------------------------------------------------------- texts


def _texts(kept: KeptRun, file: Path, name: str, given: RunOptions) -> tuple[list[Cell], str | None, tuple[str, ...]]:
    """Return the cells to run, the changed text if it is to run (else None), and remarks.

    Raises `UsageError` if the program has changed and no option chooses the text to run.
    """
    journal = kept.kept_journal()
    stored = [(text.record.name, text.record.text) for text in journal.texts]
    if name.endswith(".ipynb"):
        return _notebook(kept, file, name, stored, given), None, ()
    own, program = stored[0][1], journal.head.program
    text, remarks = own, tuple[str, ...]()
    if name != program_files.STDIN and file.is_file():
        text = program_files.read_source(str(file)).text
    elif not given.stored and name != program_files.STDIN and not journal.head.origin:
        remarks = (f"{name} is missing: the run continues with its original text.",)
    if text == own or given.stored:
        return [Cell(own, program)], None, remarks
    if given.changed:
        return [Cell(text, program)], text, remarks
    raise _changed(kept, name, own, text)


def _notebook(kept: KeptRun, file: Path, name: str, stored: Sequence[tuple[str, str]], given: RunOptions) -> list[Cell]:
    """Return the cells of a notebook. Raises `UsageError` if a cell that has begun was changed or removed."""
    from prose_kernel.cli.notebook_file import read_cells
    from prose_kernel.notebook.cell_scan import draft_language, has_statements, segments

    if given.stored or given.changed:
        option = "--stored" if given.stored else "--changed"
        raise UsageError(f"{option} is for program files; a notebook's magics are not kept", hint="restore the cells")
    cells, default = read_cells(str(file))
    now = [
        piece.text.strip()
        for cell in cells
        for language, text in [draft_language(cell.text, default)]
        for piece in segments(text, language)
        if not piece.magic and has_statements(piece.text)
    ]
    then = [text.strip() for by, text in stored if by.startswith("cell ")]
    if now[: len(then)] != then or (kept.state == "done" and len(now) > len(then)):
        raise _changed(kept, name, "\n\n".join(then), "\n\n".join(now if kept.state == "done" else now[: len(then)]))
    return cells


def _changed(kept: KeptRun, name: str, then: str, now: str) -> UsageError:
    names = (f"run {kept.id}", name, "as it began", "as it is")
    lines = list(difflib.unified_diff(then.splitlines(), now.splitlines(), *names, n=2, lineterm=""))
    more = [f"… and {len(lines) - _DIFF_LINES} more lines"] if len(lines) > _DIFF_LINES else []
    text = "\n".join([f"{name} has changed since run {kept.id} began:", *lines[:_DIFF_LINES], *more])
    ways = "--stored continues with the original text; --changed begins a branch of the run with the new one"
    hint = "restore its cells, or run it again" if name.endswith(".ipynb") else f"restore the file; or {ways}"
    return UsageError(text, hint=hint)


def _check(kept: KeptRun, text: str, language: Language, file: Path, profile: Any) -> None:
    """Raise `CompileError` if a changed text has errors, before a branch is begun."""
    journal = kept.kept_journal()
    programs = language.programs(file.parent, program=file, profile=profile, texts=imported_texts(journal))
    source = Source.of(text, journal.head.program)
    languages.without_errors(language.compile(source, profile=profile, load=programs.load_contract))


# ---------------------------------------------------------------- the continuation


def _continuation(kept: KeptRun, given: RunOptions, chosen: settings.Settings) -> tuple[Resumption, tuple[str, ...]]:
    """Return the state from which the run or a new branch continues, and remarks about it."""
    journal = kept.kept_journal()
    if given.at is None:
        how = resumption(journal, given.interrupted or "rerun")
        lines = [f"Resuming run {kept.id} of {kept.shown_program}: {_known(how.answers)}."]
        if how.cause is not None:
            lines.append(f"It continues before the request that failed: {request_line(how.cause)}")
        lines += [f"Had failed too and is asked again: {request_line(asked)}" for asked in how.failed]
        if how.rewind is None:
            lines += [f"Had failed and is asked again: {request_line(asked)}" for asked in journal.due()]
        return how, tuple(lines)
    new = branch(journal, record_at(journal, given.at), SystemClock(), given.settings["state_dir"] or chosen.state_dir)
    line = f"Run {new.head.run} begins as a branch of run {kept.id} before {given.at}: {_known(new.answers())}."
    return Resumption(new, given.interrupted or "rerun", keeps_texts=True), (line,)


def _run_with_kept_answers(kept: KeptRun, given: RunOptions, text: str, chosen: settings.Settings) -> EarlierRun:
    """Return the run whose answers the changed text keeps. Raises `UsageError`, also if the person declines."""
    journal = kept.kept_journal()
    before = record_at(journal, given.at) if given.at is not None else None
    language, directory = languages.LANGUAGES[journal.head.language], Path(journal.head.directory)
    earlier = earlier_run(kept.path, language, directory, before, ask_again=given.ask_again)
    confirm_rerun(earlier, text, chosen, yes=given.yes_rerun)
    return earlier


def _known(answers: int) -> str:
    return "1 answer is known" if answers == 1 else f"{answers:,} answers are known"


def _complete(kept: KeptRun) -> str:
    last = kept.kept_journal().texts[-1].ended
    if last is not None and last.status == "failed":
        return (
            f"Run {kept.id} of {kept.shown_program} has ended by an error of the program itself: nothing is run. "
            "--changed runs a corrected text."
        )
    return f"Run {kept.id} of {kept.shown_program} is complete: nothing is left to do."
