"""`prose lsp` as a process, with the client of pygls."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.client import LanguageClient

from prose_kernel.lsp.documents import uri_of

PROSE = Path(sys.executable).with_name("prose")
WAIT = 60


class Client:
    def __init__(self) -> None:
        self.client = LanguageClient("tests", "1")
        self.published: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()
        self.shown: list[str] = []
        self.registered: asyncio.Queue[str] = asyncio.Queue()
        self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: self.published.put_nowait(params))
        self.client.feature(types.WINDOW_SHOW_MESSAGE)(lambda params: self.shown.append(params.message))
        self.client.feature(types.CLIENT_REGISTER_CAPABILITY)(lambda params: self._register(params))

    def _register(self, params: types.RegistrationParams) -> None:
        for one in params.registrations:
            self.registered.put_nowait(one.method)

    async def findings(self, uri: str, version: int | None = None) -> list[str]:
        """Return the codes published for a document, or for one version of it."""
        while True:
            found = await asyncio.wait_for(self.published.get(), WAIT)
            if found.uri == uri and version in (None, found.version):
                return [str(one.code) for one in found.diagnostics]

    async def ask(self, question: Any) -> Any:
        return await asyncio.wait_for(question, WAIT)


@pytest.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Client]:
    one = Client()
    await one.client.start_io(str(PROSE), "lsp", "--stdio")
    watched = types.DidChangeWatchedFilesClientCapabilities(dynamic_registration=True)
    capabilities = types.ClientCapabilities(
        workspace=types.WorkspaceClientCapabilities(did_change_watched_files=watched),
        text_document=types.TextDocumentClientCapabilities(rename=types.RenameClientCapabilities(prepare_support=True)),
    )
    folder = types.WorkspaceFolder(uri_of(tmp_path), "work")
    made = await one.ask(
        one.client.initialize_async(types.InitializeParams(capabilities=capabilities, workspace_folders=[folder]))
    )
    assert made.capabilities.position_encoding == types.PositionEncodingKind.Utf16
    assert made.server_info.name == "prose"
    one.client.initialized(types.InitializedParams())
    yield one
    await one.ask(one.client.shutdown_async(None))
    one.client.exit(None)
    assert await asyncio.wait_for(one.client._server.wait(), WAIT) == 0  # A49
    await one.ask(one.client.stop())


async def test_the_server_answers_a_session_of_an_editor(editor: Client, tmp_path: Path) -> None:
    client = editor.client
    (tmp_path / "lib.prose").write_text('input topic: "?"\noutput summary = topic\n', encoding="utf-8")
    uri, lib = uri_of(tmp_path / "main.prose"), uri_of(tmp_path / "lib.prose")
    this = types.TextDocumentIdentifier(uri)
    assert await asyncio.wait_for(editor.registered.get(), WAIT) == types.WORKSPACE_DID_CHANGE_WATCHED_FILES

    text = 'use "./lib.prose" as lib\nlet r = lib(topic: "😀")\noutput x = q.summary\n'
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "prose", 1, text)))
    assert await editor.findings(uri, 1) == ["E131"]

    # An edit in UTF-16 units, after a character that only Python treats as a line end.
    edits = [
        types.TextDocumentContentChangePartial(types.Range(types.Position(1, 20), types.Position(1, 22)), "\u2028😀"),
        types.TextDocumentContentChangePartial(types.Range(types.Position(2, 11), types.Position(2, 12)), "r"),
    ]
    client.text_document_did_change(
        types.DidChangeTextDocumentParams(types.VersionedTextDocumentIdentifier(2, uri), edits)
    )
    assert await editor.findings(uri, 2) == []

    at = types.Position(2, 15)
    found = await editor.ask(client.text_document_definition_async(types.DefinitionParams(this, at)))
    assert (found.uri, found.range.start) == (lib, types.Position(1, 7))
    context = types.ReferenceContext(include_declaration=False)
    places = await editor.ask(client.text_document_references_async(types.ReferenceParams(context, this, at)))
    assert [(one.uri, one.range.start.line) for one in places] == [(uri, 2)]
    hover = await editor.ask(client.text_document_hover_async(types.HoverParams(this, at)))
    assert hover.contents.value.startswith("**variable** `summary` from lib.prose")
    named = await editor.ask(client.text_document_prepare_rename_async(types.PrepareRenameParams(this, at)))
    assert named.placeholder == "summary"
    change = await editor.ask(client.text_document_rename_async(types.RenameParams(this, at, "short")))
    assert set(change.changes) == {uri, lib}
    with pytest.raises(JsonRpcException, match="is the name of another variable already") as refused:
        await editor.ask(client.text_document_rename_async(types.RenameParams(this, types.Position(1, 4), "x")))
    assert refused.value.code == -32803
    offered = await editor.ask(
        client.text_document_completion_async(types.CompletionParams(this, types.Position(2, 0)))
    )
    assert "session" in [one.label for one in offered.items]
    assert (await editor.ask(client.text_document_document_symbol_async(types.DocumentSymbolParams(this))))[
        0
    ].name == "lib"
    assert await editor.ask(client.text_document_folding_range_async(types.FoldingRangeParams(this))) == ()
    tokens = await editor.ask(client.text_document_semantic_tokens_full_async(types.SemanticTokensParams(this)))
    assert len(tokens.data) % 5 == 0 and tokens.data
    (link,) = await editor.ask(client.text_document_document_link_async(types.DocumentLinkParams(this)))
    assert link.target == lib
    marks = await editor.ask(
        client.text_document_document_highlight_async(types.DocumentHighlightParams(this, types.Position(1, 4)))
    )
    assert [one.range.start.line for one in marks] == [1, 2]

    # The imported file changes, first in the editor, then on disk.
    other = types.TextDocumentItem(lib, "prose", 1, 'input theme: "?"\noutput summary = theme\n')
    client.text_document_did_open(types.DidOpenTextDocumentParams(other))
    assert await editor.findings(uri) == ["E026", "E027"]
    client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(lib)))
    assert await editor.findings(uri) == []
    (tmp_path / "lib.prose").unlink()
    event = types.FileEvent(lib, types.FileChangeType.Deleted)
    client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
    assert await editor.findings(uri) == ["E215"]

    # Formatting never drops comments; one message explains why it changed nothing.
    whole = types.TextDocumentContentChangeWholeDocument("# why\nlet   x=1\n")
    client.text_document_did_change(
        types.DidChangeTextDocumentParams(types.VersionedTextDocumentIdentifier(3, uri), [whole])
    )
    options = types.FormattingOptions(tab_size=2, insert_spaces=True)
    for _save in range(2):
        formatting = types.DocumentFormattingParams(this, options)
        assert await editor.ask(client.text_document_formatting_async(formatting)) is None
    assert editor.shown == ["not formatted: the canonical form would drop the comments"]
    where = types.Range(types.Position(1, 0), types.Position(1, 1))
    actions = types.CodeActionParams(this, where, types.CodeActionContext([]))
    assert await editor.ask(client.text_document_code_action_async(actions)) == ()

    # Invalid positions and unknown files have no answer.
    nowhere = types.TextDocumentIdentifier("file:///nowhere/at/all.prose")
    assert await editor.ask(client.text_document_hover_async(types.HoverParams(nowhere, at))) is None
    assert await editor.ask(client.text_document_hover_async(types.HoverParams(this, types.Position(99, 99)))) is None


async def test_an_editor_without_related_information_gets_hints_in_messages(editor: Client, tmp_path: Path) -> None:
    client, uri = editor.client, uri_of(tmp_path / "p.prose")
    text = 'let summary = 1\nsession "{sumary}"\n'
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "prose", 1, text)))
    (found,) = (await asyncio.wait_for(editor.published.get(), WAIT)).diagnostics
    assert found.message == "Undefined name `sumary` in a text\nhint: did you mean `summary`?"
    assert not found.related_information
    this, whole = types.TextDocumentIdentifier(uri), types.Range(types.Position(1, 0), types.Position(2, 0))
    asked = types.CodeActionParams(this, whole, types.CodeActionContext([found]))
    (action,) = await editor.ask(client.text_document_code_action_async(asked))
    assert action.diagnostics == (found,)


async def test_of_markdown_files_only_contract_files_are_analysed(editor: Client, tmp_path: Path) -> None:
    client = editor.client
    contract = "---\nname: f\nkind: function\n---\n\n```prose\nsession one\n```\n"
    for name, text in (("README.md", "let a = 1\n"), ("f.prose.md", contract)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        one = types.TextDocumentItem(uri_of(tmp_path / name), "markdown", 1, text)
        client.text_document_did_open(types.DidOpenTextDocumentParams(one))
    found = await asyncio.wait_for(editor.published.get(), WAIT)
    assert Path(found.uri).name == "f.prose.md" and found.diagnostics
    readme = types.TextDocumentIdentifier(uri_of(tmp_path / "README.md"))
    symbols = await editor.ask(client.text_document_document_symbol_async(types.DocumentSymbolParams(readme)))
    assert symbols == []


def test_ctrl_c_ends_the_server_at_a_terminal() -> None:
    ours, theirs = os.openpty()
    server = subprocess.Popen([PROSE, "lsp"], stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=os.setsid)
    os.close(theirs)
    try:
        shown = b""
        while b"Ctrl+C ends it" not in shown:
            shown += os.read(ours, 4096)
        server.send_signal(signal.SIGINT)
        assert server.wait(WAIT) == -signal.SIGINT
    finally:
        server.kill()
        server.wait()
        os.close(ours)


async def test_an_invalid_request_is_refused_and_later_ones_are_answered(tmp_path: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(str(PROSE), "lsp", stdin=pipe, stdout=pipe, stderr=pipe)

    def send(**message: Any) -> None:
        assert server.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    async def answer(number: int, method: str, params: Any) -> dict[str, Any]:
        send(id=number, method=method, params=params)
        assert server.stdout is not None
        while True:
            head = await asyncio.wait_for(server.stdout.readuntil(b"\r\n\r\n"), WAIT)
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            found: dict[str, Any] = json.loads(await server.stdout.readexactly(length))
            if found.get("id") == number:
                return found

    await answer(1, "initialize", {"processId": None, "rootUri": None, "capabilities": {}})
    uri = uri_of(tmp_path / "main.prose")
    for opened in ("file:///\ud800.prose", "file://[/x.prose", uri):
        document = {"uri": opened, "languageId": "prose", "version": 1, "text": "let a = 1\n"}
        send(method="textDocument/didOpen", params={"textDocument": document})
    this = {"uri": uri}
    places = [{"line": -1, "character": 0}, {"line": 2**63, "character": 0}, {"line": 0}, None]
    wrong = [*({"textDocument": this, "position": place} for place in places), {}]
    for number, params in enumerate(wrong, 2):
        assert (await answer(number, "textDocument/hover", params))["error"]["code"] == -32602, params
    changes = [{"uri": "file://[", "type": 3}, {"uri": uri, "type": 3}]
    send(method="workspace/didChangeWatchedFiles", params={"changes": changes})
    place = {"line": 0, "character": 4}
    hover = await answer(10, "textDocument/hover", {"textDocument": this, "position": place})
    assert "`a`" in hover["result"]["contents"]["value"]
    unsaved = {"uri": uri_of(tmp_path / "unsaved.prose")}
    assert (await answer(11, "textDocument/hover", {"textDocument": unsaved, "position": place}))["result"] is None
    assert (await answer(12, "shutdown", None))["result"] is None
    send(method="exit")
    _, errors = await asyncio.wait_for(server.communicate(), WAIT)
    assert server.returncode == 0
    assert b"Error:" not in errors and b"Traceback" not in errors
