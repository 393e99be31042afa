"""A diagnostic, the rendering with a caret, and a text with all its diagnostics (openprose.md 9)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Generic, Literal, TypeVar

from prose_kernel.language.shortening import screen_width
from prose_kernel.language.source import Source, Span

P = TypeVar("P")
Severity = Literal["error", "warning"]
Profile = Literal["default", "strict", "prosescript", "prosescript-strict"]
"""How a text is judged. The last two read ProseScript (prose-md.md 3); its own `strict` refuses the forms that are
kept for existing files, and is unrelated to the profile `strict`."""

SCRIPTS = ("prosescript", "prosescript-strict")
STRICT = ("strict", "prosescript-strict")
"""The profiles in which a contract file is read with `--strict`."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: code, 1-based position of the offending token, message, optional hint in plain words.

    `source_line` is the original line, verbatim, for the caret rendering. `span` locates the token in its source.
    `file` is the path of an imported file that it is about; of the program itself it is empty.
    """

    code: str
    line: int
    column: int
    message: str
    hint: str | None = None
    source_line: str = ""
    span: Span = Span(0, 0)
    file: str = ""

    @property
    def severity(self) -> Severity:
        """Codes of OpenProse begin with E or W; those of VVM with V, from V500 on for warnings."""
        return "warning" if self.code[0] == "W" or (self.code[0] == "V" and int(self.code[1:]) >= 500) else "error"

    def render(self) -> str:
        """The format of 9.1: head line, the source line after two spaces, the caret, the hint."""
        place = f" of {self.file}" if self.file else ""
        where = f"line {self.line}, column {self.column}{place}"
        head = f"{self.severity.capitalize()} at {where}: {self.message} [{self.code}]"
        return head + caret(self.source_line, self.column, self.hint)


@dataclass(frozen=True, slots=True)
class ParsedText(Generic[P]):
    """The readable part of a program, and the findings.

    `incomplete`: the text stops in the middle; something is unclosed (`unclosed` names it: a bracket, a string, another
    literal), or a header has no body yet. `ends_indented`: the last line is in a block.
    """

    program: P
    diagnostics: tuple[Diagnostic, ...]
    incomplete: bool = False
    unclosed: str | None = None
    ends_indented: bool = False


@dataclass(frozen=True, slots=True)
class Compiled(Generic[P]):
    """A program with all that was found at compile time, sorted; `ok` when none of it is an error."""

    source: Source
    program: P
    diagnostics: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        return not has_errors(self.diagnostics)


def caret(source_line: str, column: int, hint: str | None) -> str:
    """The two lines under a head line, and the hint. The caret is below its character: tabs are kept, and what a
    screen shows twice as wide, or above another character, is counted so. `column` counts characters."""
    shown, column = _clip(source_line, column)
    before = shown[: column - 1]
    pad = "".join("\t" if c == "\t" else " " * screen_width(c) for c in before)
    pad += " " * (column - 1 - len(before))
    text = f"\n  {shown}\n  {pad}^"
    return f"{text}\nhint: {hint}" if hint else text


def _clip(line: str, column: int, width: int = 160) -> tuple[str, int]:
    """A window of a very long line around the column, so that a megabyte line does not fill the screen."""
    line = "".join(c if c == "\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line[: column + width])
    if len(line) <= width:
        return line, column
    start = max(0, column - width // 2)
    return line[start : start + width], column - start


def diagnostic(source: Source, code: str, span: Span, message: str, hint: str | None = None) -> Diagnostic:
    """A diagnostic at the start of `span` in `source`."""
    line, column = source.line_column(span.start)
    return Diagnostic(code, line, column, message, hint, source.line_text(line), span)


class Findings:
    """The diagnostics of one source while it is read or checked; linear, however long its lines are."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: list[Diagnostic] = []
        self._lines: dict[int, str] = {}  # a line of a megabyte may hold a hundred thousand findings

    def add(self, code: str, start: int, end: int, message: str, hint: str | None = None) -> None:
        """Report `code` for the text from `start` to `end`."""
        line, column = self.source.line_column(start)
        text = self._lines.get(line)
        if text is None:
            text = self._lines[line] = self.source.line_text(line)
        self.found.append(Diagnostic(code, line, column, message, hint, text, Span(start, max(start, end))))

    def report(self, code: str, span: Span, message: str, hint: str | None = None) -> None:
        """Report `code` for the text of a node."""
        self.add(code, span.start, span.end, message, hint)


_D = TypeVar("_D", bound=Diagnostic)


def in_order(found: Iterable[_D], text: str = "") -> tuple[_D, ...]:
    """Sorted by line, column, code (9.1), duplicates dropped. If errors are at the markers of a merge conflict, only
    the first of them: others follow from it.

    `=======` may also underline a heading. It counts if another error is at the begin or end of a conflict, or if
    `text`, the whole source, has a begin above it and an end below it; a string may contain any of them.
    """
    ordered = tuple(sorted(dict.fromkeys(found), key=lambda d: (d.line, d.column, d.code)))
    errors = [d for d in ordered if d.column == 1 and d.severity == "error" and not d.file]
    markers = [d for d in errors if _CONFLICT.match(d.source_line)]
    signs = [(m.start(), m[0][0]) for m in _CONFLICT.finditer(text)] if markers else []
    begin = min((at for at, sign in signs if sign == "<"), default=len(text))
    end = max((at for at, sign in signs if sign == ">"), default=0)
    if any(d.message == _IS_CONFLICT or d.source_line[0] in "<>" or begin < d.span.start < end for d in markers):
        hint = "keep the lines of one side, or of both, and remove the markers"
        return (replace(markers[0], message=_IS_CONFLICT, hint=hint),)
    return ordered


_IS_CONFLICT: Final = "this is a conflict marker of git"
_CONFLICT: Final = re.compile(r"^(?:<{7}|={7}|>{7}|\|{7})(?: |\r?$)", re.MULTILINE)


def conflict_line(text: str) -> int | None:
    """The number of the first line that is a conflict marker of git."""
    marker = _CONFLICT.search(text)
    return text.count("\n", 0, marker.start()) + 1 if marker is not None else None


def has_errors(found: Iterable[Diagnostic]) -> bool:
    return any(d.severity == "error" for d in found)


def first_error(found: Iterable[Diagnostic]) -> str:
    """The first error in one line, with its place and code; "" where there is none."""
    return next((f"line {d.line}: {d.message} [{d.code}]" for d in found if d.severity == "error"), "")


def decode(data: bytes, name: str, code: str = "E109") -> Source:
    """The source in a file's bytes: a BOM is dropped, CRLF becomes LF. Raises CompileError (`code`) for bad UTF-8."""
    from prose_kernel.errors import CompileError

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        skip = 3 if data.startswith(b"\xef\xbb\xbf") else 0  # the codec counts from after a BOM
        at = error.start + (skip if error.object is not data else 0)
        good = data[:at].decode("utf-8-sig", "replace")
        rest = data[at : at + 200].decode("utf-8", "replace")
        source = Source((good + rest).replace("\r\n", "\n"), name)
        offset = len(good.replace("\r\n", "\n"))
        byte = data[at] if at < len(data) else 0
        found = diagnostic(
            source, code, Span(offset, offset + 1), f"not UTF-8: byte 0x{byte:02x}", "save the file as UTF-8"
        )
        raise CompileError([found]) from None
    return Source(text.replace("\r\n", "\n"), name)
