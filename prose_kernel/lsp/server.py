"""The language server: requests and notifications of the protocol, over pygls."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from lsprotocol import types
from pygls.capabilities import ServerCapabilitiesBuilder
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol, lsp_method

from prose_kernel._version import __version__
from prose_kernel.language.diagnostics import Profile
from prose_kernel.language.source import Span
from prose_kernel.lsp import language_features
from prose_kernel.lsp.documents import Document, Documents, OpenText, path_of, uri_of
from prose_kernel.lsp.names import RenameRefused, references, renamable_name, rename
from prose_kernel.lsp.names import definition as definition_of
from prose_kernel.runs import languages

_MIN_DELAY, _MAX_DELAY = 0.03, 0.5
"""Seconds between the last change and the diagnostics: the duration of the last check, within these bounds."""
_REQUEST_FAILED: Final = -32803


def _replacing_pygls(name: str) -> Any:
    """Return a handler that runs only our function for a notification, without pygls' own."""

    def handle(self: LanguageServerProtocol, params: Any) -> Iterator[Any]:
        yield self.fm.features[name], (params,), None

    return lsp_method(name)(handle)


class _Protocol(LanguageServerProtocol):
    """The protocol without pygls' copies of the texts, whose lines end at more characters than an editor's."""

    lsp_text_document__did_open = _replacing_pygls(types.TEXT_DOCUMENT_DID_OPEN)
    lsp_text_document__did_change = _replacing_pygls(types.TEXT_DOCUMENT_DID_CHANGE)
    lsp_text_document__did_close = _replacing_pygls(types.TEXT_DOCUMENT_DID_CLOSE)

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Read a message. A request with wrong parameters is refused; pygls would not answer it."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            number = data.get("id")
            if isinstance(data.get("method"), str) and isinstance(number, (int, str)) and not isinstance(number, bool):
                self._send_response(number, error=error.to_response_error())
            raise


class ProseServer(LanguageServer):
    """The server with its documents and pending checks."""

    def __init__(self, profile: Profile = "default") -> None:
        super().__init__("prose", __version__, protocol_cls=_Protocol)
        self.documents = Documents(profile=profile)
        self._due: dict[str, asyncio.TimerHandle] = {}
        self._took: dict[str, float] = {}
        self.explained: set[str] = set()
        """Open documents whose comments were explained; an editor that formats on save would show it at each save."""

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Do nothing: an error outside of a request is caused by an invalid message, which a person cannot fix."""

    @property
    def shows_related(self) -> bool:
        """Whether the editor shows the related information of diagnostics."""
        text = self.client_capabilities.text_document
        return bool(text and text.publish_diagnostics and text.publish_diagnostics.related_information)

    # ---- diagnostics

    def check_soon(self, uri: str) -> None:
        """Publish the diagnostics of a document and its importers, when no more changes come."""
        if uri in self._due:
            self._due[uri].cancel()
        delay = min(max(self._took.get(uri, 0.0), _MIN_DELAY), _MAX_DELAY)
        self._due[uri] = asyncio.get_running_loop().call_later(delay, self._check, uri)

    def _check(self, uri: str) -> None:
        self._due.pop(uri, None)
        self.publish(uri)
        self.check_importers(uri)

    def check_importers(self, uri: str) -> None:
        """Check the open documents that import a file again, directly or through others."""
        path = path_of(uri)
        for other in self.documents.opened():
            if other.uri != uri and other.uri not in self._due and (path is None or other.index.links):
                self.documents.renew(other.uri)
                self.publish(other.uri)

    def publish(self, uri: str) -> None:
        document = self.documents.get(uri)
        if document is None:
            return
        begin = time.perf_counter()
        found = language_features.diagnostics(document, self.shows_related)
        self._took[uri] = time.perf_counter() - begin
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, document.version))

    def forget(self, uri: str) -> None:
        """Forget a document that has been closed."""
        if uri in self._due:
            self._due.pop(uri).cancel()
        self._took.pop(uri, None)
        self.explained.discard(uri)
        self.documents.close(uri)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))


def serve(profile: Profile = "default") -> None:
    """Serve an editor over standard input and output until it sends `exit` or closes the stream."""
    log = logging.getLogger("pygls")
    log.handlers, log.propagate = [_Log(logging.ERROR)], False
    make_server(profile).start_io()


def make_server(profile: Profile = "default") -> ProseServer:
    """Return a server with all its features, not yet started."""
    server = ProseServer(profile)
    for name, (handler, options) in _SYNCHRONISATION.items():
        server.feature(name, options)(_guarded(name, handler))
    for name, (answer, otherwise, options) in _REQUESTS.items():
        server.feature(name, options)(_guarded(name, partial(_answered, answer, otherwise)))
    return server


def _answered(
    answer: Callable[[ProseServer, Document, Any], object], otherwise: object, server: ProseServer, params: Any
) -> object:
    document = server.documents.get(params.text_document.uri)
    return otherwise if document is None else answer(server, document, params)


def _guarded(name: str, handler: Callable[[ProseServer, Any], object]) -> Callable[..., object]:
    """Return a handler that refuses a rename with an error, and returns None if it fails in another way, because an
    editor would show a traceback, or give up the server."""

    def handle(ls: ProseServer, params: Any) -> object:
        try:
            return handler(ls, params)
        except RenameRefused as refused:
            raise JsonRpcException(str(refused), _REQUEST_FAILED) from None
        except Exception as defect:
            _log_line(f"{name}: {type(defect).__name__}: {defect}")
            return None

    return handle


def _log_line(text: str) -> None:
    """Write a line to the log of the editor."""
    print(f"prose lsp: {' '.join(text.split())}", file=sys.stderr, flush=True)


class _Log(logging.Handler):
    """Writes messages of pygls to the log, one line each, except for refused requests."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is None or not isinstance(record.exc_info[1], JsonRpcException):
            _log_line(record.getMessage().partition("\n")[0])


# ---------------------------------------------------------------- notifications


def _initialize(server: ProseServer, params: types.InitializeParams) -> None:
    documents = server.documents
    folders = [folder.uri for folder in params.workspace_folders or ()] or [params.root_uri or ""]
    documents.folders = [path for path in map(path_of, folders) if path is not None]
    chosen = ServerCapabilitiesBuilder.choose_position_encoding(params.capabilities)
    documents.encoding = types.PositionEncodingKind(chosen).value


def _initialized(server: ProseServer, params: types.InitializedParams) -> None:
    """Subscribe to changes of files outside of the editor."""
    workspace = server.client_capabilities.workspace
    watched = workspace.did_change_watched_files if workspace else None
    if not (watched and watched.dynamic_registration):
        return
    watchers = [types.FileSystemWatcher(f"**/*{suffix}") for suffix in languages.suffixes()]
    options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
    registration = types.Registration("watched-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
    server.client_register_capability(types.RegistrationParams([registration]), lambda _: None)


def _opened(server: ProseServer, params: types.DidOpenTextDocumentParams) -> None:
    one = params.text_document
    if one.language_id == "markdown" and not one.uri.endswith(languages.suffixes()):
        return  # an editor that knows contract files as Markdown sends every Markdown file
    server.documents.open(one.uri, one.text, one.language_id, one.version)
    server.check_soon(one.uri)


def _changed(server: ProseServer, params: types.DidChangeTextDocumentParams) -> None:
    one = params.text_document

    def apply(text: OpenText) -> OpenText:
        for change in params.content_changes:
            if isinstance(change, types.TextDocumentContentChangePartial):
                text = text.changed(change.range.start, change.range.end, change.text)
            else:
                text = OpenText(change.text, text.encoding)
        return text

    if server.documents.edit(one.uri, apply, one.version) is not None:
        server.check_soon(one.uri)


def _closed(server: ProseServer, params: types.DidCloseTextDocumentParams) -> None:
    server.forget(params.text_document.uri)
    server.check_importers(params.text_document.uri)


def _saved(server: ProseServer, params: types.DidSaveTextDocumentParams) -> None:
    server.check_importers(params.text_document.uri)


def _watched(server: ProseServer, params: types.DidChangeWatchedFilesParams) -> None:
    for change in params.changes:
        server.check_importers(change.uri)


def _folders(server: ProseServer, params: types.DidChangeWorkspaceFoldersParams) -> None:
    gone = {path_of(folder.uri) for folder in params.event.removed}
    new = [path_of(folder.uri) for folder in params.event.added]
    kept = [folder for folder in server.documents.folders if folder not in gone]
    server.documents.folders = [*kept, *(path for path in new if path is not None)]


# ---------------------------------------------------------------- requests


def _definition(server: ProseServer, document: Document, params: types.DefinitionParams) -> types.Location | None:
    place = definition_of(server.documents, document, document.text.offset(params.position))
    if place is None:
        return None
    return types.Location(place.document.uri, language_features.to_range(place.document.text, place.span))


def _references(server: ProseServer, document: Document, params: types.ReferenceParams) -> list[types.Location]:
    occurrence = document.index.at(document.text.offset(params.position))
    found = references(server.documents, document, occurrence) if occurrence is not None else []
    return [
        types.Location(where.uri, language_features.to_range(where.text, Span(one.start, one.end)))
        for where, one in found
        if params.context.include_declaration or not one.defines
    ]


def _highlights(
    server: ProseServer, document: Document, params: types.DocumentHighlightParams
) -> list[types.DocumentHighlight]:
    occurrence = document.index.at(document.text.offset(params.position))
    if occurrence is None or occurrence.symbol is None:
        return []
    kinds = types.DocumentHighlightKind.Read, types.DocumentHighlightKind.Write
    return [
        types.DocumentHighlight(language_features.to_range(document.text, Span(one.start, one.end)), kinds[one.defines])
        for one in document.index.of(occurrence.symbol)
    ]


def _prepare_rename(
    server: ProseServer, document: Document, params: types.PrepareRenameParams
) -> types.PrepareRenamePlaceholder:
    span, name = renamable_name(document, document.text.offset(params.position))
    return types.PrepareRenamePlaceholder(language_features.to_range(document.text, span), name)


def _rename(server: ProseServer, document: Document, params: types.RenameParams) -> types.WorkspaceEdit:
    changes = rename(server.documents, document, document.text.offset(params.position), params.new_name)
    edits = {where.uri: language_features.edits(where.text, edits) for where, edits in changes}
    return types.WorkspaceEdit(changes=edits)


def _formatting(server: ProseServer, document: Document, params: Any) -> list[types.TextEdit] | None:
    edits = language_features.formatting(document)
    if edits is None and document.uri not in server.explained:
        server.explained.add(document.uri)
        message = "not formatted: the canonical form would drop the comments"
        server.window_show_message(types.ShowMessageParams(types.MessageType.Info, message))
    return edits


def _links(server: ProseServer, document: Document, params: Any) -> list[types.DocumentLink]:
    found = [(span, file) for span, path in document.index.links if (file := document.file_of(path)) is not None]
    return [types.DocumentLink(language_features.to_range(document.text, span), uri_of(file)) for span, file in found]


_SYNCHRONISATION: Final[Mapping[str, tuple[Callable[[ProseServer, Any], object], Any]]] = {
    types.INITIALIZE: (_initialize, None),
    types.INITIALIZED: (_initialized, None),
    types.TEXT_DOCUMENT_DID_OPEN: (_opened, None),
    types.TEXT_DOCUMENT_DID_CHANGE: (_changed, None),
    types.TEXT_DOCUMENT_DID_CLOSE: (_closed, None),
    types.TEXT_DOCUMENT_DID_SAVE: (_saved, types.SaveOptions(include_text=False)),
    types.WORKSPACE_DID_CHANGE_WATCHED_FILES: (_watched, None),
    types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: (_folders, None),
}
_REQUESTS: Final[Mapping[str, tuple[Callable[[ProseServer, Document, Any], object], Any, Any]]] = {
    types.TEXT_DOCUMENT_COMPLETION: (
        lambda _, document, params: language_features.completion(document, params.position),
        None,
        types.CompletionOptions(trigger_characters=["{", "@", ".", ":", '"', "/", "("]),
    ),
    types.TEXT_DOCUMENT_HOVER: (
        lambda server, document, params: language_features.hover(server.documents, document, params.position),
        None,
        None,
    ),
    types.TEXT_DOCUMENT_DEFINITION: (_definition, None, None),
    types.TEXT_DOCUMENT_REFERENCES: (_references, [], None),
    types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT: (_highlights, [], None),
    types.TEXT_DOCUMENT_PREPARE_RENAME: (_prepare_rename, None, None),
    types.TEXT_DOCUMENT_RENAME: (_rename, None, types.RenameOptions(prepare_provider=True)),
    types.TEXT_DOCUMENT_FORMATTING: (_formatting, None, None),
    types.TEXT_DOCUMENT_DOCUMENT_SYMBOL: (
        lambda _, document, __: language_features.document_symbols(document),
        [],
        None,
    ),
    types.TEXT_DOCUMENT_FOLDING_RANGE: (lambda _, document, __: language_features.folding(document), [], None),
    types.TEXT_DOCUMENT_DOCUMENT_LINK: (_links, [], None),
    types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL: (
        lambda _, document, __: language_features.semantic_tokens(document),
        None,
        language_features.TOKENS,
    ),
    types.TEXT_DOCUMENT_CODE_ACTION: (
        lambda server, document, params: language_features.code_actions(document, params.range, server.shows_related),
        [],
        types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix]),
    ),
}
"""For each request about a document: its function, the answer for an unreadable document, and the feature's options."""
