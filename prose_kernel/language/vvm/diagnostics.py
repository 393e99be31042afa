"""Findings of VVM as people see them (docs/reference/vvm.md 10.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prose_kernel.language.diagnostics import Diagnostic, caret
from prose_kernel.language.source import Source, Span


@dataclass(frozen=True, slots=True)
class Finding(Diagnostic):
    """A diagnostic of a VVM program."""

    page: ClassVar[str] = "vvm"

    def render(self) -> str:
        """`CODE line N col C: message`, the source line, the caret, the hint."""
        place = f" in {self.file}" if self.file else ""
        head = f"{self.code} line {self.line} col {self.column}{place}: {self.message}"
        return head + caret(self.source_line, self.column, self.hint)


def finding(source: Source, code: str, span: Span, message: str, hint: str | None = None) -> Finding:
    """A finding at the start of `span` in `source`."""
    line, column = source.line_column(span.start)
    return Finding(code, line, column, message, hint, source.line_text(line), span)


class Findings:
    """The findings of one source while it is read; linear however long its lines are."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: list[Finding] = []
        self._line: tuple[int, str] = (0, "")

    def add(self, code: str, start: int, end: int, message: str, hint: str | None = None) -> None:
        """Report `code` for the text from `start` to `end`."""
        line, column = self.source.line_column(start)
        if self._line[0] != line:
            self._line = (line, self.source.line_text(line))
        self.found.append(Finding(code, line, column, message, hint, self._line[1], Span(start, max(start, end))))
