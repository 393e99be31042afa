"""An editor without a server process: documents, and requests at the `^` in a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from lsprotocol import types

from prose_kernel.lsp import language_features
from prose_kernel.lsp.documents import Document, Documents, OpenText, uri_of
from prose_kernel.lsp.names import definition, references, rename


class Editor:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.documents = Documents()
        self.documents.folders = [folder]

    def open(self, name: str, text: str) -> Document:
        """Open and return a document."""
        return self.documents.open(uri_of(self.folder / name), text)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def at(self, name: str, text: str) -> tuple[Document, int]:
        """Open a text without its `^`, and return the document and the offset of the `^`."""
        offset = text.index("^")
        document = self.open(name, text.replace("^", "", 1))
        return document, offset

    def position(self, document: Document, offset: int) -> types.Position:
        return types.Position(*document.text.position(offset))

    def completions(self, name: str, text: str) -> list[str]:
        document, offset = self.at(name, text)
        return [item.label for item in language_features.completion(document, self.position(document, offset)).items]

    def hover(self, name: str, text: str) -> str | None:
        document, offset = self.at(name, text)
        found = language_features.hover(self.documents, document, self.position(document, offset))
        return found.contents.value if found is not None and isinstance(found.contents, types.MarkupContent) else None

    def definition(self, name: str, text: str) -> tuple[str, int, str] | None:
        """Return the file, the line and the text of a definition."""
        document, offset = self.at(name, text)
        found = definition(self.documents, document, offset)
        if found is None or found.document.path is None:
            return None
        source = found.document.source
        return found.document.path.name, source.line_column(found.span.start)[0], source.slice(found.span)

    def references(self, name: str, text: str) -> list[tuple[str, int, int]]:
        """Return file, line and column of each reference."""
        document, offset = self.at(name, text)
        occurrence = document.index.at(offset)
        assert occurrence is not None
        found = references(self.documents, document, occurrence)
        return [(Path(document.uri).name, *document.source.line_column(one.start)) for document, one in found]

    def rename(self, name: str, text: str, new: str) -> dict[str, str]:
        """Return the changed texts by file. Raises `RenameRefused`."""
        document, offset = self.at(name, text)
        return {
            Path(document.uri).name: applied(document.text, language_features.edits(document.text, edits))
            for document, edits in rename(self.documents, document, offset, new)
        }

    def after_code_actions(self, name: str, text: str) -> list[tuple[str, str]]:
        """Return the title of each code action in a text, and the text after it."""
        document = self.open(name, text)
        whole = types.Range(types.Position(0, 0), types.Position(*document.text.end))
        return [
            (action.title, applied(document.text, (action.edit.changes or {})[document.uri]))
            for action in language_features.code_actions(document, whole)
            if action.edit is not None
        ]


def applied(text: OpenText, edits: Iterable[types.TextEdit]) -> str:
    """Return a text after edits."""
    raw = text.raw
    ordered: Sequence[types.TextEdit] = sorted(edits, key=lambda one: (one.range.start.line, one.range.start.character))
    for one in reversed(ordered):
        start, end = text.raw_offset(one.range.start), text.raw_offset(one.range.end)
        raw = raw[:start] + one.new_text + raw[end:]
    return raw
