"""`%restore` brings a run back after a kernel restart, `%back` goes back to an earlier cell, `%history` lists cells."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prose_kernel.errors import UsageError
from prose_kernel.notebook.magics.registry import MagicCall, magic
from prose_kernel.notebook.magics.tables import short_path
from prose_kernel.runs.languages import of_text, runnable_suffixes
from prose_kernel.runtime.asker import serial
from prose_kernel.views import document as doc
from prose_kernel.views.escaping import clip

if TYPE_CHECKING:
    from prose_kernel.notebook.cells import Cells
    from prose_kernel.notebook.notebook_run import NotebookRun
    from prose_kernel.runtime.journal_records import Asked, Text
    from prose_kernel.storage.journal_reading import JournalRead, TextRead
    from prose_kernel.storage.runs import KeptRun

_NAMES = 30
"""The most names that `%restore` lists."""


@magic(
    "%restore [RUN] [--yes GATE …]",
    "bring a run back after a restart of the kernel: names, agents, blocks, directory; without RUN the last one;"
    " approvals of the earlier process are asked once more, unless --yes confirms them",
)
async def restore(call: MagicCall) -> None:
    from prose_kernel.runs.resumption import interrupted_at, refuse_dry_run, resumption

    words, confirmed = list(call.words), dict[str, bool]()
    while (gate := call.take_option(words, "--yes")) is not None:
        if not gate.strip():
            raise call.wrong("--yes needs the name of a gate")
        confirmed[gate] = True
    if len(words) > 1:
        raise call.wrong("too many words")

    workspace = call.cells.started_workspace
    if workspace is not None and workspace.begun:
        raise UsageError("%restore: a run has begun here already", hint=_restore_hint(call.cells))
    kept = _run_of(call.cells, words[0] if words else "")
    if kept is None:
        return call.show(_nothing_to_restore(call.cells))
    call.cells.check_restorable()
    refuse_dry_run(call.cells.settings)
    assert kept.journal is not None
    journal, at = kept.journal, interrupted_at(kept.journal)
    lost = journal.under_way(at)
    await call.cells.restore(resumption(journal), confirmed)
    last = journal.texts[-1]
    finished = sum(text.ended is not None for text in journal.texts)
    head = f"{doc.counted(finished, 'cell')} of the run {'is' if finished == 1 else 'are'} back."
    unfinished = last.record if last.ended is None or last.ended.status == "interrupted" else None
    call.show(_restored(call.cells, head, kept.id, unfinished, lost))
    await call.cells.workspace.flush()
    return None


@magic(
    "%history", "what happened in the run, cell by cell: what commands, sessions and people were asked, and answered"
)
async def history(call: MagicCall) -> None:
    call.check_word_count(0, 0)
    journal = journal_of(call)
    if journal is None:
        return call.show(doc.paragraph("Nothing has happened in the run yet."))
    from prose_kernel.storage.run_history import cells_of

    rows: list[tuple[str, str, str, str, str]] = []
    for cell in cells_of(journal):
        first = next((line for line in cell.text.splitlines() if line.strip()), "")
        mark = {"done": "✓", "failed": "✗"}.get(cell.status or "", cell.status or "not ended")
        prompt = f"[{cell.prompt}]" if cell.prompt else ""
        rows.append((f"c{cell.number}", prompt, mark, clip(first, 60), clip(cell.message, 60)))
        rows += [(s.at, "", s.mark, clip(f"{s.kind} {s.text}", 60), clip(s.answer, 60)) for s in cell.steps]
    call.show(doc.Table(("where", "cell", "", "asked", "answered"), rows))
    return None


@magic(
    "%back CELL|STATEMENT [--files [--yes]]",
    "go back to the state after the cell with that number (2; or its place in %history, c2), or before what a statement"
    " of one asked (c2/4), as a new branch of the run; --files puts back what the run has changed since in files"
    " ([run] keep_files), --yes also those that others have changed; otherwise files stay",
)
async def back(call: MagicCall) -> None:
    from prose_kernel.runs.resumption import record_at

    words = [word for word in call.words if word not in ("--files", "--yes")]
    options = set(call.words) - set(words)
    if len(words) != 1 or options == {"--yes"}:
        raise call.wrong("name one cell or statement")
    journal = journal_of(call)
    if journal is not None and "/" in words[0]:
        return await _go_back(call, journal, (record_at(journal, words[0]), f"before {words[0]}"), options)
    before = _cell_of(call, words[0], journal)
    assert journal is not None
    number = before.record.prompt or before.record.number
    if before is journal.texts[-1]:
        raise UsageError(f"%back: cell {number} is the last one", hint="there is nothing to go back over")
    if before.ended is None:
        raise UsageError(f"%back: cell {number} has not ended", hint="%history lists the cells")
    return await _go_back(call, journal, (before.end, f"after cell {number}"), options)


async def _go_back(call: MagicCall, journal: JournalRead, point: tuple[int, str], options: set[str]) -> None:
    """Go back to a point: a journal record, and words for it. A cell that had begun by then is unfinished again."""
    from prose_kernel.runs.resumption import branch, resumption
    from prose_kernel.runtime.clock import SystemClock

    call.cells.check_restorable()  # before the branch begins, which is a separate run
    (before, words), files = point, None
    if "--files" in options:
        from prose_kernel.runs.restored_files import FileRestoration

        files = FileRestoration.before(journal, before)
        if files.foreign and "--yes" not in options:
            raise UsageError(f"%back: {files.question()}", hint="--yes overwrites them")
    new = branch(journal, before, SystemClock(), call.cells.settings.state_dir)
    restoration = resumption(new)
    try:
        await call.cells.restore_instead(journal.path, lambda: restoration)
    except BaseException:
        shutil.rmtree(new.path.parent, ignore_errors=True)
        raise
    head = f"The run is as it was {words}. Effects of commands outside of the run are not undone."
    if files is not None:
        files.apply()  # after everything that an interrupt ends: either both names and files go back, or neither
    else:
        head = f"The run is as it was {words}. Files, and what commands did outside, are not undone."
    call.show(_restored(call.cells, head, new.head.run, restoration.interrupted_text))
    if files is not None:
        call.say("\n".join(files.summary()))
    await call.cells.workspace.flush()


def _cell_of(call: MagicCall, word: str, journal: JournalRead | None) -> TextRead:
    """Find a cell by its number (the last one if several have it), or by its place as in `c3`. Raises `UsageError`."""
    if journal is None:
        raise call.wrong("nothing has happened in the run yet")
    if word.startswith("c"):
        names = [f"c{text.record.number}" for text in journal.texts]
    else:
        names = [str(text.record.prompt or text.record.number) for text in journal.texts]
    found = [text for name, text in zip(names, journal.texts, strict=True) if name == word]
    if not found:
        raise UsageError(f"%back: the run has no cell {clip(word)}", hint="%history lists the cells")
    return found[-1]


# ---------------------------------------------------------------- find the run


def _run_of(cells: Cells, wanted: str) -> KeptRun | None:
    """Return the run to restore; None if none is `wanted` and there is none. Raises `UsageError` if it is unusable."""
    from prose_kernel.storage import runs

    where = runs.places(cells.cwd, cells.settings.state_dir)
    last = cells.last_journal
    if wanted:
        found = runs.find(where, wanted)
    elif last is not None and last.is_file():
        found = runs.Directories(last.parent.parent).run(last.parent.name)
    else:
        known = runs.all_runs(where)
        mine = [run for run in known if _may_be_mine(run) or (run.interactive and _is_mine(cells, run))]
        if not mine:
            return None
        found = mine[-1]
        path = cells.notebook_path
        named = [run for run in mine if path and run.head is not None and run.head.notebook_path == path]
        if found.head is None and named:
            remark = "If it was the last run of this notebook, an earlier one is back."
            cells.asker.show(f"Warning: {found.problem}. {remark} prose runs rm {found.id} removes it.")
            mine, found = named, named[-1]
        if found.problem is not None:
            way_on = earlier_run_hint(cells) or f"prose runs rm {found.id} removes it"
            hint = f"{found.problem.hint}; or {way_on}" if found.problem.hint else way_on
            raise UsageError(str(found.problem), hint=hint)
        if not cells.notebook_path and found.state == "running":  # it may belong to another notebook
            found = next((run for run in reversed(mine) if run.state != "running"), found)
            cells.asker.show("Warning: a later run of this directory is still running in another process.")
    journal = found.kept_journal()
    if not found.interactive:
        raise UsageError(f"run {found.id} is one of a file", hint=f"prose run --resume {found.id} continues it")
    if found.state == "running":
        raise UsageError(f"run {found.id} is being run by another process", hint="shut the other kernel down first")
    directory = Path(journal.head.directory)
    runs.check_directory(found.id, directory, [cells.cwd], f"%restore {found.id} in a notebook of that directory")
    return found


def _is_mine(notebook: NotebookRun, run: KeptRun) -> bool:
    """Return whether a run belongs to this notebook, or to its directory if the path of either notebook is unknown."""
    head = run.head
    assert head is not None
    if notebook.notebook_path and head.notebook_path:
        return head.notebook_path == notebook.notebook_path
    return Path(head.directory) == notebook.cwd


def _may_be_mine(run: KeptRun) -> bool:
    """Return whether a run with a damaged journal may belong to a notebook: its log names no program file."""
    return run.has_journal and run.head is None and not run.program.endswith(runnable_suffixes())


def _restore_hint(cells: Cells) -> str:
    """Return how to restore an earlier run than the one that has begun. `%restore` without an id would restore that."""
    magic = serial(cells.asker).magic
    earlier = earlier_run_hint(cells)
    if not earlier and cells.workspace.opened.journal_file is None:
        return f"nothing of it is kept: {magic}reset ends it"
    return f"{magic}reset ends it; then {earlier or f'{magic}restore brings it back'}"


def earlier_run_hint(notebook: NotebookRun) -> str:
    """Return how to restore the run of this notebook before the last one; "" if there is none."""
    earlier = restorable_runs(notebook, mine=True)
    return f"{serial(notebook.asker).magic}restore {earlier[0]} brings back the one before" if earlier else ""


def _nothing_to_restore(cells: Cells) -> doc.Paragraph:
    """Report that this notebook has no kept run. It may have been renamed, so the last run next to it is named."""
    words = "There is nothing to restore: no run of this notebook is kept."
    others = restorable_runs(cells)
    if others:
        magic = serial(cells.asker).magic
        words += f" The last run of another notebook in this directory: {magic}restore {others[0]} brings it back."
    return doc.paragraph(words)


def restorable_runs(notebook: NotebookRun, mine: bool = False) -> list[str]:
    """Return the ids of runs that `%restore` can restore here, the latest first; `mine`: only of this notebook."""
    from prose_kernel.storage import runs

    try:
        known = runs.all_runs(runs.places(notebook.cwd, notebook.settings.state_dir))
    except UsageError:
        return []
    kept = [run for run in reversed(known) if run.interactive and (_is_mine(notebook, run) or not mine)]
    return [run.id for run in kept if run.state != "running"]


def journal_of(call: MagicCall) -> JournalRead | None:
    """Return the journal of the run; None before the run begins. Raises `UsageError` if the run keeps no journal."""
    from prose_kernel.storage.journal_reading import read

    workspace = call.cells.started_workspace
    if workspace is None or not workspace.begun:
        return None
    run = workspace.opened
    if run.journal is None:
        hint = "it is kept in memory" if workspace.settings.journal != "off" else "the setting journal is off"
        raise UsageError("the run keeps no journal", hint=hint)
    if run.journal_file is None:
        lost = run.home is not None and run.home.unavailable is not None
        unwritten = "its journal could not be written, or was removed"
        where = "the state directory cannot be written: it is kept in memory" if lost else unwritten
        raise UsageError("the run keeps no journal", hint=where)
    return read(run.journal_file)


# ---------------------------------------------------------------- restored names


def _restored(
    cells: Cells, head: str, run_id: str, unfinished: Text | None = None, lost: Sequence[Asked] = ()
) -> doc.Group:
    """Return the restored names. The id of the run differs from run to run, so it is in the metadata."""
    blocks: list[doc.Block] = [doc.paragraph(head)]
    if names := [_named(label, found) for label, found in _restored_names(cells)]:
        blocks.append(doc.Items(names))
    if unfinished is not None:
        language, text = of_text(unfinished.language, unfinished.profile), unfinished.text.strip("\n")
        if language is not cells.language:
            text = f"{language.opening}\n{text.lstrip()}"
        blocks.append(doc.paragraph("This cell had not ended. Run it again: it continues where it was."))
        blocks.append(doc.Rich(doc.Listing(text, unfinished.language), doc.Items([[row] for row in text.split("\n")])))
    if unfinished is not None and lost:
        blocks.append(doc.paragraph("Under way, and asked again then:"))
        blocks.append(doc.Items([_named(f"{one.kind} {one.key}", [clip(one.text)]) for one in lost]))
    return doc.group(*blocks, facts={"run": run_id})


def _named(label: str, names: Sequence[str]) -> Sequence[doc.Word]:
    return [doc.Trusted(f"{label}: "), *(word for name in names for word in (doc.Code(name), ", "))][:-1]


def _restored_names(cells: Cells) -> Iterator[tuple[str, list[str]]]:
    workspace = cells.workspace
    defined = [one.definition for one in workspace.definitions()]
    for label, names in (
        ("names", list(cells.names())),
        ("agents", [one.name for one in defined if one.kind == "agent"]),
        ("blocks", [one.name for one in defined if one.kind == "block"]),
        ("functions", [one.name for one in defined if one.kind == "function"]),
    ):
        if names:
            more = [f"… and {len(names) - _NAMES:,} more"] if len(names) > _NAMES else []
            yield label, [*names[:_NAMES], *more]
    if workspace.cwd != cells.cwd:
        gone = "" if workspace.cwd.is_dir() else " (it is gone: make it again)"
        yield "directory", [f"{short_path(workspace.cwd, cells.cwd)}{gone}"]
