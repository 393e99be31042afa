"""Render documents as text that is complete by itself, for terminals and `text/plain`."""

from __future__ import annotations

from prose_kernel.language.text import screen_width
from prose_kernel.views import document as doc
from prose_kernel.views.escaping import visible


def plain_text(block: doc.Block) -> str:
    match block:
        case doc.Paragraph(words):
            return "".join(map(_word, words))
        case doc.Items(items, indent):
            return "\n".join(" " * indent + "".join(map(_word, words)) for words in items)
        case doc.Fields(fields, indent):
            return _table(doc.Table((), [field for field in fields if field[1]], indent=indent, most=None))
        case doc.Listing(text, _, rest, indent):
            lines = visible(text)
            if indent:
                lines = "\n".join(f"{' ' * indent}{line}".rstrip() for line in lines.split("\n"))
            return f"{lines}\n… ({rest})" if rest else lines
        case doc.Untrusted(text, rest):
            return f"{visible(text)}\n… ({rest})" if rest else visible(text)
        case doc.Table():
            return _table(block)
        case doc.Group(blocks, gap):
            return gap.join(plain_text(part) for part in blocks if getattr(part, "plain", part) is not None)
        case doc.Rich(_, plain):
            return plain_text(plain) if plain is not None else ""


def _word(word: doc.Word) -> str:
    if isinstance(word, str):
        return visible(word)
    return word.markdown if word.plain is None else word.plain


def _padded(cell: str, width: int, right: bool) -> str:
    room = " " * (width - screen_width(cell))
    return room + cell if right else cell + room


def _table(table: doc.Table) -> str:
    if not table.rows and table.empty:
        return table.empty
    rows = [table.head, *table.shown] if any(table.head) else table.shown
    cells = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(screen_width, column)) for column in zip(*cells, strict=True)]
    if table.data:
        cells.insert(1, ["-" * width for width in widths])
    right = table.numbers if table.data else ()
    lines = [
        " " * table.indent + "  ".join(_padded(cell, widths[at], at in right) for at, cell in enumerate(row)).rstrip()
        for row in cells
    ]
    return "\n".join([*lines, table.more] if table.more else lines)
