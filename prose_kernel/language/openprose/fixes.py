"""Makes the code actions that apply the hints of OpenProse diagnostics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from prose_kernel.language.diagnostics import Compiled, Diagnostic
from prose_kernel.language.fixes import (
    Edit,
    Fix,
    fix_spelling,
    hint_code,
    replace_span,
    replace_tabs,
    use_first,
    use_last,
    wrap_in_array,
)
from prose_kernel.language.nodes import walk
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.hints import safe_command
from prose_kernel.language.openprose.tree import Exec, Program
from prose_kernel.language.source import Source, Span

_DECLARES = re.compile(r"\b(let|const|output)[ \t]+\Z")
_LINE = re.compile(r"indent line (\d+)")


def fixes(compiled: Compiled[Program], diagnostic: Diagnostic) -> Iterator[Fix]:
    """Yield the fixes that a finding's hint suggests, the likeliest first."""
    source = compiled.source
    if not diagnostic.hint or diagnostic.file:
        return
    yield from fix_spelling(source, diagnostic)
    make = _BY_CODE.get(diagnostic.code)
    if make is not None:
        yield from make(source, diagnostic)
    elif diagnostic.code == "W051":
        yield from _safe_command(compiled.program, source, diagnostic)


def merged(compiled: Compiled[Program]) -> Iterator[Edit]:
    """Yield the edits that turn several cells into one program.

    A repeated declaration becomes an assignment, for which the first one becomes `let`; a repeated import is commented
    out.
    """
    source = compiled.source
    for found in compiled.diagnostics:
        if found.code in ("E019", "E024"):
            yield from (edit for fix in _assign(source, found) for edit in fix.edits)
        elif found.code == "E130":
            name = re.escape(source.slice(found.span))
            declared = re.search(rf"^const(?=[ \t]+{name}\b)", source.text, re.MULTILINE)
            if declared is not None:
                yield Edit(Span(*declared.span()), "let")
        elif found.code == "E010":
            first = source.text.find(source.line_text(found.line))
            start = source.line_starts[found.line - 1]
            if first < start:
                yield Edit(Span(start, start), "# ")


def _declare(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    start = diagnostic.span.start
    yield replace_span(Span(start, start), "let ", f"Declare it: `let {source.slice(diagnostic.span)}`")


def _assign(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    """Turn a second declaration into an assignment."""
    start = diagnostic.span.start
    match = _DECLARES.search(source.text, max(0, start - 20), start)
    if match is not None:
        yield replace_span(Span(match.start(), start), "", f"Assign: `{source.slice(diagnostic.span)} = ...`")


def _braces(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    """Escape braces that are meant as text, or remove those around a shell variable."""
    start, end = diagnostic.span
    for piece in hint_code(diagnostic):
        if piece.startswith("$"):
            yield replace_span(Span(start - 1, end), piece)
        elif piece.startswith("\\{"):
            yield replace_span(diagnostic.span, piece, "Keep the braces as text")


def _in_quotes(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    yield replace_span(diagnostic.span, f'"{source.slice(diagnostic.span)}"')


def _in_parentheses(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    start = source.text.rfind("(", 0, diagnostic.span.start)
    end = source.text.find(")", diagnostic.span.end)
    for piece in hint_code(diagnostic)[:1]:
        if 0 <= start < end:
            yield replace_span(Span(start, end + 1), piece)


def _illegal(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    """Turn single quotes into double quotes; rewrite other lines as the hint suggests."""
    for piece in hint_code(diagnostic)[-1:]:
        single = f"'{piece[1:-1]}'"
        if piece.startswith('"') and source.text.startswith(single, diagnostic.span.start):
            start = diagnostic.span.start
            yield replace_span(Span(start, start + len(single)), piece)
    yield from use_last(source, diagnostic)


def _syntax(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    start = diagnostic.span.start
    before = re.search(r"\belse[ \t]+\Z", source.text[max(0, start - 20) : start])
    if diagnostic.message == "unexpected `if`" and before is not None:
        yield replace_span(Span(start - len(before[0]), start + 2), "elif")
    elif "in brackets" in (diagnostic.hint or ""):
        yield from wrap_in_array(source, diagnostic)
    else:
        yield from use_last(source, diagnostic)


def _alias(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    for piece in hint_code(diagnostic):
        if piece.startswith("as "):
            yield replace_span(Span(diagnostic.span.end, diagnostic.span.end), f" {piece}")


def _indent(source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    """Indent the line below the header, together with the lines indented below it."""
    match = _LINE.search(diagnostic.hint or "")
    if match is None:
        return
    first = int(match[1])
    width = _width(source.line_text(first))
    last = first
    while last < len(source.line_starts):
        text = source.line_text(last + 1)
        if text.strip() and _width(text) <= width:
            break
        last += 1
    starts = [source.line_starts[line - 1] for line in range(first, last + 1) if source.line_text(line).strip()]
    lines = f"line {first}" if len(starts) == 1 else f"lines {first} to {first + len(starts) - 1}"
    yield Fix(f"Indent {lines}", tuple(Edit(Span(start, start), "  ") for start in starts))


def _width(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _safe_command(program: Program, source: Source, diagnostic: Diagnostic) -> Iterator[Fix]:
    """Pass values to the command in environment variables, which the shell does not read as code."""
    for node in walk(program):
        if isinstance(node, Exec) and node.command.span.start < diagnostic.span.start < node.command.span.end:
            if tree.value_of(node.properties, "env") is not None:
                return
            command, entries = safe_command(node.command)
            literal = _literal(source.slice(node.command.span), command)
            end = node.command.span.end
            line, column = source.line_column(end)
            rest = source.line_text(line)[column - 1 :]
            if literal is not None and rest.lstrip()[:1] in ("", "#"):
                indent = " " * (_width(source.line_text(source.line_column(node.span.start)[0])) + 2)
                below = end + len(rest)
                properties = Edit(Span(below, below), f"\n{indent}env: {{ {entries} }}")
                yield Fix("Pass the values in the environment", (Edit(node.command.span, literal), properties))
            return


def _literal(written: str, command: str) -> str | None:
    """Return the command as a literal in the style of the original; None if the original's escapes prevent that."""
    if written.startswith('"""'):
        safe = "\\" not in written and '"""' not in command and not command.endswith('"')
        return f'"""{command}"""' if safe else None
    text = command.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").replace("\n", "\\n")
    if "\\{" in written:
        text = text.replace("{", "\\{").replace("}", "\\}")
    return f'"{text}"'


_BY_CODE: Final[dict[str, Callable[[Source, Diagnostic], Iterator[Fix]]]] = {
    "E002": use_first,
    "E003": use_last,
    "E004": _syntax,
    "E005": use_last,
    "E013": wrap_in_array,
    "E019": _assign,
    "E024": _assign,
    "E025": use_last,
    "E053": _braces,
    "E101": replace_tabs,
    "E106": _illegal,
    "E108": _braces,
    "E110": _alias,
    "E135": _declare,
    "E147": _indent,
    "E150": _in_quotes,
    "E152": _in_parentheses,
    "E198": wrap_in_array,
    "W009": use_first,
    "W108": _braces,
    "W135": _declare,
    "W136": _assign,
}
