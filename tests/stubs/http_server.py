"""HTTP servers on loopback with scripted answers: pages, redirects, and faults.

`Server.serve` is for tests with their own event loop; `running()` serves from a thread for all others.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

Write = Callable[[bytes], Awaitable[None]]
Behaviour = Callable[[str, Write], Awaitable[None]]


def response(body: bytes = b"", kind: str = "text/plain", status: str = "200 OK", more: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{more}\r\n"
    )
    return head.encode() + body


class Server:
    """An HTTP server that answers each path with fixed bytes, or with a scripted fault."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes | Behaviour] = {}
        self.requests: list[str] = []
        self.hosts: list[str] = []
        self.left = asyncio.Event()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split(" ")[1]
            self.requests.append(path)
            self.hosts += re.findall(r"(?im)^host: (.*?)\r$", head)
            page = self.pages.get(path.split("?")[0], response(b"no such page", status="404 Not Found"))
            await (write(page) if isinstance(page, bytes) else page(path, write))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.left.set()
            writer.close()


async def hang(_: str, write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\n")
    await asyncio.get_running_loop().create_future()


async def drip(_: str, write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        await write(b"x")
        await asyncio.sleep(0.02)


async def cut(_: str, write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")


async def garbage(_: str, write: Write) -> None:
    await write(b"\x00\x01 hello\r\n\r\n")


async def nothing(_: str, write: Write) -> None:
    """Send nothing, and close the connection."""


def redirect(to: str, status: str = "302 Found") -> bytes:
    return response(status=status, more=f"Location: {to}\r\n")


@contextmanager
def running(tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """A server in its own thread. Its pages may be changed at any time."""
    server, loop, ready = Server(), asyncio.new_event_loop(), threading.Event()

    async def serve() -> None:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
        server.port = listening.sockets[0].getsockname()[1]
        ready.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            listening.close()

    serving = loop.create_task(serve())
    thread = threading.Thread(target=lambda: _until_cancelled(loop, serving))
    thread.start()
    ready.wait(30)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join(30)
        loop.close()


def _until_cancelled(loop: asyncio.AbstractEventLoop, serving: asyncio.Task[None]) -> None:
    loop.run_until_complete(asyncio.wait([serving]))
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left))
