"""Check a cell while it is typed, for the JupyterLab extension.

The cell is compiled against the names of the run, as it would be when it runs. Nothing runs, no run begins, and
imported programs are neither fetched nor does a person have to agree to them (`load_contract`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from prose_kernel.errors import UsageError
from prose_kernel.language.source import Source
from prose_kernel.notebook.cell_scan import draft_language, has_statements, segments

if TYPE_CHECKING:
    from prose_kernel.language.diagnostics import Diagnostic
    from prose_kernel.notebook.cells import Cells
    from prose_kernel.runs.languages import Compiled, Language

MAX_CHARACTERS: Final = 100_000
"""The most characters of a cell that is checked, and of the text above it that is searched for names."""
MAX_FINDINGS: Final = 100
"""The most findings that are shown for a cell."""
_UNDEFINED_NAME: Final = frozenset(
    {
        *("E007", "E017", "E018", "E025", "E053", "E108", "E131", "E132", "E135", "E140", "E162", "E170"),
        *("W007", "W108", "W119", "W135", "V040", "V051", "V701", "V707"),
    }
)
"""Codes of findings about an undefined name. A cell above that has not run yet may define the name."""
_WORD: Final = re.compile(r"[A-Za-z_][\w-]*")


def findings(cells: Cells, code: str, above: Iterable[str]) -> list[dict[str, object]]:
    """Return the findings in a cell; `above` holds the texts of the cells above it. Positions count UTF-16 units, as
    editors do. Section 6 of docs/reference/jupyter.md."""
    if len(code) > MAX_CHARACTERS:
        return []
    language, text = draft_language(code, cells.language)
    text = _program(text, language)
    if not has_statements(text):
        return []
    try:
        compiled = _compiled(cells, text, language)
    except UsageError:  # a setting is invalid, which the cell reports when it runs
        return []
    shown = [one for one in compiled.diagnostics if not one.file and (one.severity == "error" or cells.show_warnings)]
    if any(one.code in _UNDEFINED_NAME for one in shown):
        known = set(_WORD.findall("\n".join(above)[-MAX_CHARACTERS:]))
        shown = [one for one in shown if not (one.code in _UNDEFINED_NAME and _names(one, compiled.source) & known)]
    return [_described(one, text) for one in shown[:MAX_FINDINGS]]


def _program(code: str, language: Language) -> str:
    """Return the program text of a cell: magic lines are replaced by blanks, so that no offset changes."""
    pieces = segments(code, language)
    if code.startswith("%%") or code.strip().startswith("?") or code.rstrip().endswith("?"):
        return ""  # a cell magic, or a request for help
    if not any(piece.magic for piece in pieces):
        return code
    lines = code.split("\n")
    for piece in pieces:
        if piece.magic:
            lines[piece.line - 1] = " " * len(lines[piece.line - 1])
    return "\n".join(lines)


def _compiled(cells: Cells, text: str, language: Language) -> Compiled:
    if cells.started_workspace is not None:
        return cells.started_workspace.compile(text, "cell", language)
    settings = cells.settings
    return language.compile(
        Source.of(text, "cell"),
        profile=settings.profile,
        load=cells.programs(language).load_contract,
        cell=True,
        pipefail=settings.exec.pipefail,
    )


def _names(one: Diagnostic, source: Source) -> set[str]:
    """Return the names that a finding is about."""
    quoted = " ".join(re.findall(r"`([^`]+)`", one.message))
    return set(_WORD.findall(f"{source.slice(one.span)} {quoted}"))


def _described(one: Diagnostic, text: str) -> dict[str, object]:
    start = max(0, min(one.span.start, len(text) - 1))  # something missing at the end is marked at the last character
    end = min(one.span.end, len(text))
    if end - start < 2 and (word := _WORD.match(text, start)):
        end = word.end()  # mark a whole word, such as the first word of a statement
    message = f"{one.message} [{one.code}]" + (f"\nhint: {one.hint}" if one.hint else "")
    return {
        "from": _units(text, start),
        "to": _units(text, max(end, start + 1)),
        "severity": one.severity,
        "message": message,
    }


def _units(text: str, offset: int) -> int:
    before = text[:offset]
    return offset if before.isascii() else len(before.encode("utf-16-le", "surrogatepass")) // 2
