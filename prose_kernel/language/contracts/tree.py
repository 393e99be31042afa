"""The contents of a contract file: nodes, their sections, the items of these (prose-md.md 1.3 to 1.5). All have
spans."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

from prose_kernel.language.contracts.layout import Block
from prose_kernel.language.source import Source, Span

Kind = Literal["responsibility", "function", "gateway", "pattern", "test", ""]
"""The kind of a node; "" for one that this version does not know."""
SCRIPT: Final = re.compile(r"prose(?=\s|\Z)")
NOTEBOOK: Final = "prose-notebook"
"""The word of a fence that holds a cell with magics, which only a notebook runs. It isn't part of its node (10)."""


MISSING: Final = object()
"""There is no default."""


@dataclass(frozen=True, slots=True)
class Item:
    """A bullet with all its lines, or a `####` part of a section.

    `names` are those that it declares, as written (`a`, `report.title`, `rows[]`); none for a promise in words.
    `text` is what follows them, without the sign between, its lines joined; `remark` what parentheses before that say.
    `head` is the place of its first name, or of its text.
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
        """All of its text after the names, the remark first."""
        return f"{self.remark} {self.text}".strip()

    @property
    def roots(self) -> tuple[str, ...]:
        """The names without the paths after them, each once."""
        return tuple(dict.fromkeys(name.removesuffix("[]").partition(".")[0].removesuffix("[]") for name in self.names))


@dataclass(frozen=True, slots=True)
class Section:
    """A `###` section. `name` is the known name in its usual spelling, "" for documentation.

    `heading` is the line of its heading, `body` all below it up to the next `###` or `##`; `text` is the body with
    what follows a colon in the heading. `parts` are its `####` headings with their text.
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
        """Its heading without the end of the line."""
        return Span(self.heading.start, max(self.heading.start, self.heading.end - 1))


@dataclass(frozen=True)
class Node:
    """A node of a file: the file's own, or an inline one, which begins with a `##` heading.

    `span` is all of its text, `heading` its `##` line, or the `kind:` line of the file's own.
    """

    name: str
    kind: Kind
    span: Span
    heading: Span
    inline: bool
    sections: tuple[Section, ...] = ()

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return next((one for one in self.sections if one.name == name), None)

    def items(self, name: str) -> tuple[Item, ...]:
        found = self.section(name)
        return found.items if found is not None else ()

    def item(self, name: str, sections: Sequence[str]) -> Item | None:
        """The bullet or part of some sections that declares a name."""
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
        """The fences of the script."""
        found = self.script_section
        return tuple(one for one in found.fences if SCRIPT.match(one.text)) if found is not None else ()


@dataclass(frozen=True, slots=True)
class ContractFile:
    """A file as read. `blocks` tile it; `nodes` are in its order, its own first. `fields` are those of the front
    matter; `title` is that of its `#` heading."""

    source: Source
    blocks: tuple[Block, ...]
    nodes: tuple[Node, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""

    @property
    def own(self) -> Node:
        return self.nodes[0]
