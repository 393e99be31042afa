"""The compiler of OpenProse: it turns a text into a checked tree and diagnostics.

`compile_source` parses and checks a text; `parser.parse` only parses it, `formatter.format_program` prints the tree.
The tokens of lexer.py drive parser.py by the tables of tables.py; builder.py and its bases make the nodes (tree.py);
recovery.py and syntax_errors.py handle syntax errors. checker.py walks the tree once, with declarations.py,
name_resolution.py, properties.py and call_checks.py, which share the state in program_index.py and scopes.py. The
package imports its modules on first use, so importing it is cheap.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from prose_kernel.language.structs import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prose_kernel.language.diagnostics import Compiled, Diagnostic, Profile
    from prose_kernel.language.openprose.parser import Parsed
    from prose_kernel.language.openprose.program_interface import KnownNames, LoadContract
    from prose_kernel.language.openprose.tree import Program
    from prose_kernel.language.source import Source


_UNREADABLE: Final = frozenset({"E001", "E003", "E004", "E104", "E105", "E106"})
_NAMES: Final = frozenset({"E007", "E131", "E132", "E140"})
_PARTS: Final = frozenset({"W121", "W140", "E196"})  # dropped on an unreadable line
_OPERATIONS: Final = frozenset({"E171", "E172"})  # errors in a pipe operation; W171 on the same line is dropped
_PARTS_BELOW: Final = frozenset({"W121", "E015"})  # dropped on the line above an unreadable one


def compile_source(
    source: Source,
    *,
    profile: Profile = "default",
    known: KnownNames | None = None,
    load: LoadContract | None = None,
    cell: bool = False,
    pipefail: bool = False,
) -> Compiled[Program]:
    """Parse and check a program: report every finding of openprose.md 9 that needs no run. Never raises.

    `known` holds the names defined by earlier cells, `load` returns the contract of a `use` path, `cell` applies the
    notebook rule of 3.1, `pipefail` is the setting `exec_pipefail` (W052).
    """
    from prose_kernel.language.diagnostics import Compiled, in_order
    from prose_kernel.language.nodes import gc_paused
    from prose_kernel.language.openprose.call_targets import interface_of
    from prose_kernel.language.openprose.checker import Checker, resolve_conditions
    from prose_kernel.language.openprose.parser import parse
    from prose_kernel.language.openprose.program_interface import KnownNames

    if known is None:
        known = KnownNames(variables=interface_of(source).known())
    with gc_paused():
        parsed = parse(source, profile)
        checker = Checker(parsed.program, source, profile, known, cell, load, pipefail)
        checked = checker.run()
        program = resolve_conditions(parsed.program, checker.decided) if checker.decided else parsed.program
        found = in_order(_without_redundant(parsed.diagnostics, _with_positional(parsed, checked, source), profile))
    return Compiled(source, program, found)


def _with_positional(parsed: Parsed, checked: Sequence[Diagnostic], source: Source) -> list[Diagnostic]:
    """Add E004 for each call of a known program that has arguments without names (6.2)."""
    from prose_kernel.language.diagnostics import diagnostic

    found = list(checked)
    for call in parsed.positional_calls:
        line, column = source.line_column(call.span.start)
        here = [d for d in checked if (d.line, d.column) == (line, column)]
        if any(d.code in ("E025", "W319") for d in here):
            continue
        first = next(argument for argument in call.arguments if not argument.name.id)
        hint = f"write `{call.program.id}(name: value)`"
        found = [d for d in found if d not in here or d.code not in ("E026", "E027")]
        found.append(diagnostic(source, "E004", first.span, "a program takes named arguments", hint))
    return found


def _without_redundant(read: Sequence[Diagnostic], checked: Sequence[Diagnostic], profile: Profile) -> list[Diagnostic]:
    """Return all findings, without those that only repeat another one.

    An unclosed string is not also reported as empty or without effect, nor a statement without effect as undefined. A
    part that could not be parsed is neither counted nor reported as missing. A token that `strict` refuses (E004) is
    dropped if a check reports a more specific error at the same place.
    """
    from prose_kernel.language.openprose.builder import NO_EFFECT
    from prose_kernel.language.openprose.checker import EMPTY
    from prose_kernel.language.openprose.name_resolution import NO_FUNCTION
    from prose_kernel.language.openprose.tree import PLACEHOLDER

    calls = {d.line: d.column for d in checked if d.code == "E025" and d.message.startswith(NO_FUNCTION)}
    checked = [d for d in checked if d.column <= calls.get(d.line, d.column)]  # not those for the arguments
    read, checked = _with_piped_commands(read, checked)
    unreadable = {d.line for d in read if d.code in _UNREADABLE}
    operations = {d.line for d in read if d.code in _OPERATIONS}
    places = {(d.line, d.column, d.code) for d in read}
    unclosed = {d.span.start for d in read if d.code in ("E001", "E104")}
    found = [d for d in read if d.message != NO_EFFECT or d.span.start not in unclosed]
    idle = [(d.span.start, at) for at, d in enumerate(found) if d.code == "E005" and d.message == NO_EFFECT]
    for d in checked:
        place = d.line, d.column
        if (*place, "E001") in places or (*place, "E005") in places:
            _name_undefined(found, idle, d)
            continue
        if idle and _is_inside(found, idle, d):
            continue
        if (*place, "E004") in places and (profile != "strict" or d.code in _NAMES):
            continue
        if unreadable and (d.code == "W313" or d.message == EMPTY):
            continue
        if d.line in unreadable and (d.code in _PARTS or f"`{PLACEHOLDER}`" in d.message):
            continue
        if d.line + 1 in unreadable and d.code in _PARTS_BELOW:
            continue
        if d.line in operations and d.code == "W171":
            continue
        found.append(d)
    shows = "return" if profile in ("prosescript", "prosescript-strict") else "output result ="
    for _, at in idle:
        found[at] = _as_command(found[at], shows)
    return _without_repeated(found) if profile == "strict" else found


def _as_command(d: Diagnostic, shows: str) -> Diagnostic:
    """Improve the finding for a statement without effect that is a shell command, or a value that can be shown."""
    from prose_kernel.language.openprose import hints

    text = d.source_line.strip()
    if d.hint and (command := hints.command(text)) and d.hint == hints.run(text):
        return replace(d, message=hints.no_statement(command))
    if d.hint is None and d.span.end - d.span.start == len(text) <= 80 and not d.message.startswith("there is"):
        return replace(d, hint=f"to show the value, write `{shows} {text}`")
    return d


def _with_piped_commands(
    read: Sequence[Diagnostic], checked: Sequence[Diagnostic]
) -> tuple[Sequence[Diagnostic], Sequence[Diagnostic]]:
    """Merge the findings of `ls | wc -l` into one for the command; it isn't a pipeline with unknown names."""
    from prose_kernel.language.openprose import hints

    lines = {
        d.line: (d, hints.no_statement(command), hints.run(d.source_line.strip()))
        for d in checked
        if d.code == "E170" and (command := hints.command(d.source_line.strip()))
    }
    lines = {line: item for line, item in lines.items() if any(d.line == line and d.code == "E171" for d in read)}
    if not lines:
        return read, checked
    named = [replace(d, code="E004", message=message, hint=hint) for d, message, hint in lines.values()]
    kept = [d for d in read if d.line not in lines or d.code != "E171"]
    return [*kept, *named], [d for d in checked if d.line not in lines]


def _is_inside(found: Sequence[Diagnostic], idle: Sequence[tuple[int, int]], d: Diagnostic) -> bool:
    """Return whether a finding lies inside a statement without effect (`ls -la`)."""
    at = bisect_right(idle, (d.span.start, len(found))) - 1
    return at >= 0 and d.span.start < found[idle[at][1]].span.end


def _name_undefined(found: list[Diagnostic], idle: Sequence[tuple[int, int]], undefined: Diagnostic) -> None:
    """Improve the finding for a statement that is only an undefined name: report the name, not the missing effect."""
    from prose_kernel.language.openprose import hints

    at = bisect_right(idle, (undefined.span.start, len(found))) - 1
    number = idle[at][1] if at >= 0 else None
    if undefined.code != "E131" or number is None or found[number].span != undefined.span:
        return
    name = undefined.message.partition("`")[2].rpartition("`")[0]
    if undefined.hint and undefined.hint.startswith(f"`{name}` is "):
        found[number] = replace(found[number], hint=undefined.hint)
    else:
        hint = hints.bare_word(name) or undefined.hint
        found[number] = replace(found[number], message=f"there is no name `{name}`", hint=hint)


def _without_repeated(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Drop each E004 at a place that already has an error."""
    named = {(d.line, d.column) for d in found if d.severity == "error" and d.code not in ("E004", "E107")}
    kept = []
    for d in found:
        place = (d.line, d.column)
        if d.code != "E004" or place not in named:
            kept.append(d)
        if d.code == "E004":
            named.add(place)
    return kept
