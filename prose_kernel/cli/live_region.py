"""The live lines at the bottom of a terminal: running activities, below all printed output.

It uses only three control sequences that every terminal knows: cursor up, start of line, erase to the end. Lines are
cut to the width of the terminal; if it has become narrower since, it has wrapped them, and the rows that they take now
are computed. No other state of the screen is kept, and none is changed that a killed process would have to restore (no
alternate screen, no hidden cursor).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Final, TextIO

from prose_kernel.views.escaping import visible
from prose_kernel.views.live_text import LiveLine

BAR: Final = 12
"""The width of a progress bar, in terminal cells."""
SHORTEST: Final = 12
"""The least width of the name in a heading, in terminal cells."""
SMALLEST: Final = (16, 4)
"""The least columns and rows of a terminal that shows live lines."""
_STYLES: Final = {"dim": "2", "red": "31", "cyan": "36", "green": "32"}
_MARKS: Final = {"✗": "red", "▸": "cyan", "✓": "green"}
SGR: Final = re.compile(r"\x1b\[[0-9;]*m")

Part = tuple[str, str]
"""A text and its style."""


def can_redraw(stream: TextIO) -> bool:
    """Return whether lines on a stream can be replaced."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class LiveRegion:
    """Lines that are redrawn in place. `write` writes to the terminal, `size` returns its columns and rows."""

    def __init__(self, write: Callable[[str], None], size: Callable[[], tuple[int, int]], colour: bool) -> None:
        self._write = write
        self._size = size
        self._colour = colour
        self._drawn: list[int] = []  # the widths of the lines on the screen
        self._left = False
        self._lines: Sequence[LiveLine] = ()
        self._open = ""

    @property
    def visible(self) -> bool:
        return bool(self._drawn)

    @property
    def rows(self) -> int:
        """The number of rows for the lines."""
        return max(0, self._size()[1] - 2)

    def draw(self, lines: Sequence[LiveLine], unfinished: str = "") -> None:
        """Replace the shown lines. The end of `unfinished`, an incomplete line of output, is shown above them."""
        self._lines, self._open = lines, unfinished
        columns, rows = self._size()
        if columns < SMALLEST[0] or rows < SMALLEST[1]:
            self.erase()
            return
        texts = [_tail(visible(unfinished), columns - 1)] if unfinished else []
        texts += region_lines(lines, columns - 1, self._colour)
        if len(texts) > rows - 2:
            texts = [*texts[: rows - 3], f"  … and {len(texts) - rows + 3} more"]
        self._write(self._erase_sequence() + "".join(f"{text}\n" for text in texts))
        self._drawn = [_width(text) for text in texts]

    def above(self, write: Callable[[], None], unfinished: str) -> None:
        """Call `write`, which writes text above the lines."""
        self._write(self._erase_sequence())
        self._drawn = []
        write()
        self.draw(self._lines, unfinished)

    def erase(self) -> None:
        if gone := self._erase_sequence():
            self._write(gone)
        self._drawn = []

    def leave(self) -> None:
        """Draw the next lines at the cursor, and leave those on the screen: others have written below. May be called
        by a signal handler, also while lines are drawn."""
        self._left = True

    def _erase_sequence(self) -> str:
        if self._left:
            self._left, self._drawn = False, []
        if not self._drawn:
            return ""
        columns = max(1, self._size()[0])
        rows = sum(max(1, -(-width // columns)) for width in self._drawn)
        return f"\r\x1b[{rows}A\x1b[J"


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """Return columns and rows of a terminal: 80 and 24 if they are unknown, 0 and 0 while the terminal belongs to
    another job (`prose run FILE &`)."""
    try:
        size = os.get_terminal_size(stream.fileno())
        if os.tcgetpgrp(stream.fileno()) not in (os.getpgrp(), 0):  # 0: a process of another container
            return 0, 0
    except (OSError, ValueError):
        return 80, 24
    return size.columns or 80, size.lines or 24


# ---------------------------------------------------------------- rendering


def region_lines(lines: Sequence[LiveLine], columns: int, colour: bool) -> list[str]:
    """Return the rendered lines, one per row. The names and times of indented lines form columns."""
    names = max((_width(visible(line.name)) for line in lines if line.depth and line.mark.strip()), default=0)
    shown: list[str] = []
    for line in lines:
        shown.append(_cut(_row(line, names) if line.depth else _heading(line, columns), columns, colour))
        if not line.depth and line.last:
            shown.append(_cut([(f"    {visible(line.last)}", "dim")], columns, colour))
    return shown


def _heading(line: LiveLine, columns: int) -> list[Part]:
    """Return the parts of a heading. If there is little room, its name is shortened first."""
    parts: list[Part] = [(f"{line.mark} ", _MARKS.get(line.mark, ""))]
    if line.done is not None and line.done[1]:
        filled = min(BAR, BAR * line.done[0] // line.done[1])
        parts += [("━" * filled, "cyan"), ("╌" * (BAR - filled) + " ", "dim")]
    details = "".join(f" · {visible(part)}" for part in (line.time, *line.about) if part)
    room = columns - sum(_width(part) for part, _ in parts) - _width(details)
    name = _cut([(visible(line.name), "")], max(room, SHORTEST), colour=False)
    parts.append((name, "" if line.mark.strip() else "dim"))
    return [*parts, (details, "dim")]


def _row(line: LiveLine, names: int) -> list[Part]:
    indent = "  " * line.depth
    if not line.mark.strip():
        return [(f"{indent}  {visible(line.name)}", "dim")]
    name = visible(line.name)
    parts: list[Part] = [(f"{indent}{line.mark} ", _MARKS.get(line.mark, ""))]
    parts.append((name + " " * (names - _width(name)), ""))
    parts.append((f"  {line.time:>6}  ", "dim"))
    parts.append((" · ".join(visible(part) for part in line.about), ""))
    if line.last:
        parts.append(((" · " if line.about else "") + visible(line.last), "dim"))
    return parts


def _cut(parts: Sequence[Part], columns: int, colour: bool) -> str:
    """Return the parts as one row, cut with an ellipsis if it is too long."""
    from rich.cells import set_cell_size

    text, left = "", columns
    total = sum(_width(part) for part, _ in parts)
    for part, style in parts:
        width = _width(part)
        if width > left or (width == left and total > columns):
            part = set_cell_size(part, max(0, left - 1)).rstrip().rstrip("…") + "…"
            width = left
        text += f"\x1b[{_STYLES[style]}m{part}\x1b[0m" if colour and style and part.strip() else part
        left -= width
        if left <= 0:
            break
    return text.rstrip()


def _tail(text: str, columns: int) -> str:
    """Return the end of a text that fits into so many columns."""
    while _width(text) > columns:
        text = text[max(1, (len(text) - columns) // 2 + 1) :] if len(text) > columns else text[1:]
    return text


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(SGR.sub("", text))
