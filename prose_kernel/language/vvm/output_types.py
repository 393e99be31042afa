"""Converts the `output` of an agent, the type of its answers, to a JSON Schema (docs/how-to/typed-answers.md).

The language itself doesn't define this key, so its values are plain data: names of types, lists and objects of them, a
JSON Schema as an object, or the path of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from prose_kernel.language import typed_answers
from prose_kernel.language.vvm.faults import UNKNOWN, Fault

_OR_NULL: Final = " or null"
ACCEPTED: Final = 'for example {verdict: ["approve", "reject"], score: "number", remarks: ["text"]}, or "schema.json"'

Path = tuple[str | int, ...]


class NotAType(Exception):
    """Raised for a value that is not a type; `fault` has its place and the message."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(("output", *path), message, ACCEPTED)


def schema_of(value: Any) -> dict[str, Any] | None:
    """Return the schema of an `output`; None for the path of a schema. Raises `NotAType`."""
    if isinstance(value, str) and value.strip():
        return None
    if not isinstance(value, dict) or not value:
        raise NotAType((), "must be an object of fields and their types, or the path of a JSON Schema")
    written = value.get("type") == "object" and isinstance(value.get("properties"), dict)
    try:
        return typed_answers.usable(value if written else _object_type(value, (), 1))
    except ValueError as problem:
        raise NotAType((), f"cannot be used: {problem}") from None


def _object_type(value: Mapping[str, Any], path: Path, depth: int) -> dict[str, Any]:
    if depth > typed_answers.DEEPEST:
        raise NotAType(path, f"is nested more than {typed_answers.DEEPEST} deep")
    return typed_answers.object_of({name: _type(part, (*path, name), depth) for name, part in value.items()})


def _type(value: Any, path: Path, depth: int) -> dict[str, Any]:
    if value is UNKNOWN:
        return {}
    if isinstance(value, str):
        return _named_type(value, path)
    if isinstance(value, dict) and value:
        return _object_type(value, path, depth + 1)
    if isinstance(value, list) and len(value) == 1:
        return {"type": "array", "items": _type(value[0], (*path, 0), depth + 1)}
    if isinstance(value, list) and value:
        return _enumeration(value, path)
    raise NotAType(path, "is not a type")


def _named_type(value: str, path: Path) -> dict[str, Any]:
    name = value.removesuffix(_OR_NULL)
    if name not in typed_answers.WORDS:
        raise NotAType(path, f'is not a type: "{name}" is none of {", ".join(typed_answers.WORDS)}')
    schema = {"type": typed_answers.WORDS[name]}
    return schema if name == value else typed_answers.optional(schema)


def _enumeration(value: Sequence[Any], path: Path) -> dict[str, Any]:
    """Return the schema of one of several texts; `()` among them makes the field optional."""
    texts = [one for one in value if one is not None]
    for at, one in enumerate(value):
        if one is not None and one is not UNKNOWN and not isinstance(one, str):
            raise NotAType((*path, at), "is not a text that could be the answer")
    if UNKNOWN in texts:
        return {}
    if len(set(texts)) < len(texts):
        raise NotAType(path, "gives an option twice")
    schema = {"type": "string", "enum": texts}
    return schema if len(texts) == len(value) else typed_answers.optional(schema)
