"""Quick fixes for editors: edits that apply the hint of a diagnostic. Each language has a table of them by code.

A fix is made from the words of a hint, which is about one line. So callers compile the changed text before they offer
the fix, and check the result with `is_improvement`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from prose_kernel.language.diagnostics import Diagnostic
from prose_kernel.language.source import Source, Span

_QUOTED = re.compile(r"`([^`]+)`")
_SUGGESTED_NAME = re.compile(r"did you mean `[@{]?([^`}]+)\}?`\?")
_WORD = re.compile(r'[`"]([^`"]+)[`"]')


class Edit(NamedTuple):
    """A part of a text and its replacement."""

    span: Span
    text: str


class Fix(Struct, frozen=True):
    """A quick fix: its title for users, and edits that do not overlap."""

    title: str
    edits: tuple[Edit, ...]


def replaced(text: str, edits: Iterable[Edit]) -> str:
    parts: list[str] = []
    at = 0
    for edit in sorted(edits):
        parts += [text[at : edit.span.start], edit.text]
        at = edit.span.end
    return "".join([*parts, text[at:]])


_CAUSED_ERRORS: Final = ("E", "R", "V00", "V01", "V08")
"""The first characters of codes that a fix may cause. Further errors of VVM were in the text before; an error of syntax
has hidden them."""


def is_improvement(fix: Fix, diagnostic: Diagnostic, before: Sequence[Diagnostic], after: Sequence[Diagnostic]) -> bool:
    """Return whether a fix resolves a finding and causes no error: `after`, the findings in the changed text, has fewer
    findings of this code."""
    old, new = (Counter(d.code for d in found if not d.file) for found in (before, after))
    errors = {d.code for d in after if d.severity == "error" and not d.file and d.code.startswith(_CAUSED_ERRORS)}
    return new[diagnostic.code] < old[diagnostic.code] and all(new[code] <= old[code] for code in errors)


# ---------------------------------------------------------------- kinds of fixes


def replace_span(span: Span, text: str, title: str = "") -> Fix:
    """Return a fix that replaces one part of the text."""
    return Fix(title or f"Change to `{text.strip()}`", (Edit(span, text),))


def fix_spelling(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    """Replace the misspelt word, which the message names, by the word that the hint proposes."""
    meant = _SUGGESTED_NAME.search(diagnostic.hint or "")
    if meant is None:
        return
    written = source.slice(diagnostic.span)
    for word in reversed(_WORD.findall(diagnostic.message)):
        at = written.find(word)
        if at >= 0:
            start = diagnostic.span.start + at
            yield replace_span(Span(start, start + len(word)), meant[1])
            return


def hint_code(diagnostic: Diagnostic) -> list[str]:
    """Return the pieces of code in a hint, except those with a gap to fill in (`...`)."""
    found: list[str] = _QUOTED.findall(diagnostic.hint or "")
    return [piece for piece in found if "..." not in piece and "…" not in piece]


def use_first(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    """Replace the text of the finding by the first piece of code in the hint."""
    for piece in hint_code(diagnostic)[:1]:
        yield replace_span(diagnostic.span, piece)


def use_last(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    """Replace the text of the finding, or a longer part of its line, by the last piece of code in the hint.

    A piece with other words than the line and `_WORDS_OF_HINTS` is an example, not a correction of the line.
    """
    for piece in hint_code(diagnostic)[-1:]:
        words, own = set(re.findall(r"\w+", piece)), set(re.findall(r"\w+", diagnostic.source_line))
        if not words & own or not words <= _WORDS_OF_HINTS | own:
            return
        start = source.line_starts[source.line_column(diagnostic.span.start)[0] - 1]
        line = source.line_text(diagnostic.line)
        code = Span(start + len(line) - len(line.lstrip()), start + len(line.rstrip()))
        word = re.match(r"\w*", piece)
        begin = line.rfind(word[0], 0, diagnostic.column) if word and word[0] else -1
        yield replace_span(diagnostic.span, piece)
        yield replace_span(Span(diagnostic.span.start, code.end), piece)
        if begin > 0:
            yield replace_span(Span(start + begin, code.end), piece)
        yield replace_span(code, piece)


_WORDS_OF_HINTS = frozenset({"output", "result", "exec", "printenv", "session", "do", "elif", "as", "err"})
"""Words that hints add to a line."""


def replace_tabs(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    """Replace each tab at the beginning of lines by two spaces, in the whole text."""
    edits = tuple(
        Edit(Span(*match.span()), match.group().replace("\t", "  "))
        for match in re.finditer(r"^[ \t]*\t[ \t]*", source.text, re.M)
    )
    if edits and "\t" in source.line_text(diagnostic.line):
        yield Fix("Indent with spaces", edits)


def wrap_in_array(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    """Replace the text of the finding by an array that contains it."""
    yield replace_span(diagnostic.span, f"[{source.slice(diagnostic.span)}]")
