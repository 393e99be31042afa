"""Errors of model servers: the table of sessions.md 2.1 in every wire format, with and without streaming."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path

import pytest
from models.providers.models import KEY, WIRES, Live
from stubs.model_server import StubServer

from prose_kernel import errors
from prose_kernel.errors import ProviderError, ProviderRateLimit
from prose_kernel.models.providers import model_http
from prose_kernel.models.providers.model_calls import Conversation, LazyConnection
from prose_kernel.runtime.session_options import ModelServer, Surroundings

TABLE = [
    # model, class, message, retryable
    ("err-400", errors.ProviderError, "the server refuses the request: The stub fails with 400.", False),
    ("err-401", errors.ProviderAuth, "the key in STUB_KEY is not accepted", False),
    ("err-403", errors.ProviderAuth, "the key in STUB_KEY has no right to this", False),
    ("err-404", errors.ProviderError, "there is no model `err-404`", False),
    ("err-408", errors.ProviderOverloaded, "the server cannot take the request now (status 408)", True),
    ("err-413", errors.ContextTooLong, "the message is longer than the model takes", False),
    ("err-418", errors.ProviderError, "the server refuses the request: The stub fails with 418.", False),
    ("err-422", errors.ProviderError, "the server refuses the request: The stub fails with 422.", False),
    ("err-429", errors.ProviderRateLimit, "too many requests", True),
    ("err-500", errors.ProviderOverloaded, "the server failed inside", True),
    ("err-502", errors.ProviderOverloaded, "the server failed inside", True),
    ("err-503", errors.ProviderOverloaded, "the server is overloaded or down for now", True),
    ("err-529", errors.ProviderOverloaded, "the server is overloaded or down for now", True),
    ("context", errors.ContextTooLong, "the message is longer than the model takes", False),
    ("drop", errors.ProviderConnection, "the connection broke before the answer was whole", True),
    ("cut", errors.ProviderConnection, "the connection broke before the answer was whole", True),
    ("hang", errors.ProviderTimeout, "no answer in time", True),
    ("moved", errors.ProviderError, "the server sends requests on to another server, which is not followed", False),
    ("garbage", errors.ProviderBadReply, "the server answered with a web page, not with a reply of a model", False),
]

STREAMED = [
    ("stall", errors.ProviderTimeout, "no answer in time", True),
    ("midway", errors.ProviderOverloaded, "the server is overloaded or down for now", True),
    ("unended", errors.ProviderConnection, "the connection broke before the answer was whole", True),
    ("broken", errors.ProviderBadReply, "the reply makes no sense: it is empty", True),
    ("empty", errors.ProviderBadReply, "the model said nothing", True),
]

WHOLE = [
    ("broken", errors.ProviderBadReply, "the reply makes no sense: it is not JSON", True),
    ("line-3", errors.ProviderBadReply, "the reply is longer than 8,000,000 characters and was given up", False),
]


def check(error: ProviderError, kind: type, name: str, message: str, retryable: bool) -> None:
    assert type(error) is kind
    assert str(error) == f"{name}: {message}"
    assert error.retryable is retryable
    assert error.__cause__ is None
    shown = f"{error} {error.hint}"
    assert KEY not in shown and "req_" not in shown and "127.0.0.1" not in shown
    assert len(str(error)) < 300 and "\n" not in shown


@pytest.mark.parametrize(("model", "kind", "message", "retryable"), [*TABLE, *STREAMED], ids=lambda v: str(v)[:12])
@pytest.mark.parametrize("wire", WIRES)
async def test_a_session(
    stub: StubServer, wire: str, tmp_path: Path, model: str, kind: type, message: str, retryable: bool
) -> None:
    async with Live(stub, wire, model, tmp_path, timeout=1.0 if model in ("hang", "stall") else 30.0) as live:
        with pytest.raises(ProviderError) as failed:
            await live.run()
    check(failed.value, kind, live.name, message, retryable)
    assert stub.stats.requests == 1


@pytest.mark.parametrize(("model", "kind", "message", "retryable"), [*TABLE, *WHOLE], ids=lambda v: str(v)[:12])
@pytest.mark.parametrize("wire", WIRES)
async def test_a_whole_reply(
    stub: StubServer,
    wire: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    kind: type,
    message: str,
    retryable: bool,
) -> None:
    monkeypatch.setattr(model_http, "LONGEST_LINE", 2_000_000)
    async with Live(stub, wire, model, tmp_path, timeout=1.0 if model == "hang" else 30.0) as live:
        target = live.servers.chain(live.name, model)[0]
        connection = LazyConnection(live.name, target.server, live.where)
        link = await connection.open(model)
        with pytest.raises(ProviderError) as failed:
            await link.converse(Conversation(model, "So?", streams=False), lambda _: None)
        await connection.close()
    check(failed.value, kind, live.name, message, retryable)
    assert stub.stats.requests == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_the_pause_that_the_server_requests_is_in_the_error(stub: StubServer, wire: str, tmp_path: Path) -> None:
    async with Live(stub, wire, "err-429", tmp_path) as live:
        with pytest.raises(ProviderRateLimit) as failed:
            await live.run()
    assert failed.value.retry_after == 7.0


async def test_an_exhausted_account_is_not_a_rate_limit(stub: StubServer, tmp_path: Path) -> None:
    for wire in ("chat", "responses"):  # Anthropic's format reports it with another status
        async with Live(stub, wire, "quota", tmp_path) as live:
            with pytest.raises(errors.ProviderAuth, match="no quota or credit left"):
                await live.run()


@pytest.mark.parametrize("wire", WIRES)
async def test_a_refusal_is_not_an_answer(stub: StubServer, wire: str, tmp_path: Path) -> None:
    async with Live(stub, wire, "refuse", tmp_path) as live:
        with pytest.raises(errors.ProviderBadReply):
            await live.run()


@pytest.mark.parametrize("wire", WIRES)
async def test_an_unreachable_server_is_a_connection_error(stub: StubServer, wire: str, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://user:hunter2@localhost:{free.getsockname()[1]}/v1?token=t0ken"
    async with Live(stub, wire, "ok-0", tmp_path, base_url=url) as live:
        with pytest.raises(errors.ProviderConnection) as failed:
            await live.run()
    assert str(failed.value) == f"{live.name}: the server cannot be reached"
    assert failed.value.hint is not None
    assert re.fullmatch(r"is the server at http://localhost:\d+/v1 running\?", failed.value.hint)


async def test_a_server_that_requires_a_missing_key(stub: StubServer, tmp_path: Path) -> None:
    async with Live(stub, "chat", "err-401", tmp_path, key="") as live:
        with pytest.raises(errors.ProviderAuth, match="gateway: the server wants a key") as failed:
            await live.run()
    assert failed.value.hint == 'name its variable in prose.toml: [providers.gateway] key = "NAME"'


async def test_the_text_of_the_server_is_cleaned(tmp_path: Path) -> None:
    sent = (
        f"Bad tools: key {KEY} or sk-abcdefghijk at https://me:pw@example.org/v1?key=zzz, "
        "request_id req-12345678 (request id: 20261122-abc) of org-AbCdEf123, 9f86d081884c7d659a2feaa0c55ad015 "
        "<b>bold</b> \x1b[31m" + "and so on " * 100
    )
    async with Saying(400, sent) as url:
        connection = LazyConnection(
            "gateway",
            ModelServer("openai", url, key="STUB_KEY"),
            Surroundings(str(tmp_path), environment={"STUB_KEY": KEY}),
        )
        link = await connection.open("m")
        with pytest.raises(ProviderError) as failed:
            await link.converse(Conversation("m", "Hi"), lambda _: None)
        await connection.close()
    message = str(failed.value)
    for secret in (KEY, "sk-abc", "pw@", "zzz", "req-1234", "20261122", "org-AbC", "9f86d081", "\x1b"):
        assert secret not in message
    assert message.startswith(
        "gateway: the server refuses the request: Bad tools: key … or … at https://example.org/v1"
    )
    assert len(message) < 260
    assert failed.value.hint == "if the model cannot call tools, write `tools = false` in [providers.gateway]"


@pytest.mark.parametrize(
    "quoted", ["sk-abcd***wxyz", "gsk_a1b2***yz", "glpat-a1b2c3...", "xoxb-1234567...", "AIzaSyA1b2***", "hvs.CAESI***"]
)
async def test_a38_keys_that_a_server_quotes_in_part_are_redacted(tmp_path: Path, quoted: str) -> None:
    async with Saying(400, f"The key {quoted} is not one of ours.") as url:
        connection = LazyConnection("gateway", ModelServer("openai", url, key=""), Surroundings(str(tmp_path)))
        link = await connection.open("m")
        with pytest.raises(ProviderError) as failed:
            await link.converse(Conversation("m", "Hi"), lambda _: None)
        await connection.close()
    assert str(failed.value) == "gateway: the server refuses the request: The key … is not one of ours."


class Saying:
    """A server that answers every request with the same status and message."""

    def __init__(self, status: int, message: str) -> None:
        import json

        body = json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self._reply = head.encode() + b"connection: close\r\n\r\n" + body

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        await reader.readexactly(int(length[1]) if length else 0)
        writer.write(self._reply)
        await writer.drain()
        writer.close()

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()
