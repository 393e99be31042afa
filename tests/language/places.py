"""Helpers: the index of a text, and the text after a symbol was renamed."""

from __future__ import annotations

from prose_kernel.language.source import Source
from prose_kernel.language.symbols import Symbol, SymbolIndex
from prose_kernel.runs.languages import Language


def names_of(language: Language, text: str) -> SymbolIndex:
    source = Source.of(text)
    return language.index(language.compile(source).program, source)


def with_another_name(source: Source, index: SymbolIndex, symbol: Symbol, name: str) -> str:
    edits: dict[int, tuple[int, str]] = {}
    for one in index.of(symbol):
        written = source.text[one.start : one.end] if one.path else ""
        edits[one.start] = one.end, f"{written}{one.before}{name}"
        following = one.following if one.before else None
        while following is not None:
            edits.setdefault(following.start, (following.start, following.before))
            following = following.following
    parts, at = [], 0
    for start, (end, text) in sorted(edits.items()):
        parts += [source.text[at:start], text]
        at = end
    return "".join([*parts, source.text[at:]])
