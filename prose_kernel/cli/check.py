"""`prose check`: which conditions of a program can be decided without a model or a person (sessions.md 3.2)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from prose_kernel.cli import report
from prose_kernel.cli.options import profile_of, profile_options

if TYPE_CHECKING:
    from prose_kernel.judging.chain import Condition


@click.command(short_help="List the conditions that rules can decide.")
@click.argument("name", metavar="FILE")
@profile_options
def check(name: str, strict: bool, profile: str | None) -> int:
    """List the conditions of a program, and whether a rule decides them (docs/reference/judge-rules.md).

    Exit status 1: errors, or a condition that needs a model or a person.
    """
    from prose_kernel.cli.compile import compile_file
    from prose_kernel.judging.chain import decidable_conditions
    from prose_kernel.language.source import Source
    from prose_kernel.runs import settings
    from prose_kernel.runtime.text import one_line

    compiled = compile_file(name, profile_of(profile, strict))
    if compiled.program is None or not compiled.ok:
        click.echo(report.diagnostics_text(compiled.diagnostics), err=True)
        return 1
    texts = list(compiled.language.judged_texts(compiled.program))
    criteria = any(text.criterion for text in texts) and settings.load(Path.cwd()).vvm.rules
    found = decidable_conditions(texts, Source.of(compiled.text, name), criteria=criteria)
    for condition in found:
        mark = "rule" if condition.decidable else "ask "
        text = f"?`{one_line(condition.text)}`" if condition.criterion else f"**{condition.text}**"
        click.echo(f"{mark}  line {condition.line}: {text} ({_why(condition, criteria)})")
    open_ones = sum(not condition.decidable for condition in found)
    click.echo(f"{len(found) - open_ones} of {len(found)} conditions can be decided by rules")
    return 1 if open_ones else 0


def _why(condition: Condition, criteria: bool) -> str:
    if condition.decidable:
        return ", ".join(condition.forms)
    if condition.criterion and condition.choice:
        return "a choice: the judge picks a label"
    if condition.criterion and not criteria:
        return "rules decide criteria only with [vvm] rules = true"
    if condition.choice:
        return "a choice: a rule picks only what a binding it names is"
    if "numbers" in condition.forms:
        return "a rule decides it if both values are numbers"
    if "true" in condition.forms:
        return "a rule decides it if the value is true or false"
    return "a rule could only say yes to it" if condition.forms else "no rule reads it"
