"""Names across files: find their definitions and uses, and rename them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from prose_kernel.language.diagnostics import Diagnostic
from prose_kernel.language.fixes import Edit, replaced
from prose_kernel.language.source import Span
from prose_kernel.language.symbols import ImportTarget, Occurrence, Symbol, SymbolIndex
from prose_kernel.lsp.documents import Document, Documents


class RenameRefused(Exception):
    """A name cannot be changed; the message gives the reason."""


class DocumentPart(Struct, frozen=True):
    """A part of a document."""

    document: Document
    span: Span


def definition(documents: Documents, document: Document, offset: int) -> DocumentPart | None:
    """Return the definition of the name at an offset, in this file or in an imported one."""
    occurrence = document.index.at(offset)
    if occurrence is None:
        return _linked_file(documents, document, offset)
    symbol = occurrence.symbol
    for target in (occurrence.target, symbol.target if symbol is not None else None):
        found = documents.target(document, target) if target is not None else None
        if found is not None and (found[1] is not None or (target is not None and not target.name)):
            return DocumentPart(found[0], found[1].span if found[1] is not None else Span(0, 0))
    return DocumentPart(document, symbol.span) if symbol is not None and not symbol.implicit else None


def _linked_file(documents: Documents, document: Document, offset: int) -> DocumentPart | None:
    """Return the file whose path is at an offset."""
    for span, path in document.index.links:
        if span.start <= offset <= span.end:
            found = documents.target(document, ImportTarget(path))
            return DocumentPart(found[0], Span(0, 0)) if found is not None else None
    return None


def references(documents: Documents, document: Document, occurrence: Occurrence) -> list[tuple[Document, Occurrence]]:
    """Return every place of a name in the workspace: of its symbol, of symbols in other files that share it, etc."""
    found: dict[tuple[str, int], tuple[Document, Occurrence]] = {}
    seen: set[tuple[str, int]] = set()
    agenda: list[tuple[Document, Symbol]] = []

    def add(where: Document, one: Occurrence) -> None:
        found.setdefault((where.uri, one.start), (where, one))
        if one.symbol is not None:
            agenda.append((where, one.symbol))
        if one.target is not None and one.target.name:
            other = documents.target(where, one.target)
            if other is not None and other[1] is not None:
                agenda.append((other[0], other[1]))

    add(document, occurrence)
    while agenda:
        where, symbol = agenda.pop()
        if (where.uri, id(symbol)) in seen:
            continue
        seen.add((where.uri, id(symbol)))
        for one in where.index.of(symbol):
            add(where, one)
        for importer in documents.importers(where) if symbol.shared else ():
            for one in _uses_in_importer(importer, where, symbol):
                add(importer, one)
    return sorted(found.values(), key=lambda one: (one[0].uri != document.uri, one[0].uri, one[1].start))


def _uses_in_importer(importer: Document, document: Document, symbol: Symbol) -> Iterator[Occurrence]:
    """Yield the places in an importing file that name a symbol of the imported file."""
    leads: dict[str, bool] = {}
    for one in importer.index.occurrences:
        if one.target is None or one.target.name not in symbol.shared:
            continue
        path = one.target.path
        if path not in leads:
            file = importer.file_of(path)
            leads[path] = file is not None and document.path is not None and file.samefile(document.path)
        if leads[path]:
            yield one


def renamable_name(document: Document, offset: int) -> tuple[Span, str]:
    """Return the span and the text of the name at an offset. Raises `RenameRefused` if it cannot be renamed."""
    occurrence = document.index.at(offset)
    if occurrence is None:
        raise RenameRefused(
            "only names of variables, parameters, agents, blocks, functions, imports and gates can be changed"
        )
    if occurrence.symbol is not None and occurrence.symbol.implicit:
        raise RenameRefused(f"`{occurrence.symbol.name}` is a name of the language")
    span = Span(occurrence.start, occurrence.end)
    name = occurrence.symbol.name if occurrence.symbol is not None else document.source.slice(span)
    return span, name


def rename(documents: Documents, document: Document, offset: int, name: str) -> list[tuple[Document, list[Edit]]]:
    """Return the edits that rename the symbol at an offset, wherever it is used.

    Raises `RenameRefused` if the new name is invalid, or if a name would get another meaning: the changed texts are
    compiled, and every name must refer to the same symbol as before.
    """
    _, before = renamable_name(document, offset)
    occurrence = document.index.at(offset)
    assert occurrence is not None
    if name == before:
        return []
    by_document: dict[str, tuple[Document, list[Occurrence]]] = {}
    for where, one in references(documents, document, occurrence):
        by_document.setdefault(where.uri, (where, []))[1].append(one)
    changes = [(where, _edits(places, name)) for where, places in by_document.values()]
    texts = {where.uri: replaced(where.source.text, edits) for where, edits in changes}
    for where, edits in changes:
        _check(documents, where, edits, texts, name)
    return changes


def _edits(places: Iterable[Occurrence], name: str) -> list[Edit]:
    edits: dict[int, Edit] = {}
    for one in places:
        edits[one.start] = Edit(Span(one.end if one.path else one.start, one.end), f"{one.before}{name}")
        following = one.following if one.before else None
        while following is not None:
            edits.setdefault(following.start, Edit(Span(following.start, following.start), following.before))
            following = following.following
    return sorted(edits.values())


def _check(documents: Documents, document: Document, edits: list[Edit], texts: Mapping[str, str], name: str) -> None:
    """Raise `RenameRefused` if the changed text has new errors, or if its names refer to other symbols."""
    changed = documents.changed(document, texts)
    for found in _new_errors(document.compiled.diagnostics, changed.compiled.diagnostics):
        place = f"line {found.line}" if document.path is None else f"{document.path.name}, line {found.line}"
        raise RenameRefused(f"`{name}` does not fit: {found.message} ({place}) [{found.code}]")
    expected = _moved(document.index, edits, name)
    found_there = {(one.start, one.end): one.symbol for one in changed.index.occurrences}
    meaning: dict[Symbol | None, Symbol | None] = {}
    back: dict[Symbol | None, Symbol | None] = {}
    for span, symbol in expected.items():
        other = found_there.get(span)
        known = span in found_there and meaning.setdefault(symbol, other) is other
        if not known or (symbol is not None and back.setdefault(other, symbol) is not symbol):
            line = changed.source.line_column(span[0])[0]
            taken = next((one for one in document.index.symbols if one.name == name), None)
            if taken is not None:
                line = document.source.line_column(taken.span.start)[0]
                raise RenameRefused(f"`{name}` is the name of another {taken.kind} already (line {line})")
            raise RenameRefused(f"`{name}` would mean something else, or is not a name (line {line})")


def _new_errors(before: Iterable[Diagnostic], after: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    old = Counter(found.code for found in before if found.severity == "error")
    for found in after:
        if found.severity == "error":
            old[found.code] -= 1
            if old[found.code] < 0:
                yield found


def _moved(index: SymbolIndex, edits: list[Edit], name: str) -> dict[tuple[int, int], Symbol | None]:
    """Return the places of an index as they are after the edits."""
    moved: dict[tuple[int, int], Symbol | None] = {}
    at, shift = 0, 0
    for one in index.occurrences:
        while at < len(edits) and edits[at].span.end <= one.start and edits[at].span.start < one.start:
            shift += len(edits[at].text) - (edits[at].span.end - edits[at].span.start)
            at += 1
        start, end = one.start + shift, one.end + shift
        if at < len(edits) and edits[at].span.start == one.start:
            edit = edits[at]
            begin = start + len(edit.text)
            width = len(name) if edit.span.end > edit.span.start else one.end - one.start
            start, end = (begin - width, begin) if edit.span.end > edit.span.start else (begin, begin + width)
        elif one.path and at < len(edits) and edits[at].span.start == one.end:
            start, end = end + len(edits[at].text) - len(name), end + len(edits[at].text)
        if one.symbol is None or not one.symbol.implicit:
            moved[(start, end)] = one.symbol
    return moved
