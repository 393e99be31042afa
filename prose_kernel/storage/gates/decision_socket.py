"""The socket through which other processes list and decide the gates of a run (docs/reference/openprose.md 5.10, 5.11).

The run listens while one of its gates is open. A connection carries one request and one answer, each a line of JSON:

    {"ask": "list"}                                        -> {"gates": [{"id": "release", "prompt": ...}]}
    {"ask": "decide", "gate": "release", "created_at": ...,
     "attempt": 1, "decision": "approved", "principal": "user", "comment": ""} -> {"ok": true} or {"refused": "..."}

The socket file is private to the user (0600, in the run's `gates/` directory). A client is checked before its decision
counts (`peers.py`), and the client checks the run in the same way: a program that replaces this socket by its own must
not be able to report "approved" to a person. A program that holds many connections open, or sends and reads slowly,
delays neither the run nor other deciders: a new connection replaces the oldest one that has not sent its request, and
the end of the last gate closes all connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from prose_kernel.access import plain_files
from prose_kernel.access.jsonl import json_object
from prose_kernel.access.peers import Insider, PeerRefused, is_marked, peer_of, refuse_insiders

NAME: Final = "decisions.sock"
_LONGEST: Final = 100
"""The most bytes of a socket's path on any system (108 on Linux, 104 on macOS)."""

_LIMIT: Final = 65_536
_LONGEST_ANSWER: Final = 256 * _LIMIT
_SECONDS: Final = 10.0
_MOST: Final = 100
"""The most simultaneous connections."""

_PAUSE: Final = 1.0
"""Seconds until the next attempt if the system had no descriptor for a connection."""

Answering = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, object]]]
Inspect = Callable[[int], None]


class DecisionServer:
    """Listens in the directory `gates/` of a run while at least one gate is open. Call all methods in one event loop.

    `answer` gets a request and returns the reply. `started` returns whether the run's engine started a session or
    group. `inspect` replaces the check of a connecting process.
    """

    def __init__(
        self, directory: Path, answer: Answering, started: Callable[[int], bool], inspect: Inspect | None = None
    ) -> None:
        self._place = directory / NAME
        self._answer = answer
        self._inspect = inspect or (lambda pid: refuse_insiders(pid, started))
        self._listening: socket.socket | None = None
        self._users = 0
        self._without_request: dict[asyncio.Task[Any], None] = {}  # connections without a request, the oldest first
        self._answering: set[asyncio.Task[Any]] = set()

    def acquire(self) -> None:
        """Listen for one more gate. Raises `OSError` if the system refuses the socket; then nothing is left of it."""
        if self._users == 0:
            with _short_path(self._place) as place:
                self._listening = _listen(place)
            self._watch()
        self._users += 1

    async def release(self) -> None:
        """Listen for one gate less; the last call closes the socket, after answering all received requests."""
        self._users -= 1
        listening = self._listening
        if self._users == 0 and listening is not None:
            self._listening = None
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
            with contextlib.suppress(OSError):
                self._place.unlink(missing_ok=True)
            for connection in tuple(self._without_request):
                connection.cancel()
            if self._answering:
                await asyncio.wait(self._answering, timeout=_SECONDS)

    # Not `asyncio.start_unix_server`, which leaves a connection open if it accepts it in the loop iteration of `close`.

    def _watch(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().add_reader(self._listening, self._accept, self._listening)

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:  # no more descriptors or memory
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening)
            loop.call_later(_PAUSE, self._watch)
            return
        if not self._has_room():
            connection.close()
            return
        task = asyncio.ensure_future(self._serve(connection))
        self._without_request[task] = None
        # also runs for a task that is cancelled before it begins
        task.add_done_callback(partial(self._connection_ended, connection))

    def _connection_ended(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._without_request.pop(task, None)
        self._answering.discard(task)
        connection.close()

    async def _serve(self, connection: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        reader, writer = await asyncio.open_unix_connection(sock=connection, limit=_LIMIT)
        writer.transport.set_write_buffer_limits(0)  # so that `drain` waits until the system's buffer has all data
        try:
            async with asyncio.timeout(_SECONDS):
                request = json_object(await reader.readline())
                self._without_request.pop(task, None)
                self._answering.add(task)
                answer = await self._reply(request, connection)
                writer.write(json.dumps(dict(answer)).encode() + b"\n")
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # the client disconnected, was too slow, or sent no line
        finally:
            writer.transport.abort()

    def _has_room(self) -> bool:
        """Return whether there is room for a new connection; if necessary, close the oldest one without a request."""
        if len(self._without_request) + len(self._answering) >= _MOST:
            oldest = next(iter(self._without_request), None)
            if oldest is None:
                return False
            del self._without_request[oldest]
            oldest.cancel()
        return True

    async def _reply(self, request: dict[str, Any], connection: socket.socket) -> Mapping[str, object]:
        try:
            with connection.dup() as separate:  # the process table is read in a thread
                await asyncio.to_thread(self._check_peer, separate, request.get("ask") == "decide")
        except PeerRefused as refused:
            return {"refused": str(refused), "inside": isinstance(refused, Insider)}
        return await self._answer(request)

    def _check_peer(self, connection: socket.socket, decides: bool) -> None:
        with peer_of(connection) as pid:
            if decides:
                self._inspect(pid)


def ask(directory: Path, request: Mapping[str, object]) -> dict[str, Any] | None:
    """Send a request to the run with this `gates/` directory; return None if no run listens or answers there.

    Raises `PeerRefused` if the listening process is not a run.
    """
    until = time.monotonic() + 2 * _SECONDS
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            with _short_path(directory / NAME) as place:
                _connect(connection, place, until)
            with peer_of(connection) as pid:
                if is_marked(pid):
                    raise PeerRefused("what listens in the place of the run was started by a run")
            connection.sendall(json.dumps(dict(request)).encode() + b"\n")
            received = b""
            while not received.endswith(b"\n") and len(received) < _LONGEST_ANSWER:
                connection.settimeout(max(until - time.monotonic(), 0.001))
                if not (piece := connection.recv(_LIMIT)):
                    break
                received += piece
        except OSError:
            return None
    return json_object(received) or None


def _connect(connection: socket.socket, place: str, until: float) -> None:
    """Connect, even to a busy run, for which the system accepts the connection only after a while."""
    connection.settimeout(2 * _SECONDS)
    while True:
        try:
            return connection.connect(place)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.02)


def _listen(place: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    try:
        with contextlib.suppress(FileNotFoundError):
            Path(place).unlink()  # a link, a file, or the socket of a killed process
        os.fchmod(listening.fileno(), 0o600)  # on Linux the file gets this mode; elsewhere the peer's user is checked
        listening.bind(place)
        listening.listen(128)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


@contextlib.contextmanager
def _short_path(place: Path) -> Iterator[str]:
    """Yield a path to the same file that is short enough for a socket."""
    text = str(place.absolute())
    if len(os.fsencode(text)) <= _LONGEST:
        yield text
    elif sys.platform == "linux" and Path("/proc/self/fd").is_dir():
        with plain_files.closing(os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as directory:
            yield f"/proc/self/fd/{directory}/{place.name}"
    else:
        with tempfile.TemporaryDirectory(prefix="prose-") as above:
            link = Path(above) / "g"
            link.symlink_to(place.parent.absolute())
            yield str(link / place.name)
