"""`prose judge calibrate`: measure how often the configured judge is right."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from prose_kernel.judging.calibration import Calibration, JudgeAnswer
    from prose_kernel.runs.settings import Settings

NO_ANSWER = 3


@click.group(short_help="Measure how often a judge is right.")
def judge() -> None:
    """Measure the judge of conditions."""


@judge.command(short_help="Measure how often a judge is right.")
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--judge", "name", metavar="NAME", help="The judge: SERVER[:MODEL] or acp:AGENT.")
@click.option("--least", metavar="PERCENT", type=click.FloatRange(0, 100), help="Fail if it is right less often.")
@click.option("--only", metavar="CATEGORY", help="Only the questions of a category.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Format of the result.")
@click.option("--cassette-mode", metavar="MODE", help="off, auto, record or replay.")
@click.option("--budget", metavar="LIMITS", help="Limits: 2 usd, 200k tokens, 30 min, or some of them.")
def calibrate(
    file: str | None,
    name: str | None,
    least: float | None,
    only: str | None,
    form: str,
    cassette_mode: str | None,
    budget: str | None,
) -> int:
    """Ask the judge the labelled questions of FILE (JSON Lines; default: 200 of this package), and show how
    often it is right. Answers are recorded in cassettes/calibration/ (docs/how-to/judge.md).

    Exit status 1: less often right than --least, or a budget is spent; 3: no judge answered.
    """
    from prose_kernel.errors import ProviderError, RunError, Undecided
    from prose_kernel.runs import settings

    chosen = settings.load(Path.cwd(), state="in-context", judge=name, cassette_mode=cassette_mode, budget=budget)
    try:
        found = asyncio.run(_calibrate(chosen, file, only))
    except (Undecided, ProviderError, RunError) as problem:
        click.echo(f"Error: {problem}" + (f"\nhint: {problem.hint}" if problem.hint else ""), err=True)
        return 1 if isinstance(problem, RunError) else NO_ANSWER
    except KeyboardInterrupt:
        click.echo("interrupted; what was answered is recorded, and is not asked again", err=True)
        raise
    _print(found, form)
    if least is not None and 100 * found.accuracy.share < least:
        click.echo(f"Error: it is right less often than in {least:g} %", err=True)
        return 1
    return 0


async def _calibrate(chosen: Settings, file: str | None, only: str | None) -> Calibration:
    from prose_kernel.cli.terminal import Screen, TerminalAsker
    from prose_kernel.runs.calibrating import calibrate as calibrated
    from prose_kernel.runs.workspace import Start, Workspace

    done, live = 0, sys.stderr.isatty()

    def count(answer: JudgeAnswer, of: int) -> None:
        nonlocal done
        done += 1
        if live:
            click.echo(f"\r{done} of {of}" + "\r\x1b[K" * (done == of), err=True, nl=False)

    # no person is asked, because an undecided question counts as a miss of the judge
    person = TerminalAsker(sys.stdin, Screen(sys.stdout, sys.stderr), False)
    workspace = Workspace(chosen, Start(Path.cwd(), "", notebook=False), asker=person)
    try:
        return await calibrated(workspace, file, only, count)
    finally:
        await workspace.close()


def _print(found: Calibration, form: str) -> None:
    from prose_kernel.views import calibration as shown
    from prose_kernel.views.document import group, plain_text

    if form == "json":
        click.echo(json.dumps(shown.as_json(found), ensure_ascii=False))
        return
    click.echo(plain_text(group(*shown.parts(found), gap="\n\n")))
    click.echo(f"\n{shown.consumed(found)}")
