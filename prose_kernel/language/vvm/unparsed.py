"""The parts of a text that could not be read as statements, so that one mistake is not reported twice.

A line with a syntax error is missing in the tree. Its bindings and reads are unknown, so every word of it counts as
both, and the indented lines below it may belong to a block whose header is lost.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from prose_kernel.language.diagnostics import Diagnostic
from prose_kernel.language.source import Source, Span
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.names import Known
from prose_kernel.language.vvm.scopes import inside

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_STRING: Final = re.compile(r'"([^"\n]*)"')


@dataclass(frozen=True, slots=True)
class Unparsed:
    """The words and strings of a program that are in no statement; `first` is where the first mistake is, if any,
    `misplaced` where the first line with a wrong indentation is."""

    words: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset()
    first: int | None = None
    misplaced: int | None = None

    def added_to(self, known: Known) -> Known:
        """What is known, with everything that a lost line may have bound."""
        if self.first is None:
            return known
        return replace(
            known,
            variables=known.variables | self.words,
            agents={**known.agents, **dict.fromkeys(self.words)},
            skills={**known.skills, **dict.fromkeys(self.strings, "")},
        )

    def hides_header(self, source: Source, span: Span) -> bool:
        """Return whether a statement may be in a block whose header was lost: it is indented, below a mistake; or a
        line above it is not indented as it should be."""
        if self.misplaced is not None and self.misplaced < span.start:
            return True
        return self.first is not None and self.first < span.start and source.line_column(span.start)[1] > 1


def unparsed(program: tree.Program, source: Source, found: Sequence[Diagnostic]) -> Unparsed:
    """Return what is lost at the parser's errors: the line, and everything between the statements before and after
    it."""
    errors = sorted(one.span.start for one in found if one.severity == "error")
    if not errors:
        return Unparsed()
    spans = [node.span for node in inside(program.items) if isinstance(node, tree.Statement)]
    starts = sorted(span.start for span in spans)
    ends = sorted(span.end for span in spans)
    words: set[str] = set()
    strings: set[str] = set()
    end = 0
    for error in errors:
        if error < end:
            continue
        at, after = bisect_right(starts, error), bisect_right(ends, error)
        begin = max(starts[at - 1] if at else 0, ends[after - 1] if after else 0)
        start = max(end, min(begin, source.text.rfind("\n", 0, error) + 1))  # a statement may be cut short by it
        end = starts[at] if at < len(starts) else len(source.text)
        words.update(_WORD.findall(source.text, start, end))
        strings.update(_STRING.findall(source.text, start, end))
    misplaced = min((one.span.start for one in found if one.code == "V002"), default=None)
    return Unparsed(frozenset(words), frozenset(strings), errors[0], misplaced)
