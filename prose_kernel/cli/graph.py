"""`prose graph`: what a program is made of, as a diagram or as indented lines; nothing is run."""

from __future__ import annotations

import click

from prose_kernel.cli import report
from prose_kernel.cli.options import profile_of, profile_options


@click.command(short_help="Draw a program as a diagram.")
@click.argument("name", metavar="FILE")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "mermaid", "markdown"]),
    default="text",
    help="Indented lines, a Mermaid diagram, or a Markdown block with one.",
)
@profile_options
def graph(name: str, form: str, strict: bool, profile: str | None) -> int:
    """Draw a program, run nothing. FILE may be - for OpenProse on standard input.

    Exit status 1: errors in the program.
    """
    from prose_kernel.cli.compile import compile_file
    from prose_kernel.language.source import Source
    from prose_kernel.views.diagram import Part, fence, mermaid, outline

    compiled = compile_file(name, profile_of(profile, strict))
    if compiled.program is None or not compiled.ok:
        click.echo(report.diagnostics_text(compiled.diagnostics), err=True)
        return 1
    parts = [Part("", compiled.language.flow(compiled.program, Source.of(compiled.text, name)))]
    if form == "text":
        click.echo(outline(parts))
    else:
        click.echo(mermaid(parts) if form == "mermaid" else fence(mermaid(parts)), nl=form == "markdown")
    return 0
