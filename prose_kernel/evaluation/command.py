"""`prose eval`: measure how often a program does what it should, over a data set, and whether changes matter."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prose_kernel.cli.streams import interrupts
from prose_kernel.errors import usage_errors

if TYPE_CHECKING:
    from prose_kernel.evaluation.results import CaseResult, Summary


def _path(name: str) -> Path:
    """Return the absolute path of a file, because a function of the specification may change the directory."""
    return Path(os.path.expanduser(name)).absolute()


@click.command("eval", short_help="Evaluate a program over a data set.")
@click.argument("spec", metavar="SPEC")
@click.option(
    "-n", "--parallel", metavar="N", type=click.IntRange(1), help="Runs at the same time.  [default: the file's, or 4]"
)
@click.option("--fresh", is_flag=True, help="Start again, instead of continuing.")
@click.option("--baseline", metavar="FILE", type=_path, help="Compare with a stored baseline.")
@click.option("--save-baseline", metavar="FILE", type=_path, help="Store the results as a baseline.")
@click.option("--html", "page", metavar="FILE", type=_path, help="Write every run as an HTML page.")
@click.option("--junit-xml", "--junitxml", "junit", metavar="FILE", type=_path, help="Write a report for CI systems.")
@click.option("--provider", metavar="NAME", help="Provider of sessions.")
@click.option("--judge", metavar="NAME", help="Judge: SERVER[:MODEL], acp:AGENT, or off.")
@click.option("--cassette-mode", metavar="MODE", help="auto, record, replay or off.")
@click.option("--budget", metavar="LIMITS", help="Limits of the whole evaluation: 2 usd, 200k tokens, 30 min.")
@click.option("--force", is_flag=True, help="With --html: replace a file that isn't a report.")
def evaluate(
    spec: str,
    page: Path | None,
    junit: Path | None,
    force: bool,
    provider: str | None,
    judge: str | None,
    cassette_mode: str | None,
    **options: Any,
) -> int:
    """Run a program over all cases of a data set. Show the pass rate of each variant (a model, a prompt, a
    program), the differences, and regressions since a baseline.

    SPEC is a TOML file, such as triage.eval.toml. Recorded answers are used first, and only they if CI is set. The same
    command continues an interrupted evaluation.

    Exit status 1: a regression, too few passes, or errors; 3: a missing answer.
    """
    from prose_kernel.evaluation.report import document, html_page
    from prose_kernel.evaluation.runner import Evaluation, EvaluationOptions
    from prose_kernel.evaluation.spec import read
    from prose_kernel.runs import settings
    from prose_kernel.runs.run_assembly import add_prose_to_path
    from prose_kernel.views.document import plain_text
    from prose_kernel.views.page import check_page, write_page
    from prose_kernel.views.test_results import check_junit

    path = _path(spec)
    how = EvaluationOptions(
        **options, overrides=settings.checked(provider=provider, judge=judge, cassette_mode=cassette_mode)
    )
    if how.budget is not None:
        settings.budget_limits(how.budget)
    add_prose_to_path()
    if page is not None:  # a problem is reported before any run is paid for
        check_page(page, force=force)
    if junit is not None:
        check_junit(junit, junit.name)
    with redirect_stdout(sys.stderr):  # output that functions of the specification print isn't part of the result
        evaluation = Evaluation(read(path, spec), how, _progress())
        with interrupts(lambda _: evaluation.interrupt(), (signal.SIGINT, signal.SIGTERM)):
            summary = asyncio.run(evaluation.run())
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[2K")
    click.echo(_coloured(plain_text(document(summary))))
    if page is not None:
        write_page(page, html_page(summary), force=force)
    if junit is not None:
        _write_junit(junit, summary)
    return summary.status


def _progress() -> Callable[[CaseResult, int, int], None]:
    """Return the function that shows the number of results on a terminal, and shows nothing elsewhere."""
    counts, first = sys.stderr.isatty(), True

    def show(result: CaseResult, done: int, planned: int) -> None:
        nonlocal first
        if first:
            gc.freeze()  # the first run has loaded all modules, which later collections can skip now
            first = False
        if counts:
            sys.stderr.write(f"\r\x1b[2K{done:,} of {planned:,}")
            sys.stderr.flush()

    return show


def _coloured(text: str) -> str:
    head, *lines = text.split("\n")
    bad = ("REGRESSION", "ERROR", "is wanted")
    coloured = (click.style(line, fg="red") if any(word in line for word in bad) else line for line in lines)
    return "\n".join([click.style(head, bold=True), *coloured])


def _write_junit(path: Path, summary: Summary) -> None:
    from prose_kernel.evaluation.report import failure_of
    from prose_kernel.views.test_results import Outcome, StateDifference, Tested, write_junit

    suites = []
    for variant in summary.variants:
        outcomes = [
            Outcome(
                f"{one.case} ({one.repetition})" if summary.spec.repeat > 1 else one.case,
                "passed" if one.passed else "failed",
                () if one.passed else (StateDifference(failure_of(one)),),
                seconds=one.seconds,
            )
            for one in variant.results
        ]
        suites.append(Tested(f"{summary.spec.path.name}, {variant.name}", tuple(outcomes)))
    with usage_errors(f"cannot write {path.name}"):
        write_junit(path, suites, "prose eval")
