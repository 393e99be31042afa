"""Modules: the targets of imports, and the order in which modules run (docs/reference/vvm.md 9.2, 9.3).

`programs/vvm_imports.py` creates the `Module` of a file. The checker gets it by the path of an import (`LoadModule`),
the machine as the `program` of a `LoadedProgram`.

In the machine, `await host.load(LoadRequest(path, source, at))` for each module import of a text returns a checked
`Module`, or raises `ImportProgramError`. `execution_order(modules)` lists the modules and their imports, each module
after its imports. The machine executes those that it has not executed yet in this run; `module.imports` maps the path
of each `ModuleImport` in `module.program` to the module whose export it takes. A module remains the same object as long
as neither its file nor the file of an import changes, so the machine remembers objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from prose_kernel.language.diagnostics import Diagnostic
from prose_kernel.language.source import Source
from prose_kernel.language.typed_answers import Schema
from prose_kernel.language.vvm.contract import Contract
from prose_kernel.language.vvm.tree import Program


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """A module that was parsed and checked.

    `path` is its identity: absolute, with `.` and `..` resolved in the text, links not resolved. `source.name` is its
    path for users. `imports` maps each import path, as written, to its module; a failed or circular import is missing
    there and reported in `findings`, which are only those of this file. `whole` is False if parts of the text could not
    be read; then it may export more than its contract says.
    """

    path: str
    source: Source
    program: Program
    contract: Contract
    imports: Mapping[str, Module] = field(default_factory=dict)
    findings: tuple[Diagnostic, ...] = ()
    whole: bool = True


LoadModule = Callable[[str], Module | Schema | None]
"""Returns the module at the path of an import; None if the import cannot be checked. With the prefix
`typed_answers.FILE_PREFIX` it returns the JSON Schema at a path (E224 for an unusable one).

Raises `ImportProgramError`: V090 if there is no such module, V201 if it is already being loaded.
"""


def names_file(path: str) -> bool:
    """Return whether an import path can be a file: relative to the importing file, or absolute (X2)."""
    return path.startswith(("./", "../", "/")) or path[1:3] in (":/", ":\\")


def execution_order(modules: Iterable[Module]) -> tuple[Module, ...]:
    """Return the modules and everything that they import: each once, after its imports, otherwise in source order.

    Not recursive, because imports nest to any depth.
    """
    done: dict[Module, None] = {}
    visits = [iter(tuple(modules))]
    path: list[Module] = []
    entered: set[Module] = set()
    while visits:
        module = next(visits[-1], None)
        if module is not None:
            if module not in entered:
                entered.add(module)
                path.append(module)
                visits.append(iter(tuple(module.imports.values())))
            continue
        visits.pop()
        if path:
            done[path.pop()] = None
    return tuple(done)
