"""The socket of a run on which somebody outside lists and decides its gates (docs/reference/openprose.md 5.10, 5.11).

The run listens while a gate of it is open. One connection carries one request and one answer, each a line of JSON:

    {"ask": "list"}                                        -> {"gates": [{"id": "release", "prompt": ...}]}
    {"ask": "decide", "gate": "release", "created_at": ...,
     "decision": "approved", "principal": "user", "comment": ""} -> {"ok": true} or {"refused": "too late: ..."}

The socket file is private to the user (0600, in the run's own `gates/` directory). Whoever connects is looked at
before a decision counts (`peers.py`), and the client looks at the run in the same way: a program that puts a socket
of its own in this place must not be able to tell a person "approved".
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from prose_kernel.state.gates.peers import PeerRefused, is_marked, peer_of, refuse_insiders

NAME: Final = "decisions.sock"
_LONGEST: Final = 100
"""Bytes of a socket's path that every system takes (108 on Linux, 104 on macOS)."""

_LIMIT: Final = 65_536
_SECONDS: Final = 10.0

Answering = Callable[[Mapping[str, Any]], Mapping[str, object]]
Inspect = Callable[[int], None]


class DecisionServer:
    """Listens in the directory `gates/` of a run while at least one gate is open. All calls in one event loop.

    `answer` gets a request and returns what is sent back; it is called in the loop, so that two decisions never
    overlap. `started` tells whether the run's engine started a session or group. `inspect` replaces the look at who
    connects.
    """

    def __init__(
        self,
        directory: Path,
        answer: Answering,
        started: Callable[[int], bool],
        inspect: Inspect | None = None,
    ) -> None:
        self._place = directory / NAME
        self._answer = answer
        self._inspect = inspect or (lambda pid: refuse_insiders(pid, started))
        self._server: asyncio.AbstractServer | None = None
        self._users = 0
        self._replying: set[asyncio.Event] = set()

    async def acquire(self) -> None:
        """A gate has opened. Raises `OSError` when the system refuses the socket."""
        if self._users == 0:
            with _short(self._place) as place:
                listening = _listen(place)
            self._users = 1
            self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=_LIMIT)
        else:
            self._users += 1

    async def release(self) -> None:
        """A gate is over; the last one closes the socket. Whoever has been heard gets an answer first."""
        self._users -= 1
        server = self._server
        if self._users == 0 and server is not None:
            self._server = None
            server.close()
            with contextlib.suppress(OSError):
                self._place.unlink(missing_ok=True)
            for reply in tuple(self._replying):
                await reply.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        replied = asyncio.Event()
        try:
            async with asyncio.timeout(_SECONDS):
                request = _object(await reader.readline())
            self._replying.add(replied)
            said = await self._answered(request, writer.get_extra_info("socket"))
            writer.write(json.dumps(dict(said)).encode() + b"\n")  # small enough for the socket's buffer
        except (OSError, TimeoutError, ValueError):
            pass  # it went away, was too slow, or sent no line
        finally:
            replied.set()
            self._replying.discard(replied)
            writer.close()

    async def _answered(self, request: dict[str, Any], transport: Any) -> Mapping[str, object]:
        try:
            # a descriptor of its own: the look at the process table happens in a thread
            with transport.dup() as connection:
                if request.get("ask") == "decide":
                    await asyncio.to_thread(self._look, connection)
        except PeerRefused as refused:
            return {"refused": f"called from inside a run: {refused}", "inside": True}
        return self._answer(request)

    def _look(self, connection: socket.socket) -> None:
        with peer_of(connection) as pid:
            self._inspect(pid)


def ask(directory: Path, request: Mapping[str, object]) -> dict[str, Any] | None:
    """Ask the run whose `gates/` directory this is; None when no run listens there.

    Raises `PeerRefused` when what listens there is not a run.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2 * _SECONDS)
        try:
            with _short(directory / NAME) as place:
                connection.connect(place)
            with peer_of(connection) as pid:
                if is_marked(pid):
                    raise PeerRefused("what listens in the place of the run was started by a run")
            connection.sendall(json.dumps(dict(request)).encode() + b"\n")
            said = b""
            while not said.endswith(b"\n") and (piece := connection.recv(_LIMIT)):
                said += piece
        except OSError:
            return None
    return _object(said) or None


def _listen(place: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    try:
        with contextlib.suppress(FileNotFoundError):
            Path(place).unlink()  # a link, a file, or the socket of a process that was killed
        os.fchmod(listening.fileno(), 0o600)  # on Linux the file gets it; elsewhere the look at the peer's user decides
        listening.bind(place)
        listening.listen(128)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


@contextlib.contextmanager
def _short(place: Path) -> Iterator[str]:
    """A path to the same file that is short enough for a socket."""
    text = str(place.absolute())
    if len(os.fsencode(text)) <= _LONGEST:
        yield text
    elif sys.platform == "linux" and Path("/proc/self/fd").is_dir():
        directory = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{directory}/{place.name}"
        finally:
            os.close(directory)
    else:
        with tempfile.TemporaryDirectory(prefix="prose-") as above:
            link = Path(above) / "g"
            link.symlink_to(place.parent.absolute())
            yield str(link / place.name)


def _object(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
