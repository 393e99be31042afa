"""Imported programs: how `use` finds them, what is known about each (openprose.md 6.1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.contract import contract, slug
from prose_kernel.language.openprose.names import Contract
from prose_kernel.language.source import Source
from prose_kernel.machine.openprose.failures import located
from prose_kernel.machine.openprose.runs import ExecutionContext
from prose_kernel.runtime.trampoline import call


@dataclass(frozen=True, slots=True)
class LoadedProgram:
    """A program that a `use` path led to: checked tree, source, and the two parts of its directory name (6.5)."""

    program: tree.Program
    source: Source
    handle: str
    slug: str


LoadProgram = Callable[[str, Source], Awaitable[LoadedProgram]]
"""Resolves a `use` path as written in a source. Raises `ImportProgramError` (E215, E112)."""


@dataclass(slots=True)
class ImportedProgram:
    """An entry of the import registry; `imports` are those of the program itself, loaded already."""

    alias: str
    path: str
    loaded: LoadedProgram
    contract: Contract
    imports: dict[str, ImportedProgram] = field(default_factory=dict)

    @property
    def source(self) -> Source:
        return self.loaded.source


async def register(s: ExecutionContext, node: tree.Use) -> ImportedProgram:
    """Load a program and all that it imports, depth first. Raises E112, E215 at the `use`."""
    try:
        return await call(_load(s, node, s.source, (s.source,)))
    except ImportProgramError as error:
        raise located(s, error, node.path) from None


async def _load(s: ExecutionContext, node: tree.Use, importer: Source, chain: tuple[Source, ...]) -> ImportedProgram:
    path = node.path.raw
    if s.host.load is None:
        raise ImportProgramError(f"program '{path}' cannot be loaded: there is nothing to load programs with")
    await s.admitted()
    loaded = await s.outside(s.host.load(path, importer))
    if loaded.source in chain:
        names = [source.name for source in chain[chain.index(loaded.source) :]]
        cycle = " -> ".join([*names, loaded.source.name])
        raise ImportProgramError(f"import cycle: {cycle}", code="E112")
    alias = node.alias.id if node.alias is not None else slug(path) or loaded.slug
    entry = ImportedProgram(alias, path, loaded, contract(loaded.program))
    for item in loaded.program.items:
        if isinstance(item, tree.Use):
            inner = await call(_load(s, item, loaded.source, (*chain, loaded.source)))
            entry.imports[inner.alias] = inner
    return entry
