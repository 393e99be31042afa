"""Documents that are open in the editor, files that are not, and their analysis by the languages."""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.language.diagnostics import Profile
from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace
from prose_kernel.language.symbols import ImportTarget, Symbol, SymbolIndex
from prose_kernel.runs import languages
from prose_kernel.runs.languages import Language, Programs

if TYPE_CHECKING:
    from lsprotocol import types

    from prose_kernel.runs.languages import Compiled

_MAX_BYTES: Final = 4_000_000
"""The most bytes of a file that is read without being open."""
_MAX_FILES: Final = 5_000
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "build", "dist"})


def path_of(uri: str) -> Path | None:
    """Return the file that a URI names; None for a text that is not on disk, such as `untitled:`."""
    try:
        parts = urlsplit(uri)
        path = unquote(parts.path, errors="surrogateescape")
        name = os.fsencode(path)
    except ValueError:  # not a URI, or a lone surrogate
        return None
    if parts.scheme != "file" or not path:
        return None
    return Path(os.path.abspath(path)) if b"\0" not in name else None  # noqa: PTH100 - links are not resolved


def uri_of(path: Path) -> str:
    return "file://" + quote(os.fsencode(path))


Encoding = Literal["utf-8", "utf-16", "utf-32"]
_LINE_END: Final = re.compile(r"\r\n?|\n")
_CODEC: Final[dict[Encoding, tuple[str, int]]] = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2)}


class Position(NamedTuple):
    """A line and a character in it, both counted from 0; the character in units of the encoding."""

    line: int
    character: int


class OpenText(Struct, frozen=True, dict=True):
    """A text in an editor."""

    raw: str
    encoding: Encoding = "utf-16"

    @cached_property
    def source(self) -> Source:
        return Source.of(self.raw)

    @cached_property
    def _plain(self) -> bool:
        """Whether every character is one unit."""
        return self.encoding == "utf-32" or self.raw.isascii()

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in _LINE_END.finditer(self.raw))]

    @cached_property
    def _dropped(self) -> list[int]:
        """The offsets of characters that are missing from the source."""
        first = [0] if self.raw.startswith("\ufeff") else []
        return [*first, *(match.start() for match in re.finditer(r"\r(?=\n)", self.raw))]

    @cached_property
    def _dropped_in_source(self) -> list[int]:
        """The offsets in the source at which these characters are missing."""
        return [at - number for number, at in enumerate(self._dropped)]

    # ---- offsets of the source

    def offset(self, position: Position | types.Position) -> int:
        """Return the offset in the source; a position past the end of a line or of the text counts as that end."""
        raw = self.raw_offset(position)
        return raw - bisect_left(self._dropped, raw) if self._dropped else raw

    def position(self, offset: int) -> Position:
        """Return the position of an offset in the source."""
        raw = offset + bisect_right(self._dropped_in_source, offset) if self._dropped else offset
        if raw and self._dropped and self.raw.startswith("\n", raw) and self.raw.startswith("\r", raw - 1):
            raw -= 1  # a line ends before both characters
        raw = min(raw, len(self.raw))
        line = bisect_right(self._starts, raw) - 1
        return Position(line, self._units(self._starts[line], raw))

    def range(self, span: Span) -> tuple[Position, Position]:
        return self.position(span.start), self.position(max(span.start, span.end))

    @property
    def end(self) -> Position:
        """The position after the last character."""
        line = len(self._starts) - 1
        return Position(line, self._units(self._starts[line], len(self.raw)))

    # ---- offsets in the text itself

    def raw_offset(self, position: Position | types.Position) -> int:
        line, character = position.line, position.character
        if line < 0:
            return 0
        if line >= len(self._starts):
            return len(self.raw)
        start = self._starts[line]
        end = self._starts[line + 1] if line + 1 < len(self._starts) else len(self.raw)
        while end > start and self.raw[end - 1] in "\r\n":
            end -= 1
        if self._plain:
            return min(start + max(character, 0), end)
        codec, width = _CODEC[self.encoding]
        units = self.raw[start:end].encode(codec, "surrogatepass")[: max(character, 0) * width]
        return start + len(units.decode(codec, "ignore"))

    def _units(self, start: int, end: int) -> int:
        if self._plain:
            return end - start
        codec, width = _CODEC[self.encoding]
        return len(self.raw[start:end].encode(codec, "surrogatepass")) // width

    def with_line_ends(self, text: str) -> str:
        """Return text to insert here, with CRLF if this text has CRLF."""
        return text.replace("\n", "\r\n") if "\r\n" in self.raw else text

    def changed(self, first: Position | types.Position, last: Position | types.Position, text: str) -> OpenText:
        """Return the text after a change by the editor, which replaces the part between two positions."""
        start, end = self.raw_offset(first), self.raw_offset(last)
        return OpenText(self.raw[:start] + text + self.raw[max(start, end) :], self.encoding)


class Document(Struct, frozen=True, dict=True):
    """One version of a text. Its analysis is computed at first use."""

    uri: str
    path: Path | None
    text: OpenText
    language: Language
    programs: Programs
    profile: Profile
    version: int | None = None

    @cached_property
    def source(self) -> Source:
        """The text with the name of its file, for messages."""
        return replace(self.text.source, name=self.path.name) if self.path is not None else self.text.source

    @cached_property
    def compiled(self) -> Compiled:
        return self.compile(self.source)

    @cached_property
    def index(self) -> SymbolIndex:
        return self.language.index(self.compiled.program, self.compiled.source)

    @cached_property
    def known(self) -> Any:
        """The names that the text may refer to anywhere."""
        return self.language.known_in(self.compiled.program, self.programs.load_contract)

    def script_at(self, offset: int) -> tuple[str, Any] | None:
        """Return the program text before an offset, and the names it may refer to; None outside of programs."""
        load = self.programs.load_contract
        found = self.language.script_at(self.compiled.program, self.source, offset, load)
        return None if found is None else (found[0], found[1] or self.known)

    @property
    def scripting(self) -> Language:
        """The language of the programs in this document."""
        return languages.of_scripts(self.language, self.source.name)

    def compile(self, source: Source) -> Compiled:
        """Compile another text in the place of this one."""
        load = self.programs.load_contract
        return languages.compile_with_settings(self.language, source, self._pipefail, profile=self.profile, load=load)

    def _pipefail(self) -> bool:
        if self.path is None:
            return False
        from prose_kernel.runs import settings  # imported here because it is rarely needed

        return settings.load(self.path.parent, problems=[]).exec.pipefail

    def file_of(self, path: str) -> Path | None:
        """Return the file at an import path of this text, or None."""
        file = self.programs.file_of(path)
        return file if file is not None and file.is_file() else None


class Documents:
    """All documents of an editor's workspace."""

    def __init__(self, *, profile: Profile = "default") -> None:
        self.encoding: Encoding = "utf-16"
        self.folders: list[Path] = []
        self._profile: Profile = profile
        self._open: dict[str, Document] = {}
        self._texts: dict[str, str] = {}  # the texts of open files, by the names with which imports look for them
        self._read: dict[Path, tuple[tuple[int, int], Document]] = {}

    # ---- open documents

    def open(self, uri: str, raw: str, language_id: str = "", version: int | None = None) -> Document:
        """Open a document, or replace its whole text."""
        path = path_of(uri)
        before = self._open.get(uri)
        language = before.language if before else self._in_profile(_language(uri, language_id))
        programs = before.programs if before else self._programs(language, path)
        return self._keep(Document(uri, path, OpenText(raw, self.encoding), language, programs, self._profile, version))

    def edit(self, uri: str, change: Callable[[OpenText], OpenText], version: int | None = None) -> Document | None:
        """Change the text of an open document. Return None if it is not open."""
        before = self._open.get(uri)
        return self._keep(replace(before, text=change(before.text), version=version)) if before is not None else None

    def renew(self, uri: str) -> Document | None:
        """Return the same document, to be compiled again because a file that it imports may have changed."""
        return self.edit(uri, lambda text: text, self._open[uri].version if uri in self._open else None)

    def close(self, uri: str) -> None:
        document = self._open.pop(uri, None)
        if document is not None:
            for name in _names(document.path):
                self._texts.pop(name, None)

    def get(self, uri: str) -> Document | None:
        """Return an open document, or else the program file on disk; None if there is neither."""
        path = path_of(uri)
        is_program = path is not None and path.name.endswith(languages.suffixes())
        return self._open.get(uri) or (self.read(path) if path is not None and is_program else None)

    def opened(self) -> list[Document]:
        return list(self._open.values())

    def _keep(self, document: Document) -> Document:
        self._open[document.uri] = document
        for name in _names(document.path):
            self._texts[name] = document.text.raw
        return document

    def _in_profile(self, language: Language) -> Language:
        """Return the language in the editor's profile, which has other words and completions."""
        is_own = self._profile in languages.PROFILES[1:] and language.name == languages.default().name
        return languages.in_profile(language, self._profile) if is_own else language

    def _programs(self, language: Language, path: Path | None, texts: Mapping[str, str] | None = None) -> Programs:
        folder = path.parent if path is not None else self.folders[0] if self.folders else Path.cwd()
        texts = self._texts if texts is None else texts
        return language.programs(folder, program=path, profile=self._profile, texts=texts)

    # ---- files

    def read(self, path: Path) -> Document | None:
        """Return the document of a file, open or not; None if it cannot be read or isn't UTF-8 text."""
        opened = next((one for one in self._open.values() if one.path is not None and _same(one.path, path)), None)
        if opened is not None:
            return opened
        try:
            status = path.lstat()
            stamp = status.st_mtime_ns, status.st_size
            known = self._read.get(path)
            if known is not None and known[0] == stamp:
                return known[1]
            if status.st_size > _MAX_BYTES:
                return None
            raw = plain_files.read(path, _MAX_BYTES).decode("utf-8")
        except (OSError, ValueError):
            return None
        language = self._in_profile(languages.of_file(path.name))
        programs = self._programs(language, path)
        document = Document(uri_of(path), path, OpenText(raw, self.encoding), language, programs, self._profile)
        self._read[path] = stamp, document
        return document

    def target(self, document: Document, target: ImportTarget) -> tuple[Document, Symbol | None] | None:
        """Resolve an import of a document: return the other document, and the symbol in it."""
        file = document.file_of(target.path)
        other = self.read(file) if file is not None else None
        return None if other is None else (other, other.index.shared(target.name) if target.name else None)

    def changed(self, document: Document, texts: Mapping[str, str]) -> Document:
        """Return a document as it would be if the documents with the URIs in `texts` had these texts."""
        given = dict(self._texts)
        for uri, raw in texts.items():
            given.update(dict.fromkeys(_names(path_of(uri)), raw))
        programs = self._programs(document.language, document.path, given)
        text = OpenText(texts.get(document.uri, document.source.text), self.encoding)
        return replace(document, text=text, programs=programs)

    def importers(self, document: Document) -> Iterator[Document]:
        """Yield the documents of the workspace that import a document directly."""
        if document.path is None:
            return
        names = {document.path.name.partition(".")[0], document.path.parent.name}  # the directory of an index file
        names |= {one.name for one in document.index.symbols if f"node {one.name}" in one.shared}
        for path in self._files(document.language.suffixes):
            other = self.read(path)
            if other is None or other is document or not any(name in other.text.raw for name in names):
                continue
            targets = {one.target.path for one in other.index.occurrences if one.target is not None}
            files = {other.programs.file_of(link) for link in targets | {link for _, link in other.index.links}}
            if any(file is not None and _same(file, document.path) for file in files):
                yield other

    def _files(self, suffixes: tuple[str, ...]) -> Iterable[Path]:
        """Return the program files in the folders of the workspace, and the open ones."""
        found = {one.path: None for one in self._open.values() if one.path is not None}
        for folder in self.folders:
            for place, inner, names in os.walk(folder):
                inner[:] = sorted(name for name in inner if name not in _SKIPPED and not name.startswith("."))
                found.update({Path(place, name): None for name in sorted(names) if name.endswith(suffixes)})
                if len(found) > _MAX_FILES:
                    return found
        return found


def _language(uri: str, language_id: str) -> Language:
    """Return the language of a document: by its suffix, or else by the editor's id of its language."""
    named = [one for one in languages.LANGUAGES.values() if language_id in (one.name, one.magic)]
    path = re.split(r"[?#]", uri, maxsplit=1)[0]
    suffixes = [one for one in languages.LANGUAGES.values() if path.endswith(one.suffixes)]
    return next(iter([*suffixes, *named]), languages.default())


def _names(path: Path | None) -> tuple[str, ...]:
    return () if path is None else (str(path), os.path.realpath(path))


def _same(one: Path, two: Path) -> bool:
    return one == two or os.path.realpath(one) == os.path.realpath(two)


def files_of(document: Document) -> Mapping[str, Path]:
    """Return the files that a document imports, by import path."""
    found = {link: document.programs.file_of(link) for _, link in document.index.links}
    return {link: file for link, file in found.items() if file is not None}
