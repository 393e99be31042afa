"""Finds JSON messages, one object per line, in the output of a process that the run owns (an agent, a tool server).

The output is not trusted: text that is not a message is skipped, and a line that is too long, or too much other text,
ends the conversation.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final

from prose_kernel.language.text import one_line, printable
from prose_kernel.runtime.services import Helper

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
