"""Instances of patterns: the YAML blocks that declare them, and the Config of a pattern (prose-md.md 6)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prose_kernel.language.contracts.items import literal_at, value_of
from prose_kernel.language.contracts.layout import Block
from prose_kernel.language.contracts.tree import MISSING, Item, Node
from prose_kernel.language.source import Source, Span

_YAML: Final = re.compile(r"ya?ml\b", re.IGNORECASE)
_DEFAULT: Final = re.compile(r"\bdefaults?\b(?:\s*(?:\bto\b|\bis\b|[:=]))*\s*", re.IGNORECASE)
_KEYS: Final = frozenset(["name", "pattern", "with", "config"])

Binding = Any
"""What a slot is bound to: the name or path of a function, an `Instance`, or a list of these."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A pattern with its slots bound, `name` is "" for one inside another. `at` is the line of its entry."""

    name: str
    pattern: str
    bindings: Mapping[str, Binding]
    config: Mapping[str, Any]
    at: Span


@dataclass(frozen=True, slots=True)
class BadInstance:
    """Why an entry is no instance (E340)."""

    message: str
    at: Span
    hint: str | None = None


def read_instances(source: Source, node: Node) -> Iterator[Instance | BadInstance]:
    """The instances that a node declares, in order."""
    names: set[str] = set()
    for section in node.sections:
        for fence in section.fences:
            if not _YAML.match(fence.text):
                continue
            for one in _entries(source, fence, expected=section.name == "Patterns"):
                if isinstance(one, Instance) and one.name in names:
                    yield BadInstance(f"the instance `{one.name}` is there already", one.at)
                    continue
                if isinstance(one, Instance):
                    names.add(one.name)
                yield one


def _entries(source: Source, fence: Block, *, expected: bool) -> Iterator[Instance | BadInstance]:
    text = source.slice(fence.inside)
    if not expected and "pattern" not in text:
        return
    data, lines = _yaml(text)
    begin = fence.span
    if not isinstance(data, list) or not any(isinstance(one, dict) and "pattern" in one for one in data):
        if expected:
            yield BadInstance("this block is not a list of instances", begin, "write `- name: ...`, `pattern: ...`")
        return
    first = source.line_column(fence.inside.start)[0] - 1
    for at, entry in enumerate(data):
        start = source.line_starts[first + lines[at]] if at < len(lines) else begin.start
        line = Span(start, start + len(source.line_text(source.line_column(start)[0])))
        yield _instance(entry, line, inner=False)


def _instance(entry: object, at: Span, *, inner: bool) -> Instance | BadInstance:
    if not isinstance(entry, dict):
        return BadInstance("an instance is a mapping with `name` and `pattern`", at)
    unknown = [str(key) for key in entry if key not in _KEYS or (inner and key == "name")]
    if unknown:
        return BadInstance(f"an instance has no key `{unknown[0]}`", at, "name, pattern, with, config")
    name, pattern = entry.get("name", ""), entry.get("pattern")
    if not isinstance(pattern, str) or not isinstance(name, str) or not (name or inner):
        return BadInstance(f"an instance needs `{'pattern' if name or inner else 'name'}`", at)
    slots, config = entry.get("with") or {}, entry.get("config") or {}
    if not isinstance(slots, dict) or not isinstance(config, dict):
        return BadInstance("`with` and `config` are mappings", at)
    bindings: dict[str, Binding] = {}
    for slot, value in slots.items():
        found = _binding(value, at)
        if isinstance(found, BadInstance):
            return found
        bindings[str(slot)] = found
    return Instance(name, pattern, bindings, {str(key): value for key, value in config.items()}, at)


def _binding(value: object, at: Span) -> Binding:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return _instance(value, at, inner=True)
    if isinstance(value, list):
        found = [_binding(one, at) for one in value]
        if any(isinstance(one, list) for one in found):
            return BadInstance("a slot takes a function, an instance, or a list of these", at)
        return next((one for one in found if isinstance(one, BadInstance)), found)
    return BadInstance("a slot takes a function, an instance, or a list of these", at)


def _yaml(text: str) -> tuple[Any, list[int]]:
    """The data of a block, and the lines of its entries, from 0; None for what isn't YAML."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        tree = yaml.compose(text, Loader=loader)
        entries = tree.value if isinstance(tree, yaml.SequenceNode) else []
        return yaml.load(text, Loader=loader), [one.start_mark.line for one in entries]  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError, TypeError):  # such as a date that is none
        return None, []


def config_defaults(node: Node) -> dict[str, Any]:
    """The keys of a pattern's Config with their defaults; null without one."""
    found: dict[str, Any] = {}
    for item in node.items("Config"):
        for name in item.names:
            found[name] = _default(item)
    return found


def _default(item: Item) -> Any:
    """The default of a key: what follows `default` in its remark, a literal in its text, or its text."""
    if (marked := _DEFAULT.search(item.remark)) is not None:
        return _value(item.remark[marked.end() :].strip())
    if item.default is not MISSING:
        return _value(item.default) if isinstance(item.default, str) else item.default
    whole = item.text.strip()
    value = literal_at(whole, 0) if " " not in whole or whole[0] in '"`[{' else MISSING
    return None if value is MISSING else _value(value) if isinstance(value, str) else value


def _value(text: str) -> Any:
    """A default as written: `none` is null; JSON, also with single quotes; objects with commas between them are a list;
    a literal before other words; else the text."""
    text = text.strip("`") if text.startswith("`") and text.endswith("`") else text
    if not text:
        return ""
    for candidate in (text, text.replace("'", '"'), f"[{text.replace(chr(39), chr(34))}]"):
        found = value_of(candidate)
        if not isinstance(found, str) and not (candidate[:1] == "[" != text[:1] and not isinstance(found[0], dict)):
            return found
    literal = literal_at(text, 0)
    return text.strip('"') if literal is MISSING or isinstance(literal, str) else literal
