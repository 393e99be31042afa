"""Reads the instances of patterns from YAML blocks, and the Config of a pattern (prose-md.md 6)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from prose_kernel.language.contracts.items import DEFAULT, literal_at, value_of
from prose_kernel.language.contracts.reader import NotYaml, yaml_entries
from prose_kernel.language.contracts.tree import MISSING, Block, Item, Node
from prose_kernel.language.source import Source, Span

_YAML: Final = re.compile(r"ya?ml\b", re.IGNORECASE)


class Instance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An instance of a pattern; `name` is "" for an instance inside another one. A slot is bound to the name or path of
    a function, to an instance, or to a list of these."""

    pattern: str
    name: str = ""
    bindings: dict[str, str | Instance | list[str | Instance]] | None = msgspec.field(default=None, name="with")
    config: dict[str, Any] | None = None


def read_instances(source: Source, node: Node) -> Iterator[tuple[Span, Instance | str]]:
    """Yield the instances that a node declares, in order, with the span of their line; for an invalid one, the reason
    as text (E340)."""
    names: set[str] = set()
    for section in node.sections:
        for fence in section.fences:
            for at, one in _in_block(source, fence, expected=section.name == "Patterns"):
                name = one.name if isinstance(one, Instance) else ""
                yield at, f"the instance `{name}` is there already" if name and name in names else one
                names.add(name)


def _in_block(source: Source, fence: Block, *, expected: bool) -> Iterator[tuple[Span, Instance | str]]:
    text = source.slice(fence.inside)
    if not _YAML.match(fence.text) or (not expected and "pattern" not in text):
        return
    try:
        found = yaml_entries(text)
    except NotYaml:
        found = []
    if not any(isinstance(entry, dict) and "pattern" in entry for _, entry in found):
        if expected:
            yield fence.span, "this block is not a list of instances"
        return
    first = source.line_column(fence.inside.start)[0]
    for line, entry in found:
        start = source.line_starts[first + line - 1]
        at = Span(start, start + len(source.line_text(first + line)))
        try:
            one = msgspec.convert(entry, Instance)
        except (msgspec.ValidationError, RecursionError) as problem:
            yield at, f"this is not an instance: {str(problem)[:1].lower()}{str(problem)[1:]}"
            continue
        named = one.name and not any(inner.name for inner in _inside(one))
        yield at, one if named else "an instance needs a `name`, and one inside another has none"


def _inside(one: Instance) -> Iterator[Instance]:
    for binding in (one.bindings or {}).values():
        for part in binding if isinstance(binding, list) else [binding]:
            if isinstance(part, Instance):
                yield part
                yield from _inside(part)


def config_defaults(node: Node) -> dict[str, Any]:
    """Return the keys of a pattern's Config with their defaults, None for a key without one."""
    return {name: _default(item) for item in node.items("Config") for name in item.names}


def _default(item: Item) -> Any:
    """Return the default of a key: the text after `default` in its remark, a literal in its text, or its text."""
    if (marked := DEFAULT.search(item.remark)) is not None:
        return _value(item.remark[marked.end() :].strip())
    value = item.default
    if value is MISSING and (" " not in item.text or item.text[0] in '"`[{'):
        value = literal_at(item.text, 0)
    return None if value is MISSING else _value(value) if isinstance(value, str) else value


def _value(text: str) -> Any:
    """Convert a default to its value: `none` is null, JSON may have single quotes, objects separated by commas are a
    list, a literal may be followed by words; anything else is text."""
    text = text.strip("`") if text.startswith("`") and text.endswith("`") else text
    if not text:
        return ""
    for candidate in (text, text.replace("'", '"'), f"[{text.replace(chr(39), chr(34))}]"):
        found = value_of(candidate)
        if not isinstance(found, str) and not (candidate[:1] == "[" != text[:1] and not isinstance(found[0], dict)):
            return found
    literal = literal_at(text, 0)
    return text.strip('"') if literal is MISSING or isinstance(literal, str) else literal
