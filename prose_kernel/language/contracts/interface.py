"""Extracts the interface of a node: inputs with defaults, outputs with types, errors, stages (prose-md.md 1.5, 1.6,
4.2); and formats it for `prose compile`, hover, Shift+Tab and `%call`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from prose_kernel.language.contracts.items import OPTIONAL, nested
from prose_kernel.language.contracts.tree import MISSING, ContractNode, Item
from prose_kernel.language.nodes import walk
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.call_targets import CallInput, CallOutput
from prose_kernel.language.openprose.keywords import NAME

if TYPE_CHECKING:
    from prose_kernel.language.contracts.units import Unit

_RUN: Final = re.compile(r"run(\[\])?(?=\s*(?:$|[,:\u2013\u2014-]))")
_TYPE: Final = re.compile(r"(boolean|integer|number)\b", re.IGNORECASE)
_QUOTED: Final = re.compile(rf"`({NAME})`")
INPUT_SECTIONS: Final = ("Parameters", "Requires", "Slots", "Config")
OUTPUT_SECTIONS: Final = ("Returns", "Maintains")
EVENT: Final = "event"
"""The input of a gateway."""


class Promise(Struct, frozen=True):
    """A promise in a bullet of Returns, Maintains or Invariants, about the output `name`, or about the node if it is
    ""."""

    name: str
    text: str
    item: Item

    @property
    def condition(self) -> str:
        return f"{self.name} {self.text}".strip()


class Contract(Struct, frozen=True):
    """The interface of a node.

    - `takes_more`: undeclared inputs are accepted
    - `runs`: for each input that is a completed run, whether it takes several runs
    - `types`: the types of outputs that aren't text
    """

    inputs: tuple[CallInput, ...] = ()
    outputs: tuple[CallOutput, ...] = ()
    takes_more: bool = False
    runs: Mapping[str, bool] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[str, ...] = ()

    @property
    def is_typed(self) -> bool:
        """Whether a session answers with an object instead of text (4.2)."""
        return len(self.outputs) > 1 or any(one.name in self.types for one in self.outputs)


def contract_of(node: ContractNode) -> Contract:
    takes, gives = list(_declared_inputs(node)), list(_declared_outputs(node))
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


def promises_of(node: ContractNode) -> Iterator[Promise]:
    """Yield the promises of Returns or Maintains about outputs, and the invariants."""
    for name, item in _declared_outputs(node):
        yield Promise(name, item.text, item)
    for item in node.items("Invariants"):
        text = f"{item.names[0]} {item.words}" if item.names else item.text
        yield Promise("", text, item)


def _declared_inputs(node: ContractNode) -> Iterator[tuple[str, Item]]:
    section = node.section("Parameters" if node.kind == "function" else "Requires")
    if section is None or node.kind not in ("function", "responsibility"):
        return
    for item in (*section.items, *section.parts):
        for name in item.roots:
            yield name, item


def _declared_outputs(node: ContractNode) -> Iterator[tuple[str, Item]]:
    """Yield the outputs with the items that declare them; paths (`a.b`) are fields of outputs and left out."""
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


def truth_names(node: ContractNode) -> tuple[str, ...]:
    """Return the names of the prior truth: items and facets of Maintains (3.3)."""
    section = node.section("Maintains")
    if section is None:
        return ()
    return tuple(dict.fromkeys(name for item in (*section.items, *section.parts) for name in item.roots))


def stages(node: ContractNode) -> dict[str, str]:
    """Return the texts under the `####` headings of the Execution, by name (3.10)."""
    section = node.section("Execution")
    parts = section.parts if section is not None else ()
    return {name: part.text for part in parts for name in part.names}


def delegates(node: ContractNode, text: str) -> dict[str, str]:
    """Return the helpers listed in `### Shape`, each with the line that is its task (3.5 step 7)."""
    found: dict[str, str] = {}
    for item in node.items("Shape"):
        if item.names == ("delegates",):
            for names, line in nested(text, item):
                bare = [line] if re.fullmatch(NAME, line) else []
                found.update(dict.fromkeys(names or bare, line))
            for name in _QUOTED.findall(item.text) if not found else ():
                found[name] = name
    return found


# ---------------------------------------------------------------- as text


def calls(program: tree.Program) -> list[tree.Call]:
    """Return the calls of a script in source order."""
    return sorted((one for one in walk(program) if isinstance(one, tree.Call)), key=lambda one: one.span)


def called(unit: Unit) -> tuple[str, ...]:
    """Return the names that the script of a node calls, each once."""
    return tuple(dict.fromkeys(one.named[0] for one in calls(unit.compiled.program))) if unit.has_script else ()


def describe(unit: Unit, *, words: bool = False) -> str:
    """Return the interface of a node as text, with a line for each input, output and call. With `words`, the lines
    include the text of their bullets, and errors are listed instead of calls."""
    given, lines = unit.contract, [f"{unit.node.kind} {unit.name}"]
    for one in given.inputs:
        many = (" (completed runs)" if given.runs[one.name] else " (a completed run)") if one.name in given.runs else ""
        default = f" = {json.dumps(one.default, ensure_ascii=False)}" if one.optional else ""
        lines.append(f"  input   {one.name}{default}{many}{_words(unit, one.name, INPUT_SECTIONS) if words else ''}")
    if given.takes_more:
        lines.append("  input   ...")
    for output in given.outputs:
        kind = given.types.get(output.name, "")
        note = f": {kind}" if kind else ""
        about = _words(unit, output.name, OUTPUT_SECTIONS) if words else ""
        lines.append(f"  output  {output.name}{note}{' (optional)' if output.optional else ''}{about}")
    if words:
        lines += [f"  error   {name}{_words(unit, name, ('Errors',))}" for name in given.errors]
    else:
        lines += [f"  call    {name}" for name in called(unit)]
    return "\n".join(lines)


def _words(unit: Unit, name: str, sections: Sequence[str]) -> str:
    item = unit.node.item(name, sections)
    text = " ".join(item.text.split()) if item is not None else ""
    return f"  - {text}" if text else ""
