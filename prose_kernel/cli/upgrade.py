"""`prose upgrade`: a program as a function in a contract file, and back (docs/reference/prose-md.md 11)."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from prose_kernel.errors import CompileError, UsageError


@click.command(short_help="Write a program as a contract file, or back.")
@click.argument("name", metavar="FILE")
@click.option("--dry-run", is_flag=True, help="Show the new file, and write nothing.")
@click.option("--force", is_flag=True, help="Replace the file.")
def upgrade(name: str, dry_run: bool, force: bool) -> int:
    """Write FILE.prose as the function FILE.prose.md: its inputs are the parameters, its outputs the results.
    FILE.prose.md becomes FILE.prose, if nothing is lost. The file itself stays.
    """
    from prose_kernel.cli.compile import compile_file
    from prose_kernel.cli.convert import write
    from prose_kernel.language.source import Source
    from prose_kernel.runs import languages

    language = languages.of_file(name)
    found = compile_file(name)
    if found.program is None or not found.ok:
        raise CompileError(found.diagnostics)
    if not found.name.endswith(language.suffixes):
        raise UsageError(f"{name} is not a program in {language.title}")
    text, suffix = language.upgrade(found.program, Source(found.text, found.name))
    stem = found.name.removesuffix(".md").removesuffix(".prose")
    if dry_run:
        before, after = found.text.splitlines(keepends=True), text.splitlines(keepends=True)
        click.echo("".join(difflib.unified_diff(before, after, found.name, f"{stem}{suffix}")), nl=False)
        return 0
    write(str(Path(f"{stem}{suffix}")), text, force=force)
    return 0
