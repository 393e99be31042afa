"""Indexes the names of a contract file for editors: nodes, sections, inputs, outputs, the names and calls of scripts
(docs/reference/prose-md.md 10).
"""

from __future__ import annotations

from prose_kernel.language.contracts.compile import ContractProgram
from prose_kernel.language.contracts.interface import INPUT_SECTIONS, OUTPUT_SECTIONS
from prose_kernel.language.contracts.reader import field_span
from prose_kernel.language.contracts.units import FileUnit, Unit
from prose_kernel.language.openprose import symbols
from prose_kernel.language.openprose.parser import fenced_text
from prose_kernel.language.openprose.program_interface import KnownNames, LoadContract, known_in
from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace
from prose_kernel.language.symbols import Occurrence, Symbol, SymbolIndex


def index(program: ContractProgram, source: Source) -> SymbolIndex:
    """Return the index of the readable parts of a file. Never raises, and takes linear time."""
    return _FileIndexer(program.file).index()


class _FileIndexer:
    """Builds the index of one file. `_own` maps the names under which other files refer to nodes, inputs and outputs to
    their symbols."""

    def __init__(self, file: FileUnit) -> None:
        self._file = file
        self._own: dict[str, Symbol] = {}
        self._symbols: list[Symbol] = []
        self._occurrences: list[Occurrence] = []
        self._links: list[tuple[Span, str]] = []

    def index(self) -> SymbolIndex:
        units = [unit for unit in self._file.units if unit.node.kind]
        inputs = {unit: self._node(unit) for unit in units}
        for unit in units:
            if unit.has_script:
                self._script(unit, inputs[unit])
        found = sorted(self._symbols, key=lambda one: one.span)
        return SymbolIndex(
            tuple(found), tuple(sorted(self._occurrences, key=lambda one: one.start)), tuple(sorted(self._links))
        )

    def _node(self, unit: Unit) -> dict[str, Symbol]:
        """Add the symbols of a node; return those of its inputs by name."""
        start = unit.node.span.start if unit.node.inline else 0
        at = field_span(self._file.source.text, "name")
        named = not unit.node.inline and isinstance(self._file.contract.fields.get("name"), str)
        span = self._file.find(unit.name, at if named else unit.node.heading)
        extent = Span(start, unit.node.span.end)
        self._add(Symbol(unit.name, "function", span, extent, {f"node {unit.name}"}, about=unit.about))
        for section in unit.node.sections:
            title = self._file.find(section.title, section.heading) if section.title else section.heading
            self._symbols.append(Symbol(section.title, "section", title, Span(section.heading.start, section.body.end)))
        for output in unit.contract.outputs:
            self._declared(unit, output.name, OUTPUT_SECTIONS, "output")
        names = dict.fromkeys([*unit.interface().known(), *(one.name for one in unit.contract.inputs)])
        found = {name: self._declared(unit, name, INPUT_SECTIONS, "input") for name in names}
        return {name: symbol for name, symbol in found.items() if symbol is not None}

    def _declared(self, unit: Unit, name: str, sections: tuple[str, ...], kind: str) -> Symbol | None:
        item = unit.node.item(name, sections)
        if item is None:
            return None
        span = self._file.find(name, item.span)
        shared = symbols.shared_name(unit.target(), kind, name)
        symbol = Symbol(name, "parameter" if kind == "input" else "export", span, item.span, {shared})
        return self._add(symbol)

    def _add(self, symbol: Symbol) -> Symbol:
        self._symbols.append(symbol)
        self._occurrences.append(Occurrence(*symbol.span, symbol, defines=True))
        for name in symbol.shared:
            self._own.setdefault(name, symbol)
        return symbol

    def _script(self, unit: Unit, inputs: dict[str, Symbol]) -> None:
        compiled = unit.compiled
        found = symbols.index(compiled.program, compiled.source, inputs)
        self._links += found.links
        self._symbols += [one for one in found.symbols if one not in inputs.values()]
        for one in found.occurrences:
            if one.target is not None and one.target.path == self._file.address:
                one.symbol, one.target = self._own.get(one.target.name, one.symbol), None
            if one.symbol is not None or one.target is not None:
                self._occurrences.append(one)


def script_at(program: ContractProgram, offset: int, load: LoadContract) -> tuple[str, KnownNames] | None:
    """Return the text of the script before an offset, without the file around it, and the names that it may refer to;
    None outside of scripts."""
    for unit in program.file.units:
        for at, fence in enumerate(unit.node.fences):
            if fence.inside.start <= offset <= fence.inside.end:
                before = [(one.inside, one.margin) for one in unit.node.fences[:at]]
                parts = [*before, (Span(fence.inside.start, offset), fence.margin)]
                interface = unit.interface()
                known = known_in(unit.compiled.program, load)
                known = replace(known, variables=interface.known(), targets=interface.targets)
                return fenced_text(unit.file.source, parts).text, known
    return None
