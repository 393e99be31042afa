"""The magic `%export`: write the notebook so far as one program."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from prose_kernel.errors import UsageError, usage_errors
from prose_kernel.notebook.magics.registry import MagicCall, magic, read_program, resolve_path
from prose_kernel.views import document as doc

if TYPE_CHECKING:
    from prose_kernel.notebook.cells import Cells
    from prose_kernel.notebook.exporting import ExportedCell
    from prose_kernel.runs.languages import Language


@magic("%export [FILE] [--force]", "write the notebook so far as one program that does the same; without FILE show it")
async def export(call: MagicCall) -> None:
    from prose_kernel.notebook.exporting import as_program

    words = [word for word in call.words if word != "--force"]
    call.check_word_count(0, 2)
    if len(words) > 1 or any(word.startswith("-") for word in words):
        raise call.wrong(f"too many words: {' '.join(words)}")
    name = words[0] if words else ""

    def read(file: str) -> tuple[str, Language]:
        source, language = read_program(call, file)
        return source.text, language

    made = as_program(parts(call.cells), call.cells.language, read)
    if not made.text.strip():
        return call.show(doc.paragraph("No cell of this run has finished yet."))
    if not name:
        listing = doc.Listing(made.text.rstrip("\n"), made.language.magic)
        return call.show(doc.group(listing, *map(doc.line, made.remarks), gap="\n\n"))
    text_of_file = made.text.replace(" FILE\n", f" {shlex.quote(name)}\n", 1) if made.options else made.text
    write(call, name, text_of_file, made.language, force="--force" in call.words)
    command = " ".join(("prose run", *made.options, shlex.quote(name)))
    head = doc.line(doc.Code(name), doc.Trusted(" is written: "), doc.Code(command), " runs it.")
    return call.show(doc.group(head, *map(doc.line, made.remarks), gap="\n\n"))


def parts(cells: Cells) -> list[ExportedCell]:
    """Return the cells of the run, each with its text when it last finished. Unfinished ones are marked as left out.

    They are in the order of the notebook, if the front end reports it (without deleted cells), else in the order of
    their first runs.
    """
    from prose_kernel.notebook.exporting import ExportedCell

    ran = dict(cells.ran)
    if order := cells.provenance.order:
        ran = {key: ran[key] for key in order if key in ran}
    found: list[ExportedCell] = []
    for cell in ran.values():
        text = cell.text if cell.text is not None else cell.tried
        name = f"cell {len(found) + 1}"
        if cell.given:
            hint = "bind the value in the program, or make it an input"
            raise UsageError(
                f"%export: {name} takes {', '.join(cell.given)} from Python, which no program can", hint=hint
            )
        if text.strip() and not _EXPORTS.match(text.strip()):
            magic = f"{cell.language.opening}\n" if cell.language is not cells.language else ""
            found.append(ExportedCell(magic + text, name, left_out="" if cell.text is not None else "it failed"))
    return found


_EXPORTS = re.compile(r"%(?:\w+ )?export\b.*\Z")


def write(call: MagicCall, name: str, text: str, language: Language, *, force: bool) -> None:
    """Write a program file. Raises `UsageError` for a wrong suffix, and for an existing file without `force`."""
    from prose_kernel.access import atomic, plain_files

    if not name.endswith(language.suffixes):
        raise UsageError(f"%export: the name of a program in {language.title} ends with {language.suffixes[0]}")
    path = resolve_path(call.cells, name)
    with usage_errors(f"%export: {name} cannot be written"):
        if path.exists() and not force and plain_files.read_text(path, errors="replace") != text:
            raise UsageError(f"%export: {name} exists", hint=f"to replace it: %export {name} --force")
        atomic.write_whole(path, text, in_place=True)
