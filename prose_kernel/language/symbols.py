"""The definitions of a text and their uses, for editors. Each language fills an `Index` from its tree."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, NamedTuple

from prose_kernel.language.nodes import Node
from prose_kernel.language.source import Source, Span

SymbolKind = Literal[
    "variable", "constant", "parameter", "agent", "block", "function", "program", "gate", "export", "section"
]


class Target(NamedTuple):
    """The target of an import: its path as written, and a name in that file as in `Symbol.shared`; "" for the file."""

    path: str
    name: str = ""


@dataclass(slots=True, eq=False)
class Symbol:
    """One thing that has a name. `span` is the name where it is first defined, `extent` the statement around it.

    `shared` are the names by which other files know it: what it is there, a blank, its name (`output summary`).
    `target` is what it refers to in another file. One that is `implicit` is named by the language (`item`). `about` is
    what it takes and gives, for people, where the statement around it doesn't show that.
    """

    name: str
    kind: SymbolKind
    span: Span
    extent: Span
    shared: set[str] = field(default_factory=set)
    target: Target | None = None
    implicit: bool = False
    about: str = ""


@dataclass(slots=True, eq=False)
class Occurrence:
    """A place where a name is written. Without a symbol it only names something in another file (`target`).

    `before` must be written in front of another name in this place: in `{a}` the name is also a key, so `{a: b}`. Then
    the `before` of the `following` place must be written too, and so on. `path`: the name comes from a path, which is
    at the place instead of the name.
    """

    start: int
    end: int
    symbol: Symbol | None
    defines: bool = False
    target: Target | None = None
    before: str = ""
    path: bool = False
    following: Occurrence | None = None


@dataclass(frozen=True, slots=True)
class Index:
    """The symbols of a text in the order of their definitions, all places of their names, and the paths of imports."""

    symbols: tuple[Symbol, ...] = ()
    occurrences: tuple[Occurrence, ...] = ()
    links: tuple[tuple[Span, str], ...] = ()

    def at(self, offset: int) -> Occurrence | None:
        """Return the name that the offset is in, or directly after."""
        last = bisect_right(self.occurrences, offset, key=lambda one: one.start) - 1
        for one in reversed(self.occurrences[max(0, last - 1) : last + 1]):
            if one.start <= offset <= one.end:
                return one
        return None

    def of(self, symbol: Symbol) -> list[Occurrence]:
        """Every place of a symbol's name, in order."""
        return [one for one in self.occurrences if one.symbol is symbol]

    def shared(self, name: str) -> Symbol | None:
        """The symbol that other files know by this name."""
        return next((symbol for symbol in self.symbols if name in symbol.shared), None)


Visit = Callable[[Any, Any, Any], None]
_LEAF_TYPES: Final = (str, int, float, bool, type(None))


class Indexer:
    """Walks a tree without recursion and collects symbols. A language subclasses it.

    `visits` maps kinds of nodes to methods that get the node and its scope, whatever a language makes of that; all
    others hand their parts on in the same scope.
    """

    visits: ClassVar[dict[type[Node], Visit]]

    def __init__(self, source: Source) -> None:
        self.source = source
        self.occurrences: list[Occurrence] = []
        self.links: list[tuple[Span, str]] = []
        self._agenda: list[tuple[Any, Any]] = []
        self._merged: dict[Symbol, Symbol] = {}

    def walk(self, parts: object, scope: Any) -> None:
        """Visit a node, or a tuple of them, later on."""
        self._agenda.append((parts, scope))

    def run(self) -> None:
        """Visit everything that is to be visited, in no particular order."""
        agenda, visits = self._agenda, self.visits
        while agenda:
            part, scope = agenda.pop()
            kind = type(part)
            if kind is tuple:
                agenda.extend((one, scope) for one in reversed(part) if not isinstance(one, _LEAF_TYPES))
            elif (visit := visits.get(kind)) is not None:
                visit(self, part, scope)
            elif isinstance(part, Node):
                agenda.append((part.fields(), scope))

    # ---- symbols

    def define(self, name: str, kind: SymbolKind, span: Span, extent: Span) -> Symbol:
        """A new symbol, and the place of its name."""
        symbol = Symbol(name, kind, span, extent)
        self.use(symbol, span, defines=True)
        return symbol

    def bind(self, symbol: Symbol, kind: SymbolKind, span: Span, extent: Span) -> Occurrence:
        """A place that defines a symbol, which was made beforehand; the first one in the text counts."""
        if not 0 <= symbol.span.start <= span.start:
            symbol.kind, symbol.span, symbol.extent = kind, span, extent
        return self.use(symbol, span, defines=True)

    def use(
        self,
        symbol: Symbol | None,
        span: Span,
        *,
        defines: bool = False,
        target: Target | None = None,
        before: str = "",
    ) -> Occurrence:
        """A place of a name."""
        occurrence = Occurrence(span.start, span.end, symbol, defines, target, before)
        self.occurrences.append(occurrence)
        return occurrence

    def merge(self, symbols: Sequence[Symbol]) -> Symbol:
        """Symbols that one place may mean are one: the first of them."""
        first = self.found(symbols[0])
        for symbol in symbols[1:]:
            other = self.found(symbol)
            if other is not first:
                self._merged[other] = first
                first.shared |= other.shared
        return first

    def found(self, symbol: Symbol) -> Symbol:
        """The symbol that this one has become."""
        while symbol in self._merged:
            symbol = self._merged[symbol]
        return symbol

    def index(self) -> Index:
        """The index of what was collected; of two places that overlap the first is kept."""
        occurrences: list[Occurrence] = []
        for one in sorted(self.occurrences, key=lambda one: (one.start, one.end, not one.defines)):
            if one.symbol is not None:
                one.symbol = self.found(one.symbol)
            if occurrences and one.start < occurrences[-1].end:
                if one.start == occurrences[-1].start:
                    occurrences[-1].target = occurrences[-1].target or one.target
                continue
            occurrences.append(one)
        kept = dict.fromkeys(one.symbol for one in occurrences if one.symbol is not None)
        symbols = sorted((one for one in kept if not one.implicit), key=lambda one: one.span)
        return Index(tuple(symbols), tuple(occurrences), tuple(sorted(self.links)))


def comment_above(source: Source, offset: int) -> str:
    """The comment lines directly above the line of an offset, without their `#`."""
    line, _ = source.line_column(offset)
    found: list[str] = []
    while line > 1 and (text := source.line_text(line - 1).strip()).startswith("#"):
        found.append(text.lstrip("#").strip())
        line -= 1
    return "\n".join(reversed(found))
