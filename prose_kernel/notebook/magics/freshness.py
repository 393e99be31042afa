"""Line magics about what is still true: `%stale`, `%rerun`, and `%bindings` with what made each name."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from prose_kernel.errors import UsageError
from prose_kernel.notebook.magics import tables
from prose_kernel.notebook.magics.registry import Call, magic, use
from prose_kernel.views import document as doc
from prose_kernel.views.bundle import bundle
from prose_kernel.views.display import Display
from prose_kernel.views.safety import clip, inline_code, inline_text, preview

if TYPE_CHECKING:
    from prose_kernel.notebook.cells import Cells
    from prose_kernel.runs.freshness import Freshness
    from prose_kernel.runs.provenance import Cell, Version

PREVIEWS = 200
"""Bindings whose values `%bindings` unfolds: the last ones."""
_NONE = "No cell is stale."
_NOT_AGAIN = ("%reset", "%restore", "%back", "%rerun", "!")


@magic("%stale", "list the cells whose inputs have changed since they ran, and why")
async def stale(call: Call) -> None:
    use(call, stale, 0, 0)
    from prose_kernel.runs.freshness import stale_facts

    found = freshness_of(call.cells).stale()
    if not found:
        return call.show(doc.paragraph(_NONE))
    rows = [(one.cell.label, clip(one.cell.title, 60), "; ".join(map(str, one.reasons))) for one in found]
    table = doc.Table(("cell", "begins with", "why"), rows, (0, 1))
    return call.show(doc.group(table, facts={"stale": stale_facts(found)}))


@magic("%rerun stale [--here]", "run all stale cells again, in order; --here: from within this cell")
async def rerun(call: Call) -> None:
    use(call, rerun, 1, 2)
    if call.words[0] != "stale" or call.words[1:] not in ((), ("--here",)):
        raise UsageError(f"%rerun: {' '.join(call.words)} is not understood", hint=f"usage: {rerun.usage}")
    cells = call.cells
    found = freshness_of(cells).stale()
    if not found:
        return call.show(doc.paragraph(_NONE))
    if "--here" not in call.words and cells.front_end.rerun([one.cell for one in found]):
        sure = sum(not one.maybe for one in found)
        return call.show(doc.paragraph(f"{doc.counted(sure, 'stale cell')} of the notebook will run again, in order."))
    return await _rerun_here(call)


@magic("%ask again", 'the rest of this cell asks everything again, also with the setting rerun = "keep"')
async def ask(call: Call) -> None:
    use(call, ask, 1, 1)
    if call.words[0] != "again":
        raise UsageError(f"%ask: {call.words[0]} is not understood", hint=f"usage: {ask.usage}")
    call.cells.workspace.ask_again()


async def _rerun_here(call: Call) -> None:
    """Run what is stale until nothing is, each cell once: a cell whose inputs turn out to be the same does not run."""
    cells = call.cells
    done: list[Cell] = []
    current = cells.provenance.calling
    refused: list[Cell] = []
    while True:
        freshness = freshness_of(cells)
        waiting = [one.cell for one in freshness.stale() if not one.maybe and one.cell not in [*done, *refused]]
        if not waiting:
            break
        for cell in freshness.first(waiting[0]):
            if cell in done or (current is not None and cell.key == current.key):
                continue
            if cell.opening.python or any(line.strip().startswith(_NOT_AGAIN) for line in cell.code.splitlines()):
                refused.append(cell)
                continue
            call.view.settle()
            call.show(_heading(cell))
            done.append(cell)
            await cells.again(cell, call.output, call.view)
            call.view.settle()
        if waiting[0] not in done and waiting[0] not in refused:
            refused.append(waiting[0])
    refused = [cell for cell in refused if current is None or cell.key != current.key]
    if refused:
        labels = ", ".join(cell.label for cell in refused)
        what = "it does" if len(refused) == 1 else "they do"
        call.show(doc.paragraph(f"Run {labels} yourself: what {what} is not done from here."))


def _heading(cell: Cell) -> doc.Group:
    key = cell.key if not cell.key.startswith("text:") else None
    label = doc.Own(f"**{cell.label}** ", f"{cell.label} ")
    return doc.group(doc.line(label, doc.Code(clip(cell.title, 80))), facts={"rerun": key})


def freshness_of(cells: Cells) -> Freshness:
    from prose_kernel.runs.freshness import Freshness

    return Freshness(cells.provenance, cells.front_end.holds)


# ---------------------------------------------------------------- bindings


@magic(
    "%bindings [NAME [--diff]]",
    "list all bindings of the run: name, kind, size, source, preview; NAME: what made it, and its earlier values",
)
async def bindings(call: Call) -> None:
    use(call, bindings, 0, 2)
    words = [word for word in call.words if word != "--diff"]
    if len(words) > 1 or (len(call.words) == 2 and len(words) == 2) or (call.words and not words):
        raise UsageError("%bindings: at most one name", hint=f"usage: {bindings.usage}")
    if not words:
        return call.show(browsable(call.cells))
    version = _version(call.cells, words[0])
    if "--diff" in call.words:
        return call.show(_difference(call.cells, words[0]))
    return call.show(_history(call.cells, words[0], version))


def browsable(cells: Cells) -> Display:
    """The table of `%bindings`. A person with our extension can unfold each value, and sees what made it."""
    plain = bundle(tables.bindings(cells))
    names = cells.names()
    if not names:
        return plain
    cells.provenance.read()
    rows = []
    for name, named in list(names.items())[-PREVIEWS:]:
        text = named.language.text_of(named.info.value)
        size = f"{len(text.encode('utf-8', 'replace')):,} bytes"
        version = cells.provenance.current(name)
        facts = [named.kind, size, *([f"made by {_by(version)}"] if version is not None else [])]
        said = f"{inline_code(name)} {inline_text(clip(text, 60))} · {inline_text(' · '.join(facts))}"
        rows.append(f"<details><summary>{said}</summary>{_unfolded(text)}</details>")
    left = len(names) - len(rows)
    head = f"<p>{left:,} earlier names; <code>%binding NAME</code> shows one.</p>" if left else ""
    return Display(plain.data, plain.facts, {"text/markdown": head + "".join(rows)})


def _unfolded(text: str) -> str:
    """The beginning of a value, as HTML in one line: Markdown ends a block of HTML with an empty one."""
    shown, rest = preview(text)
    lines = (shown if not rest else f"{shown}\n{rest}").split("\n")
    return f"<pre>{'&#10;'.join(map(inline_text, lines))}</pre>"


def _by(version: Version) -> str:
    line, _ = version.source.line_column(version.span.start)
    made_from = f" from {', '.join(version.made_from)}" if version.made_from else ""
    return f"{version.label} line {line}{made_from}"


def _version(cells: Cells, name: str) -> Version:
    cells.provenance.read()
    version = cells.provenance.current(name)
    if version is None:
        near = difflib.get_close_matches(name, cells.provenance.names, n=1)
        hint = f"did you mean {near[0]}?" if near else "%bindings lists them"
        raise UsageError(f"there is no binding {name}", hint=hint)
    return version


def _history(cells: Cells, name: str, version: Version) -> doc.Group:
    """What made a name, and what it has been before, the latest first."""
    named = cells.names().get(name)
    statement = doc.Listing(clip(version.statement, 200), version.language.magic, indent=2)
    what = named.kind if named is not None else "definition"
    rows = []
    for one in reversed(cells.provenance.names[name]):
        value = clip(one.text(), 60) if one.known else "(forgotten)"
        rows.append((one.label, f"{len(one.text().encode('utf-8', 'replace')):,}" if one.known else "", value))
    head = doc.line(doc.Code(name), doc.Own(f" {what}, made by ", f": {what}, made by "), doc.Code(_by(version)))
    return doc.group(head, statement, doc.Table(("made by", "bytes", "value"), rows))


def _difference(cells: Cells, name: str) -> doc.Block:
    """What differs between the value of a name and the last other one that it had."""
    from prose_kernel.notebook.differences import difference

    provenance = cells.provenance
    versions = [one for one in provenance.names[name] if one.known]
    now = versions[-1]
    content = provenance.content(name, now)
    before = next((one for one in reversed(versions[:-1]) if provenance.content(name, one) != content), None)
    if before is None:
        return doc.paragraph(f"{name} has had no other value." if len(versions) > 1 else f"{name} has had one value.")
    lines = difference(before.value, now.value, before.text(), now.text())
    head = doc.line(doc.Code(name), doc.Own(f" {before.label} → {now.label}"))
    return doc.group(head, doc.Listing("\n".join(lines), "diff"))
