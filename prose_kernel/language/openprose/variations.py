"""A program with other prompts and other constants: the edits that a variant of an evaluation makes in its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prose_kernel.errors import UsageError
from prose_kernel.language.fixes import Edit
from prose_kernel.language.openprose.literals import expression
from prose_kernel.language.openprose.tree import Agent, Let, Program
from prose_kernel.language.source import Span

_WORDS = ("model", "persist")
"""Properties whose values are words, not texts."""


def constants(program: Program) -> Mapping[str, Span]:
    """Return the names that a program binds to a value at its top level, with the span of that value."""
    found: dict[str, Span] = {}
    for item in program.items:
        if isinstance(item, Let) and not item.destructured:
            found.setdefault(item.names[0].id, item.value.span)
    return found


def agents(program: Program) -> tuple[str, ...]:
    return tuple(item.name.id for item in program.items if isinstance(item, Agent))


def with_agent(program: Program, name: str, properties: Mapping[str, object]) -> Iterator[Edit]:
    """Other properties for an agent; texts are written as in a program, so `{name}` is a value. Raises `UsageError`."""
    for agent in program.items:
        if not isinstance(agent, Agent) or agent.name.id != name:
            continue
        own = {one.name.id: one.value.span for one in agent.properties}
        added = ""
        for key, value in properties.items():
            written = _written(key, value)
            if key in own:
                yield Edit(own[key], written)
            else:
                added += f"\n  {key}: {written}"
        if added:
            end = max([agent.name.span.end, *(span.end for span in own.values())])
            colon = "" if own else ":"
            yield Edit(Span(end, end), colon + added)


def _written(key: str, value: object) -> str:
    if key in _WORDS and isinstance(value, str) and value.isidentifier():
        return value
    if isinstance(value, str):
        return expression(value, key).replace("\\{", "{").replace("\\}", "}")
    if isinstance(value, dict):
        raise UsageError(f"{key}: a table cannot be replaced", hint="write another program, and name it: program = ...")
    return expression(value, key)
