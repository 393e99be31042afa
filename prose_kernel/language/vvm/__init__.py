"""VVM: source text to trees and diagnostics.

`compile_source` parses and checks a text; `parser.parse` only parses it, `formatter.format_program` writes the tree.
Modules are imported on first use, so that importing the package is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prose_kernel.language.diagnostics import Compiled, Profile
    from prose_kernel.language.source import Source
    from prose_kernel.language.vvm.names import KnownNames
    from prose_kernel.language.vvm.program_interface import LoadModule
    from prose_kernel.language.vvm.tree import Program


def compile_source(
    source: Source,
    *,
    profile: Profile = "default",
    known: KnownNames | None = None,
    load: LoadModule | None = None,
    cell: bool = False,
    pipefail: bool = False,
) -> Compiled[Program]:
    """Parse and check a program, with all findings of docs/reference/vvm.md 10 that need no run. Never raises.

    `known` holds the names that earlier cells have defined, `load` returns the module at a path, `cell` applies the
    rules of 9.6. `profile` and `pipefail` have no effect: VVM has one profile, and no shell commands.
    """
    from prose_kernel.language.diagnostics import Compiled
    from prose_kernel.language.nodes import gc_paused
    from prose_kernel.language.vvm.checker import check
    from prose_kernel.language.vvm.parser import parse

    with gc_paused():
        parsed = parse(source)
        found = check(parsed.program, source, known=known, load=load, cell=cell, syntax_findings=parsed.diagnostics)
    return Compiled(source, parsed.program, found)
