"""The canonical form of a contract file: the scripts in its fences are formatted, all else stays (prose-md.md 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prose_kernel.language.contracts.layout import Block
from prose_kernel.language.openprose.fenced_text import fenced_text

if TYPE_CHECKING:
    from prose_kernel.language.contracts.compile import ContractProgram
    from prose_kernel.language.contracts.units import FileUnit
    from prose_kernel.language.openprose.tree import Program


def format_file(program: ContractProgram) -> str:
    """The text of a file without errors in its scripts."""
    file, parts, at = program.file, [], 0
    for fence in (fence for unit in file.units for fence in unit.node.fences):
        text = file.source.text[at : fence.inside.start]
        parts += [text, _formatted(file, fence)]
        at = fence.inside.end
    return "".join([*parts, file.source.text[at:]])


def _formatted(file: FileUnit, fence: Block) -> str:
    """The lines of one fence. Several fences of a section stay several, each is formatted by itself."""
    from prose_kernel.language.openprose import format_program, parse

    script = fenced_text(file.source, [(fence.inside, fence.margin)])
    program: Program = parse(script, file.files.script_profile).program
    if not program.items:
        return file.source.slice(fence.inside)
    margin = " " * fence.margin
    return "".join(f"{margin}{line}\n" if line else "\n" for line in format_program(program).splitlines())
