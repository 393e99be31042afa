"""Collecting findings while a text is read; linear however many there are and however long a line is."""

from __future__ import annotations

import re
from typing import Final

from prose_kernel.language import diagnostics
from prose_kernel.language.source import Source

_BELOW: Final = re.compile(r"[^\n]*+\n((?:[ \t]*+(?:#[^\n]*+)?\n)*+)([ \t]*+)([^\s#][^\n]*+)")
_COMMENT: Final = re.compile(r"^([ \t]*+)#", re.MULTILINE)
_ARM: Final = re.compile(r"(?:elif|catch)\b(?![ \t]*=(?!=))|(?:else|finally)[ \t]*:|else[ \t]+if\b|[|]|->")


class Findings(diagnostics.Findings):
    """The diagnostics of one source, and how much of it is understood."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.last_error = -1  # largest start offset of an error so far
        self.forgotten: set[int] = set()  # widths of indentation at which a body was not indented (E147)

    def add(
        self, code: str, start: int, end: int, message: str, hint: str | None = None, *, readable: bool = False
    ) -> None:
        """Report `code` for the text from `start` to `end`; `readable` means that the surrounding text is
        understood."""
        if code[0] == "E" and code != "E147" and not readable:  # a missing indentation hides nothing either
            self.last_error = max(self.last_error, start)
        super().add(code, start, end, message, hint)

    def retract(self, code: str) -> None:
        """Take the last finding back, if it is `code`: what follows shows that it was another mistake."""
        if self.found and self.found[-1].code == code:
            del self.found[-1]

    def echo(self, start: int) -> None:
        """Count the text at `start` as wrong without a finding, because it only follows from another error."""
        self.last_error = max(self.last_error, start)

    def error_since(self, start: int) -> bool:
        """Return whether an error starts at or after `start`."""
        return self.last_error >= start

    def unindented_below(self, start: int, end: int) -> int | None:
        """Return the line of the next statement if it is directly below the header from `start` to `end`, in the same
        column as the header's line; None also if a comment fills the body."""
        indent = self.source.text[self.source.text.rfind("\n", 0, start) + 1 : start]
        width = len(indent) - len(indent.lstrip(" \t"))
        below = _BELOW.match(self.source.text, end)
        if below is None or len(below[2]) != width or _ARM.match(below[3]):
            return None
        if any(len(comment[1]) > width for comment in _COMMENT.finditer(below[1])):
            return None
        self.forgotten.add(width)
        return self.source.line_column(below.start(3))[0]
