"""JSON Schemas of typed answers: reads, checks and queries them (docs/how-to/typed-answers.md).

A schema is plain data (parsed JSON) whose root has the type `object`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

MAX_LENGTH: Final = 64_000
"""The maximum length of a schema, in characters: it is part of every request."""
MAX_FIELDS: Final = 500
MAX_DEPTH: Final = 10

FILE_PREFIX: Final = "schema:"
"""The prefix that marks a path as that of a schema, for functions that otherwise load programs."""

WORDS: Final[dict[str, str]] = {"text": "string", "number": "number", "integer": "integer", "boolean": "boolean"}
"""The names of types in programs, with their names in JSON Schema."""

_REPEATED_GROUP: Final = re.compile(r"\)[*+{]|\\[1-9]")
_REFERENCES: Final = ("$ref", "$dynamicRef")
_DEFINITIONS: Final = ("$defs", "definitions")
_ANNOTATIONS: Final = {"title", "description", "default", "examples", "deprecated", "$comment"}
_NAMED_PARTS: Final = ("properties", "patternProperties", "dependentSchemas")
_LISTED_PARTS: Final = ("anyOf", "allOf", "oneOf", "prefixItems")
_SINGLE_PARTS: Final = (
    *("items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else"),
    *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
)
_BOUND_PAIRS: Final = (
    ("minimum", "maximum"),
    ("exclusiveMinimum", "exclusiveMaximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
)
_PYTHON_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def read(text: str) -> dict[str, Any]:
    """Return the schema in the text of a file, with references replaced by their targets. Raises `ValueError` with a
    readable message."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"the schema has {len(text):,} characters; at most {MAX_LENGTH:,} are sent with each request")
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ValueError("the file is not JSON") from None
    if not isinstance(data, dict):
        raise ValueError("a schema is a JSON object")
    return usable(data)


def _no_constant(name: str) -> object:
    raise ValueError(name)


def usable(schema: Schema) -> dict[str, Any]:
    """Return a schema without references and boolean subschemas. Raises `ValueError` for an unusable one."""
    require_usable(schema)
    whole: dict[str, Any] = _inlined(schema, schema)
    return whole


def _inlined(root: Schema, part: Any) -> Any:
    """Return a part of a usable schema without references and definitions."""
    if not isinstance(part, dict):
        return part
    siblings = {key: value for key, value in part.items() if key not in (*_REFERENCES, *_DEFINITIONS)}
    for key, value in siblings.items():
        if key in _NAMED_PARTS and isinstance(value, dict):
            siblings[key] = {name: _as_object(_inlined(root, one)) for name, one in value.items()}
        elif key in _LISTED_PARTS and isinstance(value, list):
            siblings[key] = [_as_object(_inlined(root, one)) for one in value]
        elif key in _SINGLE_PARTS:
            siblings[key] = _inlined(root, value)
    if not any(key in part for key in _REFERENCES):
        return siblings
    found = _inlined(root, resolved(root, part))
    return {**found, **siblings} if siblings.keys() <= _ANNOTATIONS else {"allOf": [found, siblings]}


def _as_object(part: Any) -> Any:
    """Return the object that means the same as `true` or `false` in the place of a schema; other schemas unchanged."""
    return ({} if part else {"not": {}}) if isinstance(part, bool) else part


def require_usable(schema: Schema) -> None:
    """Raise `ValueError` for a schema that is recursive, too large, contradictory or not of an object."""
    if schema.get("type") != "object":
        raise ValueError('the schema must be of an object: `"type": "object"`')
    fields = 0
    agenda: list[tuple[Schema, int, frozenset[str]]] = [(schema, 0, frozenset())]
    while agenda:
        part, depth, within = agenda.pop()
        if depth > MAX_DEPTH:
            raise ValueError(f"the schema is nested more than {MAX_DEPTH} deep")
        fields += 1
        if fields > MAX_FIELDS:
            raise ValueError(f"the schema has more than {MAX_FIELDS} fields")
        reference = part.get("$ref", part.get("$dynamicRef"))
        if reference is not None:
            meant = resolved(schema, part)
            if reference in within:
                raise ValueError(f"the schema is recursive: `{reference}` holds itself")
            agenda.append((meant, depth + 1, within | {reference}))
        _check_part(part)
        agenda.extend((inner, depth + 1, within) for inner in _parts(part))


def resolved(root: Schema, part: Schema) -> Schema:
    """Return the target of a reference in the same file, `part` if it is none. Raises `ValueError` for any other."""
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


def _parts(part: Schema) -> list[Schema]:
    """Return the schemas directly inside a part; definitions count where they are used."""
    groups, lists = [part.get(name) for name in _NAMED_PARTS], [part.get(name) for name in _LISTED_PARTS]
    inner = [one for group in groups if isinstance(group, Mapping) for one in group.values()]
    inner += [one for listed in lists if isinstance(listed, list) for one in listed]
    inner += [part.get(name) for name in _SINGLE_PARTS]
    return [one for one in inner if isinstance(one, Mapping)]


def _check_part(part: Schema) -> None:
    """Raise `ValueError` for a part that no value can satisfy, as far as a few simple tests show."""
    for low, high in _BOUND_PAIRS:
        least, most = part.get(low), part.get(high)
        if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
            raise ValueError(f"the schema contradicts itself: `{low}` is above `{high}`")
    options = part.get("enum", [part["const"]] if "const" in part else None)
    if options is not None and (not isinstance(options, list) or not options):
        raise ValueError("the schema contradicts itself: an `enum` without values")
    kinds = _kinds(part)
    if options is not None and kinds is not None and not any(_has_type(option, kinds) for option in options):
        raise ValueError("the schema contradicts itself: no value of an `enum` has its `type`")
    every = part.get("allOf")
    for one in every if isinstance(every, list) else ():
        others = _kinds(one) if isinstance(one, Mapping) else None
        if kinds is not None and others is not None:
            kinds &= others
            if not kinds:
                raise ValueError("the schema contradicts itself: its `allOf` wants several types at the same time")
        kinds = others if kinds is None else kinds
    _check_fields(part)


def _check_fields(part: Schema) -> None:
    named = part.get("patternProperties")
    for pattern in named if isinstance(named, Mapping) else ():
        if _REPEATED_GROUP.search(pattern):
            raise ValueError(f"the schema has names of fields by a pattern that may take too long: `{pattern}`")
    properties, required = part.get("properties") or {}, part.get("required")
    if not isinstance(required, list) or not isinstance(properties, Mapping):
        return
    closed = part.get("additionalProperties") is False and not part.get("patternProperties")
    for name in required:
        if isinstance(name, str) and properties.get(name, not closed) is False:
            raise ValueError(f"the schema contradicts itself: `{name}` is required but not allowed")


def _kinds(part: Schema) -> set[str] | None:
    """Return the types that a value may have; None for any. An integer is a number, too."""
    kinds = part.get("type")
    if isinstance(kinds, str):
        kinds = [kinds]
    if not isinstance(kinds, list) or not all(isinstance(kind, str) and kind in _PYTHON_TYPES for kind in kinds):
        return None
    return {*kinds, "integer"} if "number" in kinds else set(kinds)


def _has_type(value: object, kinds: set[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in kinds
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return isinstance(value, tuple(kind for name in kinds for kind in _PYTHON_TYPES[name]))


# ---------------------------------------------------------------- building schemas


def optional(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that also allows null."""
    if "enum" in schema:
        return {"type": [schema["type"], "null"], "enum": [*schema["enum"], None]}
    return {"anyOf": [schema, {"type": "null"}]}


def object_of(fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the schema of an object with exactly these fields."""
    return {"type": "object", "properties": dict(fields), "required": list(fields), "additionalProperties": False}


# ---------------------------------------------------------------- queries


def without_null(part: Schema) -> Schema:
    """Return the schema of an optional part without null; other alternatives stay as they are."""
    options = part.get("anyOf")
    if isinstance(options, list) and len(options) == 2 and {"type": "null"} in options:
        return next((one for one in options if one != {"type": "null"} and isinstance(one, Mapping)), part)
    return part


def may_be_null(part: object) -> bool:
    if not isinstance(part, Mapping):
        return False
    kinds = part.get("type")
    return (isinstance(kinds, list) and "null" in kinds) or {"type": "null"} in part.get("anyOf", ())


def fields_of(part: Schema) -> tuple[str, ...] | None:
    """Return the names that an object of this schema can have; None if open, or if it isn't an object."""
    if part.get("type") != "object" or part.get("additionalProperties") is not False:
        return None
    return None if part.get("patternProperties") else tuple(part.get("properties", ()))


def field(part: Schema, name: str) -> Schema | None:
    """Return the schema of a field; None if it has none."""
    found = part.get("properties", {}).get(name)
    return without_null(found) if isinstance(found, Mapping) else None


def item(part: Schema) -> Schema | None:
    """Return the schema of the items of a list, or of the only list in an object; None if it is unknown."""
    if part.get("type") == "object" and fields_of(part) is not None:
        parts = [one if isinstance(one, Mapping) else {} for one in part.get("properties", {}).values()]
        lists = [one for one in parts if one.get("type") == "array"]
        sure = all(one.get("type") is not None for one in parts)
        return item(lists[0]) if len(lists) == 1 and sure else None
    found = part.get("items") if part.get("type") == "array" else None
    return without_null(found) if isinstance(found, Mapping) else None


def type_words(part: Schema) -> str:
    """Return the type as programs write it, on one line: `"a" or "b"`, `[text]`, `{ a: number }`."""
    options = part.get("enum")
    if isinstance(options, list):
        return " or ".join(json.dumps(one, ensure_ascii=False) for one in options)
    inner = without_null(part)
    if inner is not part:
        return f"{type_words(inner)} or null"
    match part.get("type"):
        case "object":
            parts = part.get("properties", {}).items()
            fields = [f"{name}: {type_words(one)}" for name, one in parts if isinstance(one, Mapping)]
            return f"{{ {', '.join(fields)} }}" if fields else "object"
        case "array":
            held = item(part)
            return f"[{type_words(held)}]" if held else "list"
        case kind:
            return next((word for word, name in WORDS.items() if name == kind), "any")
