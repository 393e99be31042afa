"""The output of `%bindings`, `%agents`, `%state` and similar magics: documents."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from prose_kernel.errors import UsageError
from prose_kernel.language.nearest import nearest_hint
from prose_kernel.notebook.magics.registry import Magic, all_magics
from prose_kernel.runs.languages import Language
from prose_kernel.runtime.values import ExecText, Reference
from prose_kernel.views import cards
from prose_kernel.views import document as doc
from prose_kernel.views.escaping import clip

if TYPE_CHECKING:
    from prose_kernel.notebook.cells import Cells
    from prose_kernel.runs.run_machines import BoundName, Defined

MAX_TEXT = 200_000
"""The most characters of one binding that `%binding` shows."""
LOG_LINES = 500
"""The most lines of the log that `%state` shows; they are the last ones."""
_INDENT = 26
_ACROSS = 80
"""The columns where the second column of `%help all` begins on a terminal, and where it ends."""


def _defined(cells: Cells, *kinds: str) -> list[Defined]:
    return [one for one in cells.definitions() if one.definition.kind in kinds]


def bindings(names: Mapping[str, BoundName]) -> doc.Table:
    """Return the table of `%bindings`: name, kind, size, origin, preview."""
    rows = []
    for name, named in islice(names.items(), doc.MAX_ROWS):
        info, language = named.info, named.language
        text = language.text_of(info.value)
        size = f"{len(text.encode('utf-8', 'replace')):,}"
        rows.append((name, named.kind, size, clip(info.statement, 40), clip(text, 60)))
    head, left = ("name", "kind", "bytes", "from", "preview"), len(names) - len(rows)
    return doc.Table(head, rows, (0, 3), empty="No bindings yet.", left_out=left)


def binding(cells: Cells, name: str) -> doc.Group:
    """Return one binding in full. Raises `UsageError` if there is no binding of that name."""
    names = cells.names()
    if name not in names:
        raise UsageError(f"there is no binding {name}", hint=nearest_hint(name, names, "%bindings lists them"))
    info, language = names[name].info, names[name].language
    value = info.value
    text = cards.readable(value, language)
    rest = f"{len(text):,} characters in all" if len(text) > MAX_TEXT else ""
    text, kind = text[:MAX_TEXT], names[name].kind
    facts: dict[str, object] = {}
    remarks: list[str] = []
    if isinstance(value, ExecText):
        remarks, facts = _exec_lines(value)
    highlighting = "json" if isinstance(value, (list, dict)) else ""
    return doc.group(
        doc.paragraph(f"`{name}` {kind}", f"{name}: {kind}"),
        doc.Rich(doc.Listing(clip(info.statement, 500), language.magic)) if info.statement else None,
        *(doc.Items([[doc.Code(remark)]]) for remark in remarks),
        doc.Untrusted(text, rest) if isinstance(value, Reference) else doc.Listing(text, highlighting, rest),
        facts=facts,
    )


def _exec_lines(value: ExecText) -> tuple[list[str], dict[str, object]]:
    result = value.result
    if value.bare:
        return ["the command failed under on-fail: ignore; nothing else was kept"], cards.command_facts(result)
    lines = [f"exit_code: {result.exit_code}"]
    if result.signal:
        lines.append(f"signal: {result.signal}")
    if result.timed_out:
        lines.append("timed_out: true")
    lines += cards.cuts(result)
    lines.append("stderr: " + (result.stderr.rstrip("\n") if result.stderr else "(empty)"))
    return lines, cards.command_facts(result)


# ---------------------------------------------------------------- agents, blocks, state


def agents(cells: Cells) -> doc.Table:
    found = [one.definition for one in _defined(cells, "agent")]
    keys = ["model", "persist", "prompt"] + ["tools"] * any("tools" in agent.facts for agent in found)
    rows = [(agent.name, *(clip(agent.facts.get(key, ""), 60) for key in keys)) for agent in found]
    return doc.Table(("agent", *keys), rows, empty="No agents yet.")


def blocks(cells: Cells) -> doc.Table:
    """Return the table of `%blocks`: callable blocks, and functions of VVM."""
    rows = []
    for one in _defined(cells, "block", "function"):
        block = one.definition
        parameters, statements = block.facts["parameters"], block.facts["statements"]
        called = f"{block.name}({parameters})" if parameters or block.kind == "function" else block.name
        rows.append((called, statements))
    return doc.Table(("block", "statements"), rows, empty="No blocks yet.")


def state(directory: str | None, log: str, database: str | None = None) -> doc.Group:
    """Return the text of `%state`: the log of the run, and its location; without a directory it is in memory.

    The run's id differs from run to run, so it is only in the facts: the text names the parent directory, and omits the
    first line of the log.
    """
    if directory is not None:
        log = log.partition("\n\n")[2]
    lines = log.splitlines()
    shown = log
    if left_out := max(0, len(lines) - LOG_LINES):
        shown = "\n".join([f"… {left_out:,} earlier lines", *lines[left_out:], ""])
    shown = shown if len(shown) <= MAX_TEXT else "…" + shown[-MAX_TEXT:]
    if directory is None:
        return doc.group(doc.paragraph("The run is kept in memory."), doc.Listing(shown), gap="\n\n")
    kept = "The run is kept" if database is None else f"The run is kept in {database}, and its files"
    head = doc.line(doc.Trusted(f"{kept} below "), doc.Code(directory.rpartition("/")[0]), ".")
    return doc.group(head, doc.Listing(shown), gap="\n\n", facts={"directory": directory})


def short_path(path: Path, base: Path) -> str:
    """Return a path below `base` relative to it, another path unchanged."""
    try:
        return str(path.resolve().relative_to(base.resolve()))
    except ValueError:
        return str(path)


# ---------------------------------------------------------------- help


def overview(groups: Mapping[str, Sequence[str]], of_cells: Iterable[tuple[str, str]]) -> doc.Group:
    """Return the text of `%help`: the names of all magics by purpose, on less than a screen."""
    rows = [("first line of a cell", " ".join(usage.split()[0] for usage, _ in of_cells))]
    rows += [(title, " ".join(f"%{name}" for name in names)) for title, names in groups.items() if names]
    more = "`%help NAME` explains one of them, or a word of the language; `%help all` lists them with their options."
    names = doc.Table(("for", "magics"), rows, code=())
    return doc.group(doc.Rich(names, doc.Table((), rows)), doc.paragraph(more, more.replace("`", "")), gap="\n\n")


def magics(known: Iterable[Magic], of_cells: Iterable[tuple[str, str]]) -> doc.Rich:
    """Return the table of `%help all`: cell magics and line magics."""
    rows: dict[object, tuple[str, str]] = {}
    for magic in sorted(known, key=lambda magic: magic.usage):
        first = rows.setdefault(magic.run, (magic.usage, magic.summary))
        if first[0] != magic.usage:
            rows[magic.run] = (first[0], f"{first[1]}; also %{magic.name}")
    found = [*of_cells, *rows.values()]
    plain = "\n".join(line for usage, summary in found for line in _magic_lines(usage, summary))
    return doc.Rich(doc.Table(("magic", "what it does"), found), doc.paragraph(plain))


def _magic_lines(usage: str, summary: str) -> list[str]:
    """Return a magic as lines for a terminal: its summary is to its right, or below a long usage."""
    indent = " " * _INDENT
    lines = textwrap.wrap(summary, _ACROSS, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    if len(usage) > _INDENT - 2:
        return [usage, *lines]
    return [usage.ljust(_INDENT) + lines[0].lstrip(), *lines[1:]]


def helpful_words(language: Language) -> list[str]:
    """Return every word that `%help WORD` knows without a run."""
    words = language.words()
    return sorted({*words.keywords, *words.properties, *all_magics()})
