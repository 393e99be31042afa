"""`prose test`: run notebooks and programs offline, and compare their results with the committed ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from prose_kernel.errors import UsageError, usage_errors
from prose_kernel.language.text import escaped

if TYPE_CHECKING:
    from prose_kernel.views.test_results import Status, Tested

NOTHING_FOUND = 5
INTERRUPTED = 130
WORDS: tuple[Status, ...] = ("failed", "updated", "passed", "skipped")


@click.command(short_help="Test notebooks and programs against their committed outputs.")
@click.argument("targets", metavar="[NOTEBOOK|PROGRAM|DIRECTORY]...", nargs=-1)
@click.option("--update", is_flag=True, help="Save the new results. Refused if CI is set.")
@click.option("--live", is_flag=True, help="Request and record missing answers.")
@click.option("-k", "expression", metavar="WORDS", default="", help="Only files whose names match: 'tour and not vvm'.")
@click.option("-x", "--exitfirst", "first", is_flag=True, help="End at the first failure.")
@click.option(
    "-n",
    "--numprocesses",
    "workers",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    help="Files tested at the same time.",
)
@click.option(
    "--timeout",
    "seconds",
    metavar="SECONDS",
    type=click.FloatRange(0, min_open=True),
    help="Limit for each cell or program.  [default: 300]",
)
@click.option(
    "--sanitize-with",
    "sanitize",
    metavar="FILE",
    multiple=True,
    help="Replacements before comparing, as in nbval. Repeatable.",
)
@click.option("--recursive", is_flag=True, help="Also contract files in directories below.")
@click.option("--lax", is_flag=True, help="Compare only cells marked NBVAL_CHECK_OUTPUT.")
@click.option("--junit-xml", "--junitxml", "junit", metavar="FILE", help="Write a report for CI systems.")
@click.option("-v", "--verbose", is_flag=True, help="A line for each cell and case.")
def test(
    targets: Sequence[str],
    expression: str,
    workers: int,
    sanitize: Sequence[str],
    recursive: bool,
    junit: str | None,
    verbose: bool,
    **options: Any,
) -> int:
    """Run notebooks and programs with recorded answers, and compare the results with committed ones: the
    outputs of a notebook, PROGRAM.expected.md of a program. A contract file of kind `test` runs its subject and judges
    its expectations.

    Default: Prose and VVM notebooks and programs with expected results below this directory, contract files only in it.

    Exit status 1: something differs or is not recorded; 3: a contract test lacks an answer or judge;
    5: nothing to test.
    """
    from prose_kernel.runs.run_assembly import add_prose_to_path
    from prose_kernel.runs.settings import in_ci
    from prose_kernel.testing import suite
    from prose_kernel.testing.options import SECONDS, SuiteOptions
    from prose_kernel.testing.outputs import Rules
    from prose_kernel.views.test_results import check_junit, write_junit

    if options["update"] and in_ci(os.environ):
        raise UsageError(
            "--update changes committed files, and CI is set", hint="to do it all the same: CI= prose test --update"
        )
    how = SuiteOptions(**{**options, "seconds": options["seconds"] or SECONDS}, rules=Rules(sanitize))
    cwd = Path.cwd()
    nothing = _NOTHING
    found = suite.targets(targets, cwd, update=how.update, recursive=recursive)
    if expression:
        every, found = found, [target for target in found if suite.name_matches(target.name, expression)]
        if every and not found:
            nothing = f"nothing to test: no file name matches -k {expression!r}"
    add_prose_to_path()
    if junit is not None:
        check_junit(_path(junit), junit)
    report = Report(verbose)
    results = suite.run_all(found, how, workers, report.file)
    status = report.summary(results, nothing)
    if junit is not None:
        with usage_errors(f"cannot write {junit}"):
            write_junit(_path(junit), results)
    return status


def _path(name: str) -> Path:
    return Path(os.path.expanduser(name))


_NOTHING: Final = (
    "nothing to test: there is no notebook of the kernels Prose and VVM, and no program with expected results\n"
    "hint: to write those of a program: prose test --update FILE"
)


class Report:
    """Prints the results of `prose test`: a line for each file when it ends, then every difference, then the totals."""

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose

    def file(self, tested: Tested) -> None:
        if not tested.outcomes:
            return
        if tested.report:
            click.echo(tested.report)
        counts = {word: tested.count(word) for word in WORDS if tested.count(word)}
        counted = ", ".join(f"{count} {word}" for word, count in counts.items())
        colour = "red" if "failed" in counts else "yellow" if "updated" in counts else "green"
        click.echo(f"{escaped(tested.path)}: {click.style(counted, fg=colour)}")
        if self._verbose:
            for outcome in tested.outcomes:
                why = f" ({outcome.why})" if outcome.why else ""
                click.echo(f"  {outcome.status:7}  {escaped(outcome.name)}{why}")

    def summary(self, results: Sequence[Tested], nothing: str) -> int:
        """Print all findings and the totals, or `nothing` without tests. Returns the exit status."""
        for tested in results:
            for outcome in tested.outcomes:
                if outcome.findings and not tested.report:
                    colour = "red" if outcome.status == "failed" else "yellow"
                    head = click.style(outcome.status.upper(), fg=colour, bold=True)
                    case = "" if tested.path.endswith(outcome.name) else f", {outcome.name}"
                    click.echo(f"\n{head} {escaped(tested.path)}{case}")
                    for finding in outcome.findings:
                        click.echo("\n".join(f"  {line}" for line in map(_coloured, finding.lines())))
        for tested in results:
            for note in tested.notes:
                click.echo(f"note: {note}")
        files = sum(bool(tested.outcomes) for tested in results)
        if any(tested.interrupted for tested in results):
            click.echo("interrupted", err=True)
            return INTERRUPTED
        if not files:
            click.echo(nothing, err=True)
            return NOTHING_FOUND
        return self._totals(results, files)

    def _totals(self, results: Sequence[Tested], files: int) -> int:
        counts: dict[Status, int] = {word: sum(tested.count(word) for tested in results) for word in WORDS}
        counted = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        failed = bool(counts["failed"])
        blank = "\n" if failed or counts["updated"] else ""
        where = f"{files} file{'s' if files > 1 else ''}"
        click.echo(f"{blank}{click.style(counted or 'no cells', fg='red' if failed else 'green')} in {where}")
        return max(1 if failed else 0, *(tested.exit for tested in results))


def _coloured(line: str) -> str:
    mark = line.lstrip()[:2]
    return click.style(line, fg="red") if mark == "- " else click.style(line, fg="green") if mark == "+ " else line
