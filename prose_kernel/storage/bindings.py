"""Renders and parses binding files (openprose.md 5.5, 7.4).

Only LF ends a line. The value follows the header verbatim, so the file ends with the value.
"""

from __future__ import annotations

import json
import re
from typing import Final, Literal, NamedTuple, cast

from msgspec import Struct

from prose_kernel.errors import StateError
from prose_kernel.language.structs import replace
from prose_kernel.language.text import code_fence
from prose_kernel.runtime.json_data import mapped
from prose_kernel.runtime.ports import Binding
from prose_kernel.runtime.structured_text import split_source, split_value
from prose_kernel.runtime.structured_text import value_of as value_of
from prose_kernel.runtime.values import ErrorValue, ExecText, LanguageValue, Reference, Value, full_text

Kind = Literal["input", "output", "let", "const"]
_KINDS: Final = ("input", "output", "let", "const")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


class BindingFile(Struct, frozen=True):
    """What was read from a binding file."""

    name: str
    kind: Kind
    value: str
    execution_id: int | None = None


class StoredBinding(NamedTuple):
    """A stored binding of a run; `kind` is `input`, `output`, `let` or `const`."""

    name: str
    kind: str
    value: str


# ---------------------------------------------------------------- rendering


def render(binding: Binding) -> str:
    """Return the complete file of a binding: header, separator, value."""
    return header(binding) + body(binding.value)


def header(binding: Binding) -> str:
    """Return the part before the value: the lines of 7.4 and, for the value of an `exec`, the metadata of 5.5."""
    key = binding.key
    lines = [f"# {key.name}", "", f"kind: {kind_of(binding)}"]
    if key.execution_id is not None:
        lines.append(f"execution_id: {key.execution_id}")
    if binding.label is not None:
        lines.append(f"label: {binding.label}")
    fence = code_fence(binding.source)
    lines += ["", "source:", f"{fence}prose", binding.source, fence, ""]
    if isinstance(binding.value, ExecText) and (metadata := command_facts(binding.value)):
        lines += [*(field_text(name, value) for name, value in metadata.items()), ""]
    return "\n".join((*lines, "---", "", ""))


def body(value: Value) -> str:
    """Return a value as stored (3.2): verbatim text, a JSON scalar, JSON with references, or the fields of an error.

    A top-level reference is read; exceptions of its `read` propagate.
    """
    match value:
        case ErrorValue():
            return "\n".join(field_text(name, item) for name, item in value.fields.items()) + "\n"
        case list() | dict():
            return json.dumps(stored(value), ensure_ascii=False, separators=(",", ":"))
        case _:
            return full_text(value)


def stored(value: Value) -> object:
    """Return plain JSON data in which each member that is a separate binding becomes `{"$ref": path}` (3.2)."""
    return mapped(value, _stored)


def _stored(value: Value) -> object:
    match value:
        case Reference():
            return {"$ref": value.location}
        case ExecText():
            return {"$ref": value.location} if value.location else value.text
        case ErrorValue():
            return dict(value.fields)
        case LanguageValue():
            return str(value)
        case _:
            return value


def field_text(name: str, value: object) -> str:
    """Return `name: value` (5.5): one line of text unchanged, several after `|` and indented, other values as JSON."""
    if not isinstance(value, str):
        return f"{name}: {json.dumps(value, ensure_ascii=False)}"
    if not value:
        return f"{name}: (empty)"
    line = value.removesuffix("\n")
    if line and line == line.strip() and line not in ("|", "(empty)") and len(line.splitlines()) == 1:
        return f"{name}: {line}"
    return f"{name}: |\n  " + _LINE_END.sub(lambda end: f"{end[0]}  ", line)


def with_value(binding: Binding) -> Binding:
    """Return a binding with the value of its reference, if it has one: the referenced binding may change later."""
    return replace(binding, value=binding.value.read()) if isinstance(binding.value, Reference) else binding


def kind_of(binding: Binding) -> Kind:
    """Return the kind with which a binding is stored."""
    # 7.4 stores an error as a constant, unless it is an input or output of the program.
    return "const" if isinstance(binding.value, ErrorValue) and binding.kind == "let" else binding.kind


def command_facts(value: ExecText) -> dict[str, object]:
    """Return the facts about a command that are kept in addition to its output (5.5)."""
    result = value.result
    found: dict[str, object] = {} if value.bare else {"exit_code": result.exit_code, "stderr": result.stderr}
    if result.stdout_truncated:
        found["stdout_truncated"] = True
    if value.bare:
        return found
    if result.stderr_truncated:
        found["stderr_truncated"] = True
    if result.timed_out:
        found["timed_out"] = True
    if result.signal is not None:
        found["signal"] = result.signal
    return found


# ---------------------------------------------------------------- parsing


def parse(text: str) -> BindingFile:
    """Parse a binding file. Raises `StateError` (E219), which names the missing part."""
    head, fence, _, rest = split_source(text)
    top = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
    kind = top.get("kind", "")
    if not head[0].startswith("# ") or kind not in _KINDS:
        raise StateError("not a binding file: no title or kind line")
    if fence is None:
        raise StateError("not a binding file: no source block")
    _, value = split_value(rest)
    identity = top.get("execution_id")
    if value is None or (identity is not None and not identity.isdecimal()):
        raise StateError("not a binding file: no separator line, or a bad execution id")
    return BindingFile(head[0][2:], cast("Kind", kind), value, None if identity is None else int(identity))
