"""The arguments of a tool call, checked against the schema that the model was told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from prose_kernel.sessions.tools.tool import ToolFailed

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
}


def check(schema: Mapping[str, Any], arguments: Mapping[str, object]) -> None:
    """Raises `ToolFailed` that names the first thing wrong: a missing, unknown or ill-typed argument.

    Knows what our tools' schemas use: `properties`, `required`, `additionalProperties`, `type`, `items`, `minimum`,
    `maximum`, `enum`. The rest is the tool's own business.
    """
    properties: Mapping[str, Any] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in arguments:
            raise ToolFailed(f"invalid arguments: '{name}' is missing")
    for name, value in arguments.items():
        if name in properties:
            _check_value(name, properties[name], value)
        elif schema.get("additionalProperties", True) is False:
            raise ToolFailed(f"invalid arguments: there is no '{name}' (known: {', '.join(properties) or 'none'})")


def _check_value(name: str, schema: Mapping[str, Any], value: object, of: str = "") -> None:
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        wrong_boolean = isinstance(value, bool) and kind != "boolean"
        if not isinstance(value, _TYPES[kind]) or wrong_boolean:
            raise ToolFailed(f"invalid arguments: {of}'{name}' must be {'an' if kind[0] in 'aeiou' else 'a'} {kind}")
    if isinstance(value, (int, float)):
        for limit, words, broken in (("minimum", "at least", value.__lt__), ("maximum", "at most", value.__gt__)):
            if limit in schema and broken(schema[limit]) is True:
                raise ToolFailed(f"invalid arguments: '{name}' must be {words} {schema[limit]}")
    if "enum" in schema and value not in schema["enum"]:
        raise ToolFailed(f"invalid arguments: '{name}' must be one of {', '.join(map(str, schema['enum']))}")
    if isinstance(value, Sequence) and not isinstance(value, str) and "items" in schema:
        for item in value:
            _check_value(name, schema["items"], item, "every item of ")


def text(arguments: Mapping[str, object], name: str, default: str | None = None, *, empty: bool = False) -> str:
    """A text argument. Raises `ToolFailed` when it is missing or, unless `empty` is allowed, has no characters."""
    value = arguments.get(name, default)
    if not isinstance(value, str) or not (value or empty or default == ""):
        raise ToolFailed(f"invalid arguments: '{name}' must be a non-empty text")
    return value


def number(arguments: Mapping[str, object], name: str, default: int) -> int:
    value = arguments.get(name, default)
    return value if isinstance(value, int) else default


def flag(arguments: Mapping[str, object], name: str) -> bool:
    return arguments.get(name) is True
