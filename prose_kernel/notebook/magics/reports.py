"""`%report`: all that happened in the run so far, as one HTML page (docs/reports.md)."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from prose_kernel.errors import UsageError
from prose_kernel.notebook.magics.history import journal_of
from prose_kernel.notebook.magics.registry import Call, below, magic, use
from prose_kernel.notebook.magics.tables import short_path
from prose_kernel.views.display import Display, paragraph
from prose_kernel.views.safety import inline_code, visible

_FORCE = "--force"


@magic("%report [FILE] [--force]", "write what happened in the run so far as one HTML page: report.html, or FILE")
async def report(call: Call) -> None:
    words = tuple(word for word in call.words if word != _FORCE)
    if unknown := [word for word in words if word.startswith("-")]:
        raise UsageError(f"%report: {unknown[0]} is not understood", hint=f"usage: {report.usage}")
    use(Call(call.cells, words, call.text, call.output, call.view), report, 0, 1)
    journal = journal_of(call)
    if journal is None:
        return call.show(paragraph("Nothing has happened in the run yet."))
    from prose_kernel.views.page import write_page
    from prose_kernel.views.report import run_report, secrets_out

    cells = call.cells
    file = below(cells, words[0]) if words else cells.cwd / "report.html"
    page = await run_report(journal, "running", cells.settings, secrets_out(cells.settings, cells.cwd))
    write_page(file, page, force=_FORCE in call.words)
    shown, count = short_path(file, cells.cwd), len(journal.texts)
    said = f"{count:,} cell{'s' if count != 1 else ''} of the run so far: "
    link = inline_code(shown) if Path(shown).is_absolute() else f"[{inline_code(shown)}]({quote(shown)})"
    return call.show(Display({"text/markdown": said + link, "text/plain": said + visible(shown)}))
