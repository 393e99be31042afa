"""Line magics about stale cells: `%stale`, `%rerun`, and `%bindings` with the origin of each name."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from prose_kernel.errors import UsageError
from prose_kernel.language.nearest import nearest_hint
from prose_kernel.language.text import clipped
from prose_kernel.notebook.magics import tables
from prose_kernel.notebook.magics.registry import MagicCall, magic
from prose_kernel.views import document as doc
from prose_kernel.views.bundle import bundle
from prose_kernel.views.display import Display
from prose_kernel.views.escaping import clip, inline_code, inline_text, preview

if TYPE_CHECKING:
    from prose_kernel.notebook.cells import Cells
    from prose_kernel.runs.freshness import Freshness
    from prose_kernel.runs.provenance import Cell, Version


MAX_PREVIEWS = 200
"""The most bindings whose values `%bindings` unfolds; they are the last ones."""
_NONE = "No cell is stale."
_NOT_AGAIN = ("%reset", "%restore", "%back", "%rerun", "!")


@magic("%stale", "list the cells whose inputs have changed since they ran, and why")
async def stale(call: MagicCall) -> None:
    call.check_word_count(0, 0)
    from prose_kernel.runs.freshness import stale_facts

    found = (await _checked_freshness(call.cells)).stale()
    if not found:
        return call.show(doc.paragraph(_NONE))
    rows = [(one.cell.label, clip(one.cell.title, 60), "; ".join(map(str, one.reasons))) for one in found]
    table = doc.Table(("cell", "begins with", "why"), rows, (0, 1))
    return call.show(doc.group(table, facts={"stale": stale_facts(found)}))


@magic("%rerun stale [--here]", "run all stale cells again, in order; --here: from within this cell")
async def rerun(call: MagicCall) -> None:
    call.check_word_count(1, 2)
    if call.words[0] != "stale" or call.words[1:] not in ((), ("--here",)):
        raise call.wrong(f"{' '.join(call.words)} is not understood")
    cells = call.cells
    found = (await _checked_freshness(cells)).stale()
    if not found:
        return call.show(doc.paragraph(_NONE))
    if "--here" not in call.words and cells.front_end.rerun([one.cell for one in found]):
        sure = sum(not one.maybe for one in found)
        return call.show(doc.paragraph(f"{doc.counted(sure, 'stale cell')} of the notebook will run again, in order."))
    return await _rerun_here(call)


@magic("%ask again", 'the rest of this cell asks everything again, also with the setting rerun = "keep"')
async def ask(call: MagicCall) -> None:
    call.check_word_count(1, 1)
    if call.words[0] != "again":
        raise call.wrong(f"{call.words[0]} is not understood")
    calling = call.cells.provenance.calling
    assert calling is not None, "magics run in cells"
    calling.run.asks = True
    run = call.cells.current
    if run is not None and run.no_journal_reason:
        call.show(doc.paragraph(f"Everything is asked again anyway: {run.no_journal_reason}."))


async def _rerun_here(call: MagicCall) -> None:
    """Run stale cells until none is left, each cell once. A cell does not run if its inputs turn out unchanged."""
    cells = call.cells
    done: list[Cell] = []
    current = cells.provenance.calling
    refused: list[Cell] = []
    while True:
        freshness = await _checked_freshness(cells)
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
            await cells.run_again(cell, call.output, call.view)
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
    label = doc.Trusted(f"**{cell.label}** ", f"{cell.label} ")
    return doc.group(doc.line(label, doc.Code(clip(cell.title, 80))), facts={"rerun": key})


async def _checked_freshness(cells: Cells) -> Freshness:
    """Check the files that the cells' answers depend on, and return the freshness of the cells."""
    from prose_kernel.runs.freshness import check_answer_files

    await check_answer_files(cells.provenance)
    return freshness_of(cells)


def freshness_of(cells: Cells) -> Freshness:
    from prose_kernel.runs.freshness import Freshness

    return Freshness(cells.provenance, cells.front_end.holds)


# ---------------------------------------------------------------- bindings


@magic(
    "%bindings [NAME [--diff]]",
    "list all bindings of the run: name, kind, size, source, preview; NAME: what made it, and its earlier values",
)
async def bindings(call: MagicCall) -> None:
    call.check_word_count(0, 2)
    words = [word for word in call.words if word != "--diff"]
    if len(words) > 1 or (call.words and not words):
        raise call.wrong("at most one name")
    if not words:
        return call.show(bindings_display(call.cells))
    version = _version(call.cells, words[0])
    if "--diff" in call.words:
        return call.show(_difference(call.cells, words[0]))
    return call.show(_history(call.cells, words[0], version))


def bindings_display(cells: Cells) -> Display:
    """Return the table of `%bindings`. With our extension each value can be unfolded, and its origin is shown."""
    names = cells.names()
    plain = bundle(tables.bindings(names))
    if not names:
        return plain
    cells.provenance.read()
    rows = []
    for name, named in list(names.items())[-MAX_PREVIEWS:]:
        text = named.language.text_of(named.info.value)
        size = doc.counted(len(text.encode("utf-8", "replace")), "byte")
        version = cells.provenance.current(name)
        facts = [named.kind, size, *([f"made by {_origin(version)}"] if version is not None else [])]
        beginning = inline_text(clip(text, 60)) if text.strip() else "<em>empty</em>"
        summary_line = f"{inline_code(name)} {beginning} · {inline_text(' · '.join(facts))}"
        rows.append(f"<details><summary>{summary_line}</summary>{_unfolded(text)}</details>")
    left = len(names) - len(rows)
    head = f"<p>{left:,} earlier names; <code>%binding NAME</code> shows one.</p>" if left else ""
    return Display(plain.data, plain.facts, {"text/markdown": head + "".join(rows)})


def _unfolded(text: str) -> str:
    """Return the beginning of a value as one line of HTML, because an empty line would end the HTML in Markdown."""
    shown, rest = preview(text)
    lines = (shown if not rest else f"{shown}\n{rest}").split("\n")
    return f"<pre>{'&#10;'.join(map(inline_text, lines))}</pre>"


def _origin(version: Version) -> str:
    line, _ = version.source.line_column(version.span.start)
    made_from = f" from {', '.join(version.made_from)}" if version.made_from else ""
    return f"{version.label} line {line}{made_from}"


def _version(cells: Cells, name: str) -> Version:
    cells.provenance.read()
    version = cells.provenance.current(name)
    if version is None:
        hint = nearest_hint(name, cells.provenance.names, "%bindings lists them")
        raise UsageError(f"there is no binding {name}", hint=hint)
    return version


def _history(cells: Cells, name: str, version: Version) -> doc.Group:
    """Return the origin of a name, and its former values, the latest first."""
    named = cells.names().get(name)
    statement = doc.Listing(clip(version.statement, 200), version.language.magic, indent=2)
    what = named.kind if named is not None else "definition"
    rows = []
    for one in reversed(cells.provenance.names[name]):
        value = clip(one.text(), 60) if one.known else "(forgotten)"
        rows.append((one.label, f"{len(one.text().encode('utf-8', 'replace')):,}" if one.known else "", value))
    made = doc.Trusted(f" {what}, made by ", f": {what}, made by ")
    head = doc.line(doc.Code(name), made, doc.Code(_origin(version)))
    return doc.group(head, statement, doc.Table(("made by", "bytes", "value"), rows))


def _difference(cells: Cells, name: str) -> doc.Block:
    """Return the differences between the value of a name and its last other value."""
    provenance = cells.provenance
    versions = [one for one in provenance.names[name] if one.known]
    now = versions[-1]
    content = provenance.content(name, now)
    before = next((one for one in reversed(versions[:-1]) if provenance.content(name, one) != content), None)
    if before is None:
        return doc.paragraph(f"{name} has had no other value." if len(versions) > 1 else f"{name} has had one value.")
    lines = difference(before.value, now.value, before.text(), now.text())
    head = doc.line(doc.Code(name), doc.Trusted(f" {before.label} → {now.label}"))
    return doc.group(head, doc.Listing("\n".join(lines), "diff"))


# ---------------------------------------------------------------- the difference of two values


MAX_LINES: Final = 4_000
"""The most lines of a text that are compared one by one."""
MAX_SHOWN_LINES: Final = 400
"""The most lines of a difference that are shown."""
MAX_PATH: Final = 1_000
"""The most characters of the path of a place in data; deeper values are compared as a whole."""
_MISSING: Final = object()


def difference(old: object, new: object, old_text: str, new_text: str) -> list[str]:
    """Return the differences of two values, line by line; none if they are equal. The texts are their display texts."""
    if isinstance(old, (dict, list)) and type(old) is type(new):
        found = _shortened(_data_differences(old, new))
        if found:
            return found
    before, after = old_text.splitlines(), new_text.splitlines()
    if max(len(before), len(after)) > MAX_LINES:
        same = next((at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
        at = min(len(before), len(after)) if same is None else same
        head = f"{len(before):,} lines before, {len(after):,} now; the first difference is in line {at + 1:,}:"
        return [head, *_shortened(_unified(before[at : at + 20], after[at : at + 20]))]
    return _shortened(_unified(before, after))


def _unified(before: list[str], after: list[str]) -> Iterator[str]:
    return islice(difflib.unified_diff(before, after, lineterm="", n=2), 2, None)  # without the header lines of files


def _shortened(lines: Iterator[str]) -> list[str]:
    found: list[str] = []
    for line in lines:
        if len(found) == MAX_SHOWN_LINES:
            found.append("…")
            break
        found.append(clipped(line, 500))
    return found


def _data_differences(old: object, new: object) -> Iterator[str]:
    """Yield the places in which two values differ: `- $.a: 1`, `+ $.a: 2`."""
    agenda: list[tuple[str, object, object]] = [("$", old, new)]
    while agenda:
        path, one, other = agenda.pop()
        deep = len(path) > MAX_PATH
        if not deep and isinstance(one, dict) and isinstance(other, dict):
            keys = list(dict.fromkeys([*one, *other]))
            agenda += [(_key(path, key), one.get(key, _MISSING), other.get(key, _MISSING)) for key in reversed(keys)]
        elif not deep and isinstance(one, list) and isinstance(other, list):
            pairs = list(_aligned(one, other))
            agenda += [(f"{path}[{at}]", a, b) for at, a, b in reversed(pairs)]
        elif not _same(one, other):
            yield from (f"- {path}: {_value_text(one)}" for _ in [0] if one is not _MISSING)
            yield from (f"+ {path}: {_value_text(other)}" for _ in [0] if other is not _MISSING)


def _aligned(one: list[object], other: list[object]) -> Iterator[tuple[int, object, object]]:
    """Yield the items of two lists in pairs; an insertion or deletion in one place does not shift other pairs."""
    head = 0
    while head < min(len(one), len(other)) and _same(one[head], other[head]):
        head += 1
    tail = 0
    while tail < min(len(one), len(other)) - head and _same(one[-1 - tail], other[-1 - tail]):
        tail += 1
    before, after = one[head : len(one) - tail], other[head : len(other) - tail]
    for at in range(max(len(before), len(after))):
        yield head + at, before[at] if at < len(before) else _MISSING, after[at] if at < len(after) else _MISSING


def _same(one: object, other: object) -> bool:
    try:
        return one is other or (type(one) is type(other) and bool(one == other))
    except RecursionError:
        return False


def _key(path: str, key: object) -> str:
    return f"{path}.{key}" if isinstance(key, str) and key.isidentifier() else f"{path}[{json.dumps(str(key))}]"


def _value_text(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)[:200]
    except (RecursionError, ValueError):
        return "…"
