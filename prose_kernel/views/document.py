"""Documents, independent of their rendered form: blocks of words. A view returns a document, and each front end renders
it: `plain_text` for terminals, `bundle` for notebooks, `page` for HTML pages.

A `str` is untrusted text, which renderers escape; `Own` holds the project's own text. The rendered forms differ only
where a class documents it, as `Own.plain` and `Listing.indent` do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

# ---------------------------------------------------------------- words


class Code(str): ...


class Strong(str): ...


class Ticked(str):
    """Text in which backticks mark code."""


@dataclass(frozen=True, slots=True)
class Own:
    """The project's own text, which needs no escaping: Markdown, and plain text if that differs."""

    markdown: str
    plain: str | None = None


Word: TypeAlias = str | Own

# ---------------------------------------------------------------- blocks


@dataclass(frozen=True, slots=True)
class Paragraph:
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Items:
    """A list: an item is a line of words. `indent` is that of plain text, which shows no marks."""

    items: Sequence[Sequence[Word]]
    indent: int = 2


@dataclass(frozen=True, slots=True)
class Fields:
    """Names with their values, each one line; those without a value are left out. `indent` is that of plain text, in
    which the values are below each other."""

    fields: Sequence[tuple[str, str]]
    indent: int = 2


@dataclass(frozen=True, slots=True)
class Listing:
    """Text as it is, such as a program. `rest` says what is left out at its end; `indent` is that of plain text."""

    text: str
    language: str = ""
    rest: str = ""
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Foreign:
    """Markdown that a session or a file holds: its formatting is shown, and nothing in it acts."""

    text: str
    rest: str = ""


MOST: Final = 1000
"""Rows of a table that are shown."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, each one line. Columns in `code` are code in notebooks. Pages set those in `numbers` on the right;
    the other forms do so in a table of `data`, whose head is text of others too. `empty` is shown when there are no
    rows. `most` rows are shown (None: all); `left_out` counts others that are not here.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    code: Collection[int] = (0,)
    numbers: Collection[int] = ()
    empty: str = ""
    indent: int = 0
    most: int | None = MOST
    data: bool = False
    rest: str = ""
    left_out: int = 0

    @property
    def shown(self) -> Sequence[Sequence[str]]:
        return self.rows[: self.most]

    @property
    def more(self) -> str:
        """The rows that are left out, in words."""
        if self.rest:
            return f"… ({self.rest})"
        left_out = len(self.rows) - len(self.shown) + self.left_out
        return f"… and {left_out:,} more" if left_out else ""


@dataclass(frozen=True, slots=True)
class Group:
    """Blocks in order; `gap` is between them in plain text. `facts` differ from run to run (`Display.facts`)."""

    blocks: tuple[Block, ...]
    gap: str = "\n"
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forms:
    """A block with a different block as its plain text; without `plain`, plain text omits it."""

    rich: Block
    plain: Block | None = None


Block: TypeAlias = Paragraph | Items | Fields | Listing | Foreign | Table | Group | Forms


def line(*words: Word) -> Paragraph:
    return Paragraph(words)


def paragraph(text: str, plain: str | None = None) -> Paragraph:
    """Return a paragraph of the project's own text: Markdown, and plain text if that differs."""
    return Paragraph((Own(text, plain),))


def group(*blocks: Block | None, gap: str = "\n", facts: Mapping[str, object] | None = None) -> Group:
    return Group(tuple(block for block in blocks if block is not None), gap, facts or {})


def counted(number: int, what: str) -> str:
    """A number of things: `1 cell`, `2,000 branches`."""
    plural = "" if number == 1 else "es" if what.endswith(("s", "ch")) else "s"
    return f"{number:,} {what}{plural}"
