"""`prose what-if`: run a program again with replaced answers or models, and compare the two runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prose_kernel.cli import program_files
from prose_kernel.errors import UsageError
from prose_kernel.views.document import counted

if TYPE_CHECKING:
    from prose_kernel.runs.settings import Settings
    from prose_kernel.storage.runs import KeptRun, RunPlace


@click.command(name="what-if", short_help="Run again with one answer replaced, and compare.")
@click.argument("wanted", metavar="RUN")
@click.argument("changes", metavar="AT=TEXT...", nargs=-1, required=True)
@click.option("--provider", metavar="NAME", help="Provider of sessions that are asked again.")
@click.option("--script", metavar="FILE", help="The answers of the scripted provider (YAML).")
@click.option("--judge", metavar="NAME", help="Judge of conditions that are asked again.")
@click.option("--cassette-mode", metavar="MODE", help="auto, record, replay or off.")
@click.option("--yes", metavar="GATE", multiple=True, help="Confirm the approval of a gate. Repeatable.")
@click.option("--why", is_flag=True, help="Show why each request was made.")
@click.option("--yes-rerun", is_flag=True, help="Repeat commands and sessions without a question.")
@click.option("--html", metavar="FILE", help="Write both runs next to each other as an HTML page.")
@click.option("--force", is_flag=True, help="With --html: replace a file that isn't a report.")
def what_if(wanted: str, changes: tuple[str, ...], **options: Any) -> int:
    """Run the original program of RUN with other answers, and print the differences.

    AT=TEXT replaces the answer at a place (prose runs show RUN lists them), AT=@FILE by the text of a file; a condition
    has yes or no. AT:model=NAME asks that session with another model. Only requests that depend on it are made again.

    Exit status: that of the new run.
    """
    from prose_kernel.cli import shared_options
    from prose_kernel.cli.execution import Cell, Request
    from prose_kernel.cli.run import begin
    from prose_kernel.cli.run_keep import confirm_rerun, run_to_keep
    from prose_kernel.runs import languages, settings
    from prose_kernel.runs.earlier_run import with_answers
    from prose_kernel.runtime.clock import SystemClock
    from prose_kernel.storage import runs
    from prose_kernel.storage.run_paths import new_run_id, runs_directories
    from prose_kernel.views.page import check_page

    file = Path(os.path.expanduser(options["html"])) if options["html"] else None
    if file is not None:
        check_page(file, force=options["force"])
    cwd, answers, models = Path.cwd(), *_parsed(changes)
    found = runs.find(runs.places(cwd, settings.load(cwd).state_dir), wanted)
    head = found.head
    if head is None or found.interactive or head.program.endswith(".ipynb") or head.origin:
        raise UsageError(f"run {found.id} is not one of a program file", hint="prose runs lists the runs")
    began_with = settings.original_settings(head.settings)
    typed = {name: value for name, value in options.items() if name not in ("why", "yes", "yes_rerun", "html", "force")}
    chosen: Any = settings.load(cwd, file=shared_options.settings_file(cwd, head.program), **{**began_with, **typed})
    language = languages.LANGUAGES[head.language]
    earlier = with_answers(run_to_keep(found.id, chosen, language, cwd), answers, models)
    text = earlier.journal.texts[-1].record.text
    confirm_rerun(earlier, text, chosen, yes=options["yes_rerun"], changed="The run with the change")
    run_id = new_run_id(SystemClock(), runs_directories(cwd, chosen.state_dir))
    decisions = shared_options.decisions(options["yes"], ())
    request = Request(
        cwd,
        head.program,
        notebook=False,
        supplied=dict(head.supplied),
        decisions=decisions,
        language=language,
        settings=chosen,
        cells=[Cell(text, head.program)],
        run_id=run_id,
        keep=earlier,
        why=options["why"],
    )
    status = begin(request)
    compared = _Compared(found, run_id, runs.places(cwd, chosen.state_dir))
    for at in compared.passed_over(answers):
        click.echo(
            f"Warning: the answer for {at} was not used: the run asked nothing there, or asked it again", err=True
        )
    for line in compared.lines():
        click.echo(line)
    if file is not None:
        compared.write(file, head.program, chosen, force=options["force"])
        click.echo(str(file))
    return status


def _parsed(changes: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the new answers and models, by the paths of their requests. Raises `UsageError`."""
    answers: dict[str, str] = {}
    models: dict[str, str] = {}
    for change in changes:
        at, equals, value = change.partition("=")
        place, colon, what = at.partition(":")
        if not equals or not place or (colon and what != "model"):
            raise UsageError(f"{change!r} is not of the form AT=TEXT, AT=@FILE or AT:model=NAME")
        if colon:
            models[place] = value
        else:
            answers[place] = program_files.read_source(value[1:]).text if value.startswith("@") else value
    return answers, models


class _Compared:
    """The differences between two runs, and their consumption."""

    def __init__(self, one: KeptRun, run_id: str, where: Sequence[RunPlace]) -> None:
        from prose_kernel.cli.runs import differences
        from prose_kernel.storage.runs import bindings_of, find

        self._one, self._other = one, find(where, run_id)
        found = differences(one, self._other, bindings_of(where, one), bindings_of(where, self._other))
        self._found = list(found)

    def passed_over(self, answers: Iterable[str]) -> list[str]:
        """Return the paths of those answers that the new run did not use."""
        from prose_kernel.runtime.journal_records import Answered

        records = self._other.journal.records(1) if self._other.journal is not None else ()
        used = {record.kept for _, record in records if isinstance(record, Answered)}
        return [at for at in answers if at not in used]

    def lines(self) -> Iterator[str]:
        """Yield the comparison as lines of text."""
        from prose_kernel.cli.runs import difference_lines

        yield f"--- run {self._one.id}\n+++ run {self._other.id}"
        yield from difference_lines(self._found) if self._found else ("no differences",)
        yield f"\nconsumed: {_consumed(self._one)} before, {_consumed(self._other)} by what was asked again"

    def write(self, file: Path, program: str, chosen: Settings, *, force: bool) -> None:
        """Write the comparison as an HTML page. Raises `UsageError`."""
        from prose_kernel.views.comparison import Side, comparison_page
        from prose_kernel.views.page import write_page
        from prose_kernel.views.report import secrets_out

        sides = Side.of(self._one, _consumed(self._one)), Side.of(self._other, _consumed(self._other))
        content = comparison_page(program, sides, self._found, secrets_out(chosen, Path.cwd()))
        write_page(file, content, force=force)


def _consumed(run: KeptRun) -> str:
    """Return tokens and costs of the sessions that a run has asked itself, without kept answers."""
    from prose_kernel.runtime import journal_codec as codec
    from prose_kernel.runtime.journal_records import answers_of
    from prose_kernel.runtime.ports import SessionResult

    tokens, cost = 0, 0.0
    for _, _, answered in answers_of(run.journal.records(1), "session") if run.journal is not None else ():
        result = codec.readable(answered.value, SessionResult)
        if result is not None and (usage := result.usage) is not None:
            tokens, cost = tokens + usage.tokens_in + usage.tokens_out, cost + (usage.cost or 0.0)
    return counted(tokens, "token") + (f" (${cost:.4f})" if cost else "")
