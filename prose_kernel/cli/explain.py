"""`prose explain`: a section of the language reference, a word of a language, or a program in plain words."""

from __future__ import annotations

import sys

import click

from prose_kernel.cli import report
from prose_kernel.errors import UsageError
from prose_kernel.language.nearest import Nearest
from prose_kernel.runs import languages, reference


@click.command(short_help="Explain an error code, a section, a word, or a program.")
@click.argument("wanted", metavar="[PAGE] [CODE|SECTION|WORD|FILE]", nargs=-1, required=True)
def explain(wanted: tuple[str, ...]) -> int:
    """Print a section of the reference: by a code (E004, V001), a number of OpenProse (3.7) or of a page
    (sessions 4.2), or a word (loop, retry, pmap); the outline of a page (vvm). Of a program file, print each statement
    in plain words; nothing is run."""
    words = " ".join(wanted)
    if len(wanted) == 1 and words.endswith(languages.suffixes()):
        return _program(words)
    found = _word(wanted) or reference.section(words)
    if not sys.stdout.isatty():
        click.echo(found, nl=False)
        return 0
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.theme import Theme

    console = Console(highlight=False, theme=Theme({"markdown.code": "bold"}))  # nothing that needs a dark background
    console.print(Markdown(found, hyperlinks=False, code_theme="ansi_dark"))
    return 0


def _program(name: str) -> int:
    from prose_kernel.cli.compile import compile_file
    from prose_kernel.language.source import Source
    from prose_kernel.views.plain_text import plain_text
    from prose_kernel.views.plain_words import explained

    compiled = compile_file(name)
    if compiled.program is None or not compiled.ok:
        click.echo(report.diagnostics_text(compiled.diagnostics), err=True)
        return 1
    shown = explained(compiled.program, Source.of(compiled.text, name), compiled.language)
    click.echo(plain_text(shown))
    return 0


def _word(wanted: tuple[str, ...]) -> str | None:
    """The documentation of a word in every language that has it, or in the one that is named before it; None for what
    is a code, a section or a page."""
    from prose_kernel.views.bundle import markdown
    from prose_kernel.views.words import documentation, entry_of, with_section

    *page, word = wanted
    if len(page) > 1 or reference.is_key(word) or word in reference.pages():
        return None
    asked = [one for one in languages.LANGUAGES.values() if page in ([], [one.name])]
    found = [
        markdown(with_section(documentation(word, entry, one), word, one))
        for one in asked
        if (entry := entry_of(one, word)) is not None
    ]
    known = {name for one in asked for group in one.words() for name in group}
    if not found and (near := Nearest()(word, known)):
        raise UsageError(f"there is nothing to explain about {word}", hint=f"did you mean {near}?")
    return "\n\n".join(found) + "\n" if found else None
