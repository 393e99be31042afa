"""An index of the definitions in a text and their uses, for editors. Each language fills it from its tree."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple

from msgspec import Struct, field

from prose_kernel.language.nodes import Node
from prose_kernel.language.source import Source, Span

SymbolKind = Literal[
    "variable", "constant", "parameter", "agent", "block", "function", "program", "gate", "export", "section"
]


class ImportTarget(NamedTuple):
    """The target of an import: the path as written, and a name in that file (as in `Symbol.shared`), or ""."""

    path: str
    name: str = ""


class Symbol(Struct, eq=False):
    """A named definition. `span` is the name at its first definition, `extent` the statement around it.

    `shared` holds the names by which other files know it: its kind there, a blank, its name (`output summary`).
    `target` is the definition in another file that it refers to. `implicit`: the language defines the name (`item`).
    `about` describes inputs and outputs to users if the statement around the name does not show them.
    """

    name: str
    kind: SymbolKind
    span: Span
    extent: Span
    shared: set[str] = field(default_factory=set)
    target: ImportTarget | None = None
    implicit: bool = False
    about: str = ""


class Occurrence(Struct, eq=False):
    """A place where a name is written. Without a symbol it only refers to a name in another file (`target`).

    A rename must also insert `before`: in `{a}` the name is the key, too, so that it becomes `{a: b}`. Then it must
    insert the `before` of the `following` place, and so on. `path`: the text here is an import path, from which the
    name is derived.
    """

    start: int
    end: int
    symbol: Symbol | None
    defines: bool = False
    target: ImportTarget | None = None
    before: str = ""
    path: bool = False
    following: Occurrence | None = None


class SymbolIndex(Struct, frozen=True):
    """The symbols of a text in the order of their definitions, all occurrences, and the paths of imports."""

    symbols: tuple[Symbol, ...] = ()
    occurrences: tuple[Occurrence, ...] = ()
    links: tuple[tuple[Span, str], ...] = ()

    def at(self, offset: int) -> Occurrence | None:
        """Return the occurrence that the offset is in, or directly after."""
        last = bisect_right(self.occurrences, offset, key=lambda one: one.start) - 1
        for one in reversed(self.occurrences[max(0, last - 1) : last + 1]):
            if one.start <= offset <= one.end:
                return one
        return None

    def of(self, symbol: Symbol) -> list[Occurrence]:
        """Return all occurrences of a symbol, in order."""
        return [one for one in self.occurrences if one.symbol is symbol]

    def shared(self, name: str) -> Symbol | None:
        """Return the symbol that other files know by this name."""
        return next((symbol for symbol in self.symbols if name in symbol.shared), None)


Visit = Callable[[Any, Any, Any], None]
_LEAF_TYPES: Final = (str, int, float, bool, type(None))


class Indexer:
    """Walks a tree without recursion and collects symbols. Each language has a subclass.

    `visits` maps kinds of nodes to methods, which get the node and its scope (any object that the language chooses).
    For other nodes, the parts are visited in the same scope.
    """

    visits: ClassVar[dict[type[Node], Visit]]

    def __init__(self, source: Source) -> None:
        self.source = source
        self.occurrences: list[Occurrence] = []
        self.links: list[tuple[Span, str]] = []
        self._agenda: list[tuple[Any, Any]] = []
        self._merged: dict[Symbol, Symbol] = {}

    def walk(self, parts: object, scope: Any) -> None:
        """Schedule the visit of a node, or of a tuple of nodes."""
        self._agenda.append((parts, scope))

    def run(self) -> None:
        """Visit everything that is scheduled, in no particular order."""
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

    def define(self, name: str, kind: SymbolKind, span: Span, extent: Span) -> Symbol:
        """Return a new symbol, after recording the place that defines it."""
        symbol = Symbol(name, kind, span, extent)
        self.use(symbol, span, defines=True)
        return symbol

    def bind(self, symbol: Symbol, kind: SymbolKind, span: Span, extent: Span) -> Occurrence:
        """Record a place that defines an existing symbol; the first one in the text determines its kind and span."""
        if not 0 <= symbol.span.start <= span.start:
            symbol.kind, symbol.span, symbol.extent = kind, span, extent
        return self.use(symbol, span, defines=True)

    def use(
        self,
        symbol: Symbol | None,
        span: Span,
        *,
        defines: bool = False,
        target: ImportTarget | None = None,
        before: str = "",
    ) -> Occurrence:
        """Record an occurrence of a name, and return it."""
        occurrence = Occurrence(span.start, span.end, symbol, defines, target, before)
        self.occurrences.append(occurrence)
        return occurrence

    def merge(self, symbols: Sequence[Symbol]) -> Symbol:
        """Merge symbols that one place may refer to into the first of them, and return it."""
        first = self.merged(symbols[0])
        for symbol in symbols[1:]:
            other = self.merged(symbol)
            if other is not first:
                self._merged[other] = first
                first.shared |= other.shared
        return first

    def merged(self, symbol: Symbol) -> Symbol:
        """Return the symbol that this one was merged into."""
        while symbol in self._merged:
            symbol = self._merged[symbol]
        return symbol

    def index(self) -> SymbolIndex:
        """Return the index of everything collected; of two overlapping occurrences the first is kept."""
        occurrences: list[Occurrence] = []
        for one in sorted(self.occurrences, key=lambda one: (one.start, one.end, not one.defines)):
            if one.symbol is not None:
                one.symbol = self.merged(one.symbol)
            if occurrences and one.start < occurrences[-1].end:
                if one.start == occurrences[-1].start:
                    occurrences[-1].target = occurrences[-1].target or one.target
                continue
            occurrences.append(one)
        kept = dict.fromkeys(one.symbol for one in occurrences if one.symbol is not None)
        symbols = sorted((one for one in kept if not one.implicit), key=lambda one: one.span)
        return SymbolIndex(tuple(symbols), tuple(occurrences), tuple(sorted(self.links)))


def comment_above(source: Source, offset: int) -> str:
    """Return the comment lines directly above the line of an offset, without their `#`."""
    line, _ = source.line_column(offset)
    found: list[str] = []
    while line > 1 and (text := source.line_text(line - 1).strip()).startswith("#"):
        found.append(text.lstrip("#").strip())
        line -= 1
    return "\n".join(reversed(found))
