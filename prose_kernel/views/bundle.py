"""Render documents as MIME bundles for notebooks: Markdown with plain text; and cards: HTML with plain text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from prose_kernel.views import document as doc
from prose_kernel.views.display import Display
from prose_kernel.views.document import plain_text
from prose_kernel.views.escaping import LITERAL, Html, clip, fenced, html, inline_code, inline_text, tag, visible
from prose_kernel.views.escaping import markdown as harmless

_TICKED = re.compile(r"`([^`]+)`")


def bundle(shown: doc.Block | Display) -> Display:
    """Return the bundle of a document, with the facts of its groups; return a bundle unchanged."""
    if isinstance(shown, Display):
        return shown
    return Display({"text/markdown": markdown(shown), "text/plain": plain_text(shown)}, _facts(shown))


def _facts(block: doc.Block) -> dict[str, object]:
    if not isinstance(block, doc.Group):
        return {}
    return {name: value for inner in block.blocks for name, value in _facts(inner).items()} | dict(block.facts)


# ---------------------------------------------------------------- tables of data, and cards

KEPT = "kept; %ask again asks again"
"""The remark about an answer that a cell has kept from its last run."""
QUIET = "opacity: 0.65"
TABLE = "margin: 0"
LEFT = "text-align: left"
QUIET_LEFT = f"{LEFT}; {QUIET}"


def card(
    parts: Iterable[Html], lines: Iterable[str], facts: Mapping[str, object] | None = None, *, bad: bool = False
) -> Display:
    """Return a framed report: HTML that survives a sanitiser (no scripts, ids or theme variables), and text lines."""
    colour = "rgba(215, 60, 60, 0.8)" if bad else "rgba(128, 128, 128, 0.5)"
    frame = f"border-left: 3px solid {colour}; padding: 2px 10px; margin: 2px 0"
    markup = tag("div", *parts, class_=LITERAL, style=frame)
    return Display({"text/html": markup, "text/plain": "\n".join(lines)}, facts or {})


def command_card(command: str, remarks: Sequence[str], facts: Mapping[str, object], *, bad: bool) -> Display:
    lines = [f"$ {clip(command)}", *(f"  {visible(remark)}" for remark in remarks)]
    return card([tag("code", f"$ {clip(command)}"), *map(quiet, remarks)], lines, facts, bad=bad)


def row(*cells: str, style: str = LEFT, quiet: int | None = None) -> Html:
    """Return a row of a table in a card; the cell with the index `quiet` is dimmed."""
    return tag("tr", *(tag("td", cell, style=QUIET_LEFT if at == quiet else style) for at, cell in enumerate(cells)))


def wide_row(text: str, columns: int, style: str = QUIET_LEFT) -> Html:
    """Return a row with one cell across the whole table, which describes the omitted rows."""
    return tag("tr", tag("td", text, colspan=str(columns), style=style))


def small(text: str) -> Html:
    """Return a dimmed line in small letters."""
    return tag("div", tag("small", text), style=QUIET)


def coded(text: str) -> Html:
    """Return the HTML of a text in which backticks mark code."""
    return html(*(tag("code", piece) if at % 2 else piece for at, piece in enumerate(_TICKED.split(text))))


def data_html(table: doc.Table) -> Html:
    """Return a table of data without classes or ids, which a sanitiser would remove."""
    sides = ["text-align: right" if at in table.numbers else LEFT for at in range(len(table.head))]
    head, *body = (
        tag("tr", *(tag(name, cell, style=side) for side, cell in zip(sides, cells, strict=True)))
        for name, cells in [("th", table.head), *(("td", cells) for cells in table.rows)]
    )
    return tag("table", tag("thead", head), tag("tbody", *body), style=TABLE)


def quiet(text: str) -> Html:
    return tag("div", text, style=QUIET)


def markdown(block: doc.Block) -> str:
    match block:
        case doc.Paragraph(words):
            return "".join(map(_word, words))
        case doc.Items(items):
            return "\n".join("- " + "".join(map(_word, words)) for words in items)
        case doc.Fields(fields):
            return "\n".join(f"- {inline_text(name)}: {inline_text(value)}" for name, value in fields if value)
        case doc.Listing(text, language, rest):
            return fenced(text, language) + (f"\n… ({rest})" if rest else "")
        case doc.Untrusted(text, rest):
            return harmless(text).rstrip("\n") + (f"\n\n… ({inline_text(rest)})" if rest else "")
        case doc.Table():
            return _table(block)
        case doc.Group(blocks):
            return "\n\n".join(part for part in map(markdown, blocks) if part)
        case doc.Rich(rich):
            return markdown(rich)


def _word(word: doc.Word) -> str:
    match word:
        case doc.Trusted(text):
            return text
        case doc.Code():
            return inline_code(word)
        case doc.Strong():
            return f"**{inline_text(word)}**"
        case doc.Backticked():
            pieces = enumerate(_TICKED.split(word))
            return "".join(inline_code(piece) if number % 2 else inline_text(piece) for number, piece in pieces)
        case str():
            return inline_text(word)


def _table(table: doc.Table) -> str:
    if not table.rows and table.empty:
        return table.empty
    head = map(inline_text, table.head) if table.data else table.head
    sides = (" ---: |" if table.data and at in table.numbers else " --- |" for at in range(len(table.head)))
    lines = [f"| {' | '.join(head)} |", f"|{''.join(sides)}"]
    for row in table.shown:
        cells = [inline_code(cell) if at in table.code else inline_text(cell) for at, cell in enumerate(row)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", table.more] if table.more else lines)
