"""Checks the arguments of a tool call against the schema that the model was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from prose_kernel.models.tools.tool import ToolFailed

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
}


def check(
    schema: Mapping[str, Any], arguments: Mapping[str, object], what: str = "arguments", *, closed: bool = False
) -> None:
    """Raise `ToolFailed` naming the first error: a missing, unknown or ill-typed argument.

    Supports the keywords of our tools' schemas: `properties`, `required`, `additionalProperties`, `type`, `items`,
    `minimum`, `maximum`, `enum`. The tool checks everything else. The schema may come from a third party; `what` names
    the values in messages. `closed` refuses unknown arguments even if the schema allows them.
    """
    fields = schema.get("properties")
    properties: Mapping[str, Any] = fields if isinstance(fields, Mapping) else {}
    for name in _several(schema.get("required")):
        if name not in arguments:
            raise ToolFailed(f"invalid {what}: '{name}' is missing")
    for name, value in arguments.items():
        if name in properties:
            wrong = _wrong(name, properties[name], value)
            if wrong is not None:
                raise ToolFailed(f"invalid {what}: {wrong}")
        elif closed or schema.get("additionalProperties", True) is False:
            raise ToolFailed(f"invalid {what}: there is no '{name}' (known: {', '.join(properties) or 'none'})")


def _wrong(name: str, schema: object, value: object, of: str = "") -> str | None:
    """Return what is wrong with a value; None if nothing is."""
    if not isinstance(schema, Mapping):
        return None
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        wrong_boolean = isinstance(value, bool) and kind != "boolean"
        if not isinstance(value, _TYPES[kind]) or wrong_boolean:
            return f"{of}'{name}' must be {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    if isinstance(value, (int, float)):
        for limit, words, broken in (("minimum", "at least", value.__lt__), ("maximum", "at most", value.__gt__)):
            if limit in schema and broken(schema[limit]) is True:
                return f"'{name}' must be {words} {schema[limit]}"
    known = _several(schema.get("enum"))
    if known and value not in known:
        return f"'{name}' must be one of {', '.join(map(str, known))}"
    if isinstance(value, Sequence) and not isinstance(value, str) and "items" in schema:
        for item in value:
            wrong = _wrong(name, schema["items"], item, "every item of ")
            if wrong is not None:
                return wrong
    return None


def _several(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def text(arguments: Mapping[str, object], name: str, default: str | None = None, *, empty: bool = False) -> str:
    """Return a text argument. Raises `ToolFailed` if it is missing or, unless `empty` is allowed, has no characters."""
    value = arguments.get(name, default)
    if not isinstance(value, str) or not (value or empty or default == ""):
        raise ToolFailed(f"invalid arguments: '{name}' must be a non-empty text")
    return value


def counted(arguments: Mapping[str, object], name: str, default: int) -> int:
    """Return an integer argument of at least 1. Raises `ToolFailed` for a smaller one."""
    value = arguments.get(name, default)
    if not isinstance(value, int):
        return default
    if name in arguments and value < 1:
        raise ToolFailed(f"invalid arguments: '{name}' must be at least 1")
    return value


def flag(arguments: Mapping[str, object], name: str) -> bool:
    return arguments.get(name) is True
