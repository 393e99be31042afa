"""What an editor asks the parser while a text is being written: is it complete."""

from __future__ import annotations

from typing import Final, Literal

from prose_kernel.language.source import Source
from prose_kernel.language.vvm.parser import parse

Completeness = Literal["complete", "incomplete", "invalid"]

_STEP: Final = "  "


def completeness(text: str) -> tuple[Completeness, str]:
    """Whether a cell is complete, and for an incomplete one the indentation that its next line should have.

    As in IPython a cell that ends inside an indented block is complete only after a blank line. A last line of only
    spaces counts as one: that is what a console has typed for the person.
    """
    parsed = parse(Source(text))
    last = text.rstrip().rpartition("\n")[2]
    indent = last[: len(last) - len(last.lstrip())]
    if parsed.unclosed:
        return "incomplete", (indent or _STEP) if parsed.unclosed == "bracket" else ""
    if any(found not in parsed.awaited for found in parsed.diagnostics):
        return "invalid", ""
    if parsed.incomplete:
        return "incomplete", indent + _STEP
    *before, end = text.split("\n")
    blank = not end.strip() and bool(end or (before and not before[-1].strip()))
    if parsed.ends_indented and not blank:
        return "incomplete", indent
    if parsed.awaited:
        return "incomplete", " " * (parsed.awaited[-1].column - 1)
    return "complete", ""
