"""JSON messages from a process that the run owns, one object on each line.

The output is not trusted: text that is not a message is skipped, and a line that is too long, or too much of such text,
ends the conversation.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final

from prose_kernel.runtime.services import Helper
from prose_kernel.runtime.text import one_line, printable

_OBJECT: Final = re.compile(r"^[^\S\n]*\{[^\n]*", re.MULTILINE)
"""A line that may be a message."""
_OTHER: Final = re.compile(r"^[^\S\n]*[^\s{][^\n]*", re.MULTILINE)
"""A line of other text."""


class MessageReader:
    """Finds the messages in the output of a process. `noise` is the first line that was not a message, `broken` the
    reason why reading has stopped: a line of more than `longest` characters, or more than `most_noise` characters of
    other text."""

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
        lines, end, rest = text.rpartition("\n")
        if end:
            first, newline, others = lines.partition("\n")
            self._begin(first)
            if self.broken is None:
                self._read("".join(self._begun) + newline + others, found)
            self._begun, self._length = [], 0
        self._begin(rest)
        return found

    def _begin(self, piece: str) -> None:
        if piece and self.broken is None:
            self._begun.append(piece)
            self._length += len(piece)
            if self._length > self._longest:
                self._begun, self.broken = [], self._too_long

    def _read(self, lines: str, found: list[dict[str, Any]]) -> None:
        """Add the messages of whole lines. Other text costs no work per line: a process may print it without end."""
        noise = [first] if (first := _OTHER.search(lines)) is not None else []
        length = sum(map(len, _OTHER.findall(lines)))
        for line in _OBJECT.finditer(lines):
            try:
                message: Any = json.loads(line[0].strip())
            except (ValueError, RecursionError):
                message = None
            if self.is_message(message):
                found.append(message)
            else:
                noise.append(line)
                length += len(line[0])
        if noise and self.noise is None:
            self.noise = min(noise, key=re.Match.start)[0].strip()[:1000]
        self._noise += length
        if self._noise > self._most_noise:
            self.broken = self._too_noisy


def last_words(helper: Helper) -> str:
    """Return the last line that a process wrote to standard error, in printable form; "" if there is none."""
    lines = [line for line in printable(helper.complaints).splitlines() if line.strip()]
    return f"its last words: {one_line(lines[-1], 200)}" if lines else ""


async def stop(helper: Helper, grace: float) -> None:
    """Send TERM, wait for `grace` seconds, send KILL, to a process and all that it started; send KILL immediately if
    the call is cancelled. Returns when all have ended."""
    try:
        await helper.stop(grace)
    except asyncio.CancelledError:
        await helper.stop(0)
        raise
