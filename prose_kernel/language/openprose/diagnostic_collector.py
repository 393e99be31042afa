"""Collects the findings of a parse. The cost is linear for any number of findings and any length of lines."""

from __future__ import annotations

import re
from typing import Final

from prose_kernel.language import diagnostics
from prose_kernel.language.source import Source

_BELOW: Final = re.compile(r"[^\n]*+\n((?>(?:[ \t]*+(?:#[^\n]*+)?\n)*))([ \t]*+)([^\s#][^\n]*+)")
_COMMENT: Final = re.compile(r"^([ \t]*+)#", re.MULTILINE)
_ARM: Final = re.compile(r"(?:elif|catch)\b(?![ \t]*=(?!=))|(?:else|finally)[ \t]*:|else[ \t]+if\b|[|]|->")


class Findings(diagnostics.Findings):
    """The diagnostics of one source. They show which parts of it could not be parsed (`error_since`)."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.last_error = -1  # the largest start offset of an error so far
        self.unindented_columns: set[int] = set()  # the columns of headers whose body isn't indented (E147)

    def add(
        self, code: str, start: int, end: int, message: str, hint: str | None = None, *, readable: bool = False
    ) -> None:
        """Report `code` for the text from `start` to `end`; with `readable`, the error doesn't prevent parsing the
        surrounding text."""
        if code[0] == "E" and code != "E147" and not readable:  # text below a missing indentation is readable too
            self.last_error = max(self.last_error, start)
        super().add(code, start, end, message, hint)

    def retract(self, code: str) -> None:
        """Remove the last finding if it has this code, because the following text shows another mistake."""
        if self.found and self.found[-1].code == code:
            del self.found[-1]

    def mark_error(self, start: int) -> None:
        """Mark the text at `start` as wrong without a finding, because the error only follows from another one."""
        self.last_error = max(self.last_error, start)

    def error_since(self, start: int) -> bool:
        """Return whether an error starts at or after `start`."""
        return self.last_error >= start

    def unindented_below(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the number and the column of the line below the header from `start` to `end` if it is a statement in
        the column of the header's line, which may have been meant as the body; None also if the body is a comment."""
        indent = self.source.text[self.source.text.rfind("\n", 0, start) + 1 : start]
        width = len(indent) - len(indent.lstrip(" \t"))
        below = _BELOW.match(self.source.text, end)
        if below is None or len(below[2]) != width or _ARM.match(below[3]):
            return None
        if any(len(comment[1]) > width for comment in _COMMENT.finditer(below[1])):
            return None
        return self.source.line_column(below.start(3))[0], width
