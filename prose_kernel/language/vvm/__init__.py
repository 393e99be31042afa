"""VVM: text in, tree and diagnostics out.

`decode`, `parse`, `format_program` and `compile_source` are all that other rooms call. Nothing is imported before it is
used, so importing this package costs nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prose_kernel.language.diagnostics import Profile
    from prose_kernel.language.source import Source
    from prose_kernel.language.vvm.diagnostics import Finding
    from prose_kernel.language.vvm.parser import Parsed
    from prose_kernel.language.vvm.tree import Program


_ABOUT_NAMES: Final = frozenset({"E040", "E051", "E070", "E090", "W010", "W030", "W031", "W201", "W204"})
_ABOUT_PLACES: Final = frozenset({"E080", "E081", "E202"})
_WORDS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program with all that was found at compile time, sorted; `ok` when none of it is an error."""

    source: Source
    program: Program
    diagnostics: tuple[Finding, ...]
    ok: bool


def decode(data: bytes, name: str) -> Source:
    """The source in a file's bytes: a BOM is dropped, CRLF becomes LF. Raises CompileError with E001 for bad UTF-8."""
    from prose_kernel.language.diagnostics import decode
    from prose_kernel.language.vvm.diagnostics import finding

    return decode(data, name, finding, "E001")


def parse(source: Source) -> Parsed:
    """Syntax alone: the tree as far as it could be read, and what was found (docs/reference/vvm.md 1, 2)."""
    from prose_kernel.language.vvm.parser import parse

    return parse(source)


def compile_source(
    source: Source,
    *,
    profile: Profile = "default",
    known: Any = None,
    load: Callable[[str], Any] | None = None,
    cell: bool = False,
) -> Compiled:
    """A program read and checked: every finding of docs/reference/vvm.md 10 that needs no run. Never raises.

    `known` holds the names that earlier cells have defined, `load` gives what a module exports, `cell` applies the
    rules of 9.6. VVM has one profile.
    """
    from prose_kernel.language.diagnostics import has_errors, in_order
    from prose_kernel.language.nodes import uncollected
    from prose_kernel.language.vvm.parser import parse

    with uncollected():
        parsed = parse(source)
        checked = _checked(parsed.program, source, known=known, load=load, cell=cell)
        if parsed.diagnostics:
            checked = _without_echoes(parsed, checked, source)
        found = in_order([*parsed.diagnostics, *checked])
    return Compiled(source, parsed.program, found, not has_errors(found))


def _checked(program: Program, source: Source, **given: Any) -> Sequence[Finding]:
    """What the checker finds."""
    from importlib import import_module

    try:
        checker = import_module("prose_kernel.language.vvm.checker")
    except ModuleNotFoundError:
        return ()
    found: tuple[Finding, ...] = tuple(checker.check(program, source, **given))
    return found


def _without_echoes(parsed: Parsed, checked: Sequence[Finding], source: Source) -> list[Finding]:
    """What the checker has found, without what only follows from statements that could not be read.

    A name that stands in such a statement may be defined or used there; a statement whose body is not indented may
    hold what now seems to stand outside.
    """
    places = {(found.line, found.column) for found in parsed.diagnostics}
    indented = min((found.span.start for found in parsed.diagnostics if found.code == "E002"), default=None)
    kept = []
    for found in checked:
        if (found.line, found.column) in places:
            continue
        if found.code in _ABOUT_NAMES and parsed.unread:
            words = _WORDS.findall(source.slice(found.span))
            if not parsed.unread.isdisjoint(words):
                continue
        if found.code in _ABOUT_PLACES and indented is not None and found.span.start > indented:
            continue
        kept.append(found)
    return kept
