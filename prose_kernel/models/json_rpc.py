"""JSON-RPC over the standard streams of a process that the run owns (a tool server, an agent): one message per line, in
both directions.

The output of the process is not trusted: text that is not a message is skipped, and a line that is too long, or too
much other text, ends the conversation.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from prose_kernel.language.text import one_line, printable
from prose_kernel.models.tools.tool import ToolFailed
from prose_kernel.runtime.services import Guard, Helper

_LINE: Final = re.compile(r"\S(?:[^\n]*\S)?")


class MessageReader:
    """Finds the messages in the output of a process.

    `noise` is the first line that was not a message. `broken` is the reason why reading has stopped: a line of more
    than `longest` characters, or more than `most_noise` characters of other text.
    """

    def __init__(self, longest: int, too_long: str, most_noise: int, too_noisy: str) -> None:
        self.noise: str | None = None
        self.broken: str | None = None
        self._longest, self._too_long = longest, too_long
        self._most_noise, self._too_noisy = most_noise, too_noisy
        self._begun: list[str] = []
        self._length = self._noise = 0

    def is_message(self, found: Any) -> bool:
        return isinstance(found, dict)

    def messages(self, text: str) -> list[dict[str, Any]]:
        """Add a piece of the output; return the messages that it completes."""
        found: list[dict[str, Any]] = []
        may_hold_messages = "{" in text
        first, *rest = text.split("\n", -1 if may_hold_messages else 1)
        self._begin(first)
        for piece in rest:
            line = "".join(self._begun).strip()
            self._begun, self._length = [], 0
            if line and self.broken is None:
                self._line(line, found)
            self._begin(piece if may_hold_messages else self._without_lines(piece))
        return found

    def _without_lines(self, text: str) -> str:
        """Count the lines of a text without messages as noise; return the part after them. It does no work per line,
        because a process may print such text without end."""
        lines, _, rest = text.rpartition("\n")
        if self.broken is None and (first := _LINE.search(lines)) is not None:
            self._count(first[0], sum(map(len, _LINE.findall(lines))))
        return rest

    def _begin(self, piece: str) -> None:
        if piece and self.broken is None:
            self._begun.append(piece)
            self._length += len(piece)
            if self._length > self._longest:
                self._begun, self.broken = [], self._too_long

    def _line(self, line: str, found: list[dict[str, Any]]) -> None:
        try:
            message: Any = json.loads(line) if line[0] == "{" else None  # cheap for large output without messages
        except (ValueError, RecursionError):
            message = None
        if self.is_message(message):
            found.append(message)
        else:
            self._count(line, len(line))

    def _count(self, noise: str, length: int) -> None:
        if self.noise is None:
            self.noise = noise[:1000]
        self._noise += length
        if self._noise > self._most_noise:
            self.broken = self._too_noisy


def last_words(helper: Helper) -> str:
    """Return the last line that a process wrote to standard error, in printable form; "" if there is none."""
    lines = [line for line in printable(helper.complaints).splitlines() if line.strip()]
    return f"its last words: {one_line(lines[-1], 200)}" if lines else ""


async def stop(helper: Helper, grace: float) -> None:
    """Send TERM, wait for `grace` seconds, send KILL, to a process and all processes that it started; send KILL
    immediately if the call is cancelled. Return when all have ended."""
    try:
        await helper.stop(grace)
    except asyncio.CancelledError:
        await helper.stop(0)
        raise


# ---------------------------------------------------------------- a tool server

LONGEST: Final = 16 * 1024 * 1024
"""The length limit of a message, in characters; a longer message ends the server."""
GRACE: Final = 2.0


class ServerProcess(MessageReader):
    """One process. `on_message` is called in our loop for each message, `on_end` after the last one."""

    def __init__(self, name: str, on_message: Callable[[dict[str, Any]], None], on_end: Callable[[], None]) -> None:
        limit = f"{LONGEST // (1024 * 1024)} MiB"
        limits = f"sent a message of more than {limit}", f"printed more than {limit} of text without messages"
        super().__init__(LONGEST, limits[0], LONGEST, limits[1])
        self.name = name
        self.over = False
        """Whether no more messages will come."""
        self._on_message = on_message
        self._on_end = on_end
        self._helper: Helper
        self._watching: asyncio.Future[None]
        self._loop = asyncio.get_running_loop()

    async def start(self, guard: Guard, command: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
        """Start the process with the common variables of our environment, and `env` in addition. Raises `ToolFailed`
        with the reason if it cannot be started."""
        try:
            self._helper = await guard.start(command, env, cwd, self._take, trusted=False)
        except OSError as problem:
            raise ToolFailed(f"the tool server {self.name} could not be started: {problem}") from None
        self._watching = asyncio.ensure_future(self._watch())

    def send(self, message: Mapping[str, Any]) -> None:
        self._helper.write(json.dumps(message, separators=(",", ":")) + "\n")

    async def stop(self, grace: float = GRACE) -> None:
        """Send TERM, wait for `grace` seconds, send KILL, to the process and all processes that it started. Return when
        all have ended; may be called in any loop."""
        await stop(self._helper, grace)
        if asyncio.get_running_loop() is self._loop:
            await asyncio.wait((self._watching,))  # not cancelled with this call

    @property
    def gone(self) -> str:
        """Return why no more messages will come, with the last line of errors of a process that ended by itself."""
        if self.broken:
            return f"the tool server {self.name} {self.broken}"
        words = last_words(self._helper)
        return f"the tool server {self.name} ended" + (f"; {words}" if words else "")

    async def _watch(self) -> None:
        await self._helper.ended()
        self._end()

    def _end(self) -> None:
        if not self.over:
            self.over = True
            self._on_end()

    def _take(self, text: str) -> None:
        if self.over:
            return
        for message in self.messages(text):
            self._on_message(message)
        if self.broken:
            self._end()


class Requests:
    """Requests to a process and their answers, matched by number: sufficient for our own servers."""

    def __init__(self, name: str) -> None:
        self.process = ServerProcess(name, self._heard, self._ended)
        self.open = True
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    @property
    def idle(self) -> bool:
        return not self._waiting

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer unchecked. Raises `ToolFailed` if none will come."""
        if not self.open:
            raise ToolFailed(self.process.gone)
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self.process.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        try:
            return await self._waiting[number]
        finally:
            del self._waiting[number]

    def _heard(self, message: dict[str, Any]) -> None:
        waiting = self._waiting.get(message.get("id", 0)) if isinstance(message.get("id"), int) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def _ended(self) -> None:
        self.open = False
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ToolFailed(self.process.gone))


# ---------------------------------------------------------------- an agent


class Patience(Struct, frozen=True):
    """Limits in seconds: `start` to answer a request other than a prompt (`initialize`, a new session), `noise` to
    answer `initialize` after printing something else, `cancel` to end a cancelled turn by protocol, `grace` between
    TERM and KILL."""

    start: float = 60.0
    noise: float = 5.0
    cancel: float = 2.0
    grace: float = 2.0


class Wire(MessageReader):
    """The transport of the library for the Agent Client Protocol: `take` accepts the output of the process, `receive`
    returns messages to the library. Invalid messages are left out, because it would write a traceback for them."""

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
