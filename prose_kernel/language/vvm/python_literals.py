"""Writes Python values as expressions, which have no sign and no exponent (docs/reference/vvm.md 1.4), and makes the
edits by which a variant in an evaluation changes a program's prompts and constants."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from prose_kernel.language.fixes import Edit
from prose_kernel.language.python_literals import Spelling
from prose_kernel.language.source import Span
from prose_kernel.language.vvm.tree import AgentDeclaration, Assign, Program

expression = Spelling(
    "VVM", "()", json.dumps, json.dumps, "(0 - {})", lambda file: {"ref": file.path, "summary": file.description}
).expression


def binding(name: str, value: object, label: str) -> str:
    """Return the statement that binds a Python value to a name. Raises `UsageError`, which begins with `label`."""
    return f"{name} = {expression(value, label)}\n"


def constants(program: Program) -> Mapping[str, Span]:
    """Return the names that a program binds to a value at its top level, with the span of that value."""
    found: dict[str, Span] = {}
    for item in program.items:
        if isinstance(item, Assign):
            found.setdefault(item.target.id, item.value.span)
    return found


def agents(program: Program) -> tuple[str, ...]:
    return tuple(item.name.id for item in program.items if isinstance(item, AgentDeclaration))


def with_agent(program: Program, name: str, properties: Mapping[str, object]) -> Iterator[Edit]:
    """Yield the edits that give an agent other properties."""
    for agent in program.items:
        if not isinstance(agent, AgentDeclaration) or agent.name.id != name:
            continue
        own = {one.name: one.value.span for one in agent.keywords}
        for key, value in properties.items():
            if key in own:
                yield Edit(own[key], expression(value, key))
        added = "".join(f"{key}={expression(value, key)}, " for key, value in properties.items() if key not in own)
        if added:
            at = agent.keywords[0].span.start if agent.keywords else agent.span.end - 1
            yield Edit(Span(at, at), added if agent.keywords else added.removesuffix(", "))
