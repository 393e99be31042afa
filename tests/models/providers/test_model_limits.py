"""Amendment A37: replies of a model server have limits of unpacked size and of time."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from prose_kernel.errors import ProviderBadReply, ProviderTimeout
from prose_kernel.models.providers import model_http
from prose_kernel.models.providers.model_calls import Conversation
from prose_kernel.runtime.session_options import ModelServer, Surroundings

if TYPE_CHECKING:
    from prose_kernel.models.providers.model_adapter import ServerLink

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def event(text: str, **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None, **more}
    data = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


END = event("", finish_reason="stop") + b"data: [DONE]\n\n"


@contextlib.asynccontextmanager
async def served(answer: Answer, tmp_path: Path, **server: float) -> AsyncIterator[ServerLink]:
    from prose_kernel.models.providers.model_adapter import ServerLink

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await answer(writer)
        writer.transport.abort()

    listening = await asyncio.start_server(one, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    settings = structs.replace(ModelServer("openai", f"http://127.0.0.1:{port}/v1", ""), **server)
    link = ServerLink("stub", settings, None, Surroundings(str(tmp_path)))
    try:
        yield link
    finally:
        await link.close()
        listening.close()


def asked(*, timed: bool = False) -> Conversation:
    return Conversation("m", "Say hello", timed=timed)


async def test_a37_a_compressed_reply_is_unpacked(tmp_path: Path) -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(event("hello") + END))

    async with served(answer, tmp_path) as link:
        assert (await link.converse(asked(), lambda _: None)).text == "hello"


@pytest.mark.parametrize(
    "unit", [b" ", b": still here\n", event(""), event("a")], ids=["line", "comments", "empty", "a"]
)
async def test_a37_a_compressed_reply_is_limited_by_its_unpacked_size(
    unit: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_http, "LONGEST_LINE", 40_000)
    monkeypatch.setattr(model_http, "LONGEST", 80_000)

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Encoding: gzip\r\n\r\n")
        packer = zlib.compressobj(9, wbits=31)
        writer.write(packer.compress(unit * (120_000 // len(unit))) + packer.flush(zlib.Z_SYNC_FLUSH))
        await writer.drain()
        await asyncio.Event().wait()

    async with served(answer, tmp_path) as link:
        with pytest.raises(ProviderBadReply, match="longer than"):
            await link.converse(asked(), lambda _: None)


async def test_a37_empty_lines_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_http, "LONGEST", 2_000_000)

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"\n" * 100_000 + event("hello") + END))

    async with served(answer, tmp_path) as link:
        with pytest.raises(ProviderBadReply, match="longer than"):
            await link.converse(asked(), lambda _: None)


async def test_a37_unpacking_a_reply_can_be_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A little compressed data can hold many lines; other tasks run between its pieces."""
    monkeypatch.setattr(model_http, "PIECE", 1000)
    turns = 0

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"\n" * 100_000 + event("hello") + END))

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with served(answer, tmp_path) as link:
        counting = asyncio.create_task(others())
        seen: list[int] = []
        unpacked = model_http._LimitedStream._pieces
        monkeypatch.setattr(
            model_http._LimitedStream, "_pieces", lambda *given: (seen.append(turns) or one for one in unpacked(*given))
        )
        assert (await link.converse(asked(), lambda _: None)).text == "hello"
        counting.cancel()
    assert len(seen) > 100 and len(set(seen)) > len(seen) // 2


async def test_a37_another_compression_is_refused(tmp_path: Path) -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Encoding: br\r\n\r\nxxxx")

    async with served(answer, tmp_path) as link:
        with pytest.raises(ProviderBadReply, match="not asked for"):
            await link.converse(asked(), lambda _: None)


async def _comments(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"\r\n" + event("hello"))
    while True:
        writer.write(b": still here\n\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _tokens(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"\r\n")
    while True:
        writer.write(event("hello "))
        await writer.drain()
        await asyncio.sleep(0.01)


async def test_a37_a_session_without_a_timeout_ends_without_a_token(tmp_path: Path) -> None:
    async with served(_comments, tmp_path, token_timeout=0.2) as link:
        with pytest.raises(ProviderTimeout, match=r"stub: no token came for 0\.2 seconds") as caught:
            await link.converse(asked(), lambda _: None)
        assert not caught.value.retryable
        assert caught.value.hint is not None and "token_timeout in [providers.stub]" in caught.value.hint
        with pytest.raises(TimeoutError):  # the session's `timeout:` is the only limit
            async with asyncio.timeout(0.6):
                await link.converse(asked(timed=True), lambda _: None)


async def test_a37_a_session_without_a_timeout_ends_after_its_total_time(tmp_path: Path) -> None:
    heard: list[str] = []
    async with served(_tokens, tmp_path, token_timeout=0.2, session_timeout=0.6) as link:
        with pytest.raises(ProviderTimeout, match=r"stub: the session has taken 0\.6 seconds"):
            await link.converse(asked(), heard.append)
    assert len(heard) > 1
