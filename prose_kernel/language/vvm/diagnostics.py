"""The diagnostics of a VVM program (docs/reference/vvm.md 10.1)."""

from __future__ import annotations

from prose_kernel.language.diagnostics import Diagnostic
from prose_kernel.language.source import Source, Span


class Diagnostics:
    """The diagnostics of one source while it is read; linear however long its lines are."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: list[Diagnostic] = []
        self._line: tuple[int, str] = (0, "")

    def add(self, code: str, start: int, end: int, message: str, hint: str | None = None) -> None:
        """Report `code` for the text from `start` to `end`."""
        line, column = self.source.line_column(start)
        if self._line[0] != line:
            self._line = (line, self.source.line_text(line))
        self.found.append(Diagnostic(code, line, column, message, hint, self._line[1], Span(start, max(start, end))))
