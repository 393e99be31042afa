"""Completion at the cursor: words and names of the language, paths, magics.

Positions count code points, as the Jupyter protocol does since 5.2 (a cursor after 😀 is at 1, where UTF-16 would
say 2).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from prose_kernel.errors import UsageError
from prose_kernel.language.incomplete_text import kind_at
from prose_kernel.language.word_catalogue import Offer
from prose_kernel.notebook.cell_scan import draft_language, segments
from prose_kernel.notebook.magics.registry import all_magics, cell_magics
from prose_kernel.runs import reference_pages
from prose_kernel.runs.languages import Language
from prose_kernel.views.word_help import matching, paths

if TYPE_CHECKING:
    from prose_kernel.notebook.cells import Cells

_STATEMENT = "%prompt "


class Completions(Struct, frozen=True):
    """Offers that replace the code points from `start` to `end`."""

    start: int
    end: int
    matches: tuple[Offer, ...] = ()

    def moved(self, by: int) -> Completions:
        """Return the same offers, `by` code points further right."""
        return Completions(self.start + by, self.end + by, self.matches)


def complete(cells: Cells, code: str, cursor: int) -> Completions:
    cursor = max(0, min(cursor, len(code)))
    if code.startswith("%%") and "\n" not in code[:cursor]:
        return _magic(cells, code[:cursor], cursor, cells.language)
    language, code = draft_language(code, cells.language)
    where, start = kind_at(code, cursor, language.delimiters)
    line = code[code.rfind("\n", 0, cursor) + 1 : cursor]
    if where == "comment":
        return Completions(cursor, cursor)
    if where == "code" and line.startswith(_STATEMENT):  # the rest of the line is program text
        code = code[: cursor - len(line)] + line.removeprefix(_STATEMENT)
        return complete(cells, code, len(code)).moved(len(_STATEMENT))
    if where == "code" and line.startswith("%"):
        return _magic(cells, line, cursor, language)
    begin, offers = language.complete(code[:cursor], where, start, _known(cells, language), cells.values())
    offers = list(offers)
    for offer in offers:
        if offer.kind in ("programs", "directories", "files"):
            return _path(cells, code, cursor, start, offer.kind)
    return _matching(offers, code[begin:cursor], begin, cursor)


def _matching(offers: Iterable[Offer], prefix: str, start: int, end: int) -> Completions:
    return Completions(start, end, tuple(matching(offers, prefix)))


def _known(cells: Cells, language: Language) -> Any:
    workspace = cells.started_workspace
    known = workspace.machine_of(language).known() if workspace is not None else None
    targets = _targets(cells, language)
    return known if targets is None else language.with_call_targets(known, targets)


def _targets(cells: Cells, language: Language) -> Any:
    try:
        return cells.targets(language)
    except UsageError:  # a setting is invalid
        return None


# ---------------------------------------------------------------- texts


def _path(cells: Cells, code: str, cursor: int, start: int, kind: str) -> Completions:
    """Complete the last word of the text as a path, below the working directory of commands."""
    word = re.search(r"[^\s\"'|&;<>()=]*\Z", code[start:cursor])
    typed = word.group() if word else ""
    begin = cursor - len(typed.rpartition("/")[2])
    return Completions(begin, cursor, tuple(paths(cells.directory, typed, kind)))


# ---------------------------------------------------------------- magics


def _magic(cells: Cells, line: str, cursor: int, language: Language) -> Completions:
    if re.match(r"%%?[\w-]*\Z", line):
        offers = [Offer(f"%{magic.name}", "magic", magic.summary) for magic in all_magics().values()]
        if line.startswith("%%"):
            offers = [Offer(usage.split()[0], "magic", summary) for usage, summary in cell_magics()]
        return _matching(offers, line, cursor - len(line), cursor)
    word = re.search(r"\S*\Z", line)
    typed = word.group() if word else ""
    head = line[: len(line) - len(typed)].split()
    if not head:
        return Completions(cursor, cursor)
    if head[0] in ("%run", "%cd", "%cwd", "%graph", "%plan"):
        found = _path(cells, line, len(line), 0, "directories" if head[0] in ("%cd", "%cwd") else "programs")
        return found.moved(cursor - len(line))
    offers = [Offer(text, "value") for text in _arguments(cells, head, language)]
    return _matching(offers, typed, cursor - len(typed), cursor)


def _arguments(cells: Cells, head: list[str], language: Language) -> list[str]:
    match head:
        case ["%binding"]:
            return list(cells.names())
        case ["%call", *words]:
            from prose_kernel.notebook.magics.calls import completions

            return completions(cells, words)
        case ["%gate"]:
            return ["approve", "reject"]
        case ["%gate", _]:
            return sorted(getattr(_known(cells, cells.language), "gates", ()))
        case ["%provider"]:
            return ["auto", *_providers(cells)]
        case ["%judge"]:
            return ["first", "only", "off", "human", "auto", "why", "calibrate", *_judges(cells)]
        case ["%judge", "first" | "only" | "off"]:
            return ["human", "auto", *_judges(cells)]
        case ["%judge", "calibrate", *words] if words[-1:] not in (["--least"], ["--only"]):
            return [option for option in ("--least", "--only") if option not in words]
        case ["%cassette", *words] if words[-1:] == ["--mode"]:
            return ["off", "auto", "record", "replay"]
        case ["%cassette", *words]:
            return [*(["--mode"] if "--mode" not in words else []), *(_cassettes(cells) if not words else [])]
        case ["%explain"]:
            return _codes()
        case ["%warnings"]:
            return ["on", "off"]
        case ["%timeline" | "%profile"]:
            return ["all", "--times"]
        case ["%restore"]:
            from prose_kernel.notebook.magics.restore import restorable_runs

            return restorable_runs(cells)
        case ["%back"]:
            ran = sorted(cells.provenance.cells.values(), key=lambda cell: cell.ran)
            return [str(cell.number or f"c{cell.first}") for cell in ran[:-1]]
        case ["%tasks"]:
            return ["--all"]
        case ["%task", _]:
            return ["output", "follow", "stop", "rerun"]
        case ["%help"]:
            from prose_kernel.notebook.magics import tables

            names = {*cells.names(), *(one.definition.name for one in cells.definitions())}
            return ["all", *tables.helpful_words(language), *names]
        case _:
            return []


def _providers(cells: Cells) -> list[str]:
    """Return the providers that can be chosen here; none if a setting is invalid."""
    from prose_kernel.models.providers.provider_choice import known_names

    try:
        return known_names(cells.settings.session_options(cells.cwd))
    except UsageError:
        return []


def _judges(cells: Cells) -> list[str]:
    """Return the providers that can judge."""
    from prose_kernel.models.providers.provider_choice import KEYLESS

    return [name for name in _providers(cells) if name not in KEYLESS]


def _codes() -> list[str]:
    """Return the diagnostic codes that the reference explains."""
    return [
        heading.key
        for page in reference_pages.pages()
        for heading in reference_pages.headings(page)
        if heading.key[0].isalpha()
    ]


def _cassettes(cells: Cells) -> list[str]:
    """Return the names of the recordings next to the notebook."""
    try:
        with os.scandir(cells.cwd / "cassettes") as entries:
            return sorted(entry.name.removesuffix(".jsonl") for entry in entries if entry.name.endswith(".jsonl"))
    except OSError:
        return []


# ---------------------------------------------------------------- completeness


def completeness_of(code: str, language: Language) -> tuple[str, str]:
    """Return `complete`, `incomplete` or `invalid`, as the parser decides, and the indentation of the next line.

    `language` is the language of cells that name none. A cell that begins with `%%` may have several statements: it is
    complete after a blank line.
    """
    language, text = draft_language(code, language)
    if code.startswith("%%"):
        *body, last = code.split("\n")[1:] or [""]
        if last.strip() or not any(line.strip() for line in body):
            return "incomplete", "" if text is code else _completeness_of(text, language)[1]
        if text is code:
            return "complete", ""
    return _completeness_of(text, language)


def _completeness_of(code: str, language: Language) -> tuple[str, str]:
    pieces = segments(code, language)
    return ("complete", "") if not pieces or pieces[-1].magic else language.completeness(pieces[-1].text)
