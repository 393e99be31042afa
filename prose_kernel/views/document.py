"""Documents, independent of their rendered form: blocks of words. A view returns a document, and each front end renders
it: `plain_text` for terminals and `text/plain`, `bundle` for notebooks, `page` for HTML pages.

A `str` is untrusted text, which renderers escape; `Trusted` is text of the project. The rendered forms differ only
where a class documents it, such as `Trusted.plain` and `Listing.indent`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct, field

from prose_kernel.language.text import screen_width
from prose_kernel.views.escaping import visible

# ---------------------------------------------------------------- words


class Code(str): ...


class Strong(str): ...


class Backticked(str):
    """Text in which backticks mark code."""


class Trusted(Struct, frozen=True):
    """Text of the project, which needs no escaping: Markdown, and plain text if that differs."""

    markdown: str
    plain: str | None = None


Word: TypeAlias = str | Trusted

# ---------------------------------------------------------------- blocks


class Paragraph(Struct, frozen=True):
    words: tuple[Word, ...]


class Items(Struct, frozen=True):
    """A list; each item is a line of words. `indent` is the indentation in plain text, which has no bullets."""

    items: Sequence[Sequence[Word]]
    indent: int = 2


class Fields(Struct, frozen=True):
    """Names with their values, each on one line; names without a value are omitted. `indent` is the indentation in
    plain text, in which the values are aligned."""

    fields: Sequence[tuple[str, str]]
    indent: int = 2


class Listing(Struct, frozen=True):
    """Verbatim text, such as a program. `rest` describes the omitted end; `indent` is the indentation in plain text."""

    text: str
    language: str = ""
    rest: str = ""
    indent: int = 0


class Untrusted(Struct, frozen=True):
    """Markdown from a session or a file: its formatting is shown, and active content is removed."""

    text: str
    rest: str = ""


MAX_ROWS: Final = 1000
"""The most rows of a table that are shown."""


class Table(Struct, frozen=True):
    """Rows of cells, each one line. Columns in `code` are code in notebooks. Pages align columns in `numbers` right;
    other forms do so in a table of `data`, whose head is untrusted text, too. `empty` is shown if there are no rows.
    `most` rows are shown (None: all); `left_out` counts rows that are missing here; `rest` describes the omitted rows.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    code: Collection[int] = (0,)
    numbers: Collection[int] = ()
    empty: str = ""
    indent: int = 0
    most: int | None = MAX_ROWS
    data: bool = False
    rest: str = ""
    left_out: int = 0

    @property
    def shown(self) -> Sequence[Sequence[str]]:
        return self.rows[: self.most]

    @property
    def more(self) -> str:
        """The description of omitted rows; "" if there are none."""
        if self.rest:
            return f"… ({self.rest})"
        left_out = len(self.rows) - len(self.shown) + self.left_out
        return f"… and {left_out:,} more" if left_out else ""


class Group(Struct, frozen=True):
    """Blocks in order; `gap` separates them in plain text. `facts` differ from run to run (`Display.facts`)."""

    blocks: tuple[Block, ...]
    gap: str = "\n"
    facts: Mapping[str, object] = field(default_factory=dict)


class Rich(Struct, frozen=True):
    """A block with a different block as its plain text; without `plain`, plain text omits it."""

    rich: Block
    plain: Block | None = None


Block: TypeAlias = Paragraph | Items | Fields | Listing | Untrusted | Table | Group | Rich


def line(*words: Word) -> Paragraph:
    return Paragraph(words)


def paragraph(text: str, plain: str | None = None) -> Paragraph:
    """Return a paragraph of the project's text: Markdown, and plain text if that differs."""
    return Paragraph((Trusted(text, plain),))


def group(*blocks: Block | None, gap: str = "\n", facts: Mapping[str, object] | None = None) -> Group:
    return Group(tuple(block for block in blocks if block is not None), gap, facts or {})


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 cell`, `2,000 branches`."""
    plural = "" if number == 1 else "es" if noun.endswith(("s", "ch")) else "s"
    return f"{number:,} {noun}{plural}"


# ---------------------------------------------------------------- plain text


def plain_text(block: Block) -> str:
    match block:
        case Paragraph(words):
            return "".join(map(_word, words))
        case Items(items, indent):
            return "\n".join(" " * indent + "".join(map(_word, words)) for words in items)
        case Fields(fields, indent):
            return _table(Table((), [field for field in fields if field[1]], indent=indent, most=None))
        case Listing(text, _, rest, indent):
            lines = visible(text)
            if indent:
                lines = "\n".join(f"{' ' * indent}{line}".rstrip() for line in lines.split("\n"))
            return f"{lines}\n… ({rest})" if rest else lines
        case Untrusted(text, rest):
            return f"{visible(text)}\n… ({rest})" if rest else visible(text)
        case Table():
            return _table(block)
        case Group(blocks, gap):
            return gap.join(plain_text(part) for part in blocks if getattr(part, "plain", part) is not None)
        case Rich(_, plain):
            return plain_text(plain) if plain is not None else ""


def _word(word: Word) -> str:
    if isinstance(word, str):
        return visible(word)
    return word.markdown if word.plain is None else word.plain


def _padded(cell: str, width: int, right: bool) -> str:
    room = " " * (width - screen_width(cell))
    return room + cell if right else cell + room


def _table(table: Table) -> str:
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
