"""The sections of contract files: kinds they belong to; required, retired and folded ones (prose-md.md 1.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from prose_kernel.language.contracts.tree import Node, Section
from prose_kernel.language.nearest import Nearest, did_you_mean

if TYPE_CHECKING:
    from prose_kernel.language.contracts.reader import Reader

KINDS: Final = ("responsibility", "function", "gateway", "pattern", "test")
NAMED_KINDS: Final = "`responsibility`, `function`, `gateway`, `pattern`, `test`"
RETIRED_KINDS: Final[Mapping[str, str]] = {
    "service": "write `kind: function` with Parameters and Returns",
    "program": "write `kind: function` whose Execution calls the parts",
    "system": "write one function or responsibility whose Execution calls the parts",
    "composite": "write `kind: pattern` with Slots and Delegation",
}
_ALL: Final = "rfgpt"
_BELONGS: Final[Mapping[str, str]] = {
    "Description": _ALL, "Strategies": _ALL, "Goal": "rfg", "Continuity": "rg", "Schedule": "g", "Receives": "g",
    "Emits": "g", "Payload": "g", "Parameters": "fp", "Returns": "fp", "Requires": "rp", "Maintains": "rgp",
    "Errors": _ALL, "Invariants": _ALL, "Environment": "rfgp", "Runtime": "rfgp", "Skills": "rfgp", "Tools": "rfgp",
    "Shape": "rfgp", "Execution": "rfg", "Patterns": "rf", "Slots": "p", "Config": "p", "Delegation": "p",
    "Fixtures": "t", "Expects": "t", "Expects Not": "t",
}  # fmt: skip
_RETIRED: Final[Mapping[str, str]] = {
    "Ensures": "write `### Returns` in a function, `### Maintains` in a responsibility",
    "Services": "`call` the parts in `### Execution`",
    "Wiring": "`call` the parts in `### Execution`",
}
_FOLDED: Final[Mapping[str, str]] = {
    "Criteria": "write promises under `### Maintains`",
    "Constraints": "write `### Invariants` or `### Shape`",
    "Fulfillment": "write `### Execution`",
    "Memory": "write `### Maintains`",
}
SPELLED: Final[Mapping[str, str]] = {name.lower(): name for name in (*_BELONGS, *_RETIRED, *_FOLDED)}
"""Known names by their lower-case form."""
WITH_ITEMS: Final = frozenset(_BELONGS) - {"Description", "Continuity", "Goal", "Execution", "Delegation", "Patterns"}
WITH_PARTS: Final = frozenset(["Requires", "Maintains", "Execution"])
_NOT_EMPTY: Final = frozenset(["Parameters", "Returns", "Requires", "Maintains", "Description", "Execution"])
_OF_INTERFACES: Final = frozenset(["Parameters", "Returns", "Requires", "Maintains", "Continuity"])
_INTERFACES: Final = {
    "function": "Parameters and Returns",
    "responsibility": "Requires and Maintains",
    "gateway": "Maintains",
}
_REQUIRED: Final = {
    "responsibility": (("Maintains",),),
    "pattern": (("Slots",), ("Delegation",)),
    "test": (("Expects", "Expects Not"),),
}
_LONGEST_KNOWN: Final = max(map(len, SPELLED)) + 2


def check(reader: Reader, node: Node) -> None:
    """Report what is wrong with the sections of a node."""
    counts = Counter(one.name for one in node.sections if one.name)
    seen: set[str] = set()
    for section in node.sections:
        if not section.name:
            _unknown(reader, section)
            continue
        if section.name in seen:
            reader.report("E306", section.line, f"`### {section.name}` is there already in this node")
        elif section.name in _RETIRED:
            reader.report("E307", section.line, f"`### {section.name}` is retired", _RETIRED[section.name])
        elif section.name in _FOLDED:
            message = f"`### {section.name}` is documentation only"
            reader.report("W306", section.line, message, _FOLDED[section.name])
        elif not section.text and section.name in _NOT_EMPTY:
            reader.report("W305", section.line, f"`### {section.name}` is empty")
        seen.add(section.name)
        if node.kind:
            _belongs(reader, node, section)
    _required(reader, node, counts)
    if node.kind == "gateway":
        continuity = node.section("Continuity")
        if continuity is None or "external-driven" not in continuity.text:
            at = continuity.line if continuity else node.heading
            reader.report("W308", at, "the Continuity of a gateway is `external-driven`")


def _unknown(reader: Reader, section: Section) -> None:
    name = " ".join(section.title.partition(":")[0].split()).lower()
    if not 3 <= len(name) <= _LONGEST_KNOWN or name in SPELLED:
        return
    near = Nearest()(name, SPELLED)
    if near is not None:
        hint = did_you_mean(f"### {SPELLED[near]}")
        reader.report("W301", section.line, f"`### {section.title}` is documentation only", hint)


def _belongs(reader: Reader, node: Node, section: Section) -> None:
    kinds = _BELONGS.get(section.name)
    if kinds is None or node.kind[0] in kinds:
        return
    if node.kind in _INTERFACES and section.name in _OF_INTERFACES:
        message = f"`### {section.name}` isn't part of the interface of a {node.kind}"
        reader.report("E309", section.line, message, f"it has {_INTERFACES[node.kind]}")
    else:
        reader.report("W302", section.line, f"`### {section.name}` has no effect in a {node.kind}")


def _required(reader: Reader, node: Node, counts: Counter[str]) -> None:
    for names in _REQUIRED.get(node.kind, ()):
        if not any(counts[name] for name in names):
            needed = " or ".join(f"`### {name}`" for name in names)
            reader.report("E308", node.heading, f"a {node.kind} needs {needed}")
    if node.kind == "function" and not counts["Returns"]:
        hint = "add `### Returns`"
        reader.report("W307", node.heading, "no Returns: the whole answer is the result", hint)
