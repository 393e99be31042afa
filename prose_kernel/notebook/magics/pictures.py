"""Line magics that show a file (`%show`), a program (`%graph`), and a run (`%timeline`, `%profile`, `%report`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from prose_kernel.errors import ExecError, UsageError
from prose_kernel.language.source import Span
from prose_kernel.language.structs import replace
from prose_kernel.notebook.magics.registry import MagicCall, magic, read_program, resolve_path
from prose_kernel.notebook.magics.restore import journal_of
from prose_kernel.notebook.magics.tables import short_path
from prose_kernel.runs.languages import without_errors
from prose_kernel.views import document as doc
from prose_kernel.views.display import Display
from prose_kernel.views.escaping import inline_code, visible
from prose_kernel.views.file_displays import file_display

if TYPE_CHECKING:
    from prose_kernel.runs.languages import Language
    from prose_kernel.views.diagram import DiagramText
    from prose_kernel.views.run_record import CellRecord

CELLS = 40
"""The most cells that one diagram draws; they are the last ones."""
_NOTHING = "No cell has run a program yet."
_TIMES = "--times"
_SCRIPTS = "--scripts"
_FORCE = "--force"


@magic(
    "%graph [FILE|all] [--times]",
    "draw a program: the last one that ran, all of this notebook, a file, or the text below it in the cell",
)
async def graph(call: MagicCall) -> None:
    from prose_kernel.views.run_pictures import graph_display

    words, timed = _options(call)
    if call.below.strip() and not words:
        return call.show(graph_display([_program(call, call.below, "cell", call.view.language)]))
    if words and words[0] != "all":
        source, language = read_program(call, words[0])
        return call.show(graph_display([_program(call, source.text, source.name, language)]))
    cells = _cells(call, whole=bool(words))
    if not cells:
        return call.say(_NOTHING)
    return _show(call, graph_display(_parts(call, cells)), timed)


def _program(call: MagicCall, text: str, name: str, language: Language) -> DiagramText:
    from prose_kernel.views.diagram import DiagramText

    compiled = without_errors(call.cells.workspace.compile(text, name, language))
    return DiagramText("", language.flow(compiled.program, compiled.source))


def _parts(call: MagicCall, cells: Sequence[CellRecord]) -> list[DiagramText]:
    """Return the programs of cells that ran, with the outcomes of their steps."""
    from prose_kernel.language.flow import FlowStep
    from prose_kernel.views.diagram import DiagramText
    from prose_kernel.views.run_pictures import marks

    known = call.cells.record.cells
    parts = []
    for place, cell in enumerate(cells, 1):
        number = cell.source.number(place)
        name = f"cell {number}" if cell.source.name == "cell" else f"cell {number}: {cell.source.name}"
        parts.append(DiagramText(name if len(cells) > 1 else "", cell.flow(), marks(known, cell.source)))
    if (more := len(parts) - CELLS) > 0:
        earlier = FlowStep("value", f"… {doc.counted(more, 'earlier cell')}", Span(0, 0))
        parts = [DiagramText("", (earlier,)), *parts[more:]]
    return parts


@magic(
    "%timeline [all] [--times]",
    "draw what took time in the last program that ran, or in all: branches side by side, retries, providers",
)
async def timeline(call: MagicCall) -> None:
    from prose_kernel.views.run_pictures import timeline_display

    _draw(call, timeline_display)


@magic(
    "%profile [all] [--times]",
    "which statements of the last program that ran, or of all, took how often what: time, tokens, cost, who answered",
)
async def profile(call: MagicCall) -> None:
    from prose_kernel.views.run_pictures import profile_display

    _draw(call, profile_display)


def _options(call: MagicCall) -> tuple[tuple[str, ...], bool]:
    """Return the words without `--times`, and whether it was among them. Raises `UsageError`."""
    words = tuple(word for word in call.words if word != _TIMES)
    unknown = [word for word in words if word.startswith("-") or (call.magic is not graph and word != "all")]
    if unknown or len(words) > 1:
        wrong = unknown[0] if unknown else words[1]
        raise call.wrong(f"{wrong} is not understood")
    return words, _TIMES in call.words


def _cells(call: MagicCall, *, whole: bool) -> list[CellRecord]:
    cells = list(call.cells.record.cells)
    return cells if whole else cells[-1:]


def _draw(call: MagicCall, display: Callable[[Sequence[CellRecord], str], Display]) -> None:
    """Draw the last program, or all. A drawing without steps mentions the earlier programs that it left out."""
    from prose_kernel.views.run_pictures import NOTHING

    words, timed = _options(call)
    whole, nothing = bool(words), NOTHING
    if not whole and len(call.cells.record.cells) > 1:
        more = f"%{call.magic.name} all looks at the whole run."
        nothing = f"Nothing in the last program took time: no command, session or gate. {more}"
    _show(call, display(_cells(call, whole=whole), nothing), timed)


def _show(call: MagicCall, display: Display, timed: bool) -> None:
    """Show a display. Figures that differ from run to run are in its metadata, or with `--times` in the output."""
    call.show(Display(display.person, display.facts) if timed and display.person else display)


# ---------------------------------------------------------------- files and reports


@magic(
    "%show FILE [--scripts]",
    "show a file: an image, PDF, HTML page, table (CSV, JSON, JSON Lines), Markdown, notebook or text",
)
async def show(call: MagicCall) -> None:
    from prose_kernel.storage.shown_files import read

    names = [word for word in call.words if word != _SCRIPTS]
    unknown = next((word for word in names if word.startswith("--")), None)
    if unknown or len(names) > 1:
        extra = unknown or names[1]
        hint = "put a name with spaces in quotes" if not unknown else f"usage: {show.usage}"
        raise UsageError(f"%show: {extra} is not understood", hint=hint)
    if not names:
        call.check_word_count(1, 2)
        raise call.wrong("too few words")
    try:
        file = await asyncio.to_thread(read, names[0], str(call.cells.directory))
    except ExecError as problem:
        raise UsageError(f"%show: {problem.message}", hint=problem.hint) from None
    call.show(await asyncio.to_thread(file_display, file, scripts=_SCRIPTS in call.words))


@magic("%report [FILE] [--force]", "write what happened in the run so far as HTML: NOTEBOOK.report.html, or FILE")
async def report(call: MagicCall) -> None:
    words = tuple(word for word in call.words if word != _FORCE)
    if unknown := [word for word in words if word.startswith("-")]:
        raise call.wrong(f"{unknown[0]} is not understood")
    replace(call, words=words).check_word_count(0, 1)
    journal = journal_of(call)
    if journal is None:
        return call.show(doc.paragraph("Nothing has happened in the run yet."))
    from prose_kernel.views.page import write_page
    from prose_kernel.views.report import run_report, secrets_out

    cells = call.cells
    named = Path(cells.notebook_path).with_suffix(".report.html").name if cells.notebook_path else "report.html"
    file = resolve_path(cells, words[0]) if words else cells.cwd / named
    page = await run_report(journal, "running", cells.settings, secrets_out(cells.settings, cells.cwd))
    write_page(file, page, force=_FORCE in call.words)
    shown, count = short_path(file, cells.cwd), len(journal.texts)
    link = inline_code(shown) if Path(shown).is_absolute() else f"[{inline_code(shown)}]({quote(shown)})"
    head = f"{doc.counted(count, 'cell')} of the run so far: "
    return call.show(doc.paragraph(head + link, head + visible(shown)))
