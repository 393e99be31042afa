"""Messages to and from an agent's process, one JSON object per line; detects other output early (sessions.md 5).

This is the transport of the protocol's library. Invalid input is filtered out here, because the library would write a
traceback for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prose_kernel.models.json_rpc import MessageReader


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits in seconds: `start` to answer a request other than a prompt (`initialize`, a new session), `noise` to
    answer `initialize` after printing something else, `cancel` to end a cancelled turn by protocol, `grace` between
    TERM and KILL."""

    start: float = 60.0
    noise: float = 5.0
    cancel: float = 2.0
    grace: float = 2.0


class Wire(MessageReader):
    """The transport: `take` accepts the output of the process, `receive` returns messages to the library."""

    def __init__(self) -> None:
        super().__init__(
            64 * 1024 * 1024, "sent a message that is too long", 1_000_000, "prints text that isn't a message"
        )
        self.write: Callable[[str], None] = lambda text: None
        self.disturbed = asyncio.Event()
        self._messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def take(self, text: str) -> None:
        """Accept a piece of the process's output."""
        broken = self.broken
        for message in self.messages(text):
            self._messages.put_nowait(message)
        if self.noise or self.broken:
            self.disturbed.set()
        if self.broken != broken:
            self.end()

    def end(self) -> None:
        """End the messages: `receive` returns None."""
        self._messages.put_nowait(None)

    # ------------------------------------------------------------ called by the library

    async def send(self, message: dict[str, Any]) -> None:
        self.write(json.dumps(message, separators=(",", ":")) + "\n")

    async def receive(self) -> dict[str, Any] | None:
        return await self._messages.get()

    async def close(self) -> None:
        self.end()

    def is_message(self, message: Any) -> bool:
        """Return whether this is a request, a notification or a response; an invalid error object is repaired in
        place."""
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
