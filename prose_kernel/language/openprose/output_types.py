"""Converts the fields and types of `output:` to a JSON Schema (docs/how-to/typed-answers.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prose_kernel.language import typed_answers
from prose_kernel.language.nearest import nearest_hint
from prose_kernel.language.openprose import tree
from prose_kernel.language.typed_answers import Schema

_TYPES: Final = 'one of text, number, integer, boolean, "a" or "b", [text], { a: text }'
EXAMPLE: Final = "output: { verdict: text, score: number }"


class NotAType(Exception):
    """Raised for a node that isn't a valid type, with a message and a hint for the user."""

    def __init__(self, node: tree.Node, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.node = node
        self.message = message
        self.hint = hint


def schema_of(value: tree.Node) -> dict[str, Any]:
    """Return the schema described by the block or object of `output:`. Raises `NotAType` if it is invalid."""
    if not isinstance(value, tree.ContextBlock | tree.Object):
        raise NotAType(value, "`output` takes fields and their types, or the path of a JSON Schema", EXAMPLE)
    schema = _object(value, 1)
    try:
        typed_answers.require_usable(schema)
    except ValueError as problem:
        raise NotAType(value, str(problem)[:1].upper() + str(problem)[1:]) from None
    return schema


def _object(value: tree.ContextBlock | tree.Object, depth: int) -> dict[str, Any]:
    fields: dict[str, dict[str, Any]] = {}
    if depth > typed_answers.MAX_DEPTH:
        raise NotAType(value, f"The types are nested more than {typed_answers.MAX_DEPTH} deep")
    for entry in value.entries:
        name = entry.name.id if isinstance(entry, tree.Argument) else entry.key
        if isinstance(entry, tree.Entry) and entry.shorthand:
            raise NotAType(entry, f"The field `{name}` has no type", f"write `{name}: text`")
        if name in fields:
            raise NotAType(entry, f"The field `{name}` is given twice")
        fields[name] = _type(entry.value, depth)
    if not fields:
        raise NotAType(value, "An answer needs a field", EXAMPLE)
    return typed_answers.object_of(fields)


def _type(node: tree.Node, depth: int) -> dict[str, Any]:
    match node:
        case tree.Name(id=word) if word in typed_answers.WORDS:
            return {"type": typed_answers.WORDS[word]}
        case tree.Name(id=word):
            raise NotAType(node, f"Unknown type `{word}`", nearest_hint(word, typed_answers.WORDS, _TYPES))
        case tree.Array(elements=elements):
            if len(elements) != 1:
                raise NotAType(node, "A list has one type in its brackets", "write `[text]`")
            return {"type": "array", "items": _type(elements[0], depth + 1)}
        case tree.Object():
            return _object(node, depth + 1)
        case tree.Logical(operator="or", operands=operands):
            return _alternatives(node, operands, depth)
        case tree.Text():
            return {"type": "string", "enum": [_option(node)]}
        case _:
            raise NotAType(node, "Not a type", _TYPES)


def _alternatives(node: tree.Node, operands: tuple[tree.Node, ...], depth: int) -> dict[str, Any]:
    """Return the schema of a type with alternatives: `"a" or "b"`, `text or null`."""
    parts = [one for one in operands if not (isinstance(one, tree.Constant) and one.value is None)]
    texts = [one for one in parts if isinstance(one, tree.Text)]
    if len(texts) == len(parts) and texts:
        options = [_option(one) for one in texts]
        if len(set(options)) < len(options):
            raise NotAType(node, "An option is given twice")
        found: dict[str, Any] = {"type": "string", "enum": options}
    elif len(parts) == 1:
        found = _type(parts[0], depth)
    else:
        hint = 'write `"a" or "b"` for one of several texts, `text or null` for what may be absent'
        raise NotAType(node, "A field has one type", hint)
    return found if len(parts) == len(operands) else typed_answers.optional(found)


def _option(text: tree.Text) -> str:
    if text.literal is None:
        raise NotAType(text, "An option is a text without insertions")
    return text.literal


def written_schema(properties: tree.Properties, files: Mapping[str, Schema | None]) -> Schema | None:
    """Return the schema of the property `output:`; None if it is missing or unusable. `files` maps the paths of schema
    files, as written, to their schemas."""
    value = tree.value_of(properties, "output")
    if isinstance(value, tree.Text):
        return files.get(value.raw)
    try:
        return schema_of(value) if value is not None else None
    except NotAType:
        return None
