"""Messages to and from an agent's process: one JSON object a line, and what is none noticed early (sessions.md 5).

The message transport that the protocol's library takes. Everything odd is sorted out here: the library would write
a traceback for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

LONGEST: Final = 64 * 1024 * 1024
"""Characters of one message; a longer one ends the conversation."""

_MOST_NOISE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: `start` to answer a request that is no prompt (hello, a new session), `noise` to say hello after it has
    printed something else, `cancel` to end a cancelled turn by protocol, `grace` between TERM and KILL."""

    start: float = 60.0
    noise: float = 5.0
    cancel: float = 2.0
    grace: float = 2.0


class Wire:
    """Feed it with what the process prints (`take`); it feeds the library with messages (`receive`).

    `noise` is the first line that was no message, `broken` why nothing more is read.
    """

    def __init__(self) -> None:
        self.write: Callable[[str], None] = lambda text: None
        self.noise: str | None = None
        self.broken: str | None = None
        self.disturbed = asyncio.Event()
        self._messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._begun: list[str] = []
        self._length = 0
        self._noise = 0

    def take(self, text: str) -> None:
        """A piece of what the process prints."""
        if self.broken is not None:
            return
        first, *rest = text.split("\n")
        self._begin(first)
        for piece in rest:
            line = "".join(self._begun)
            self._begun, self._length = [], 0
            self._line(line)
            self._begin(piece)

    def _begin(self, piece: str) -> None:
        if piece:
            self._begun.append(piece)
            self._length += len(piece)
            if self._length > LONGEST:
                self._break("sent a message that is too long")

    def _line(self, line: str) -> None:
        line = line.strip()
        if not line or self.broken is not None:
            return
        try:
            message = json.loads(line) if line[0] == "{" else None  # much that is no message costs little
        except (ValueError, RecursionError):
            message = None
        if _is_message(message):
            self._messages.put_nowait(message)
            return
        if self.noise is None:
            self.noise = line[:1000]
        self.disturbed.set()
        self._noise += len(line)
        if self._noise > _MOST_NOISE:
            self._break("prints text that is no message")

    def _break(self, why: str) -> None:
        self._begun = []
        if self.broken is None:
            self.broken = why
            self.disturbed.set()
            self.end()

    def end(self) -> None:
        """Nothing more comes."""
        self._messages.put_nowait(None)

    # ------------------------------------------------------------ what the library calls

    async def send(self, message: dict[str, Any]) -> None:
        self.write(json.dumps(message, separators=(",", ":")) + "\n")

    async def receive(self) -> dict[str, Any] | None:
        return await self._messages.get()

    async def close(self) -> None:
        self.end()


def _is_message(message: object) -> bool:
    """Whether it is a request, a notification or a response; an odd error is put into its form."""
    if not isinstance(message, dict):
        return False
    id, method = message.get("id"), message.get("method")
    if id is not None and not isinstance(id, int | str):
        return False
    if method is not None:
        return isinstance(method, str)
    if "error" in message and "result" not in message:
        error = message["error"]
        if not isinstance(error, dict) or not isinstance(error.get("code"), int):
            message["error"] = {"code": -32603, "message": str(error)}
        elif not isinstance(error.get("message"), str):
            error["message"] = str(error.get("message") or "error")
        return True
    return "result" in message and "id" in message
