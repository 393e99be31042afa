"""JSON Schemas of typed answers: what one may be, and what a field of one is (docs/typed-answers.md).

A schema is the plain data of a JSON Schema whose root is an object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

LARGEST: Final = 64_000
"""Characters of a schema at most: it is a part of every request."""
MOST_FIELDS: Final = 500
DEEPEST: Final = 10

WORDS: Final[dict[str, str]] = {"text": "string", "number": "number", "integer": "integer", "boolean": "boolean"}
"""The words for types, and their names in JSON Schema."""

_SCHEMAS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS: Final = ("anyOf", "allOf", "oneOf", "prefixItems")
_SINGLE: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_BOUNDS: Final = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
)
_PYTHON: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def read(text: str) -> Schema:
    """The schema in the text of a file. Raises `ValueError`, with a sentence for people."""
    if len(text) > LARGEST:
        raise ValueError(f"the schema has {len(text):,} characters; at most {LARGEST:,} are sent with each request")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("the file is not JSON") from None
    if not isinstance(data, dict):
        raise ValueError("a schema is a JSON object")
    require_usable(data)
    return data


def require_usable(schema: Schema) -> None:
    """Raise `ValueError` for a schema that is recursive, too large, contradicts itself or does not want an object."""
    if schema.get("type") != "object":
        raise ValueError('the schema must be of an object: `"type": "object"`')
    fields = 0
    agenda: list[tuple[Schema, int, frozenset[str]]] = [(schema, 0, frozenset())]
    while agenda:
        part, depth, within = agenda.pop()
        if depth > DEEPEST:
            raise ValueError(f"the schema is nested more than {DEEPEST} deep")
        fields += 1
        if fields > MOST_FIELDS:
            raise ValueError(f"the schema has more than {MOST_FIELDS} fields")
        reference = part.get("$ref", part.get("$dynamicRef"))
        if reference is not None:
            if reference in within:
                raise ValueError(f"the schema is recursive: `{reference}` holds itself")
            agenda.append((resolved(schema, part), depth + 1, within | {reference}))
        _agrees(part)
        agenda.extend((inner, depth + 1, within) for inner in _parts(part))


def resolved(root: Schema, part: Schema) -> Schema:
    """A part of a schema, or what it refers to in the same file. Raises `ValueError` for any other reference."""
    reference = part.get("$ref", part.get("$dynamicRef"))
    if reference is None:
        return part
    if reference == "#":
        return root
    if not isinstance(reference, str) or not reference.startswith("#/"):
        raise ValueError(f"the schema refers to something outside: `{reference}`")
    found: object = root
    for step in reference[2:].split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        found = found.get(step) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        raise ValueError(f"the schema refers to what it does not hold: `{reference}`")
    return found


def _parts(part: Schema) -> Iterator[Schema]:
    for name in _SCHEMAS[:2] + _SCHEMAS[4:]:  # definitions count where they are used
        group = part.get(name)
        if isinstance(group, Mapping):
            yield from (inner for inner in group.values() if isinstance(inner, Mapping))
    for name in _LISTS:
        listed = part.get(name)
        if isinstance(listed, list):
            yield from (inner for inner in listed if isinstance(inner, Mapping))
    for name in _SINGLE:
        inner = part.get(name)
        if isinstance(inner, Mapping):
            yield inner


def _agrees(part: Schema) -> None:
    """Raise `ValueError` for what no value can satisfy, as far as that can be seen."""
    for low, high in _BOUNDS:
        least, most = part.get(low), part.get(high)
        if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
            raise ValueError(f"the schema contradicts itself: `{low}` is above `{high}`")
    options, kinds = part.get("enum"), part.get("type")
    if options is not None and (not isinstance(options, list) or not options):
        raise ValueError("the schema contradicts itself: an `enum` without values")
    if options is not None and kinds is not None:
        listed = kinds if isinstance(kinds, list) else [kinds]
        known = tuple(kind for name in listed for kind in _PYTHON.get(name, ()) if isinstance(name, str))
        if known and not any(isinstance(option, known) for option in options):
            raise ValueError("the schema contradicts itself: no value of an `enum` has its `type`")
    properties, required = part.get("properties"), part.get("required")
    if part.get("additionalProperties") is False and isinstance(required, list):
        for name in required:
            if name not in (properties or {}) and not part.get("patternProperties"):
                raise ValueError(f"the schema contradicts itself: `{name}` is required but not allowed")


# ---------------------------------------------------------------- making one


def optional(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of what may also be null."""
    if "enum" in schema:
        return {"type": [schema["type"], "null"], "enum": [*schema["enum"], None]}
    return {"anyOf": [schema, {"type": "null"}]}


def object_of(fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The schema of an object with exactly these fields."""
    return {
        "type": "object",
        "properties": dict(fields),
        "required": list(fields),
        "additionalProperties": False,
    }


# ---------------------------------------------------------------- what is known about fields


def without_null(part: Schema) -> Schema:
    """What an optional part is when it is there; other alternatives stay as they are."""
    options = part.get("anyOf")
    if isinstance(options, list) and len(options) == 2 and {"type": "null"} in options:
        return next((one for one in options if one != {"type": "null"}), part)
    return part


def fields_of(part: Schema) -> tuple[str, ...] | None:
    """The names that an object of this schema can have; None where that is open, or it is no object."""
    if part.get("type") != "object" or part.get("additionalProperties") is not False:
        return None
    return None if part.get("patternProperties") else tuple(part.get("properties", ()))


def field(part: Schema, name: str) -> Schema | None:
    """The schema of a field; None when nothing is known of it."""
    found = part.get("properties", {}).get(name)
    return without_null(found) if isinstance(found, Mapping) else None


def item(part: Schema) -> Schema | None:
    """The schema of what a list holds, or the only list in an object; None when nothing is known."""
    if part.get("type") == "object" and fields_of(part) is not None:
        lists = [one for one in part["properties"].values() if one.get("type") == "array"]
        sure = all(one.get("type") is not None for one in part["properties"].values())
        return item(lists[0]) if len(lists) == 1 and sure else None
    found = part.get("items") if part.get("type") == "array" else None
    return without_null(found) if isinstance(found, Mapping) else None
