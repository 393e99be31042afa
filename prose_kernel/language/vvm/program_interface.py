"""The static interface of a VVM program: its agents, functions, exports and imports; and the modules that it imports.

`programs/vvm_imports.py` creates the `CheckedModule` of a file (docs/reference/vvm.md 9.2, 9.3). The checker gets it by
the path of an import (`LoadModule`), the machine as the `program` of a `LoadedProgram`.

In the machine, `await host.load(LoadRequest(path, source, at))` for each module import of a text returns a
`CheckedModule`, or raises `ImportProgramError`. `execution_order(modules)` lists the modules and their imports, each
module after its imports. The machine executes those that it has not executed yet in this run; `module.imports` maps the
path of each `ModuleImport` in `module.program` to the module whose export it takes. A module remains the same object as
long as neither its file nor the file of an import changes, so the machine remembers objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec import field as struct_field

from prose_kernel.language.diagnostics import Diagnostic
from prose_kernel.language.source import Source
from prose_kernel.language.typed_answers import Schema
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.names import KnownNames
from prose_kernel.language.vvm.tree import Name, Program


@dataclass(frozen=True, slots=True)
class ProgramInterface:
    """The names of a program (docs/reference/vvm.md 9.2): everything in source order, each name once.

    `agents` holds the declared agents, `functions` the parameters of the module's functions. Other modules can import
    `exports` and `exported_agents`. `imports` holds the paths of modules, `skills` the source of each skill.
    """

    agents: tuple[str, ...] = ()
    functions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exports: tuple[str, ...] = ()
    exported_agents: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    skills: Mapping[str, str] = field(default_factory=dict)


def contract(program: Program) -> ProgramInterface:
    """Return the contract of a program, as far as its text could be read."""
    items = program.items
    exported = [item for item in items if isinstance(item, tree.Export)]
    return ProgramInterface(
        _once(item.name.id for item in items if isinstance(item, tree.AgentDeclaration)),
        {item.name.id: tuple(p.id for p in item.parameters) for item in items if isinstance(item, tree.Def)},
        _once(name.id for item in items for name in exported_names(item)),
        _once(item.name.id for item in exported if item.agent),
        _once(item.path.value for item in items if isinstance(item, tree.ModuleImport)),
        {item.name.value: item.source.value for item in reversed(items) if isinstance(item, tree.SkillImport)},
    )


def known_in(program: Program, load: Callable[[str], object]) -> KnownNames:
    """Return the names that any part of a program may refer to: its agents, functions, imports and skills."""
    own = contract(program)
    imports = [item for item in program.items if isinstance(item, tree.ModuleImport)]
    agents = [*own.agents, *(item.local.id for item in imports if item.agent)]
    return KnownNames(
        frozenset(item.local.id for item in imports if not item.agent), own.functions, dict.fromkeys(agents), own.skills
    )


def exported_names(item: tree.Statement) -> Iterator[Name]:
    """Yield the names of the values that `export name` or (the keys of) `export pack(...)` exports (9.3)."""
    if isinstance(item, tree.Export):
        if not item.agent:
            yield item.name
    elif isinstance(item, tree.ExportPack):
        for argument in item.arguments:
            if isinstance(argument, tree.Name | tree.It):
                yield argument if isinstance(argument, tree.Name) else Name("it", span=argument.span)
        for keyword in item.keywords:
            yield Name(keyword.name, span=keyword.span)


def report(program: Program, name: str, warnings: int = 0) -> str:
    """Return the output of `prose compile` for a program without errors (docs/reference/vvm.md 8): counts and
    exports."""
    head = f"\N{WARNING SIGN} {name} has {_count(warnings, 'warning')}"
    if not warnings:
        head = f"\N{WHITE HEAVY CHECK MARK} {name} is valid"
    own = contract(program)
    counts = f"{_count(len(own.agents), 'agent')}, {_count(len(own.functions), 'function')}"
    exports = ", ".join([*own.exports, *(f"@{agent}" for agent in own.exported_agents)]) or "nothing"
    return f"{head}\n{counts}\nexports: {exports}\n"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


# ---------------------------------------------------------------- modules


class CheckedModule(Struct, frozen=True, eq=False):
    """A module that was parsed and checked.

    `path` is its identity: absolute, with `.` and `..` resolved in the text, links not resolved. `source.name` is its
    path for users. `imports` maps each import path, as written, to its module; a failed or circular import is missing
    there and reported in `findings`, which are only those of this file. `whole` is False if parts of the text could not
    be read; then it may export more than its contract says.
    """

    path: str
    source: Source
    program: Program
    contract: ProgramInterface
    imports: Mapping[str, CheckedModule] = struct_field(default_factory=dict)
    findings: tuple[Diagnostic, ...] = ()
    whole: bool = True


LoadModule = Callable[[str], CheckedModule | Schema | None]
"""Returns the module at the path of an import; None if the import cannot be checked. With the prefix
`typed_answers.FILE_PREFIX` it returns the JSON Schema at a path (E224 for an unusable one).

Raises `ImportProgramError`: V090 if there is no such module, V201 if it is already being loaded.
"""


def names_file(path: str) -> bool:
    """Return whether an import path can be a file: relative to the importing file, or absolute (X2)."""
    return path.startswith(("./", "../", "/")) or path[1:3] in (":/", ":\\")


def execution_order(modules: Iterable[CheckedModule]) -> tuple[CheckedModule, ...]:
    """Return the modules and everything that they import: each once, after its imports, otherwise in source order.

    Not recursive, because imports nest to any depth.
    """
    done: dict[CheckedModule, None] = {}
    visits = [iter(tuple(modules))]
    path: list[CheckedModule] = []
    entered: set[CheckedModule] = set()
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
