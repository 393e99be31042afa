"""`prose explain`: a section of the language reference, by diagnostic code or by number."""

from __future__ import annotations

import sys

import click

from prose_kernel import reference


@click.command(short_help="Print what the reference says about a code or a section.")
@click.argument("wanted", metavar="[PAGE] [CODE|SECTION]", nargs=-1, required=True)
def explain(wanted: tuple[str, ...]) -> int:
    """Print a section of the language reference: a diagnostic code (E004), a number (3.7), or either of them behind
    the name of a page (sessions 4.2, vvm E001); of a page alone (vvm) its outline. Codes and numbers alone are those
    of OpenProse if it has them."""
    found = reference.section(" ".join(wanted))
    if not sys.stdout.isatty():
        click.echo(found, nl=False)
        return 0
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.theme import Theme

    console = Console(highlight=False, theme=Theme({"markdown.code": "bold"}))  # nothing that needs a dark background
    console.print(Markdown(found, hyperlinks=False, code_theme="ansi_dark"))
    return 0
