"""The HTTP client of model servers: no retries, explicit timeouts, bounded replies, no redirects to another server."""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Any

import httpx2

from prose_kernel.errors import ProviderBadReply, ProviderError
from prose_kernel.models.providers.model_calls import LONGEST_REPLY

LONGEST_LINE = 4 * LONGEST_REPLY  # bytes: one event of a stream, or a whole reply that is not a stream
LONGEST = 8 * LONGEST_REPLY  # bytes of all events of a stream: enough for 128,000 tokens
LINE_COST = 32  # bytes counted for each line in addition to its own: empty lines cost time, too
PACKED = ("gzip", "x-gzip")
PIECE = 1 << 16  # bytes that are unpacked at a time
CONNECT = 20.0  # seconds to open a connection


def client(timeout: float) -> httpx2.AsyncClient:
    """Return a client for one server, which may stay silent for `timeout` seconds."""
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(timeout, connect=min(CONNECT, timeout)),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        follow_redirects=True,
        verify=_trusted(),
        headers={"accept-encoding": "gzip"},
        event_hooks={"response": [_limit_response]},
    )


def too_long() -> ProviderBadReply:
    return ProviderBadReply(
        f"the reply is longer than {LONGEST_REPLY:,} characters and was given up",
        retryable=False,
        hint="ask for a shorter answer, or set max_tokens for this provider",
    )


@cache
def _trusted() -> ssl.SSLContext:
    """Return the trusted certificates of this machine, read once."""
    return httpx2.create_ssl_context()


class _LimitedStream(httpx2.AsyncByteStream):
    """The decompressed bytes of a reply. Raises `ProviderBadReply` if one line of a stream, or another reply as a
    whole, is too long after decompression."""

    def __init__(self, stream: Any, *, lines: bool, packed: bool) -> None:
        self._stream = stream
        self._lines = lines
        self._unpacks = zlib.decompressobj(wbits=47) if packed else None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = whole = 0
        async for data in self._stream:
            for piece in self._pieces(data):
                newline = piece.rfind(b"\n") if self._lines else -1
                length = len(piece) - newline - 1 if newline >= 0 else length + len(piece)
                whole += len(piece) + (LINE_COST * piece.count(b"\n") if self._lines else 0)
                if length > LONGEST_LINE or whole > LONGEST:
                    raise too_long()
                yield piece
                await asyncio.sleep(0)  # little data may decompress to many pieces: let signals and budgets run

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        if self._unpacks is None:
            yield data
            return
        while data and not self._unpacks.eof:
            try:
                piece = self._unpacks.decompress(data, PIECE)
            except zlib.error:
                raise ProviderBadReply("the reply is packed, and cannot be unpacked") from None
            data = self._unpacks.unconsumed_tail
            if piece:
                yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _limit_response(response: httpx2.Response) -> None:
    """Check a reply before it is read, and limit its size: it must be a model's reply, from this server."""
    if response.has_redirect_location:
        _refuse_other_server(response.request.url, response.request.url.join(response.headers["location"]))
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.is_success and kind in ("text/html", "application/xhtml+xml"):
        raise ProviderBadReply(
            "the server answered with a web page, not with a reply of a model",
            retryable=False,
            hint="is its base_url right? most end in /v1",
        )
    packed = response.headers.get("content-encoding", "identity").strip().lower()
    if packed not in ("", "identity", *PACKED):
        raise ProviderBadReply("the reply is packed in a way that was not asked for", retryable=False)
    response.headers.pop("content-encoding", None)  # it is unpacked here, where it is counted
    lines = kind != "application/json"
    response.stream = _LimitedStream(response.stream, lines=lines, packed=packed in PACKED)


def _refuse_other_server(here: httpx2.URL, there: httpx2.URL) -> None:
    """Raise `ProviderError` for a redirect to another server, which would get the message, and with some vendors'
    headers the key. A redirect of the same host to https is allowed."""
    if here.origin == there.origin or (here.host == there.host and there.scheme == "https"):
        return
    raise ProviderError(
        "the server sends requests on to another server, which is not followed",
        retryable=False,
        hint="is its base_url right? write the address that it sends to, if you trust it",
    )
