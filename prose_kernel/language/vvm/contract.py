"""The static interface of a VVM program: its agents, functions, exports and imports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.names import Known
from prose_kernel.language.vvm.tree import Name, Program


@dataclass(frozen=True, slots=True)
class Contract:
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


def contract(program: Program) -> Contract:
    """Return the contract of a program, as far as its text could be read."""
    items = program.items
    exported = [item for item in items if isinstance(item, tree.Export)]
    return Contract(
        _once(item.name.id for item in items if isinstance(item, tree.AgentDeclaration)),
        {item.name.id: tuple(p.id for p in item.parameters) for item in items if isinstance(item, tree.Def)},
        _once(name.id for item in items for name in exported_names(item)),
        _once(item.name.id for item in exported if item.agent),
        _once(item.path.value for item in items if isinstance(item, tree.ModuleImport)),
        {item.name.value: item.source.value for item in reversed(items) if isinstance(item, tree.SkillImport)},
    )


def known_in(program: Program, load: Callable[[str], object]) -> Known:
    """Return the names that any part of a program may refer to: its agents, functions, imports and skills."""
    own = contract(program)
    imports = [item for item in program.items if isinstance(item, tree.ModuleImport)]
    agents = [*own.agents, *(item.local.id for item in imports if item.agent)]
    return Known(
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
