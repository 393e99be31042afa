"""Collecting findings while a text is read; linear however many there are and however long a line is."""

from __future__ import annotations

from prose_kernel.language.diagnostics import Diagnostic
from prose_kernel.language.source import Source, Span


class Findings:
    """The diagnostics of one source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: list[Diagnostic] = []
        self.errors = 0
        self.last_error = -1  # largest start offset of an error so far
        self._line: tuple[int, str] = (0, "")

    def add(self, code: str, start: int, end: int, message: str, hint: str | None = None) -> None:
        """Report `code` for the text from `start` to `end`."""
        line, column = self.source.line_column(start)
        if self._line[0] != line:
            self._line = (line, self.source.line_text(line))
        if code[0] == "E":
            self.errors += 1
            self.last_error = max(self.last_error, start)
        self.found.append(Diagnostic(code, line, column, message, hint, self._line[1], Span(start, max(start, end))))

    def error_since(self, start: int) -> bool:
        """Whether an error lies at `start` or behind it."""
        return self.last_error >= start
