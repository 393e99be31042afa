"""The quick fixes of VVM, by the code of the finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prose_kernel.language.diagnostics import Compiled, Diagnostic
from prose_kernel.language.fixes import Fix, fix_spelling, hint_code, replace_span, replace_tabs, use_first, use_last
from prose_kernel.language.source import Source, Span
from prose_kernel.language.vvm.tree import Program


def fixes(compiled: Compiled[Program], diagnostic: Diagnostic) -> Iterator[Fix]:
    """Yield the fixes that a finding's hint suggests, the likeliest first."""
    if not diagnostic.hint or diagnostic.file:
        return
    yield from fix_spelling(compiled.source, diagnostic)
    make = _BY_CODE.get(diagnostic.code)
    if make is not None:
        yield from make(compiled.source, diagnostic)


def _backslash(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    yield replace_span(diagnostic.span, f"\\{source.slice(diagnostic.span)}")


def _braces(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    for piece in hint_code(diagnostic):
        if piece.startswith("{{") and piece.endswith("}}"):
            yield replace_span(diagnostic.span, piece, "Keep the braces as text")


def _export_agent(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    start = diagnostic.span.start
    if any(piece.startswith("export @") for piece in hint_code(diagnostic)):
        yield replace_span(Span(start, start), "@", f"Export the agent: `@{source.slice(diagnostic.span)}`")


def _other_name(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    """Replace a reserved word by another name."""
    for piece in hint_code(diagnostic):
        if piece.startswith(source.slice(diagnostic.span)):
            yield replace_span(diagnostic.span, piece)


def _value(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    """Replace a name of another language by its VVM equivalent."""
    if (diagnostic.hint or "").startswith("write `"):
        yield from use_first(source, diagnostic)


def _unread(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    yield replace_span(diagnostic.span, f"_{source.slice(diagnostic.span)}")


_BY_CODE: Final[dict[str, Callable[[Source, Diagnostic], Iterator[Fix]]]] = {
    "V001": use_last,
    "V002": replace_tabs,
    "V005": _backslash,
    "V010": _other_name,
    "V051": _braces,
    "V530": _unread,
    "V531": _export_agent,
    "V701": _value,
}
