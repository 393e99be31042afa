"""Answer an editor's requests about one document, in the types of the protocol."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from lsprotocol import types

from prose_kernel.language.diagnostics import Diagnostic
from prose_kernel.language.fixes import Edit, Fix, is_improvement, replaced
from prose_kernel.language.incomplete_text import kind_at, literals
from prose_kernel.language.nodes import walk
from prose_kernel.language.source import Source, Span
from prose_kernel.language.symbols import Symbol, comment_above
from prose_kernel.language.word_catalogue import Offer
from prose_kernel.lsp.documents import Document, Documents, OpenText, Position, files_of, uri_of
from prose_kernel.lsp.names import definition
from prose_kernel.runs import reference_pages
from prose_kernel.views.bundle import markdown
from prose_kernel.views.escaping import fenced
from prose_kernel.views.word_help import documentation, entry_of, is_property, matching, paths, word_at

_MAX_DIAGNOSTICS: Final = 1_000
"""The most diagnostics of one document."""
_MAX_FIXES: Final = 20
"""The most diagnostics of one request for which fixes are tried: each fix is compiled."""
_MAX_LINES: Final = 12
"""The most lines of a definition that hovering shows."""

_SYMBOLS: Final = {
    "variable": types.SymbolKind.Variable,
    "constant": types.SymbolKind.Constant,
    "agent": types.SymbolKind.Class,
    "block": types.SymbolKind.Function,
    "function": types.SymbolKind.Function,
    "program": types.SymbolKind.Module,
    "gate": types.SymbolKind.Event,
    "export": types.SymbolKind.Property,
    "section": types.SymbolKind.Namespace,
}
_ITEMS: Final = {
    "variable": types.CompletionItemKind.Variable,
    "agent": types.CompletionItemKind.Class,
    "block": types.CompletionItemKind.Function,
    "function": types.CompletionItemKind.Function,
    "program": types.CompletionItemKind.Module,
    "keyword": types.CompletionItemKind.Keyword,
    "property": types.CompletionItemKind.Property,
    "value": types.CompletionItemKind.Value,
    "path": types.CompletionItemKind.File,
}
TOKENS: Final = types.SemanticTokensLegend(
    ["variable", "parameter", "class", "function", "namespace", "event", "property"], ["definition", "readonly"]
)
_TOKEN: Final = {
    "variable": 0, "constant": 0, "parameter": 1, "agent": 2, "block": 3, "function": 3, "program": 4, "gate": 5,
    "export": 6,
}  # fmt: skip


def to_range(text: OpenText, span: Span) -> types.Range:
    start, end = text.range(span)
    return types.Range(types.Position(*start), types.Position(*end))


# ---------------------------------------------------------------- diagnostics


def diagnostics(document: Document, related: bool = True) -> list[types.Diagnostic]:
    """Return the diagnostics of a document. Errors of an imported file are reported at the import, with their place.
    `related`: the editor shows related information; otherwise hints are in the messages.

    Returns none for a notebook, which an editor sends as one text: only its kernel knows magics and earlier names.
    """
    if document.path is not None and document.path.suffix == ".ipynb":
        return []
    found = document.compiled.diagnostics
    own = [_diagnostic(document, one, related) for one in found if not one.file]
    others: dict[str, Diagnostic] = {}
    for one in found:
        if one.file and one.severity == "error":
            others.setdefault(one.file, one)
    return [*own, *(_import_error(document, one, related) for one in others.values())][:_MAX_DIAGNOSTICS]


def _diagnostic(document: Document, one: Diagnostic, related: bool) -> types.Diagnostic:
    where = to_range(document.text, one.span)
    hint = one.hint and f"hint: {one.hint}"
    if hint and not related:
        return _as_protocol(one, where, f"{one.message}\n{hint}", None, None)
    return _as_protocol(one, where, one.message, types.Location(document.uri, where), hint)


def _import_error(document: Document, one: Diagnostic, related: bool) -> types.Diagnostic:
    """Report an error in another file, at the import of that file, or else at the first import."""
    folder = document.path.parent if document.path is not None else None
    file = (folder / one.file).resolve() if folder is not None else None
    files = files_of(document)
    links = document.index.links
    span = next((span for span, path in links if path in files and files[path].resolve() == file), None)
    span = span or (links[0][0] if links else Span(0, 0))
    there = types.Position(one.line - 1, one.column - 1)
    place = types.Location(uri_of(file), types.Range(there, there)) if file is not None and related else None
    message = f"{one.file} has errors, line {one.line}: {one.message}"
    return _as_protocol(one, to_range(document.text, span), message, place, one.message)


def _as_protocol(
    one: Diagnostic, where: types.Range, message: str, place: types.Location | None, about: str | None
) -> types.Diagnostic:
    """Return a diagnostic with this message; `about` is the text for the related `place`."""
    heading = reference_pages.heading(reference_pages.page_of(one.code), one.code)
    reference = types.CodeDescription(f"{uri_of(heading.path)}#{heading.anchor}") if heading is not None else None
    return types.Diagnostic(
        where,
        message,
        severity=types.DiagnosticSeverity.Error if one.severity == "error" else types.DiagnosticSeverity.Warning,
        code=one.code,
        code_description=reference,
        source="prose",
        related_information=[types.DiagnosticRelatedInformation(place, about)] if place and about else [],
    )


# ---------------------------------------------------------------- completion and hover


def completion(document: Document, position: types.Position) -> types.CompletionList:
    cursor, language = document.text.offset(position), document.scripting
    script = document.script_at(cursor)
    if script is None:
        return types.CompletionList(False, [])
    text, known = script
    where, start = kind_at(text, len(text), language.delimiters)
    if where == "comment":
        return types.CompletionList(False, [])
    begin, found = language.complete(text, where, start, known, {})
    offers: list[Offer] = []
    for offer in found:
        if offer.kind in ("programs", "directories", "files"):
            begin, found_paths = _paths(document, text[start:], len(text), offer.kind)
            offers += found_paths
        else:
            offers.append(offer)
    whole = to_range(document.text, Span(cursor - (len(text) - begin), cursor))
    items = [_item(offer, whole, number) for number, offer in enumerate(matching(offers, text[begin:]))]
    return types.CompletionList(False, items)


def _paths(document: Document, literal: str, cursor: int, kind: str) -> tuple[int, list[Offer]]:
    if document.path is None:
        return cursor, []
    match = re.search(r"[^\s\"'|&;<>()=]*\Z", literal)
    typed = match.group() if match else ""
    return cursor - len(typed.rpartition("/")[2]), paths(document.path.parent, typed, kind)


def _item(offer: Offer, whole: types.Range, number: int) -> types.CompletionItem:
    folder = offer.kind == "path" and offer.text.endswith("/")
    return types.CompletionItem(
        offer.text,
        kind=types.CompletionItemKind.Folder if folder else _ITEMS.get(offer.kind, types.CompletionItemKind.Text),
        detail=offer.note or None,
        sort_text=f"{number:05}",
        text_edit=types.TextEdit(whole, offer.text),
    )


def hover(documents: Documents, document: Document, position: types.Position) -> types.Hover | None:
    """Return the hover text of the word at a position: its definition, or its meaning in the language."""
    offset = document.text.offset(position)
    occurrence = document.index.at(offset)
    if occurrence is not None:
        span = Span(occurrence.start, occurrence.end)
        shown = _describe_name(documents, document, offset, occurrence.symbol)
        return _hover(document, shown, span) if shown else None
    text, language = document.source.text, document.scripting
    word, start = word_at(text, offset)
    script = document.script_at(start) if word else None
    if script is None or kind_at(script[0], len(script[0]), language.delimiters)[0] != "code":
        return None
    entry = entry_of(language, word, property_first=is_property(text, start, word))
    if entry is None:
        return None
    shown = markdown(documentation(word, entry, language))
    return _hover(document, shown, Span(start, start + len(word)))


def _hover(document: Document, markdown: str, span: Span) -> types.Hover:
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, markdown), to_range(document.text, span))


def _describe_name(documents: Documents, document: Document, offset: int, symbol: Symbol | None) -> str:
    """Describe a name: its kind, the text of its definition, the comment above it, and its file."""
    place = definition(documents, document, offset)
    if place is None:
        return f"**{symbol.kind}** `{symbol.name}`" if symbol is not None else ""
    other = place.document
    elsewhere = other.uri != document.uri
    source = f" from {other.path.name}" if elsewhere and other.path is not None else ""
    meant = next((one for one in other.index.symbols if one.span == place.span), None)
    if meant is None:  # a file
        return _program(other, symbol.name if symbol is not None else "")
    parts = [f"**{meant.kind}** `{meant.name}`{source}"]
    if meant.about:
        return "\n\n".join([*parts, fenced(meant.about, "text")])
    parts.append(fenced(_definition(other.source, meant), document.language.magic))
    parts.append(fenced(about, "text") if (about := comment_above(other.source, meant.extent.start)) else "")
    return "\n\n".join(part for part in parts if part)


def _program(document: Document, name: str) -> str:
    """Describe an imported file: its inputs, and the names that it shares."""
    groups: dict[str, list[str]] = {}
    for symbol in document.index.symbols:
        for shared in sorted(symbol.shared):
            kind, _, known = shared.partition(" ")
            groups.setdefault(kind, []).append(known)
    file = document.path.name if document.path is not None else document.uri
    head = f"**program** `{name}` from {file}" if name else f"**{document.language.title}** {file}"
    return "\n\n".join([head, *(f"{kind}: {', '.join(f'`{one}`' for one in names)}" for kind, names in groups.items())])


def _definition(source: Source, symbol: Symbol) -> str:
    """Return the text of a definition: the first lines of an agent or gate, the first line of other definitions."""
    lines = source.slice(symbol.extent).rstrip().split("\n")
    if symbol.kind not in ("agent", "gate"):
        return lines[0]
    return "\n".join([*lines[:_MAX_LINES], *(["..."] if len(lines) > _MAX_LINES else [])])


# ---------------------------------------------------------------- structure


def document_symbols(document: Document) -> list[types.DocumentSymbol]:
    """Return the definitions of a document as a tree: those inside a block or function are its children."""
    roots: list[types.DocumentSymbol] = []
    enclosing: list[tuple[int, list[types.DocumentSymbol]]] = []
    for symbol in sorted(document.index.symbols, key=lambda one: (one.extent.start, -one.extent.end, one.span)):
        kind = _SYMBOLS.get(symbol.kind)
        if kind is None:
            continue
        while enclosing and enclosing[-1][0] <= symbol.extent.start:
            enclosing.pop()
        start, end = min(symbol.extent.start, symbol.span.start), max(symbol.extent.end, symbol.span.end)
        found = types.DocumentSymbol(
            symbol.name,
            kind,
            to_range(document.text, Span(start, end)),
            to_range(document.text, symbol.span),
            detail=symbol.kind,
            children=[],
        )
        (enclosing[-1][1] if enclosing else roots).append(found)
        if symbol.kind in ("block", "function", "section"):
            enclosing.append((symbol.extent.end, list(found.children or ())))
            found.children = enclosing[-1][1]
    return roots


def folding(document: Document) -> list[types.FoldingRange]:
    """Return the foldable ranges: constructs of several lines, and comments."""
    source, last_of = document.source, dict[int, int]()
    find = source.text.find
    for node in walk(document.compiled.program):
        start, end = node.span
        if node is document.compiled.program or find("\n", start, end) < 0:
            continue
        end = start + len(source.text[start:end].rstrip())  # without blank lines below it
        first, last = source.line_column(start)[0], source.line_column(end)[0]
        if last > first:
            last_of[first] = max(last, last_of.get(first, 0))
    found = [types.FoldingRange(first - 1, last - 1) for first, last in sorted(last_of.items())]
    comments, kind = _comments(source.text, document.language.delimiters), types.FoldingRangeKind.Comment
    return [*found, *(types.FoldingRange(first, last, kind=kind) for first, last in comments)]


def _comments(text: str, delimiters: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Yield the first and last line, counted from 0, of each run of lines that contain only a comment."""
    hidden: set[int] = set()
    for region in literals(text, delimiters):
        if region.kind != "comment":
            line = text.count("\n", 0, region.start) if "\n" in text[region.start : region.end] else -1
            hidden.update(range(line + 1, line + 1 + text.count("\n", region.start, region.end)) if line >= 0 else ())
    first = None
    for number, line_text in enumerate([*text.split("\n"), ""]):
        alone = line_text.lstrip().startswith("#") and number not in hidden
        if alone and first is None:
            first = number
        elif not alone and first is not None:
            if number - first > 1:
                yield first, number - 1
            first = None


def semantic_tokens(document: Document) -> types.SemanticTokens:
    """Return the semantic tokens: the kind of each name, for highlighting."""
    data: list[int] = []
    before = Position(0, 0)
    defined: set[Symbol] = set()
    for one in document.index.occurrences:
        symbol = one.symbol
        if symbol is None or one.path:
            continue
        at, end = document.text.range(Span(one.start, one.end))
        if at.line != end.line:
            continue
        step = at.character - (before.character if at.line == before.line else 0)
        marks = (one.defines and symbol not in defined) | (symbol.kind == "constant") << 1
        data += [at.line - before.line, step, end.character - at.character, _TOKEN[symbol.kind], marks]
        before = at
        if one.defines:
            defined.add(symbol)
    return types.SemanticTokens(data)


# ---------------------------------------------------------------- changes


def edits(text: OpenText, changes: Iterable[Edit]) -> list[types.TextEdit]:
    """Return edits of the source in the types of the protocol, with the line ends of the document."""
    return [types.TextEdit(to_range(text, one.span), text.with_line_ends(one.text)) for one in changes]


def formatting(document: Document) -> list[types.TextEdit] | None:
    """Return the edit that gives a document its canonical form; none if it has errors. Return None if comments would be
    lost, which the canonical form does not keep."""
    compiled = document.compiled
    if not compiled.ok:
        return []
    text = document.language.format_program(compiled.program)
    if text == document.source.text:
        return []
    if text.count("#") < document.source.text.count("#"):
        return None
    whole = types.Range(types.Position(0, 0), types.Position(*document.text.end))
    return [types.TextEdit(whole, document.text.with_line_ends(text))]


def code_actions(document: Document, wanted: types.Range, related: bool = True) -> list[types.CodeAction]:
    """Return quick fixes for the diagnostics in a range. Each was tried: it removes one, and causes no new error."""
    first, last = document.text.offset(wanted.start), document.text.offset(wanted.end)
    found = [
        one
        for one in document.compiled.diagnostics
        if not one.file and one.hint and one.span.start <= last and one.span.end >= first
    ]
    actions: dict[str, types.CodeAction] = {}
    for one in found[:_MAX_FIXES]:
        fix = _working_fix(document, one)
        if fix is not None and fix.title not in actions:
            actions[fix.title] = types.CodeAction(
                fix.title,
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[_diagnostic(document, one, related)],
                is_preferred=True,
                edit=types.WorkspaceEdit(changes={document.uri: edits(document.text, fix.edits)}),
            )
    return list(actions.values())


def _working_fix(document: Document, one: Diagnostic) -> Fix | None:
    """Return the first change that fixes a diagnostic, or None."""
    compiled = document.compiled
    for fix in document.language.fixes(compiled, one):
        changed = Source.of(replaced(document.source.text, fix.edits), document.source.name)
        if is_improvement(fix, one, compiled.diagnostics, document.compile(changed).diagnostics):
            return fix
    return None
