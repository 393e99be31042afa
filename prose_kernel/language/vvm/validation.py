"""What `prose compile` prints for a valid program: agents, functions and exports (docs/reference/vvm.md 8)."""

from __future__ import annotations

from collections.abc import Iterator

from prose_kernel.language.vvm import tree

VALID = "\N{WHITE HEAVY CHECK MARK}"


def report(program: tree.Program, name: str) -> str:
    """Three lines: that it is valid, how many agents and functions it declares, and what it exports."""
    agents = sum(isinstance(item, tree.AgentDeclaration) for item in program.items)
    functions = sum(isinstance(item, tree.Def) for item in program.items)
    exported = ", ".join(dict.fromkeys(exports(program))) or "nothing"
    counts = f"{_count(agents, 'agent')}, {_count(functions, 'function')}"
    return f"{VALID} {name} is valid\n{counts}\nexports: {exported}\n"


def exports(program: tree.Program) -> Iterator[str]:
    """The names of the exports in order; those of agents as they are written, with `@`."""
    for item in program.items:
        match item:
            case tree.Export():
                yield f"@{item.name.id}" if item.agent else item.name.id
            case tree.ExportPack():
                yield from (one.id for one in item.arguments if isinstance(one, tree.Name))
                yield from (one.name for one in item.keywords)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number != 1 else ''}"
