"""Writes Python values as expressions of a program, and makes the edits that give a variant of an evaluation other
prompts and constants.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from prose_kernel.errors import UsageError
from prose_kernel.language.fixes import Edit
from prose_kernel.language.openprose.keywords import KEYWORDS
from prose_kernel.language.openprose.tree import Agent, Let, Program
from prose_kernel.language.python_literals import GivenFile, Spelling
from prose_kernel.language.source import Span

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "{": "\\{", "}": "\\}"})
_NAME = re.compile(r"[A-Za-z_][\w-]*\Z", re.ASCII)
_WORD_PROPERTIES = ("model", "persist")
"""Properties whose values are written as words, without quotes."""


def _text(value: str) -> str:
    return f'"{value.translate(_ESCAPES)}"'


def _key(name: str) -> str:
    return name if _NAME.match(name) and name not in KEYWORDS else _text(name)


expression = Spelling("Prose", "null", _text, _key).expression


def binding(name: str, value: object, what: str) -> str:
    """Return the statement that binds a Python value to a name. Raises `UsageError` with a message about `what`."""
    if isinstance(value, GivenFile):  # bound to a command that prints the file
        return f"let {name} = exec {expression(f'cat {shlex.quote(value.path)}', what)}\n"
    return f"let {name} = {expression(value, what)}\n"


def change_directory(directory: str) -> str:
    """Return the statement that changes the directory of the commands below it."""
    return f"exec {expression(f'cd {shlex.quote(directory)}', 'the directory')}"


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
    """Yield the edits that set properties of an agent. Strings are texts of a program, so `{name}` is interpolated.
    Raises `UsageError` if a value cannot be written."""
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
    if key in _WORD_PROPERTIES and isinstance(value, str) and value.isidentifier():
        return value
    if isinstance(value, str):
        return expression(value, key).replace("\\{", "{").replace("\\}", "}")
    if isinstance(value, dict):
        raise UsageError(f"{key}: a table cannot be replaced", hint="write another program, and name it: program = ...")
    return expression(value, key)
