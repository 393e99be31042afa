"""The live lines at the bottom of a terminal: running activities, below all printed output.

Written with three sequences that every terminal knows (up, to the start of the line, erase to the end). Lines are cut
to the width of the terminal; when it has become narrower since they were drawn, it has wrapped them, and the rows that
they take now are counted. Nothing else is remembered of the screen, and nothing is changed that a killed process would
have to give back (no alternate screen, no hidden cursor).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Final, TextIO

from prose_kernel.views.escaping import visible
from prose_kernel.views.live_text import Line

BAR: Final = 12
"""Cells of a bar of progress."""
SHORTEST: Final = 12
"""Cells that the name of a heading keeps."""
SMALLEST: Final = (16, 4)
"""Columns and rows that a terminal must have."""
_STYLES: Final = {"dim": "2", "red": "31", "cyan": "36", "green": "32"}
_MARKS: Final = {"✗": "red", "▸": "cyan", "✓": "green"}
SGR: Final = re.compile(r"\x1b\[[0-9;]*m")

Part = tuple[str, str]
"""A text and its style."""


def can_redraw(stream: TextIO) -> bool:
    """Whether lines can be replaced there."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class LiveRegion:
    """Lines that are drawn again and again. `write` writes to the terminal, `size` gives its columns and rows."""

    def __init__(self, write: Callable[[str], None], size: Callable[[], tuple[int, int]], colour: bool) -> None:
        self._write = write
        self._size = size
        self._colour = colour
        self._drawn: list[int] = []  # the widths of the lines that are on the screen
        self._lines: Sequence[Line] = ()
        self._open = ""

    @property
    def visible(self) -> bool:
        return bool(self._drawn)

    @property
    def rows(self) -> int:
        """Rows that the lines may take."""
        return max(0, self._size()[1] - 2)

    def draw(self, lines: Sequence[Line], unfinished: str = "") -> None:
        """Replace what is shown. `unfinished` is a line of output that has not ended: its end is shown above."""
        self._lines, self._open = lines, unfinished
        columns, rows = self._size()
        if columns < SMALLEST[0] or rows < SMALLEST[1]:
            self.erase()
            return
        texts = [_end_of(visible(unfinished), columns - 1)] if unfinished else []
        texts += region_lines(lines, columns - 1, self._colour)
        if len(texts) > rows - 2:
            texts = [*texts[: rows - 3], f"  … and {len(texts) - rows + 3} more"]
        self._write(self._gone() + "".join(f"{text}\n" for text in texts))
        self._drawn = [_width(text) for text in texts]

    def above(self, write: Callable[[], None], unfinished: str) -> None:
        """Write something above the lines."""
        self._write(self._gone())
        self._drawn = []
        write()
        self.draw(self._lines, unfinished)

    def erase(self) -> None:
        if gone := self._gone():
            self._write(gone)
        self._drawn = []

    def _gone(self) -> str:
        if not self._drawn:
            return ""
        columns = max(1, self._size()[0])
        rows = sum(max(1, -(-width // columns)) for width in self._drawn)
        return f"\r\x1b[{rows}A\x1b[J"


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """Columns and rows; 80 and 24 where the terminal does not know."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return 80, 24
    return size.columns or 80, size.lines or 24


# ---------------------------------------------------------------- how the lines look


def region_lines(lines: Sequence[Line], columns: int, colour: bool) -> list[str]:
    """The lines, each in one row. Names of rows stand in a column, and their times in the next one."""
    from rich.cells import cell_len

    names = max((cell_len(visible(line.name)) for line in lines if line.depth and line.mark.strip()), default=0)
    shown: list[str] = []
    for line in lines:
        shown.append(_cut(_row(line, names) if line.depth else _heading(line, columns), columns, colour))
        if not line.depth and line.last:
            shown.append(_cut([(f"    {visible(line.last)}", "dim")], columns, colour))
    return shown


def _heading(line: Line, columns: int) -> list[Part]:
    """With little room the name is shortened before the text next to it."""
    from rich.cells import cell_len

    parts: list[Part] = [(f"{line.mark} ", _MARKS.get(line.mark, ""))]
    if line.done is not None and line.done[1]:
        filled = min(BAR, BAR * line.done[0] // line.done[1])
        parts += [("━" * filled, "cyan"), ("╌" * (BAR - filled) + " ", "dim")]
    details = "".join(f" · {visible(part)}" for part in (line.time, *line.about) if part)
    room = columns - sum(cell_len(part) for part, _ in parts) - cell_len(details)
    name = _cut([(visible(line.name), "")], max(room, SHORTEST), colour=False)
    parts.append((name, "" if line.mark.strip() else "dim"))
    return [*parts, (details, "dim")]


def _row(line: Line, names: int) -> list[Part]:
    indent = "  " * line.depth
    if not line.mark.strip():
        return [(f"{indent}  {visible(line.name)}", "dim")]
    from rich.cells import cell_len

    name = visible(line.name)
    parts: list[Part] = [(f"{indent}{line.mark} ", _MARKS.get(line.mark, ""))]
    parts.append((name + " " * (names - cell_len(name)), ""))
    parts.append((f"  {line.time:>6}  ", "dim"))
    parts.append((" · ".join(visible(part) for part in line.about), ""))
    if line.last:
        parts.append(((" · " if line.about else "") + visible(line.last), "dim"))
    return parts


def _cut(parts: Sequence[Part], columns: int, colour: bool) -> str:
    """The parts in one row, with an ellipsis where something is missing."""
    from rich.cells import cell_len, set_cell_size

    text, left = "", columns
    total = sum(cell_len(part) for part, _ in parts)
    for part, style in parts:
        width = cell_len(part)
        if width > left or (width == left and total > columns):
            part = set_cell_size(part, max(0, left - 1)).rstrip().rstrip("…") + "…"
            width = left
        text += f"\x1b[{_STYLES[style]}m{part}\x1b[0m" if colour and style and part.strip() else part
        left -= width
        if left <= 0:
            break
    return text.rstrip()


def _end_of(text: str, columns: int) -> str:
    """The last cells of a line that has not ended."""
    from rich.cells import cell_len

    while cell_len(text) > columns:
        text = text[max(1, (len(text) - columns) // 2 + 1) :] if len(text) > columns else text[1:]
    return text


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(SGR.sub("", text))
