"""What a node takes and gives: inputs with defaults, outputs with types, errors, stages (prose-md.md 1.5, 1.6, 4.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from prose_kernel.language import typed_answers
from prose_kernel.language.contracts.items import NAME, OPTIONAL, nested
from prose_kernel.language.contracts.tree import MISSING, Item, Node
from prose_kernel.language.openprose.contracts import CallInput, CallOutput

_RUN: Final = re.compile(r"run(\[\])?(?=\s*(?:$|[,:\u2013\u2014-]))")
_TYPE: Final = re.compile(r"(boolean|integer|number)\b", re.IGNORECASE)
_QUOTED: Final = re.compile(rf"`({NAME})`")
EVENT: Final = "event"
"""The input of a gateway."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What a bullet of Returns, Maintains or Invariants says in words, about the output `name` or about the node."""

    name: str
    text: str
    item: Item

    @property
    def condition(self) -> str:
        return f"{self.name} {self.text}".strip()


@dataclass(frozen=True, slots=True)
class Contract:
    """The interface of a node. `takes_more`: further inputs are welcome. `runs` maps the inputs that are completed runs
    to whether they take several. `types` are those of outputs that are not text. `items` are the bullets by output."""

    inputs: tuple[CallInput, ...] = ()
    outputs: tuple[CallOutput, ...] = ()
    takes_more: bool = False
    runs: Mapping[str, bool] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of a typed answer; None where the answer is text (4.2)."""
        several = len(self.outputs) > 1
        if not several and not any(one.name in self.types for one in self.outputs):
            return None
        fields: dict[str, dict[str, Any]] = {}
        for one in self.outputs:
            kind: dict[str, Any] = {"type": typed_answers.WORDS[self.types.get(one.name, "text")]}
            fields[one.name] = typed_answers.optional(kind) if one.optional else kind
        return typed_answers.object_of(fields)


def contract_of(node: Node) -> Contract:
    """The interface that a node's sections declare."""
    takes, gives = list(_taken(node)), list(_given(node))
    inputs: dict[str, CallInput] = {}
    runs: dict[str, bool] = {}
    for name, item in takes:
        default = None if item.default is MISSING else item.default
        inputs.setdefault(name, CallInput(name, item.optional, default))
        if found := _RUN.match(item.text):
            runs.setdefault(name, found[1] is not None)
    if node.kind == "gateway":
        inputs[EVENT] = CallInput(EVENT)
    outputs: dict[str, CallOutput] = {}
    types: dict[str, str] = {}
    for name, item in gives:
        before = outputs.get(name)
        optional = OPTIONAL.search(item.words) is not None and (before is None or before.optional)
        outputs[name] = CallOutput(name, optional)
        if kind := _TYPE.match(item.remark) or _TYPE.match(item.text):
            types.setdefault(name, kind[1].lower())
    takes_more = any(item.open for item in node.items("Parameters"))
    errors = tuple(dict.fromkeys(name for item in node.items("Errors") for name in item.names))
    return Contract(tuple(inputs.values()), tuple(outputs.values()), takes_more, runs, types, errors)


def promises_of(node: Node) -> Iterator[Promise]:
    """The promises of Returns or Maintains about outputs, and the invariants."""
    for name, item in _given(node):
        yield Promise(name, item.text, item)
    for item in node.items("Invariants"):
        text = f"{item.names[0]} {item.words}" if item.names else item.text
        yield Promise("", text, item)


def needs_in_words(node: Node) -> tuple[Item, ...]:
    """The needs of a responsibility that have no name: they cannot be supplied."""
    return tuple(item for item in node.items("Requires") if not item.names)


def _taken(node: Node) -> Iterator[tuple[str, Item]]:
    section = node.section("Parameters" if node.kind == "function" else "Requires")
    if section is None or node.kind not in ("function", "responsibility"):
        return
    for item in (*section.items, *section.parts):
        for name in item.roots:
            yield name, item


def _given(node: Node) -> Iterator[tuple[str, Item]]:
    """The outputs with the items that declare them. A path is a field of an output."""
    if node.kind == "function":
        items = node.items("Returns")
    elif node.kind in ("responsibility", "gateway") and (truth := node.section("Maintains")) is not None:
        items = truth.parts if any(part.names for part in truth.parts) else truth.items
    else:
        return
    for item in items:
        for name in item.names:
            if "." not in name:
                yield name.removesuffix("[]"), item


def truth_names(node: Node) -> tuple[str, ...]:
    """The names of the prior truth: items and facets of Maintains (3.3)."""
    section = node.section("Maintains")
    if section is None:
        return ()
    return tuple(dict.fromkeys(name for item in (*section.items, *section.parts) for name in item.roots))


def stages(node: Node) -> dict[str, str]:
    """The texts under the `####` headings of the Execution, by name (3.10)."""
    section = node.section("Execution")
    parts = section.parts if section is not None else ()
    return {name: part.text for part in parts for name in part.names}


def delegates(node: Node, text: str) -> dict[str, str]:
    """The helpers that `### Shape` lists, with the line that is the task of each (3.5 step 7)."""
    found: dict[str, str] = {}
    for item in node.items("Shape"):
        if item.names == ("delegates",):
            for names, line in nested(text, item):
                found.update(dict.fromkeys(names or _bare(line), line))
            for name in _QUOTED.findall(item.text) if not found else ():
                found[name] = name
    return found


def _bare(line: str) -> list[str]:
    name = re.match(NAME, line)
    return [name[0]] if name is not None and name[0] == line else []
