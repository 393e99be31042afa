"""Modules: the targets of imports, and the order in which modules run (docs/reference/vvm.md 9.2, 9.3).

`programs/vvm_imports.py` makes a `Module` of every file; the checker asks for it by the path of the import
(`LoadModule`), and the machine gets it as the `program` of a `LoadedProgram`.

The machine's side: `await host.load(LoadRequest(path, source, at))` for each module import of a text gives a checked
`Module`, or raises `ImportProgramError`. `execution_order(modules)` lists it and everything below it, each module after
its imports. The machine executes each that it has not executed yet in this run; `module.imports` maps the path of a
`ModuleImport` of `module.program` to the module whose exports it takes. A module is the same object as long as neither
its file nor a file below it has changed: "executed already" is a question about the object.
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
    """A module that was read and checked.

    `path` is its identity: absolute, with `.` and `..` resolved in the text, links not resolved. `source.name` is its
    path as people are shown it. `imports` maps each import path of its text, as written, to what it leads to; an import
    that leads nowhere, or back, is missing there and among the `findings`. `findings` are only those of this file.
    `whole` is false if parts of the text could not be read; then it may export more than its contract says.
    """

    path: str
    source: Source
    program: Program
    contract: Contract
    imports: Mapping[str, Module] = field(default_factory=dict)
    findings: tuple[Diagnostic, ...] = ()
    whole: bool = True


LoadModule = Callable[[str], Module | Schema | None]
"""Maps the path of an import to its module; None means that nothing can be said about it. With the prefix
`typed_answers.FILE` it is the path of a JSON Schema (E224 for an unusable one).

Raises `ImportProgramError`: V090 if there is no such module, V201 if it is being loaded already.
"""


def names_file(path: str) -> bool:
    """Whether an import path can lead to a file: relative to the importing one, or absolute (X2)."""
    return path.startswith(("./", "../", "/")) or path[1:3] in (":/", ":\\")


def execution_order(modules: Iterable[Module]) -> tuple[Module, ...]:
    """The modules and everything that they import: each once, after its imports, otherwise in the order of the text.

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
