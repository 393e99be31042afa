"""Display files and images (docs/how-to/data-and-images.md).

Untrusted content is shown but inert: SVG is cleaned and shown as an image, HTML is put into a frame without scripts,
origin or network access, Markdown keeps only its formatting. A broken file becomes one line that reports it.
`text/plain` is complete by itself, for terminals.
"""

from __future__ import annotations

from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING, Any, Final

from prose_kernel.runtime.command_data import Sample
from prose_kernel.runtime.data_formats import NotData, parse
from prose_kernel.runtime.images import Picture, picture
from prose_kernel.runtime.json_data import indented, json_text
from prose_kernel.runtime.ports import ShownFile
from prose_kernel.views import document as doc
from prose_kernel.views.bundle import bundle, card, small
from prose_kernel.views.display import Display
from prose_kernel.views.document import counted
from prose_kernel.views.escaping import Html, clip, html, inline_text, preview, tag, visible
from prose_kernel.views.tables_of_values import ValueTable, sample_table, table_of

if TYPE_CHECKING:
    from nbformat import NotebookNode

LINES: Final = 200
CHARACTERS: Final = 20_000
CELLS: Final = 40
"""The most cells of a notebook that are shown."""
_OUTPUT: Final = 20
"""The most lines of one output of a cell."""
_FRAME: Final = "width: 100%; height: 360px; border: 1px solid rgba(128, 128, 128, 0.5); background: white"
_POLICY: Final = (
    "default-src 'none'; img-src data:; media-src data:; font-src data:; style-src 'unsafe-inline'; form-action 'none'"
)
_NATIVE: Final = frozenset({"image/png", "image/jpeg", "application/pdf"})
"""Types that front ends and nbconvert display; other images are put into HTML."""


def file_display(file: ShownFile, *, scripts: bool = False) -> Display:
    """Return the display of a file. With `scripts`, the scripts of an HTML page run, in a frame that can access the
    network but not the notebook."""
    if (drawn := picture(file.data)) is not None:
        return image_display(file.data, drawn, file.name)
    match file.media:
        case "image/svg+xml":
            return _svg(file)
        case "text/html":
            return _page(file, scripts)
        case "text/csv" | "application/jsonl":
            table = _rows(file)
            return table.display(file.name) if table is not None else _plain(file)
        case "application/x-ipynb+json":
            return _notebook(file)
        case "application/json":
            return _json(file)
        case "text/markdown":
            return bundle(doc.Untrusted(*_text(file)))
        case _:
            return _plain(file)


# ---------------------------------------------------------------- images


def image_display(data: bytes, drawn: Picture | None = None, title: str = "") -> Display:
    """Return a display of a PNG, JPEG, GIF, WebP or PDF; for broken data, a line that reports it."""
    drawn = drawn or picture(data)
    if drawn is None:
        return Display({"text/plain": "(no image)"})
    text = f"{visible(title)}: {drawn.text}" if title else drawn.text
    if drawn.broken:
        return _broken(text)
    if drawn.media in _NATIVE:
        return Display({drawn.media: b64encode(data).decode("ascii"), "text/plain": text})
    return Display({"text/html": image_html(drawn.media, data, text), "text/plain": text})


def image_html(media: str, data: bytes, text: str, style: str = "max-width: 100%") -> Html:
    """Return the bytes of an image as HTML; `text` is its alternative text."""
    return tag("img", src=f"data:{media};base64,{b64encode(data).decode('ascii')}", alt=text, style=style)


def _broken(text: str) -> Display:
    return card([html(text)], [visible(text)], bad=True)


def _svg(file: ShownFile) -> Display:
    from prose_kernel.views.svg import NotDrawn, drawing

    head = f"{visible(file.name)}: SVG image"
    try:
        drawn = drawing(file.data)
    except NotDrawn as problem:
        return _broken(f"{head}, {counted(file.size, 'byte')}, broken: {problem}")
    size = f", {drawn.width:,} × {drawn.height:,}" if drawn.width else ""
    text = f"{head}{size}, {counted(file.size, 'byte')}"
    removed = f"removed: {', '.join(drawn.removed)}" if drawn.removed else ""
    shape = "max-width: 100%" if drawn.width else "width: 100%"
    image = image_html("image/svg+xml", drawn.text.encode("utf-8", "replace"), text, shape)
    markup = html(image, small(removed) if removed else "")
    return Display({"text/html": markup, "text/plain": f"{text}; {removed}" if removed else text})


# ---------------------------------------------------------------- pages


def _page(file: ShownFile, scripts: bool) -> Display:
    """Return an HTML page in a frame. If the HTML is sanitised, as in an untrusted notebook, only the line above the
    frame remains."""
    text = f"{visible(file.name)}: HTML page, {counted(file.size, 'byte')}"
    policy = "" if scripts else f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    source = escape(f"<!DOCTYPE html>{policy}{_decoded(file.data)}")
    sandbox = "allow-scripts" if scripts else ""
    frame = f'<iframe sandbox="{sandbox}" referrerpolicy="no-referrer" style="{_FRAME}" srcdoc="{source}"></iframe>'
    return Display({"text/html": f"{small(text)}{frame}", "text/plain": text})


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


# ---------------------------------------------------------------- data and texts


def file_text(file: ShownFile, width: int) -> str:
    """Return a file as text for a terminal with `width` columns."""
    table = _rows(file) if file.rows else None
    if table is None:
        return file_display(file).data["text/plain"]
    return f"{visible(file.name)}\n{table.fitted(width)}"


def _rows(file: ShownFile) -> ValueTable | None:
    return sample_table(Sample(file.rows, file.total, file.note), texts=file.media == "text/csv")


def _json(file: ShownFile) -> Display:
    text = _decoded(file.data)
    try:
        value = parse(text, "json")
    except NotData as problem:
        where = f"line {problem.line:,}, column {problem.column:,}"
        return _broken(f"{visible(file.name)}: JSON, {counted(file.size, 'byte')}, broken: {problem.reason} at {where}")
    if (table := table_of(value)) is not None:
        return table.display(file.name)
    shown, rest = preview(indented(json_text(value)), LINES, CHARACTERS)
    return Display({"text/plain": _with_rest(f"{visible(file.name)}:\n{shown}", rest)})


def _text(file: ShownFile) -> tuple[str, str]:
    """Return the beginning of a text file, and a description of the omitted rest."""
    text = file.data.decode("utf-8", "replace")
    lines = text[:CHARACTERS].split("\n")
    shown = "\n".join(lines[:LINES]).rstrip("\n")
    is_cut = len(shown) < len(text.rstrip("\n")) or file.size > len(file.data)
    rest = f"{counted(file.size, 'byte')} in all" if is_cut else ""
    return shown, "; ".join(filter(None, (rest, file.note)))


def _plain(file: ShownFile) -> Display:
    shown, rest = _text(file)
    return Display({"text/plain": _with_rest(f"{visible(file.name)}:\n{visible(shown)}", rest)})


def _with_rest(shown: str, rest: str) -> str:
    return f"{shown}\n… ({rest})" if rest else shown


# ---------------------------------------------------------------- notebooks


def _notebook(file: ShownFile) -> Display:
    """Return the cells of a notebook in short: texts, programs, and the beginnings of their outputs."""
    import nbformat

    try:
        book = nbformat.reads(_decoded(file.data), as_version=4)  # type: ignore[no-untyped-call]
        cells = [*book.cells]
        info = book.metadata.get("language_info") or {}
        shown = [part for cell in cells[:CELLS] for part in _cell(cell, str(info.get("name", "")))]
    except Exception as problem:  # nbformat raises many exceptions; only some have a readable message
        readable = isinstance(problem, (ValueError, nbformat.ValidationError)) and "object has no" not in str(problem)
        reason = (readable and clip(str(problem), 100)) or "its parts are not those of a notebook"
        return _broken(f"{visible(file.name)}: notebook, {counted(file.size, 'byte')}, broken: {reason}")
    head = f"{visible(file.name)}: notebook, {counted(len(cells), 'cell')}"
    rest = f"{len(cells) - CELLS:,} more cells" if len(cells) > CELLS else ""
    found = doc.group(doc.paragraph(f"*{inline_text(head)}*", head), *shown, gap="\n\n")
    return bundle(doc.group(found, doc.paragraph(f"… ({rest})") if rest else None))


def _cell(cell: NotebookNode, language: str) -> list[doc.Block]:
    """Return the blocks of a cell: its source, and each of its outputs."""
    source, rest = preview(str(cell.source), LINES, CHARACTERS)
    source = _with_rest(source, rest)
    if cell.cell_type == "markdown":
        return [doc.Untrusted(source)] if source.strip() else []
    highlighting = language if cell.cell_type == "code" and language.isalnum() else ""
    found: list[doc.Block] = [doc.Listing(source, highlighting)] if source.strip() else []
    for output in cell.get("outputs", ()):
        if text := _output_text(output):
            shown, rest = preview(text, _OUTPUT, 2000)
            found.append(doc.Listing(_with_rest(shown, rest), indent=2))
    return found


def _output_text(output: NotebookNode) -> str:
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    data: dict[str, Any] = output.get("data", {})
    if "text/plain" in data and not any(one.startswith("image/") for one in data):
        return str(data["text/plain"])
    return f"[{', '.join(sorted(data))}]"
