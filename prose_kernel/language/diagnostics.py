"""Diagnostics: one finding, its rendering with a caret, and the results of parsing and compiling (openprose.md 9)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Generic, Literal, TypeVar

from msgspec import Struct

from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace
from prose_kernel.language.text import screen_width

P = TypeVar("P")
Severity = Literal["error", "warning"]
Profile = Literal["default", "strict", "prosescript", "prosescript-strict"]
"""The rules that a text is checked by. The last two read ProseScript (prose-md.md 3); `prosescript-strict` rejects the
forms that are kept for existing files, and is unrelated to `strict`."""

PROSESCRIPT_PROFILES = ("prosescript", "prosescript-strict")
STRICT_PROFILES = ("strict", "prosescript-strict")
"""The profiles in which a contract file is read with `--strict`."""


class Diagnostic(Struct, frozen=True):
    """One finding: its code, the 1-based position of the offending token, a message and an optional hint.

    `source_line` is the original line, for the rendering with a caret. `span` locates the token in the source. `file`
    is the path of the imported file that contains the token; "" for the program itself.
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
        """OpenProse codes begin with E or W. VVM codes begin with V; warnings have codes from V500 on."""
        return "warning" if self.code[0] == "W" or (self.code[0] == "V" and int(self.code[1:]) >= 500) else "error"

    def render(self) -> str:
        """Return the format of 9.1: a head line, the source line after two spaces, the caret, the hint."""
        place = f" of {self.file}" if self.file else ""
        where = f"line {self.line}, column {self.column}{place}"
        head = f"{self.severity.capitalize()} at {where}: {self.message} [{self.code}]"
        return head + caret(self.source_line, self.column, self.hint)


class ParsedText(Struct, Generic[P], frozen=True):
    """The result of a parse: the readable part of a program, and the findings.

    `incomplete`: the text ends too early; something is unclosed (`unclosed` names it: a bracket, a string, another
    literal), or a header has no body yet. `ends_indented`: the last line is inside a block.
    """

    program: P
    diagnostics: tuple[Diagnostic, ...]
    incomplete: bool = False
    unclosed: str | None = None
    ends_indented: bool = False


class Compiled(Struct, Generic[P], frozen=True):
    """A program with all compile-time findings, sorted; `ok` if none of them is an error."""

    source: Source
    program: P
    diagnostics: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        return not has_errors(self.diagnostics)


def caret(source_line: str, column: int, hint: str | None) -> str:
    """Return the lines below a head line: the source line, the caret, the hint. `column` counts characters; the caret
    is below its character, because tabs are kept and wide or combining characters count with their width on a screen.
    """
    shown, column = _clip(source_line, column)
    before = shown[: column - 1]
    pad = "".join("\t" if c == "\t" else " " * screen_width(c) for c in before)
    pad += " " * (column - 1 - len(before))
    text = f"\n  {shown}\n  {pad}^"
    return f"{text}\nhint: {hint}" if hint else text


def _clip(line: str, column: int, width: int = 160) -> tuple[str, int]:
    """Return the part of a long line around the column, and the column in it, so that it doesn't fill the screen."""
    line = "".join(c if c == "\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line[: column + width])
    if len(line) <= width:
        return line, column
    start = max(0, column - width // 2)
    return line[start : start + width], column - start


def diagnostic(source: Source, code: str, span: Span, message: str, hint: str | None = None) -> Diagnostic:
    """Return a diagnostic at the start of `span` in `source`."""
    line, column = source.line_column(span.start)
    return Diagnostic(code, line, column, message, hint, source.line_text(line), span)


class Findings:
    """Collects the diagnostics of one source, in linear time however long its lines are."""

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
    """Return the findings sorted by line, column and code (9.1), without duplicates. If errors are at the markers of a
    merge conflict, return only the first of these: all others follow from it.

    `=======` may also underline a heading. It counts as a marker if another error is at the first or last marker of a
    conflict, or if `text`, the whole source, has a first marker above it and a last one below it: strings may contain
    markers.
    """
    ordered = tuple(sorted(dict.fromkeys(found), key=lambda d: (d.line, d.column, d.code)))
    errors = [d for d in ordered if d.column == 1 and d.severity == "error" and not d.file]
    markers = [d for d in errors if _CONFLICT_MARKER.match(d.source_line)]
    signs = [(m.start(), m[0][0]) for m in _CONFLICT_MARKER.finditer(text)] if markers else []
    begin = min((at for at, sign in signs if sign == "<"), default=len(text))
    end = max((at for at, sign in signs if sign == ">"), default=0)
    if any(d.message == _CONFLICT_MESSAGE or d.source_line[0] in "<>" or begin < d.span.start < end for d in markers):
        hint = "keep the lines of one side, or of both, and remove the markers"
        return (replace(markers[0], message=_CONFLICT_MESSAGE, hint=hint),)
    return ordered


_CONFLICT_MESSAGE: Final = "this is a conflict marker of git"
_CONFLICT_MARKER: Final = re.compile(r"^(?:<{7}|={7}|>{7}|\|{7})(?: |\r?$)", re.MULTILINE)


def conflict_line(text: str) -> int | None:
    """Return the number of the first line that is a conflict marker of Git; None if there is none."""
    marker = _CONFLICT_MARKER.search(text)
    return text.count("\n", 0, marker.start()) + 1 if marker is not None else None


def has_errors(found: Iterable[Diagnostic]) -> bool:
    return any(d.severity == "error" for d in found)


def first_error(found: Iterable[Diagnostic]) -> str:
    """Return the first error as one line with its place and code; "" if there is none."""
    return next((f"line {d.line}: {d.message} [{d.code}]" for d in found if d.severity == "error"), "")


def decode(data: bytes, name: str, code: str = "E109") -> Source:
    """Decode a file: a BOM is dropped, CRLF becomes LF. Raises `CompileError` (`code`) for invalid UTF-8."""
    from prose_kernel.errors import CompileError

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        skip = 3 if data.startswith(b"\xef\xbb\xbf") else 0  # the codec counts offsets after the BOM
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
