"""`prose export NOTEBOOK`: write a notebook as a program. `prose notebook PROGRAM`: write a program as a notebook.
`prose upgrade FILE`: write a program as a contract file, or back (docs/reference/prose-md.md 11)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from prose_kernel.errors import CompileError, UsageError, usage_errors
from prose_kernel.language.contracts import SUFFIX, is_contract

STDOUT = "-"


@click.command(short_help="Write a notebook as one program.")
@click.argument("notebook", metavar="NOTEBOOK")
@click.option("-o", "--output", metavar="FILE", default=STDOUT, help="The file to write.  [default: print it]")
@click.option("--force", is_flag=True, help="Replace the file.")
def export(notebook: str, output: str, force: bool) -> int:
    """Write the cells of a notebook as one program; run nothing.

    Text and magics become comments; cells that are expected to fail are left out. All cells must have one
    language. The notebook of a contract file becomes that file again.
    """
    from prose_kernel.cli import program_files
    from prose_kernel.cli.notebook_file import MAY_FAIL, of_magic, read_book
    from prose_kernel.notebook.contract_notebooks import as_file, is_contract_notebook
    from prose_kernel.notebook.exporting import ExportedCell, as_program
    from prose_kernel.runs.languages import Language, default, of_file

    book, language = read_book(notebook)
    if is_contract_notebook(book.metadata):
        if output != STDOUT and not is_contract(output):
            raise UsageError(f"the name of a contract file ends with {SUFFIX}")
        write(output, as_file(book), force=force)
        return 0
    parts, number = list[ExportedCell](), 0
    for cell in book.cells:
        gap = cell.metadata.get("prose", {}).get("gap", 1 if parts else 0)
        if cell.cell_type == "code":
            number += 1
            left_out = "it is expected to fail" if MAY_FAIL in cell.metadata.get("tags", ()) else ""
            if language is None and of_magic(cell.source) is None:
                left_out = "it is in another language"
            parts.append(ExportedCell(cell.source, f"cell {number}", left_out=left_out, gap=gap))
        elif cell.cell_type == "markdown" and cell.source.strip():
            parts.append(ExportedCell(cell.source, "words", is_text=True, gap=gap))

    def read(name: str) -> tuple[str, Language]:
        return program_files.read_source(str(Path(notebook).parent / name)).text, of_file(name)

    made = as_program(parts, language or default(), read)
    if output != STDOUT and not output.endswith(made.language.suffixes):
        raise UsageError(f"the name of a program in {made.language.title} ends with {made.language.suffixes[0]}")
    write(output, made.text, force=force)
    for remark in made.remarks:
        click.echo(remark, err=True)
    return 0


@click.command(short_help="Make a notebook of a program.")
@click.argument("program", metavar="PROGRAM")
@click.option("-o", "--output", metavar="FILE", help="The file to write; - prints it.  [default: next to PROGRAM]")
@click.option("--force", is_flag=True, help="Replace the file.")
def notebook(program: str, output: str | None, force: bool) -> int:
    """Make a notebook of a program or contract file; run nothing. Comments and sections become text,
    statements cells.

    prose export reverses it; prose test --update saves the outputs.
    """
    if program.endswith(SUFFIX):
        data, stem = _of_contract(program), program.removesuffix(SUFFIX)
    else:
        data, stem = _of_program(program), str(Path(program).with_suffix(""))
    name = output or f"{stem}.ipynb"
    if name != STDOUT and not name.endswith(".ipynb"):
        raise UsageError("the name of a notebook ends with .ipynb")
    write(name, json.dumps(data, indent=1, ensure_ascii=False) + "\n", force=force)
    return 0


def _of_program(program: str) -> dict[str, Any]:
    from prose_kernel.cli.compile import compile_file
    from prose_kernel.language.source import Source
    from prose_kernel.notebook.exporting import as_cells, notebook_data
    from prose_kernel.runs import languages

    found = compile_file(program)
    if not found.ok:
        raise CompileError(found.diagnostics)
    language = languages.of_file(program)
    return notebook_data(as_cells(found.program, Source.of(found.text), language), language)


def _of_contract(program: str) -> dict[str, Any]:
    from prose_kernel.cli.program_files import read_bytes
    from prose_kernel.notebook.contract_notebooks import as_notebook
    from prose_kernel.runs import languages

    data = read_bytes(program)
    languages.of_file(program).decode(data, program)  # raises an error with line and column
    return as_notebook(data.decode(), program)


@click.command(short_help="Write a program as a contract file, or back.")
@click.argument("name", metavar="FILE")
@click.option("--dry-run", is_flag=True, help="Show the new file, and write nothing.")
@click.option("--force", is_flag=True, help="Replace the file.")
def upgrade(name: str, dry_run: bool, force: bool) -> int:
    """Write FILE.prose as the function FILE.prose.md: its inputs are the parameters, its outputs the results.
    FILE.prose.md becomes FILE.prose, if nothing is lost. The file itself stays.
    """
    import difflib

    from prose_kernel.cli.compile import compile_file
    from prose_kernel.language.source import Source
    from prose_kernel.runs import languages

    language = languages.of_file(name)
    found = compile_file(name)
    if not found.ok:
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


def write(name: str, text: str, *, force: bool) -> None:
    from prose_kernel.access import atomic, plain_files

    if name == STDOUT:
        click.echo(text, nl=False)
        return
    path = Path(os.path.expanduser(name))
    with usage_errors(f"cannot write {name}"):
        if path.exists() and not force:
            if plain_files.read(path) == text.encode(errors="replace"):
                click.echo(f"{name} is up to date")
                return
            raise UsageError(f"{name} exists", hint="--force replaces it")
        atomic.write_whole(path, text, in_place=True)
    click.echo(f"{name} is written")
