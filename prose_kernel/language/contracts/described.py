"""What a node takes, gives and calls, as text for people: `prose compile`, hover, Shift+Tab, `%call`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from prose_kernel.language.nodes import walk
from prose_kernel.language.openprose import tree

if TYPE_CHECKING:
    from prose_kernel.language.contracts.units import Unit


TAKES: Final = ("Parameters", "Requires", "Slots", "Config")
GIVES: Final = ("Returns", "Maintains")


def calls(program: tree.Program) -> list[tree.Call]:
    """The calls of a script, in its order."""
    return sorted((one for one in walk(program) if isinstance(one, tree.Call)), key=lambda one: one.span)


def called(unit: Unit) -> tuple[str, ...]:
    """The names that a script calls, each once."""
    return tuple(dict.fromkeys(one.named[0] for one in calls(unit.compiled.program))) if unit.has_script else ()


def described(unit: Unit, *, words: bool = False) -> str:
    """The interface of a node, a line for each input and output, and its calls; with `words` what its bullets say, and
    its errors instead of its calls."""
    given, lines = unit.contract, [f"{unit.node.kind} {unit.name}"]
    for one in given.inputs:
        many = (" (completed runs)" if given.runs[one.name] else " (a completed run)") if one.name in given.runs else ""
        default = f" = {json.dumps(one.default, ensure_ascii=False)}" if one.optional else ""
        lines.append(f"  input   {one.name}{default}{many}{_words(unit, one.name, TAKES) if words else ''}")
    if given.takes_more:
        lines.append("  input   ...")
    for output in given.outputs:
        kind = given.types.get(output.name, "")
        note = f": {kind}" if kind else ""
        about = _words(unit, output.name, GIVES) if words else ""
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
