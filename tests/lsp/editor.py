"""An editor without a process: documents, and questions about the place that `^` marks in a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from lsprotocol import types

from prose_kernel.lsp import language_features
from prose_kernel.lsp.documents import Document, Documents, uri_of
from prose_kernel.lsp.names import definition, references, rename
from prose_kernel.lsp.positions import Text


class Editor:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.documents = Documents()
        self.documents.folders = [folder]

    def open(self, name: str, text: str) -> Document:
        """A document, opened; a mark in it is taken out and remembered."""
        return self.documents.open(uri_of(self.folder / name), text)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def at(self, name: str, text: str) -> tuple[Document, int]:
        """A document and the offset of the `^` in it, which is taken out."""
        offset = text.index("^")
        document = self.open(name, text.replace("^", "", 1))
        return document, offset

    def position(self, document: Document, offset: int) -> types.Position:
        return types.Position(*document.text.position(offset))

    def offers(self, name: str, text: str) -> list[str]:
        document, offset = self.at(name, text)
        return [item.label for item in language_features.completion(document, self.position(document, offset)).items]

    def hover(self, name: str, text: str) -> str | None:
        document, offset = self.at(name, text)
        found = language_features.hover(self.documents, document, self.position(document, offset))
        return found.contents.value if found is not None and isinstance(found.contents, types.MarkupContent) else None

    def definition(self, name: str, text: str) -> tuple[str, int, str] | None:
        """The file, the line and the text of a definition."""
        document, offset = self.at(name, text)
        found = definition(self.documents, document, offset)
        if found is None or found.document.path is None:
            return None
        source = found.document.source
        return found.document.path.name, source.line_column(found.span.start)[0], source.slice(found.span)

    def references(self, name: str, text: str) -> list[tuple[str, int, int]]:
        """File, line and column of each place of a name."""
        document, offset = self.at(name, text)
        occurrence = document.index.at(offset)
        assert occurrence is not None
        found = references(self.documents, document, occurrence)
        return [(Path(where.uri).name, *where.source.line_column(one.start)) for where, one in found]

    def rename(self, name: str, text: str, new: str) -> dict[str, str]:
        """The changed texts by file. Raises `Refused`."""
        document, offset = self.at(name, text)
        return {
            Path(where.uri).name: applied(where.text, language_features.edits(where.text, edits))
            for where, edits in rename(self.documents, document, offset, new)
        }

    def fixed(self, name: str, text: str) -> list[tuple[str, str]]:
        """Title and result of each code action in a text."""
        document = self.open(name, text)
        whole = types.Range(types.Position(0, 0), types.Position(*document.text.end))
        return [
            (action.title, applied(document.text, (action.edit.changes or {})[document.uri]))
            for action in language_features.code_actions(document, whole)
            if action.edit is not None
        ]


def applied(text: Text, edits: Iterable[types.TextEdit]) -> str:
    """A text as an editor has it after edits."""
    from prose_kernel.lsp.positions import Position

    raw = text.raw
    ordered: Sequence[types.TextEdit] = sorted(edits, key=lambda one: (one.range.start.line, one.range.start.character))
    for one in reversed(ordered):
        start, end = (
            text.raw_offset(Position(place.line, place.character)) for place in (one.range.start, one.range.end)
        )
        raw = raw[:start] + one.new_text + raw[end:]
    return raw
