"""Line magics that show the requests of a text without running it: `%prompt` and `%plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prose_kernel.errors import UsageError
from prose_kernel.notebook.cell_scan import KEEP, has_statements
from prose_kernel.notebook.magics.registry import MagicCall, magic, read_program
from prose_kernel.runs import languages

if TYPE_CHECKING:
    from prose_kernel.runs.languages import Compiled, Language
    from prose_kernel.runtime.machine import Preview


@magic(
    "%prompt [STATEMENT]",
    "the messages to each session of a statement, or of the text below it in the cell; nothing is run",
    raw=True,
)
async def prompt(call: MagicCall) -> None:
    from prose_kernel.notebook.magics.previews import prompts

    text = call.text or call.below
    if not text.strip():
        raise call.wrong("a statement is needed, after it or below it")
    _, found = await _previewed(call, text, "cell", call.view.language)
    call.show(prompts([one for one in found if one.kind == "session"], call.cells.workspace.opened.services))


@magic(
    "%plan [--keep|STATEMENT|FILE]",
    "the steps of a statement, a file, or the text below it in the cell: sessions, commands and gates with their "
    "texts, and the maximum cost; with --keep: the answers of its last run that this cell would keep, and why",
    raw=True,
)
async def plan(call: MagicCall) -> None:
    from prose_kernel.notebook.magics import previews

    text, name, language = call.text or call.below, "cell", call.view.language
    first, _, below = text.partition("\n")
    if first.strip() == KEEP:
        await _plan_of_cell(call, f"\n{below}", language)
        return
    if call.text.endswith(languages.suffixes()) and "\n" not in call.text:
        source, language = read_program(call, call.text)
        text, name = source.text, source.name
    if not text.strip():
        raise call.wrong("a program is needed: below it, after it or in a file")
    compiled, found = await _previewed(call, text, name, language)
    left_out = previews.uncounted(compiled, language)
    call.show(previews.plan(found, left_out, call.cells.workspace.opened.services))


async def _plan_of_cell(call: MagicCall, text: str, language: Language) -> None:
    """Show the answers that this cell would keep if it ran again with `rerun = "keep"`."""
    from prose_kernel.notebook.magics import previews
    from prose_kernel.runs.planned_run import PlannedCell
    from prose_kernel.runtime import open_request
    from prose_kernel.runtime.journal_records import Text

    cells = call.cells
    languages.without_errors(cells.workspace.compile(text, "cell", language))
    run, settings, given = cells.current, cells.workspace.settings, cells.workspace.context.given
    if run is not None and run.no_journal_reason:
        raise UsageError(f"%plan --keep: {run.no_journal_reason}")
    if not has_statements(text):
        raise UsageError("%plan --keep: a program is needed below it", hint=f"usage: {plan.usage}")
    planned = None
    if run is not None and run.journal is not None:
        profile, cwd = language.profile or "", run.machine.cwd
        new = Text(0, language.name, "cell", text, {}, dict(given.supplied), cwd, profile)
        planned = PlannedCell.of_cell(run.journal, open_request.cell.get(), new, settings)
    if planned is None:
        raise UsageError(
            "%plan --keep: this cell has not run since the kernel was started", hint="run it without its first line"
        )
    replayed = await planned.run()
    call.show(previews.plan_of_cell(planned, replayed.gap, settings.rerun))


async def _previewed(call: MagicCall, text: str, name: str, language: Language) -> tuple[Compiled, tuple[Preview, ...]]:
    """Return a compiled text and its requests. Raises `CompileError`."""
    workspace = call.cells.workspace
    compiled = languages.without_errors(workspace.compile(text, name, language))
    return compiled, await workspace.preview(compiled, language)
