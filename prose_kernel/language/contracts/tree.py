"""The contents of a contract file: blocks, nodes, sections and items, all with spans (prose-md.md 1.2 to 1.5)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal

from msgspec import Struct, field

from prose_kernel.language.source import Source, Span

BlockKind = Literal["frontmatter", "heading", "fence", "text"]
Kind = Literal["responsibility", "function", "gateway", "pattern", "test", ""]
"""The kind of a node; "" if it is unknown."""
SCRIPT: Final = re.compile(r"prose(?=\s|\Z)")
"""Matches the info string of a fence that is part of a script."""
NOTEBOOK: Final = "prose-notebook"
"""The info string of a fence with a cell that has magics. Only a notebook runs it; it isn't part of the node (10)."""
MISSING: Final = object()
"""Marks an item without a default."""


class Block(Struct, frozen=True):
    """A part of a file. The blocks of a file, in order, cover it without gaps.

    - `text`: the title of a heading, or the info string of a fence
    - `level`: the number of `#` of a heading
    - `inside`: the lines of a fence without its markers, or the YAML of the front matter
    - `margin`, `closed`: the indentation of a fence's opener in characters, and whether the fence has an end
    """

    kind: BlockKind
    span: Span
    text: str = ""
    level: int = 0
    inside: Span = Span(0, 0)
    margin: int = 0
    closed: bool = True


class Item(Struct, frozen=True):
    """A bullet with all its lines, or a `####` part of a section.

    - `names`: the declared names, as written (`a`, `report.title`, `rows[]`); empty for a promise in words
    - `remark`: the text in parentheses after the names
    - `text`: the text after names and remark, without the separator, its lines joined
    - `head`: the span of the first name, or of the text; the line of a `####` heading
    - `open`: the item is `...`, which means that undeclared inputs are accepted
    """

    names: tuple[str, ...]
    remark: str
    text: str
    span: Span
    head: Span
    optional: bool = False
    default: Any = MISSING
    open: bool = False

    @property
    def words(self) -> str:
        """The remark and the text."""
        return f"{self.remark} {self.text}".strip()

    @property
    def roots(self) -> tuple[str, ...]:
        """The names without the paths after them, each once."""
        return tuple(dict.fromkeys(name.removesuffix("[]").partition(".")[0].removesuffix("[]") for name in self.names))


class Section(Struct, frozen=True):
    """A `###` section.

    - `name`: the known name in its usual spelling, "" for documentation
    - `heading`, `body`: the spans of the heading's line, and of the text up to the next `###` or `##`
    - `text`: the body, preceded by the text after a colon in the heading
    - `parts`: the `####` headings with their texts
    """

    name: str
    title: str
    heading: Span
    body: Span
    text: str
    fences: tuple[Block, ...] = ()
    items: tuple[Item, ...] = ()
    parts: tuple[Item, ...] = ()

    @property
    def line(self) -> Span:
        """The heading without its line break."""
        return Span(self.heading.start, max(self.heading.start, self.heading.end - 1))


class ContractNode(Struct, frozen=True, dict=True):
    """A node of a file: the file's own, or an inline one, which begins with a `##` heading.

    `span` is the whole node, `heading` the line with `##`, or with `kind:` for the file's own node.
    """

    name: str
    kind: Kind
    span: Span
    heading: Span
    inline: bool
    sections: tuple[Section, ...] = ()

    def section(self, name: str) -> Section | None:
        """Return the first section with this name, None without one."""
        return next((one for one in self.sections if one.name == name), None)

    def items(self, name: str) -> tuple[Item, ...]:
        found = self.section(name)
        return found.items if found is not None else ()

    def item(self, name: str, sections: Sequence[str]) -> Item | None:
        """Return the bullet or part that declares a name in the first of `sections` that has one."""
        return next((found for one in sections if (found := self._declared.get((one, name))) is not None), None)

    @cached_property
    def _declared(self) -> dict[tuple[str, str], Item]:
        items = ((one.name, item) for one in self.sections for item in (*one.items, *one.parts))
        found: dict[tuple[str, str], Item] = {}
        for section, item in items:
            for name in item.roots:
                found.setdefault((section, name), item)
        return found

    @property
    def script_section(self) -> Section | None:
        """The section that may hold a script (3.1)."""
        return self.section("Delegation" if self.kind == "pattern" else "Execution")

    @cached_property
    def fences(self) -> tuple[Block, ...]:
        found = self.script_section
        return tuple(one for one in found.fences if SCRIPT.match(one.text)) if found is not None else ()


class ContractFile(Struct, frozen=True):
    """The contents of a file. `nodes` are in source order, the file's own first; `fields` are those of the front
    matter; `title` is the text of the `#` heading."""

    source: Source
    blocks: tuple[Block, ...]
    nodes: tuple[ContractNode, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""

    @property
    def own(self) -> ContractNode:
        return self.nodes[0]
