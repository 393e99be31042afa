"""Limit the displayed output of one command: show its beginning, the size of the omitted part, and its end.

Output is shown immediately until it reaches the `Limits`. From then on, only the last line is shown while a person
watches; the end of the command adds a note and the last part. Values and logs are not affected: the limits apply only
to screens and notebook files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct

from prose_kernel.runtime.ports import NOTHING_OMITTED, CommandResult, Omitted, Stream, utf8_size
from prose_kernel.views.cards import Note, notes_display
from prose_kernel.views.display import Display
from prose_kernel.views.document import counted
from prose_kernel.views.escaping import TerminalText, clip, terminal
from prose_kernel.views.refresh import GrowingDisplay, Replaceable

LAST_PART = 10
"""The limits are divided by this for the end of the output."""
_REMEMBERED = 400


class Limits(Struct, frozen=True):
    """The most displayed output of one command, in bytes and lines; 0 means unlimited."""

    size: int
    lines: int

    def reached(self, size: int, lines: int) -> bool:
        return bool((self.size and size > self.size) or (self.lines and lines > self.lines))


class _Piece(Struct):
    stream: Stream
    text: str
    size: int
    lines: int


class OutputWindow:
    """Takes a command's output in pieces, and returns the displayed parts. Linear time, bounded space."""

    def __init__(self, limits: Limits) -> None:
        self.cut = False
        self.last_line = ""
        self._limits = limits
        size, lines = limits.size, limits.lines
        self._end = Limits(size // LAST_PART or bool(size), lines // LAST_PART or bool(lines))
        self._shown = [0, 0]  # bytes, line ends
        self._hidden = [0, 0]
        self._tail: deque[_Piece] = deque()
        self._kept = [0, 0]

    def feed(self, stream: Stream, text: str, omitted: Omitted = NOTHING_OMITTED) -> str:
        """Return the part of `text` that is displayed now. `omitted` counts output before it that is not displayed."""
        self._hidden = [self._hidden[0] + omitted.size, self._hidden[1] + omitted.lines]
        piece = _piece(stream, text)
        if not self.cut:
            size, lines = self._shown
            if not self._limits.reached(size + piece.size, lines + piece.lines):
                self._shown = [size + piece.size, lines + piece.lines]
                return text
            self.cut = True
            at = _position(text, self._limits.size - size, self._limits.lines - lines, self._limits)
            shown, piece = text[:at], _piece(stream, text[at:])
        else:
            shown = ""
        self._keep(piece)
        self.last_line = next(filter(str.strip, reversed(piece.text[-_REMEMBERED:].split("\n"))), self.last_line)
        return shown

    def _keep(self, piece: _Piece) -> None:
        """Append to the end; count and drop pieces before it."""
        self._tail.append(piece)
        self._kept = [self._kept[0] + piece.size, self._kept[1] + piece.lines]
        while True:
            first = self._tail[0]
            left = self._kept[0] - first.size, self._kept[1] - first.lines
            if len(self._tail) == 1 or not (left[0] >= self._end.size > 0 or left[1] >= self._end.lines > 0):
                return
            self._tail.popleft()
            self._kept = list(left)
            self._hidden = [self._hidden[0] + first.size, self._hidden[1] + first.lines]

    def finish(self) -> list[tuple[Stream, str]]:
        """Return the end of a cut output, from the beginning of a line if possible."""
        parts: list[tuple[Stream, str]] = []
        size, lines = self._end.size or self._kept[0], self._end.lines or self._kept[1] + 1
        while self._tail:
            piece = self._tail.pop()
            start = _start_of_end(piece.text, size, lines) if size > 0 and lines > 0 else len(piece.text)
            taken = _piece(piece.stream, piece.text[start:])
            size, lines = (0, 0) if start else (size - taken.size, lines - taken.lines)
            self._hidden = [self._hidden[0] + piece.size - taken.size, self._hidden[1] + piece.lines - taken.lines]
            if taken.text:
                parts.append((taken.stream, taken.text))
        return parts[::-1]

    @property
    def leaves_out(self) -> bool:
        """Whether a part of the output will certainly not be displayed."""
        size, lines = self._kept
        return self._hidden[0] > 0 or size > self._end.size > 0 or lines > self._end.lines > 0

    def left_out(self) -> str:
        """Return how much of the output so far is not displayed, in words; "" for nothing."""
        size, lines = self._hidden
        if not size:
            return ""
        bytes_ = counted(size, "byte")
        return f"… {counted(lines, 'line')} ({bytes_}) not displayed" if lines else f"… {bytes_} not displayed"


def where_whole(result: CommandResult | None) -> str:
    """Return how to keep a command's complete output."""
    if result is None or result.stdout_truncated or result.stderr_truncated:
        return "`let NAME = exec …` with `max-output:` keeps all of it"
    return "`let NAME = exec …` keeps all of it"


def _piece(stream: Stream, text: str) -> _Piece:
    return _Piece(stream, text, utf8_size(text), text.count("\n"))


def _position(text: str, size: int, lines: int, limits: Limits) -> int:
    """Return the end of the displayed text: after a whole line, if there is one."""
    at = len(text)
    if limits.size:
        at = len(text[:size].encode("utf-8", "replace")[:size].decode("utf-8", "ignore"))
        at = text.rfind("\n", 0, at) + 1 or at
    if limits.lines:
        found = -1
        for _ in range(lines):
            found = text.find("\n", found + 1)
            if found < 0:
                break
        at = min(at, found + 1) if found >= 0 or not lines else at
    return at


def _start_of_end(text: str, size: int, lines: int) -> int:
    """Return the start of the last `lines` lines that fit into `size` bytes; within a line if it is longer."""
    at = len(text) if text.endswith("\n") else len(text) + 1
    for _ in range(lines):
        at = text.rfind("\n", 0, max(at - 1, 0)) + 1
        if not at:
            break
    room = len(text) - len(text[-size:].encode("utf-8", "replace")[-size:].decode("utf-8", "ignore"))
    if room <= at:
        return at
    return text.find("\n", room - 1) + 1 or room


# ---------------------------------------------------------------- commands in cells


def quiet_line(text: str) -> Display:
    return notes_display([Note(text)])


class CommandView:
    """The output of one command in a cell. `say` shows the note about omitted output. `place` is given if a person
    watches: it shows the last line until the note replaces it."""

    def __init__(
        self,
        limits: Limits,
        write: Callable[[Stream, str], None],
        say: Callable[[str], None],
        place: Replaceable | None = None,
    ) -> None:
        self.window = OutputWindow(limits)
        self._write = write
        self._say = say
        self._display = None if place is None else GrowingDisplay(place, self._running)
        self._texts: dict[Stream, TerminalText] = {"stdout": TerminalText(), "stderr": TerminalText()}

    def feed(self, stream: Stream, text: str, omitted: Omitted = NOTHING_OMITTED) -> None:
        self._write(stream, self._texts[stream].feed(self.window.feed(stream, text, omitted)))
        if self._display is not None and self.window.leaves_out:  # else all of it may still be displayed at the end
            self._display.grow()

    def _running(self) -> Display:
        return quiet_line(f"… {clip(self.window.last_line, 100)}")

    def finish(self, whole: str) -> None:
        """Show the end of a finished command's output. `whole` describes how to get all of it."""
        for stream, held in self._texts.items():
            self._write(stream, held.end())
        parts = self.window.finish()
        if note := self.window.left_out():
            left_out = f"{note}; {whole}"
            if self._display is None or not self._display.settle(quiet_line(left_out)):
                self._say(left_out)
        for name, text in _joined(parts):
            self._write(name, text)


def _joined(parts: Sequence[tuple[Stream, str]]) -> list[tuple[Stream, str]]:
    """Escape the pieces, and join neighbours of the same stream."""
    found: list[tuple[Stream, str]] = []
    for name, text in parts:
        before = found.pop()[1] if found and found[-1][0] == name else ""
        found.append((name, before + text))
    return [(name, terminal(text)) for name, text in found]
